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

import { StorageError } from "../../base/error.ts";
import { runOk } from "../exec.ts";
import type { Lvm } from "../client/client.ts";
import { type LogicalVolume, lvPath, type VolumeGroup } from "../model/report.ts";
import { encode, RESERVED } from "../model/tag_text.ts";
import { kernelNameOf, poolsOf } from "../pools/pool.ts";

/** A pool, and the group that it is in. */
export interface LocatedPool {
  /** The group. */
  readonly group: VolumeGroup;
  /** The pool. */
  readonly pool: LogicalVolume;
}

/** The status of a thin pool in the kernel: its name, and the block of its metadata snapshot, `-` without one. */
const POOL_STATUS = /^(\S+): \d+ \d+ thin-pool \d+ \d+\/\d+ \d+\/\d+ (\S+) /gm;

/** The metadata snapshots of the pools of this machine. */
export class MetadataSnapshots {
  readonly #lvm: Lvm;
  /** The tag of a pool whose metadata snapshot the driver has reserved. */
  readonly #tag: string;
  /** The last use of each pool's snapshot, by the pool's UUID. */
  readonly #uses = new Map<string, Promise<unknown>>();

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
  async use<T>(located: LocatedPool, body: () => Promise<T>): Promise<T> {
    return await this.#inTurn(located.pool.uuid, async () => {
      await this.#releaseOwn(located);
      if (await this.#holder(located.pool) !== "nobody") throw reservedError(located);
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
      for (const pool of poolsOf(group)) {
        await this.#inTurn(pool.uuid, () => this.#releaseOwn({ group, pool }));
      }
    }
  }

  async #inTurn<T>(uuid: string, body: () => Promise<T>): Promise<T> {
    const before = this.#uses.get(uuid) ?? Promise.resolve();
    const use = before.then(body, body);
    this.#uses.set(uuid, use);
    try {
      return await use;
    } finally {
      if (this.#uses.get(uuid) === use) this.#uses.delete(uuid);
    }
  }

  async #reserve(located: LocatedPool): Promise<void> {
    try {
      await this.#send(located.pool, "reserve_metadata_snap");
    } catch (error) {
      // somebody else was faster; a command that is still running may reserve it yet
      if (error instanceof StorageError && error.kind === "CommandFailed") await this.#changeTag(located, "--deltag");
      throw error;
    }
  }

  /** Releases what the driver has reserved, by its tag. A pool that the kernel does not have keeps it, and the tag. */
  async #releaseOwn(located: LocatedPool): Promise<void> {
    if (located.pool.tags.includes(this.#tag)) await this.#release(located);
  }

  /** Releases the metadata snapshot of a pool, if there is one, and removes the tag. */
  async #release(located: LocatedPool): Promise<void> {
    const holder = await this.#holder(located.pool);
    if (holder === "unknown") return;
    if (holder === "somebody") await this.#send(located.pool, "release_metadata_snap");
    await this.#changeTag(located, "--deltag");
  }

  async #changeTag({ group, pool }: LocatedPool, option: "--addtag" | "--deltag"): Promise<void> {
    await this.#lvm.changeTags({ group, lv: pool }, [option, this.#tag]);
  }

  /** Returns whether a pool has a metadata snapshot, as far as the kernel knows it. */
  async #holder(pool: LogicalVolume): Promise<"nobody" | "somebody" | "unknown"> {
    const status = await runOk(this.#lvm.exec, {
      program: "dmsetup",
      args: ["status", "--target", "thin-pool", "--noflush"],
      mutates: false,
    });
    const held = [...status.matchAll(POOL_STATUS)].find(([, name]) => name === kernelNameOf(pool))?.[2];
    return held === undefined ? "unknown" : held === "-" ? "nobody" : "somebody";
  }

  async #send(pool: LogicalVolume, message: string): Promise<void> {
    await runOk(this.#lvm.exec, {
      program: "dmsetup",
      args: ["message", kernelNameOf(pool), "0", message],
      mutates: true,
    });
  }
}

/** The usage of a pool's metadata up to which a second copy of all tables has space, in percent. */
const MAX_METADATA_PERCENT = 45;

/**
 * Requires that a metadata snapshot does not fill the pool's metadata, also if all tables change while it is there: the pool
 * would become read-only. A volume group with as much free space can extend it meanwhile.
 */
function requireSpace({ group, pool }: LocatedPool): void {
  const { metadataPercent = 0, metadataSize } = pool.thinPool!;
  if (metadataPercent <= MAX_METADATA_PERCENT || group.free >= metadataSize) return;
  const path = lvPath({ group, lv: pool });
  throw new StorageError(
    "FailedPrecondition",
    `reading the tables of thin pool ${path}: its metadata is ${metadataPercent} % full, and a snapshot of it may take as ` +
      `much again; extend it: lvextend --poolmetadatasize +${metadataSize}b ${path}, for which ${group.name} needs free space`,
  );
}

function reservedError({ group, pool }: LocatedPool): StorageError {
  return new StorageError(
    "FailedPrecondition",
    `reading the tables of thin pool ${group.name}/${pool.name}: another program has reserved its metadata snapshot, of ` +
      `which there can be one; if none is running, release it: dmsetup message ${
        kernelNameOf(pool)
      } 0 release_metadata_snap`,
  );
}
