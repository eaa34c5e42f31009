/**
 * The logical sectors of volume groups, which are those of their disks, and the largest ones on which what is on a volume can be
 * used.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import type { VolumeGroup } from "../model/report.ts";
import { readSectorBytes } from "../host/device.ts";
import { contentDevice } from "../encryption/mapping.ts";
import { readMaximumSectorBytes } from "../host/device_bytes.ts";
import { ReadOnce, type ReadOnceOptions } from "../inventory/read_once.ts";
import type { Volume } from "../inventory/volume.ts";

/**
 * Reads the sectors of groups, which LVM does not report, and remembers them: a disk keeps them while it is there. They are read
 * again when a group has other disks.
 */
export class GroupSectors {
  readonly #exec: Exec;
  /** The size in bytes, by the group and its disks. */
  #known: ReadonlyMap<string, bigint | undefined> = new Map();

  /** Creates an object that knows nothing yet. */
  constructor(exec: Exec) {
    this.#exec = exec;
  }

  /** Adds the sectors to the groups of a report ({@linkcode VolumeGroup.sectorBytes}). Those that cannot be read are left out. */
  async addTo<G extends VolumeGroup>(groups: readonly G[]): Promise<G[]> {
    const known = this.#known;
    this.#known = new Map(
      await Promise.all(groups.map(async (group) => {
        const key = keyOf(group);
        return [key, known.get(key) ?? await this.#read(group.pvPaths)] as const;
      })),
    );
    return groups.map((group) => ({ ...group, ...defined({ sectorBytes: this.#known.get(keyOf(group)) }) }));
  }

  async #read(paths: readonly string[]): Promise<bigint | undefined> {
    if (paths.length === 0) return undefined; // lsblk would list all
    try {
      return await readSectorBytes(this.#exec, paths);
    } catch (error) {
      if (error instanceof StorageError) return undefined; // it is read with the next report
      throw error;
    }
  }
}

function keyOf({ uuid, pvPaths }: VolumeGroup): string {
  return [uuid, ...pvPaths].join(" ");
}

/** The sizes of such sectors in bytes, by volume. */
export type ContentSectors = ReadOnce<Volume, bigint>;

/**
 * Creates what reads the largest sectors on which what is on volumes can be used. It reads while a volume is in use: only then can
 * an encrypted one be read. They do not change.
 */
export function contentSectors(
  exec: Exec,
  options: Pick<ReadOnceOptions<Volume, bigint>, "onRead" | "onError">,
): ContentSectors {
  return new ReadOnce({
    ...options,
    isReadable: ({ lv }) => lv.open && !lv.suspended,
    read: (volume) => readContentSectors(exec, volume),
  });
}

/** Reads the size of the sectors: a filesystem says it, and who uses a block volume knows those that it has. */
async function readContentSectors(exec: Exec, { lv, tags: { format } }: Volume): Promise<bigint | undefined> {
  const { devicePath } = contentDevice(lv);
  if (format.state === "raw") return await readSectorBytes(exec, [devicePath]);
  if (format.state !== "formatted") return undefined;
  const bytes = await readMaximumSectorBytes(exec, devicePath, format.type);
  return bytes === undefined ? undefined : BigInt(bytes);
}
