/**
 * LVs of others that become volumes, in place and with their data, and that are returned.
 *
 * What an LV is, its tags alone say: all of them are added by one command, and removed by one. Until it has them, it is not
 * the driver's; while it has them, each step may be repeated.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { mountOf, userOf } from "./held_volumes.ts";
import { StorageError } from "../../base/error.ts";
import { describeSignatures, readSignatures, verifyDevice } from "../host/device.ts";
import { resumeRemedy } from "../host/device_mapper.ts";
import { uniqueLvName, type VolumeId, volumeLvName } from "../../base/ids.ts";
import { type Lvm, requirePvs, requireResponsive } from "../client/client.ts";
import { addUsedTag, removeUsedTags } from "../client/used_tags.ts";
import { differences, type Volume, type VolumeRequest } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";
import { lvchangeTags, lvrename } from "../model/command_lines.ts";
import { describeLayoutOf, type Layout, layoutOf, LINEAR } from "../model/layout.ts";
import { type LocatedLv, lvPath, type VolumeGroup } from "../model/report.ts";
import { OWNER, ownersOf, replaceTags, usedTag, volumeTags } from "../model/tags.ts";
import type { FormatState } from "../settings/format.ts";
import { cowSnapshotsOn, isCowSnapshot, unzeroedReason } from "../pools/pool.ts";

/**
 * The types of signatures of what is made of several devices, or lies below a filesystem (libblkid). Who mounts one part alone
 * changes it without the others: a mirror of md has the same filesystem on each.
 */
const PART_OF_OTHER = /_member$|^(?:crypto_LUKS|bcache|drbd)/;

/** The start of the driver's tags, beside that of the owner. */
const DRIVER_TAGS = "denolith.";

/** Where the LV is that a volume is to import. */
export interface ForeignLv {
  /** The UUID of its group. */
  readonly groupUuid: string;
  /** Its name. */
  readonly name: string;
}

/** Options of {@linkcode ImportedVolumes}. */
export interface ImportedVolumesOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the volumes. */
  readonly finder: VolumeFinder;
  /** Called before a volume is changed. */
  readonly onChange: (id: VolumeId) => void;
}

/** Imports LVs of others, and returns them. What lasts are LVM's tags, and the name of the LV. */
export class ImportedVolumes {
  readonly #options: ImportedVolumesOptions;
  /** The LVs that were in use when a change of theirs was refused. */
  readonly #inUse = new Map<VolumeId, LocatedLv>();

  /** Creates the service. */
  constructor(options: ImportedVolumesOptions) {
    this.#options = options;
  }

