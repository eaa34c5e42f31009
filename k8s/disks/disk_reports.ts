/**
 * The disks of a node that rules name: what its LVMNode says of them, and events when they come and go.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { defined } from "../../base/defined.ts";
import type { NamedDisk, NamedDisks } from "../../lvm/disks/reading.ts";
import { formatBytes, formatQuantity } from "../../base/size.ts";
import type { LvmNode, NodeDisk } from "../api/lvm_objects.ts";
import type { EventRecorder } from "../runtime/events.ts";

/** Options of {@linkcode DiskReports}. */
export interface DiskReportsOptions {
  /** The recorder of events. */
  readonly events: Pick<EventRecorder, "record">;
  /** Reads the disks that the rules name. */
  readonly read: () => Promise<NamedDisks>;
}

/** The maximum number of disks in an LVMNode. */
const MAX_DISKS = 256;

const log = getLogger(["denolith", "disks"]);

/** Reports the disks that rules name. */
export class DiskReports {
  readonly #options: DiskReportsOptions;

  /** Reads nothing before {@linkcode DiskReports.update}. */
  constructor(options: DiskReportsOptions) {
    this.#options = options;
  }

  /**
   * Reads the disks, and records an event for each that was added or lost since the LVMNode was written.
   *
   * @returns what the LVMNode is to say; `undefined` when the disks cannot be read, so that it stays as it is
   */
  async update(node: LvmNode): Promise<NodeDisk[] | undefined> {
    const { events, read } = this.#options;
    let found: NamedDisks;
    try {
      found = await read();
    } catch (error) {
      log.warn("reading the disks failed", { error });
      return undefined;
    }
    const { disks, names } = found;
    const before = node.status?.disks;
    const groupOf = (name: string) =>
      node.status?.acceptedDisks?.find((one) => one.name === name && one.volumeGroupUUID !== undefined)?.volumeGroup;
    for (const disk of disks) {
      if (before?.some(({ name }) => name === disk.name)) continue;
      // at first, those that are in use are no news
      if (before !== undefined || disk.objections.length === 0) {
        events.record(node, "Normal", "DiskAdded", describe(disk, groupOf(disk.name)));
      }
    }
    for (const { name, path } of before ?? []) {
      if (names.has(name)) continue;
      const group = groupOf(name);
      const use = group === undefined ? "" : `, a physical volume of volume group ${group},`;
      events.record(node, "Warning", "DiskLost", `disk ${name} (${path})${use} is not there any more`);
    }
    return disks.slice(0, MAX_DISKS).map(nodeDisk);
  }
}

/** @param takenFor the volume group in which it is by the driver's record */
function describe({ name, path, size, group, objections }: NamedDisk, takenFor: string | undefined): string {
  const verdict = takenFor !== undefined
    ? `it is a physical volume of volume group ${takenFor}`
    : objections.length === 0
    ? `nobody uses it, so it is proposed for volume group ${group}`
    : `it is not proposed for volume group ${group}: ${objections.join("; ")}`;
  return `disk ${name} (${path}, ${formatBytes(size)}): ${verdict}`;
}

function nodeDisk({ name, path, size, rotational, identity, group, objections }: NamedDisk): NodeDisk {
  return {
    ...{ name, path, size: formatQuantity(size), volumeGroup: group, proposed: objections.length === 0 },
    ...defined({ rotational, identity }),
    ...(objections.length === 0 ? {} : { reason: objections.join("; ").slice(0, 1024) }),
  };
}
