/**
 * The doctor's check of the metadata areas of volume groups.
 *
 * @module
 */

import { formatBytes } from "../../base/size.ts";
import { METADATA_BYTES_PER_VOLUME, METADATA_RESERVE } from "../model/report_parser.ts";
import { type CheckResult, error, type HostFacts, NO_REPORT, skippedCheck, warning } from "./finding.ts";

/** Below space for this number of further volumes, an administrator should act. */
const MIN_VOLUMES_LEFT = 50n;

/** Checks for how many more volumes the metadata areas of the groups have space. */
export function checkMetadata({ survey, groups }: HostFacts): CheckResult {
  if ("error" in survey) return skippedCheck(NO_REPORT);
  const estimates = groups.map((group) => ({ ...group, volumesLeft: group.metadataFree / METADATA_BYTES_PER_VOLUME }));
  const findings = estimates.filter(({ volumesLeft }) => volumesLeft < MIN_VOLUMES_LEFT).map(
    ({ name, volumesLeft, metadataFree, metadataSize }) => {
      const free = `${formatBytes(metadataFree)} of ${formatBytes(metadataSize)} is free`;
      const remedy =
        `vgextend --metadatasize 16m ${name} /dev/sdX, then for each physical volume with a small metadata area: ` +
        "pvchange --metadataignore y /dev/sdY";
      return metadataFree < METADATA_RESERVE
        ? error(name, `its metadata area is full: ${free}`, remedy)
        : warning(name, `its metadata area has space for about ${volumesLeft} more volumes: ${free}`, remedy);
    },
  );
  return {
    summary:
      estimates.map(({ name, volumesLeft }) => `${name} has space for about ${volumesLeft} more volumes`).join(", ") ||
      "no group",
    findings,
  };
}
