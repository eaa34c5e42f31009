/**
 * Volumes in use on this machine: each is staged once, and published at any number of targets.
 *
 * The only state is that of LVM and the kernel: what is staged or published is read from the mount table each time. What is
 * remembered ({@linkcode StagedVolumes}) only saves commands.
 *
 * @module
 */

import {
  bindMount,
  canonicalizePath,
  createMountPoint,
  deviceMounts,
  filesystemMounts,
  isBelow,
  isDeletedNodeMount,
  isDeviceNodeMount,
  type Mount,
  mountDevice,
  mountsOf,
  readMounts,
  readUsage,
  removeMountPoint,
  setMountFlags,
  undoMount,
  type Usage,
} from "../host/mounts.ts";
import { completeFilesystem, resizeFilesystem, resizeStaged, type StagingWarning } from "./formatting.ts";
import { type LocatedDevice, readBlockDevice, verifyDevice } from "../host/device.ts";
import { Encryption } from "../encryption/encryption.ts";
import { contentDevice, isMappingMount } from "../encryption/mapping.ts";
import { ignoreStorageError, ignoring, StorageError } from "../../base/error.ts";
import type { Exec } from "../exec.ts";
import { bindMountFlags, missingMountFlags } from "../settings/mount_flags.ts";
import type { VolumeId } from "../../base/ids.ts";
import type { IoLimiter } from "./io_limiter.ts";
import type { Lvm } from "../client/client.ts";
import {
  type Access,
  type EncryptedAccess,
  type Publication,
  publishedMount,
  publishedOtherwiseError,
  refuseFurtherTarget,
  refuseHeld,
  refuseWhileReached,
  requireUsableAs,
} from "./publication.ts";
import { resumeSuspended } from "../deletion/resumption.ts";
import { withDiscardFlag } from "../settings/trim.ts";
import { activate, prepareVolume, setReadOnly } from "./preparation.ts";
import type { StagedVolumes } from "./staged_volumes.ts";
import type { Trimmer } from "./trimmer.ts";
import { deviceOf, isMountOfVolume, unmountAll } from "./volume_mounts.ts";
import type { Volume } from "../inventory/volume.ts";
import type { VolumeFinder } from "../inventory/volume_finder.ts";

/** The statistics of a published volume: the usage of its filesystem, or the size of its block device in bytes. */
export type Stats = { readonly filesystem: Usage } | { readonly blockBytes: bigint };

/** Options of {@linkcode Staging}. */
export interface StagingOptions {
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds the volumes. */
  readonly volumes: VolumeFinder;
  /** The directories below which volumes may be mounted, and their real paths. */
  readonly mountRoots: readonly string[];
  /** A directory that only the driver uses. It creates and mounts directories below it for a moment. */
  readonly scratch: string;
  /** What is remembered of staged volumes. Who changes a volume makes it forget that volume. */
  readonly staged: StagedVolumes;
  /** Applies the IO limits of volumes to pods; absent for no limits. */
  readonly limiter?: Pick<IoLimiter, "onPublished" | "onUnpublished">;
  /** Opens encrypted volumes; a service of its own by default. */
  readonly encryption?: Encryption;
  /** Trims filesystems regularly, and pauses for a volume that is to be unmounted; absent for no trimming. */
  readonly trimmer?: Pick<Trimmer, "pause">;
  /** Called when a volume is staged although something is wrong with its filesystem; by default, that is not reported. */
  readonly onWarning?: (id: VolumeId, warning: StagingWarning) => void;
}

/** Stages and publishes the volumes of this machine. */
export class Staging {
  readonly #options: StagingOptions;
  readonly #exec: Exec;
  readonly #encryption: Encryption;
  readonly #onWarning: NonNullable<StagingOptions["onWarning"]>;

  /** Creates the service. */
  constructor(options: StagingOptions) {
    this.#options = options;
    this.#exec = options.lvm.exec;
    this.#onWarning = options.onWarning ?? (() => {});
    this.#encryption = options.encryption ?? new Encryption(options.lvm);
  }

