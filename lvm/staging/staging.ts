/**
 * Volumes in use on this machine: staged once, published to any number of targets.
 *
 * There is no state but LVM's and the kernel's: what is staged or published where is read from the mount table each time.
 *
 * @module
 */

import { activationArguments } from "../volumes/activation.ts";
import { checkFilesystem, ensureFormatted } from "./formatting.ts";
import { type BlockDevice, readBlockDevice, verifyDevice } from "../host/device.ts";
import { StorageError } from "../error.ts";
import { type Exec, runOk } from "../exec.ts";
import { bindMountFlags, resizeCommand } from "../spec/filesystem.ts";
import { type VolumeId, volumeLvName } from "../ids.ts";
import type { IoLimiter } from "./io_limiter.ts";
import type { Lvm } from "../model/client.ts";
import {
  bindMount,
  canonicalizePath,
  deviceMounts,
  filesystemMounts,
  isDeviceNodeMount,
  isDeviceOfLv,
  isMountOfLv,
  type Mount,
  mountDevice,
  readMounts,
  readUsage,
  unmount,
  type Usage,
} from "../host/mounts.ts";
import {
  type Access,
  isPublished,
  isStaged,
  type Publication,
  refuseFurtherTarget,
  resolveFilesystemType,
} from "./publication.ts";
import { addUsedTag } from "../model/used_tags.ts";
import { createMountPoint, removeMountPoint } from "../host/mount_points.ts";
import { withDiscardFlag } from "../spec/trim.ts";
import type { Trimmer } from "./trimmer.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";

/** What a published volume has: a filesystem's usage, or a block device's size in bytes. */
export type Stats = { readonly filesystem: Usage } | { readonly blockBytes: bigint };

/** What {@linkcode Staging} needs. */
export interface StagingOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Where the volumes are found. */
  readonly volumes: VolumeFinder;
  /** The directories below which volumes may be mounted, with their real paths. */
  readonly mountRoots: readonly string[];
  /** Holds pods to the limits of their volumes; nobody by default. */
  readonly limiter?: Pick<IoLimiter, "onPublished" | "onUnpublished">;
  /** Trims filesystems now and then, and lets those go that are to be unmounted; nobody by default. */
  readonly trimmer?: Pick<Trimmer, "pause">;
}

/** The volumes in use on this machine. */
export class Staging {
  readonly #lvm: Lvm;
  readonly #exec: Exec;
  readonly #volumes: VolumeFinder;
  readonly #mountRoots: readonly string[];
  readonly #limiter: StagingOptions["limiter"];
  readonly #trimmer: StagingOptions["trimmer"];

  /** Makes the service; it keeps no state. */
  constructor(options: StagingOptions) {
    this.#lvm = options.lvm;
    this.#exec = options.lvm.exec;
    this.#volumes = options.volumes;
    this.#mountRoots = options.mountRoots;
    this.#limiter = options.limiter;
    this.#trimmer = options.trimmer;
  }

