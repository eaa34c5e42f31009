/**
 * This very machine as a host of contract tests: root, real LVM, two volume groups made on empty disks for the purpose.
 *
 * @module
 */

import { HostExec } from "../../lvm/exec.ts";
import { readMounts } from "../../lvm/mounts.ts";
import { Lvm } from "../../lvm/lvm.ts";
import type { Host } from "../contract/host.ts";

/** A host whose groups are made on the two disks, the second being larger. Whatever is on the disks is lost. */
export async function realHost(disks: readonly [string, string]): Promise<Host> {
  const exec = new HostExec();
  const groups = ["test-small", "test-large"] as const;
  const lvm = async (...args: string[]) => {
    const { code, stderr } = await exec.run({ program: "lvm", args, mutates: true });
    if (code !== 0) throw new Error(`lvm ${args.join(" ")}: ${stderr}`);
  };
  for (const [index, group] of groups.entries()) await lvm("vgcreate", "--yes", group, disks[index]!);

  /** A test that failed may leave anything; the next one starts with empty groups. */
  const cleanUp = async () => {
    const mounts = (await readMounts(exec)).filter(({ target }) => target.includes("/denolith-test-"));
    for (const { target } of mounts.reverse()) await exec.run({ program: "umount", args: [target], mutates: true });
    for (const group of (await new Lvm(exec).report()).filter(({ name }) => name.startsWith("test-"))) {
      if (group.lvs.length > 0) await lvm("lvremove", "--yes", ...group.lvs.map(({ name }) => `${group.name}/${name}`));
      if (group.tags.length > 0) await lvm("vgchange", ...group.tags.flatMap((tag) => ["--deltag", tag]), group.name);
    }
  };
  return { name: "lvm", groups, setUp: () => Promise.resolve({ exec, [Symbol.asyncDispose]: cleanUp }) };
}
