/**
 * LVs of others on a fake machine, as the drivers of others make and use them.
 *
 * @module
 */

import { lvm } from "./lvm.ts";
import type { FakeLv, FakeMachine } from "./machine.ts";

/** The UUID of the filesystem of an LV of others, as libblkid writes it. */
export const FOREIGN_UUID = "0B5B4A1E-0000-4000-8000-000000000001";

/** Options of {@linkcode addForeignLv}. */
export interface ForeignLvOptions {
  /** The name of its group. */
  readonly group: string;
  /** Its name. */
  readonly name: string;
  /** Its size in bytes. */
  readonly bytes: bigint;
  /** The type of its filesystem; ext4 by default. */
  readonly type?: string;
  /** More arguments of lvcreate. */
  readonly args?: readonly string[];
}

/** Adds an LV with a filesystem and data, and without tags. */
export function addForeignLv(machine: FakeMachine, options: ForeignLvOptions): Promise<FakeLv> {
  return Promise.resolve(foreignLv(machine, options));
}

/** Adds an LV as {@linkcode addForeignLv} does, at once. */
export function foreignLv(machine: FakeMachine, options: ForeignLvOptions): FakeLv {
  const { group, name, bytes, type = "ext4", args = ["--size", `${bytes}b`] } = options;
  const created = lvm(machine, ["lvcreate", "--yes", "--wipesignatures", "n", "--name", name, ...args, group]);
  if (created.code !== 0) throw new Error(created.stderr);
  const { lv } = machine.allLvs().find((each) => each.lv.name === name)!;
  Object.assign(lv.content, { zeroHead: false, filesystemBytes: bytes, data: new Set(["letters"]) });
  lv.content.signatures = [{ type, uuid: FOREIGN_UUID }];
  return lv;
}