  /**
   * Checks that an LV can become a volume. It changes nothing. A request for a linear one accepts each layout of the driver.
   *
   * @returns the LV, its layout, and what uses it, in words, if anything does
   * @throws {StorageError} `NotFound`, `FailedPrecondition` and `ForeignData` with what prevents it
   */
  async inspect(
    request: VolumeRequest,
    from: ForeignLv,
  ): Promise<LocatedLv & { readonly layout: Layout; readonly user?: string }> {
    const groups = await this.#options.lvm.report();
    const found = groups.find(({ uuid }) => uuid === from.groupUuid)?.lvs.find(({ name }) => name === from.name);
    const layout = request.layout.type === "linear" ? (found && layoutOf(found)) ?? LINEAR : request.layout;
    const located = this.#requireForeign(groups, { ...request, layout }, from);
    await this.#formatOf(request, located);
    const user = await userOf(this.#options.lvm, located);
    return { ...located, layout, ...defined({ user }) };
  }

  /**
   * Reports whether the LV of a volume, which was in use when it was to be changed, is still mounted. It reads the mount table, and
   * no report of LVM.
   */
  async isStillMounted(id: VolumeId): Promise<boolean> {
    const known = this.#inUse.get(id);
    return known !== undefined && await mountOf(this.#options.lvm, known) !== undefined;
  }

  /**
   * Makes an LV that nobody uses a volume: with the driver's tags, the record that it has data, and the driver's name, so that
   * nobody finds it by the name that it had. Requires the volume's lock.
   *
   * @throws {StorageError} those of {@linkcode ImportedVolumes.inspect}; `InUse`
   */
  async import(request: VolumeRequest, from: ForeignLv): Promise<void> {
    const { lvm, finder, onChange } = this.#options;
    onChange(request.id);
    const found = finder.locate(await lvm.report(), request.id);
    if (found.state === "absent") await this.#addTags(request, from);
    else if (found.state === "lost") throw found.error;
    const volume = finder.require(await lvm.report(), request.id);
    // also of an LV without a signature: it may have data of a kind that nobody knows, which is to be erased
    if (!volume.used) await addUsedTag(lvm, finder.driver, volume);
    const name = volumeLvName(request.id);
    if (volume.lv.name === from.name) {
      await this.#rename(volume, uniqueLvName(name, volume.group.lvs.map((each) => each.name)));
    }
  }

  /**
   * Reports whether the LV of a volume was returned, though something else is asked for by now. It changes nothing.
   *
   * @param lvUuid the UUID of the LV, if it is recorded
   */
  async isReturned(id: VolumeId, from: ForeignLv, lvUuid: string | undefined): Promise<boolean> {
    const { lvm, finder } = this.#options;
    const groups = await lvm.report();
    return finder.locate(groups, id).state !== "present" && isReturned(groups, from, lvUuid);
  }

  /**
   * Checks that an LV can be returned, even while it is used. What an earlier attempt has undone, it does again, so that the LV
   * is wholly that of the volume meanwhile. Requires the volume's lock.
   *
   * @throws {StorageError} those of {@linkcode ImportedVolumes.return}, but for `InUse`; `Lost`, and `NotFound` for a volume
   * whose LV has lost its tags
   */
  async inspectReturn(request: VolumeRequest, from: ForeignLv): Promise<void> {
    const { lvm, finder } = this.#options;
    const found = finder.locate(await lvm.report(), request.id);
    if (found.state === "lost") throw found.error;
    if (found.state === "absent") {
      throw new StorageError(
        "NotFound",
        `returning volume ${request.id}: its logical volume no longer has the driver's tags`,
      );
    }
    const { volume } = found;
    if (volume.lv.name === from.name) await this.import(request, from);
    requireReturnable(`returning ${lvPath(volume)}`, volume, from);
  }

  /**
   * Gives an LV that nobody uses back: under the name that it had, without any tag of the driver. Requires the volume's lock.
   *
   * @throws {StorageError} `InUse`; `FailedPrecondition` when another LV has the name by now, or the volume has snapshots
   */
  async return(id: VolumeId, from: ForeignLv): Promise<void> {
    const { lvm, finder, onChange } = this.#options;
    onChange(id);
    const found = finder.locate(await lvm.report(), id);
    if (found.state === "lost" && found.usedTag === undefined) return; // only the record of an object is left
    if (found.state === "absent") return;
    if (found.state === "lost") throw found.error;
    const { volume } = found;
    const operation = `returning ${lvPath(volume)}`;
    await this.#requireUnused(operation, id, volume);
    requireReturnable(operation, volume, from);
    if (volume.lv.name !== from.name) await this.#rename(volume, from.name);
    const used = usedTag(finder.driver, id, volume.lv.uuid);
    if (volume.group.tags.includes(used)) await removeUsedTags(lvm, volume.group, [used]);
    const tags = volume.lv.tags.filter((tag) => tag.startsWith(OWNER) || tag.startsWith(DRIVER_TAGS));
    await lvm.change(volume.group, lvchangeTags(replaceTags(tags), `${volume.group.name}/${from.name}`));
  }

  async #addTags(request: VolumeRequest, from: ForeignLv): Promise<void> {
    const { lvm, finder } = this.#options;
    const located = this.#requireForeign(await lvm.report(), request, from);
    await this.#requireUnused(`importing ${lvPath(located)}`, request.id, located);
    const format = await this.#formatOf(request, located);
    const tags = volumeTags(finder.driver, { ...request, format });
    const selection = { uuid: located.lv.uuid, closed: true } as const;
    await lvm.changeTags(located, replaceTags([], tags), selection);
    if (finder.locate(await lvm.report(), request.id).state === "present") return;
    throw new StorageError("Busy", `importing ${lvPath(located)}: it was opened or changed meanwhile; try again`);
  }

  async #rename(volume: Volume, name: string): Promise<void> {
    await this.#options.lvm.change(volume.group, lvrename(lvPath(volume), `${volume.group.name}/${name}`));
  }

  async #requireUnused(operation: string, id: VolumeId, located: LocatedLv): Promise<void> {
    const user = await userOf(this.#options.lvm, located);
    if (user === undefined) this.#inUse.delete(id);
    else this.#inUse.set(id, located);
    if (user !== undefined) throw new StorageError("InUse", `${operation}: ${user} uses it`);
  }