  /**
   * Makes a volume ready for use: active, its device verified, recorded as handed out; with a filesystem also formatted
   * once, checked, mounted at the path and grown to its device.
   *
   * @throws {StorageError} `NotFound`, `Lost`, `ForeignData`, `FailedPrecondition` when the volume cannot be used so,
   * `AlreadyExists` when it is staged there otherwise.
   */
  async stage(id: VolumeId, stagingPath: string, access: Access): Promise<void> {
    const path = await canonicalizePath(stagingPath, this.#mountRoots);
    const mounts = await readMounts(this.#exec);
    const volume = await this.#activate(await this.#require(id));
    const type = resolveFilesystemType(volume, access);
    const mounted = { device: volume.lv.devicePath, path };
    if (access.kind === "mount" && type !== undefined && isStaged(volume, mounts, path, access)) {
      // the try before may have ended between the mount and the growth
      return access.flags.includes("ro") ? undefined : await this.#resizeFilesystem(type, mounted);
    }

    const device = await verifyDevice(this.#exec, volume.lv);
    if (!volume.used) await addUsedTag(this.#lvm, this.#volumes.driver, volume);
    if (access.kind === "block" || type === undefined) return;

    if (filesystemMounts(mounts, volume.lv).length === 0) {
      if (device.readOnly) await this.#setReadOnly(volume, false);
      await ensureFormatted(this.#lvm, volume, device);
      await checkFilesystem(this.#exec, type, volume.lv.devicePath);
    }
    await Deno.mkdir(path, { recursive: true });
    await mountDevice(this.#exec, volume.lv.devicePath, path, {
      type,
      flags: withDiscardFlag(volume.tags.trim, access.flags),
    });
    if (access.flags.includes("ro")) return;
    try {
      await this.#resizeFilesystem(type, mounted);
    } catch (error) {
      // who is told that staging failed for good does not unstage: a mount that stays would keep the volume from its deletion
      await unmount(this.#exec, path).catch(() => {}); // the first error is the one to tell
      throw error;
    }
  }

  /**
   * Undoes {@linkcode stage}. What is not staged is unstaged already; the directory belongs to the caller.
   *
   * @throws {StorageError} `InUse` while something uses the mount, `FailedPrecondition` when something else is mounted there.
   */
  async unstage(id: VolumeId, stagingPath: string): Promise<void> {
    await this.#unmountAll(id, await canonicalizePath(stagingPath, this.#mountRoots));
  }

  /**
   * Makes a staged volume appear at a target.
   *
   * @throws {StorageError} `NotFound`, `Lost`, `FailedPrecondition` when it is not staged or may not have a further target,
   * `AlreadyExists` when it is published there otherwise.
   */
  async publish(id: VolumeId, publication: Publication): Promise<void> {
    const target = await canonicalizePath(publication.target, this.#mountRoots);
    const stagingPath = await canonicalizePath(publication.stagingPath, this.#mountRoots);
    const mounts = await readMounts(this.#exec);
    const volume = await this.#require(id);
    resolveFilesystemType(volume, publication.access);
    const block = publication.access.kind === "block";
    const ours = block ? deviceMounts(mounts, volume.lv) : filesystemMounts(mounts, volume.lv);
    const source = block ? volume.lv.devicePath : stagingPath;
    if (block ? !(volume.lv.active && volume.used) : !ours.some((mount) => mount.target === stagingPath)) {
      throw new StorageError("FailedPrecondition", `publishing volume ${id}: it is not staged at ${stagingPath}`);
    }
    const device = block ? await verifyDevice(this.#exec, volume.lv) : undefined;
    if (isPublished(id, mounts, ours, target, publication.readOnly, device)) {
      return await this.#limiter?.onPublished(volume, target);
    }

    const others = ours.filter((mount) => mount.target !== stagingPath);
    refuseFurtherTarget(volume, publication, others, device);
    if (device !== undefined && device.readOnly !== publication.readOnly) {
      await this.#setReadOnly(volume, publication.readOnly);
    }
    const flags = publication.access.kind === "mount" ? bindMountFlags(publication.access.flags) : [];
    const created = await createMountPoint(target, block);
    try {
      await bindMount(this.#exec, source, target, publication.readOnly ? [...new Set([...flags, "ro"])] : flags);
    } catch (error) {
      if (created) await Deno.remove(target).catch(() => {}); // the first error is the one to tell
      throw error;
    }
    await this.#limiter?.onPublished(volume, target);
  }

  /**
   * Undoes {@linkcode publish} and removes the target. What is not published is unpublished already.
   *
   * @throws {StorageError} `InUse` while something uses the mount, `FailedPrecondition` when something else is mounted
   * there, or the target is a directory or file with something in it: that is not the driver's to remove.
   */
  async unpublish(id: VolumeId, publishedAt: string): Promise<void> {
    const target = await canonicalizePath(publishedAt, this.#mountRoots);
    await this.#unmountAll(id, target);
    this.#limiter?.onUnpublished(id, target);
    await removeMountPoint(target);
  }

  /**
   * What the volume at the path has and uses.
   *
   * @throws {StorageError} `NotFound` when the volume is not at the path.
   */
  async stats(id: VolumeId, volumePath: string): Promise<Stats> {
    const path = await this.#canonicalPath(volumePath);
    const mount = (await readMounts(this.#exec)).findLast((mount) => mount.target === path);
    if (mount === undefined || !await this.#isMountOfVolume(id, mount)) throw notAtPath(id, volumePath);
    if (!isDeviceNodeMount(mount)) return { filesystem: await readUsage(this.#exec, mount.target) };
    return { blockBytes: (await readBlockDevice(this.#exec, mount.target)).size };
  }

  /**
   * Grows the filesystem of the volume at the path to the size of its LV; for a block volume there is nothing to do.
   * Answers the LV's size in bytes.
   *
   * @throws {StorageError} `NotFound` when there is no such volume or it is not at the path, `OutOfRange` when its LV is
   * smaller than required: the controller's half comes first.
   */
  async expand(id: VolumeId, volumePath: string, required: bigint): Promise<bigint> {
    const volume = await this.#require(id);
    const { lv } = volume;
    const path = await this.#canonicalPath(volumePath);
    const mounts = await readMounts(this.#exec);
    const ours = [...filesystemMounts(mounts, lv), ...deviceMounts(mounts, lv)];
    const block = volume.tags.format.state === "raw";
    if (!ours.some((mount) => mount.target === path) && !(block && lv.active)) throw notAtPath(id, volumePath);
    if (lv.size < required) {
      throw new StorageError(
        "OutOfRange",
        `growing the filesystem of volume ${id} to ${required} bytes: its logical volume has ${lv.size}; grow that first ` +
          `(ControllerExpandVolume)`,
      );
    }
    if (block) return lv.size;
    const writable = ours.find((mount) => !mount.readOnly);
    if (writable === undefined) {
      throw new StorageError(
        "FailedPrecondition",
        `growing the filesystem of volume ${id}: all its mounts are read-only`,
      );
    }
    await this.#resizeFilesystem(writable.fsType, { device: lv.devicePath, path: writable.target });
    return lv.size;
  }

  /** The path as the mount table has it; `undefined` when no volume can be there. */
  async #canonicalPath(path: string): Promise<string | undefined> {
    try {
      return await canonicalizePath(path, this.#mountRoots);
    } catch (error) {
      if (error instanceof StorageError && error.kind === "FailedPrecondition") return undefined;
      throw error;
    }
  }

  /** Returns the volume according to a new report. @throws {StorageError} `NotFound`, `Lost`, `Busy` */
  async #require(id: VolumeId): Promise<Volume> {
    return this.#volumes.require(await this.#lvm.report(), id);
  }

  async #activate(volume: Volume): Promise<Volume> {
    const path = `${volume.group.name}/${volume.lv.name}`;
    // what a command that was killed left suspended would hang whoever touches it
    if (volume.lv.suspended) await this.#lvm.change(volume.group, ["lvchange", "--refresh", path]);
    if (volume.lv.active) return volume;
    await this.#lvm.change(volume.group, activationArguments(this.#volumes.driver, volume.group, volume.lv));
    const active = this.#volumes.require(await this.#lvm.report(), volume.id);
    if (active.lv.active) return active;
    throw new StorageError(
      "FailedPrecondition",
      `activating volume ${volume.id}: LVM said yes, but ${volume.lv.devicePath} is not active (see volume_list in lvm.conf)`,
    );
  }

  async #setReadOnly(volume: Volume, readOnly: boolean): Promise<void> {
    const args = [readOnly ? "--setro" : "--setrw", volume.lv.devicePath];
    await runOk(this.#exec, { program: "blockdev", args, mutates: true });
  }

  async #resizeFilesystem(type: string, mounted: { device: string; path: string }): Promise<void> {
    await runOk(this.#exec, resizeCommand(type, mounted));
  }

  /** Whether the mount is of the volume. A device node whose device is gone belongs to whoever says so. */
  async #isMountOfVolume(id: VolumeId, mount: Mount): Promise<boolean> {
    const name = volumeLvName(id);
    if (isDeviceNodeMount(mount)) {
      const device = await this.#deviceAt(mount.target);
      if (device === undefined || isDeviceOfLv(device.name, name)) return true;
    } else if (isMountOfLv(mount, name)) return true;
    // an administrator may have renamed the LV: then its tags tell
    const found = this.#volumes.locate(await this.#lvm.report(), id);
    if (found.state !== "present") return false;
    const { lv } = found.volume;
    return filesystemMounts([mount], lv).length + deviceMounts([mount], lv).length > 0;
  }

  async #deviceAt(path: string): Promise<BlockDevice | undefined> {
    try {
      return await readBlockDevice(this.#exec, path);
    } catch (error) {
      if (error instanceof StorageError && error.kind === "FailedPrecondition") return undefined;
      throw error;
    }
  }

  async #unmountAll(id: VolumeId, path: string): Promise<void> {
    using _pause = await this.#trimmer?.pause(id);
    const layers = (await readMounts(this.#exec)).filter((mount) => mount.target === path);
    for (const layer of layers.reverse()) {
      if (!await this.#isMountOfVolume(id, layer)) {
        throw new StorageError(
          "FailedPrecondition",
          `unmounting volume ${id}: at ${path} ${layer.source} is mounted, which is not the volume; it is left alone`,
        );
      }
      await unmount(this.#exec, path);
    }
  }
}

function notAtPath(id: VolumeId, path: string): StorageError {
  return new StorageError("NotFound", `looking for volume ${id} at ${path}: it is not there`);
}
