/**
 * The metadata snapshot of a thin pool: a copy of the pool's tables that programs can read while the pool is in use
 * (Documentation/admin-guide/device-mapper/thin-provisioning, "reserve_metadata_snap"). A pool has at most one. While it is
 * there, each table that changes takes more of the pool's metadata, so it is released at once when it has been read.
 *
 * A crash leaves it, also over a restart of the machine. Another program may reserve one, too, in any pool. So before the
 * driver reserves one, it records that in a tag of the pool, and releases only what is so recorded.
 *
 * @module
 */

import { type LocatedLv, type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { Queues } from "../../base/queues.ts";
import { messagePool, readPoolStatus } from "../host/device_mapper.ts";
import { StorageError } from "../../base/error.ts";
import type { Lvm } from "../client/client.ts";
import { encode, RESERVED } from "../model/tags.ts";
import { kernelNameOf, poolsOf } from "../pools/pool.ts";

/** The status of a thin pool in the kernel, with the block of its metadata snapshot, `-` without one. */
const POOL_STATUS = /^\d+ \d+\/\d+ \d+\/\d+ (\S+) /;

/** The metadata snapshots of the pools of this machine. */
export class MetadataSnapshots {
  readonly #lvm: Lvm;
  /** The tag of a pool whose metadata snapshot the driver has reserved. */
  readonly #tag: string;
  /** The uses of the snapshots, by the UUIDs of the pools. */
  readonly #uses = new Queues();

  /** Creates the service. @param driver the driver's name: which its tag names */
  constructor({ lvm, driver }: { readonly lvm: Lvm; readonly driver: string }) {
    this.#lvm = lvm;
    this.#tag = RESERVED + encode(driver);
  }

  /**
   * Runs `body` while the metadata snapshot of a pool is there. Others wait until it is released.
   *
   * @throws {StorageError} `FailedPrecondition` when another program has reserved one, or it could fill the pool's metadata
   */
  async use<T>(located: LocatedLv, body: () => Promise<T>): Promise<T> {
    return await this.#uses.run(located.lv.uuid, async () => {
      await this.#releaseOwn(located);
      if (await this.#holder(located.lv) !== "nobody") throw reservedError(located);
      requireSpace(located);
      await this.#changeTag(located, "--addtag");
      await this.#reserve(located);
      try {
        return await body();
      } finally {
        await this.#release(located);
      }
    });
  }

  /** Releases what an earlier process has left in pools. */
  async releaseLeft(groups: readonly VolumeGroup[]): Promise<void> {
    for (const group of groups) {
      for (const lv of poolsOf(group)) {
        await this.#uses.run(lv.uuid, () => this.#releaseOwn({ group, lv }));
      }
    }
  }

  async #reserve(located: LocatedLv): Promise<void> {
    try {
      await this.#send(located.lv, "reserve_metadata_snap");
    } catch (error) {
      // somebody else was faster; a command that is still running may reserve it yet
      if (error instanceof StorageError && error.kind === "CommandFailed") await this.#changeTag(located, "--deltag");
      throw error;
    }
  }

  /** Releases what the driver has reserved, by its tag. A pool that the kernel does not have keeps it, and the tag. */
  async #releaseOwn(located: LocatedLv): Promise<void> {
    if (located.lv.tags.includes(this.#tag)) await this.#release(located);
  }

  /** Releases the metadata snapshot of a pool, if there is one, and removes the tag. */
  async #release(located: LocatedLv): Promise<void> {
    const holder = await this.#holder(located.lv);
    if (holder === "unknown") return;
    if (holder === "somebody") await this.#send(located.lv, "release_metadata_snap");
    await this.#changeTag(located, "--deltag");
  }

  async #changeTag({ group, lv }: LocatedLv, option: "--addtag" | "--deltag"): Promise<void> {
    await this.#lvm.changeTags({ group, lv }, [option, this.#tag]);
  }

  /** Returns whether a pool has a metadata snapshot, as far as the kernel knows it. */
  async #holder(pool: LogicalVolume): Promise<"nobody" | "somebody" | "unknown"> {
    const status = (await readPoolStatus(this.#lvm.exec)).find(([name]) => name === kernelNameOf(pool))?.[1];
    const held = POOL_STATUS.exec(status ?? "")?.[1];
    return held === undefined ? "unknown" : held === "-" ? "nobody" : "somebody";
  }

  async #send(pool: LogicalVolume, message: string): Promise<void> {
    await messagePool(this.#lvm.exec, kernelNameOf(pool), message);
  }
}

/** The usage of a pool's metadata up to which a second copy of all tables has space, in percent. */
const MAX_METADATA_PERCENT = 45;

/**
 * Requires that a metadata snapshot does not fill the pool's metadata, also if all tables change while it is there: the pool
 * would become read-only. A volume group with as much free space can extend it meanwhile.
 */
function requireSpace({ group, lv }: LocatedLv): void {
  const { metadataPercent = 0, metadataSize } = lv.thinPool!;
  if (metadataPercent <= MAX_METADATA_PERCENT || group.free >= metadataSize) return;
  const path = lvPath({ group, lv });
  throw new StorageError(
    "FailedPrecondition",
    `reading the tables of thin pool ${path}: its metadata is ${metadataPercent} % full, and a snapshot of it may take as ` +
      `much again; extend it: lvextend --poolmetadatasize +${metadataSize}b ${path}, for which ${group.name} needs free space`,
  );
}

function reservedError({ group, lv }: LocatedLv): StorageError {
  return new StorageError(
    "FailedPrecondition",
    `reading the tables of thin pool ${
      lvPath({ group, lv })
    }: another program has reserved its metadata snapshot, of ` +
      `which there can be one; if none is running, release it: dmsetup message ${
        kernelNameOf(lv)
      } 0 release_metadata_snap`,
  );
}