  /** Returns the LV, if it is nobody's and of the requested kind. */
  #requireForeign(groups: readonly VolumeGroup[], request: VolumeRequest, { groupUuid, name }: ForeignLv): LocatedLv {
    const group = groups.find(({ uuid }) => uuid === groupUuid);
    if (group === undefined) {
      throw new StorageError(
        "NotFound",
        `importing ${name}: this node has no volume group with the UUID ${groupUuid}`,
      );
    }
    const operation = `importing ${group.name}/${name}`;
    requireResponsive(operation, group);
    requirePvs(operation, group);
    const lv = group.lvs.find((each) => each.name === name);
    if (lv === undefined) throw new StorageError("NotFound", `${operation}: there is no such logical volume`);
    const located = { group, lv };
    const refusal = this.#refusalOf(located, request);
    if (refusal !== undefined) throw new StorageError("FailedPrecondition", `${operation}: ${refusal}`);
    return located;
  }

  #refusalOf({ group, lv }: LocatedLv, request: VolumeRequest): string | undefined {
    const { finder } = this.#options;
    const [owner] = ownersOf(lv.tags);
    if (owner !== undefined) return `it belongs to the driver ${owner} already`;
    if (!finder.groups.matches(group.name)) return `--volume-groups of the agent does not allow ${group.name}`;
    if (lv.thinPool !== undefined) return "it is a thin pool";
    if (isCowSnapshot(lv)) return `it is a snapshot of ${lv.origin}`;
    const snapshots = cowSnapshotsOn({ group, lv });
    if (snapshots.length > 0) {
      return `it is the origin of the snapshots ${snapshots.map((each) => each.name).join(", ")}; delete them first`;
    }
    if (lv.incomplete || lv.health === "partial") return "it is not complete: see lvs";
    if (!lv.active) return `it is not active: lvchange --activate y ${group.name}/${lv.name}`;
    if (lv.suspended) return `it is suspended: ${resumeRemedy(lv.devicePath)}`;
    const unzeroed = request.erase === "none" ? undefined : unzeroedReason(group, lv);
    if (unzeroed !== undefined) return `${unzeroed}, or set erase: none`;
    const found = differences({
      size: lv.size,
      format: request.format,
      group: group.name,
      thin: lv.pool === undefined ? undefined : { pool: lv.pool },
      layout: describeLayoutOf(lv),
    }, request);
    return found.length === 0 ? undefined : found.join("; ");
  }

  /** Returns what to record of the format of an LV, by what is on it. */
  async #formatOf({ format }: VolumeRequest, located: LocatedLv): Promise<FormatState> {
    if (format.state === "raw") return format;
    const { exec } = this.#options.lvm;
    const { lv } = located;
    await verifyDevice(exec, lv);
    const signatures = await readSignatures(exec, lv.devicePath);
    if (signatures.length === 0) return format; // its first use checks that it is blank, and formats it
    const { uuid } = signatures.find(({ type }) => type === format.type) ?? {};
    const isOwn = !signatures.some(({ type }) => PART_OF_OTHER.test(type));
    if (uuid !== undefined && isOwn) return { state: "formatted", type: format.type, uuid: uuid.toLowerCase() };
    throw new StorageError(
      "ForeignData",
      `importing ${lvPath(located)}: ${format.type} is expected, but it holds ${describeSignatures(signatures)}`,
    );
  }
}

/**
 * Reports whether a report shows the LV of a volume that is not there as returned: under the name that it had, and nobody's.
 *
 * @param lvUuid the UUID of the LV, if it is recorded
 */
export function isReturned(
  groups: readonly VolumeGroup[],
  { groupUuid, name }: ForeignLv,
  lvUuid: string | undefined,
): boolean {
  const lv = groups.find(({ uuid }) => uuid === groupUuid)?.lvs.find((each) => each.name === name);
  return lv !== undefined && (lvUuid ?? lv.uuid) === lv.uuid && ownersOf(lv.tags).length === 0;
}

/** Requires that nothing is in the way of the name that an LV had, and that no snapshot of it is. */
function requireReturnable(operation: string, volume: Volume, from: ForeignLv): void {
  const [snapshot] = cowSnapshotsOn(volume);
  if (snapshot !== undefined) {
    throw new StorageError(
      "FailedPrecondition",
      `${operation}: it is the origin of ${snapshot.name}; delete that first`,
    );
  }
  const { group, lv } = volume;
  if (group.uuid !== from.groupUuid) {
    throw new StorageError("FailedPrecondition", `${operation}: it was in another volume group before it was moved`);
  }
  if (lv.name === from.name || !group.lvs.some(({ name }) => name === from.name)) return;
  throw new StorageError("FailedPrecondition", `${operation}: another logical volume is called ${from.name}`);
}
