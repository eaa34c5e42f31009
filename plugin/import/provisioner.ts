/**
 * Whether the provisioner of another driver is stopped. While it runs, it may delete a volume that is imported.
 *
 * @module
 */

import type { Lease } from "../../k8s/api/objects.ts";
import { sidecarLeaseName } from "../../k8s/runtime/leader.ts";
import { type OriginDescription, ORIGINS } from "../../k8s/handover/imports.ts";
import type { ImportOptions, ImportSources } from "./sources.ts";

/** How long after its last renewal a Lease is taken for that of a program that runs, as a multiple of its duration. */
const SILENCE_FACTOR = 2;

/** The duration of a Lease that has none, in seconds: that of the official provisioner. */
const DEFAULT_DURATION_S = 15;

/** Returns why the provisioner of the other driver is not known to be stopped; `undefined` when it is, or there is none. */
export function provisionerRefusal(
  { origin, leases }: Pick<ImportSources, "origin" | "leases">,
  { now, isProvisionerStopped }: Pick<ImportOptions, "now" | "isProvisionerStopped">,
): string | undefined {
  const { driver, title }: OriginDescription = ORIGINS[origin];
  if (driver === undefined) return undefined;
  const name = sidecarLeaseName("csi-provisioner", driver);
  const own = leases.filter(({ metadata }) => metadata.name === name);
  const alive = own.find((lease) => (lease.spec?.holderIdentity ?? "") !== "" && isRenewed(lease, now));
  if (alive !== undefined) {
    return `the provisioner of ${title} runs: ${alive.spec?.holderIdentity} renews Lease ${alive.metadata.namespace}/${name}; ` +
      "scale it to zero";
  }
  if (own.length > 0 || isProvisionerStopped) return undefined;
  return `no Lease says whether the provisioner of ${title} is stopped; scale it to zero, and add --provisioner-stopped`;
}

function isRenewed({ spec }: Lease, now: number): boolean {
  const { renewTime, leaseDurationSeconds = DEFAULT_DURATION_S } = spec ?? {};
  const age = now - Date.parse(String(renewTime ?? ""));
  return !Number.isNaN(age) && age < SILENCE_FACTOR * leaseDurationSeconds * 1_000;
}
