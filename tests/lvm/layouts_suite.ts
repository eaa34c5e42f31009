/**
 * The contract tests of layouts over real LVM: `deno test` runs this in the guest, as one bundle. The PVs are files, so
 * that there are enough of them.
 *
 * @module
 */

import { HostExec } from "../../lvm/exec.ts";
import { Lvm } from "../../lvm/client/client.ts";
import { readMounts } from "../../lvm/host/mounts.ts";
import type { Host } from "../contract/helpers/host.ts";
import { cachesContract } from "../contract/caches_suite.ts";
import { layoutSpaceContract } from "../contract/layout_space_suite.ts";
import { encryptedLayoutsContract } from "../contract/encrypted_layouts_suite.ts";
import { layoutsContract } from "../contract/layouts_suite.ts";
import { run } from "../demo/command.ts";
import { isSkipped } from "./helpers/skipped_tests.ts";
import {
  copyMountNamespace,
  interruptTransaction,
  keepMessage,
  lockGroup,
  makePending,
  realCgroups,
} from "./helpers/real_host.ts";

const GROUPS = ["disks-narrow", "disks-wide"] as const;

/** The number of PVs of 260 MiB in each group: 256 MiB are left for volumes. */
const PV_COUNTS: Readonly<Record<typeof GROUPS[number], number>> = { "disks-narrow": 2, "disks-wide": 5 };

const exec = new HostExec();

/** The PVs of the groups: loop devices over files. */
const pvs = new Map<string, { readonly file: string; readonly loop: string }[]>();

await run("load modules", "modprobe", [
  "-a",
  "loop",
  "dm-raid",
  "dm-integrity",
  "dm-crypt",
  "dm-cache",
  "dm-writecache",
]);
for (const group of GROUPS) {
  const disks: { file: string; loop: string }[] = [];
  for (let index = 0; index < PV_COUNTS[group]; index++) {
    const file = `/var/tmp/${group}-${index}.img`;
    await run("make a disk", "truncate", ["--size", "260M", file]);
    disks.push({ file, loop: (await run("make a disk", "losetup", ["--find", "--show", file])).trim() });
  }
  pvs.set(group, disks);
  await run("make a group", "vgcreate", ["-qq", "--yes", group, ...disks.map(({ loop }) => loop)]);
}

/** Takes the first disk of a group away. LVM marks it as missing when it changes the group meanwhile. */
async function detachPv(group: string): Promise<AsyncDisposable> {
  const { file, loop } = pvs.get(group)![0]!;
  await run("take a disk away", "losetup", ["--detach", loop]);
  return {
    [Symbol.asyncDispose]: async () => {
      await run("bring the disk back", "losetup", [loop, file]);
      await run("bring the disk back", "vgextend", ["-qq", "--restoremissing", group, loop]);
    },
  };
}

/** Empties the groups, which a failed test may leave in any state. */
async function cleanUp(): Promise<void> {
  const mounts = (await readMounts(exec)).filter(({ target }) => target.includes(`/denolith-${GROUPS[0]}-`));
  for (const { target } of mounts.reverse()) await run("clean up", "umount", [target]);
  for (const { name, lvs, tags } of await new Lvm(exec).report()) {
    if (!GROUPS.some((group) => group === name)) continue;
    if (lvs.length > 0) await run("clean up", "lvremove", ["-qq", "--yes", ...lvs.map((lv) => `${name}/${lv.name}`)]);
    if (tags.length > 0) await run("clean up", "vgchange", ["-qq", ...tags.flatMap((tag) => ["--deltag", tag]), name]);
  }
}

const host: Host = {
  name: "lvm",
  groups: GROUPS,
  setUp: () =>
    Promise.resolve({
      exec,
      lockGroup,
      openDevice: Deno.open,
      copyMountNamespace,
      makePending,
      keepMessage,
      interruptTransaction,
      detachPv,
      [Symbol.asyncDispose]: cleanUp,
    }),
  skips: isSkipped,
  cgroups: (root) => realCgroups(exec, root),
};
layoutsContract(host);
encryptedLayoutsContract(host);
layoutSpaceContract(host);
cachesContract(host);