  /**
   * Stages a volume: activates it, verifies its device, and records that it is in use. The mapping of an encrypted volume is
   * opened. A filesystem is also formatted once, checked, mounted at the path, and resized to its device. One that cannot be
   * checked or resized now, but mounted, is mounted.
   *
   * @throws {StorageError} `NotFound`, `Lost` and `ForeignData` by the state of the volume; `FailedPrecondition` when
   * it cannot be used as requested; `AlreadyExists` when it is staged there in another way; `InvalidArgument` and
   * `Unauthenticated` for a missing or wrong passphrase
   */
  async stage(id: VolumeId, stagingPath: string, access: Access, encrypted: EncryptedAccess = {}): Promise<void> {
    const path = await canonicalizePath(stagingPath, this.#options.mountRoots);
    const mounts = await readMounts(this.#exec);
    const own = { lvm: this.#options.lvm, volumes: this.#options.volumes, encryption: this.#encryption };
    const prepared = await prepareVolume({ ...own, mounts, path, access, ...encrypted }, id);
    const { volume, devicePath, step, isStaged = false } = prepared;
    const { format, trim } = volume.tags;
    if (access.kind === "block" || format.state === "raw") return;
    const warn = (warning: StagingWarning) => this.#onWarning(id, warning);
    const filesystem = { volume, devicePath, type: format.type, path, staged: this.#options.staged, warn };
    const isFilled = step !== undefined &&
      await completeFilesystem(this.#options.lvm, { ...filesystem, step, scratch: this.#options.scratch });
    if (!isStaged) {
      await Deno.mkdir(path, { recursive: true });
      const flags = withDiscardFlag(trim, access.flags);
      await mountDevice(this.#exec, devicePath, path, { type: format.type, flags });
    }
    // also when it is staged: an earlier attempt may have ended between the mount and the resize
    if (!isFilled && !access.flags.includes("ro")) await resizeStaged(this.#exec, filesystem);
    this.#options.staged.setStaged(volume, path);
  }

  /**
   * Formats a volume that is to have a filesystem, and has no data. The volume is not in use afterwards.
   *
   * @throws {StorageError} those of {@linkcode stage}
   */
  async format(id: VolumeId): Promise<void> {
    const { lvm, volumes, staged, scratch } = this.#options;
    const access = { kind: "mount", flags: [] } as const;
    const request = { lvm, volumes, encryption: this.#encryption, mounts: [], path: "", access, isUse: false };
    const { volume, devicePath, step } = await prepareVolume(request, id);
    const { format } = volume.tags;
    if (step?.do !== "make" || format.state === "raw") return;
    const filesystem = { volume, devicePath, type: format.type, path: "", staged, warn: () => {} };
    await completeFilesystem(lvm, { ...filesystem, step, scratch, isUnmounted: true });
  }

  /**
   * Undoes {@linkcode stage}. A volume that is not staged is unstaged already. The directory belongs to the caller.
   *
   * @throws {StorageError} `InUse` while the mount, or an encrypted volume elsewhere, is in use; `FailedPrecondition` when
   * another filesystem is mounted there
   */
  async unstage(id: VolumeId, stagingPath: string): Promise<void> {
    this.#options.staged.setUnstaged(id);
    this.#encryption.forgetAttempt(id);
    const path = await canonicalizePath(stagingPath, this.#options.mountRoots);
    const unmounted = await unmountAll(this.#options, id, path);
    if (unmounted.some(isMappingMount)) return await this.#encryption.close(id);
    // without a mount it is a block volume, or an earlier attempt unmounted it
    if (unmounted.length > 0 || this.#isKnownAsPlain(id)) return;
    await this.#encryption.close(id, await readMounts(this.#exec));
  }

  /** Reports whether a volume is known not to be encrypted, which never changes. */
  #isKnownAsPlain(id: VolumeId): boolean {
    const known = this.#options.lvm.knownToConfirm(id);
    const found = known && ignoreStorageError(() => this.#options.volumes.locate(known, id));
    return found?.state === "present" && found.volume.tags.format.luks === undefined;
  }

  /**
   * Publishes a staged volume at a target.
   *
   * @throws {StorageError} `NotFound` and `Lost` by the state of the volume; `FailedPrecondition` when it is not staged
   * or may not have a further target; `AlreadyExists` when it is published there in another way. A target that
   * accepts writes, and on which no file is open for writing, becomes read-only when that is requested: a crash may have
   * left it so. The passphrase is changed if the request has a previous one
   */
  async publish(id: VolumeId, publication: Publication): Promise<void> {
    await this.#bind(id, publication);
    if (this.#isKnownAsPlain(id)) return;
    await this.#encryption.changePassphrase(id, publication.passphrases ?? {}, () => this.#require(id));
  }

  async #bind(id: VolumeId, publication: Publication): Promise<void> {
    const target = await canonicalizePath(publication.target, this.#options.mountRoots);
    const stagingPath = await canonicalizePath(publication.stagingPath, this.#options.mountRoots);
    const mounts = await readMounts(this.#exec);
    const block = publication.access.kind === "block";
    const found = (block ? undefined : this.#options.staged.stagedAt(id, stagingPath, mounts)) ??
      await this.#require(id);
    requireUsableAs(found, publication.access);
    // an expansion deactivates a block volume with snapshots for a moment, and may have been interrupted then
    const volume = block && found.used ? await activate(this.#options.lvm, this.#options.volumes, found) : found;
    if (volume !== found) refuseWhileReached(volume, mounts);
    const device = block && volume.used ? await this.#blockDevice(volume) : undefined;
    const content = { ...contentDevice(volume.lv), ...(device && { deviceNumber: device.number }) };
    const ours = block ? deviceMounts(mounts, content) : filesystemMounts(mounts, content);
    const source = block ? content.devicePath : stagingPath;
    if (block ? device === undefined : !ours.some((mount) => mount.target === stagingPath)) {
      throw new StorageError("FailedPrecondition", `publishing volume ${id}: it is not staged at ${stagingPath}`);
    }
    const { access, readOnly } = publication;
    const flags = [
      ...new Set([...(access.kind === "mount" ? bindMountFlags(access.flags) : []), ...(readOnly ? ["ro"] : [])]),
    ];
    const published = publishedMount(id, mounts, ours, { target, readOnly }, device);
    if (published !== undefined) {
      await this.#completeFlags(id, published, { readOnly, flags });
      return await this.#options.limiter?.onPublished(volume, target);
    }

    refuseHeld("publishing", volume);
    // where a root is a shared bind mount, each mount below it appears outside of the roots, too
    const others = ours.filter((mount) =>
      mount.target !== stagingPath && isBelow(mount.target, this.#options.mountRoots)
    );
    refuseFurtherTarget(volume, publication, others, device);
    if (device !== undefined && device.readOnly !== readOnly) {
      await setReadOnly(this.#exec, volume, { path: device.path, readOnly });
    }
    const created = await createMountPoint(target, block);
    try {
      await bindMount(this.#exec, source, target, flags);
    } catch (error) {
      const isRunning = error instanceof StorageError && error.kind === "StillRunning";
      // it may be mounted without its flags
      const failure = isRunning ? error : await undoMount(this.#exec, target, error);
      if (created) await Deno.remove(target).catch(() => {}); // the first error is the one to tell
      throw failure;
    }
    await this.#options.limiter?.onPublished(volume, target);
  }

  /**
   * Undoes {@linkcode publish} and removes the target. A volume that is not published is unpublished already.
   *
   * @throws {StorageError} `InUse` while the mount is in use; `FailedPrecondition` when another filesystem is mounted
   * there, or when the target is a directory or file that is not empty: the driver does not remove it
   */
  async unpublish(id: VolumeId, publishedAt: string): Promise<void> {
    const target = await canonicalizePath(publishedAt, this.#options.mountRoots);
    await unmountAll(this.#options, id, target);
    this.#options.limiter?.onUnpublished(id, target);
    await removeMountPoint(target);
  }

  /**
   * Returns the statistics of the volume at a path.
   *
   * @throws {StorageError} `NotFound` when the volume is not at the path
   */
  async stats(id: VolumeId, volumePath: string): Promise<Stats> {
    const path = await this.#canonicalPath(volumePath);
    const mount = (await readMounts(this.#exec)).findLast((mount) => mount.target === path);
    // a removed node leads to whatever device has its number now
    if (
      mount === undefined || isDeletedNodeMount(mount) ||
      !await isMountOfVolume(this.#options, id, mount, await deviceOf(this.#exec, mount))
    ) {
      throw notAtPath(id, volumePath);
    }
    if (!isDeviceNodeMount(mount)) return { filesystem: await readUsage(this.#exec, mount.target) };
    return { blockBytes: (await readBlockDevice(this.#exec, mount.target)).size };
  }

  /**
   * Resizes the filesystem of the volume at a path to its LV. A block volume needs no resize. A filesystem that cannot be resized
   * now is `FailedPrecondition`, after which kubelet mounts it.
   *
   * @param required minimum size of the LV, in bytes
   * @returns the size of the LV in bytes
   * @throws {StorageError} `NotFound` when there is no such volume or it is not at the path; `OutOfRange` when its LV
   * is smaller than required: ControllerExpandVolume comes first
   */
  async expand(id: VolumeId, volumePath: string, required: bigint): Promise<bigint> {
    const volume = await this.#require(id);
    const { lv } = volume;
    const path = await this.#canonicalPath(volumePath);
    const mounts = await readMounts(this.#exec);
    const device = contentDevice(volume.lv);
    const ours = mountsOf(mounts, device);
    const block = volume.tags.format.state === "raw";
    if (!ours.some((mount) => mount.target === path) && !(block && lv.active)) throw notAtPath(id, volumePath);
    if (lv.size < required) {
      throw new StorageError(
        "OutOfRange",
        `resizing the filesystem of volume ${id} to ${required} bytes: its logical volume has ${lv.size}; extend it first ` +
          `(ControllerExpandVolume)`,
      );
    }
    if (volume.tags.format.luks !== undefined) {
      await this.#resume(volume);
      if (await this.#encryption.find(volume) === undefined) throw notAtPath(id, volumePath);
      await this.#encryption.resize(volume);
    }
    if (block) return lv.size;
    const writable = ours.find((mount) => !mount.readOnly);
    if (writable === undefined) {
      throw new StorageError(
        "FailedPrecondition",
        `resizing the filesystem of volume ${id}: all its mounts are read-only`,
      );
    }
    await this.#resume(volume);
    const { devicePath } = device;
    const mounted = { volume, devicePath, type: writable.fsType, path: writable.target, staged: this.#options.staged };
    await resizeFilesystem(this.#exec, mounted);
    return lv.size;
  }

  /**
   * Sets those flags of a published mount that it lacks, because the mount(8) that created it was killed before.
   *
   * @throws {StorageError} `AlreadyExists` when it should be read-only, but a file on it is open for writing: then it was
   * published read-write
   */
  async #completeFlags(
    id: VolumeId,
    mount: Mount,
    { readOnly, flags }: { readonly readOnly: boolean; readonly flags: readonly string[] },
  ): Promise<void> {
    if (missingMountFlags(flags, mount.flags).length === 0) return;
    try {
      await setMountFlags(this.#exec, mount.target, flags);
    } catch (error) {
      if (!(error instanceof StorageError && error.kind === "InUse")) throw error;
      throw publishedOtherwiseError(id, { target: mount.target, readOnly }, { cause: error });
    }
  }

  /** Returns a path as the mount table shows it; `undefined` when no volume can be mounted there. */
  async #canonicalPath(path: string): Promise<string | undefined> {
    return await canonicalizePath(path, this.#options.mountRoots).catch(ignoring("FailedPrecondition"));
  }

  /** Returns the volume according to a new report. @throws {StorageError} `NotFound`, `Lost`, `Busy` */
  async #require(id: VolumeId): Promise<Volume> {
    return this.#options.volumes.require(await this.#options.lvm.report(), id);
  }

  /** Resumes the device if a killed command left it suspended: every program that uses it would hang. */
  async #resume(volume: Volume): Promise<void> {
    await resumeSuspended(this.#options.lvm, this.#options.volumes.driver, [volume]);
  }

  /** Returns the device of a block volume that is staged; `undefined` for an encrypted one that is not. */
  async #blockDevice(volume: Volume): Promise<LocatedDevice | undefined> {
    if (volume.tags.format.luks !== undefined) return await this.#encryption.find(volume);
    return await verifyDevice(this.#exec, volume.lv);
  }
}

function notAtPath(id: VolumeId, path: string): StorageError {
  return new StorageError("NotFound", `looking for volume ${id} at ${path}: it is not there`);
}
