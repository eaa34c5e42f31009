/**
 * Disks that become physical volumes, over real LVM, udev and kernel. `deno test` runs this in the guest, as one bundle. The
 * disks of the guest have no names in /dev/disk/by-id, so a rule of udev gives them some.
 *
 * @module
 */

import { basename } from "@std/path";
import { HostExec } from "../../lvm/exec.ts";
import { run } from "../demo/command.ts";
import { registerDiskTests } from "../contract/disks_suite.ts";

const paths = (Deno.env.get("DATA_DISKS") ?? "").split(" ") as [string, string];
const nameOf = (path: string) => `test-${basename(path)}`;
const pathOf = (name: string) => `/dev/disk/by-id/${name}`;

const pattern = paths.map((path) => basename(path)).join("|");
await Deno.writeTextFile(
  "/etc/udev/rules.d/99-denolith-test.rules",
  `KERNEL=="${pattern}", SYMLINK+="disk/by-id/test-%k"\n`,
);
await run("name the disks", "udevadm", ["control", "--reload"]);

/** Lets udev look at the disks again. */
async function trigger(): Promise<void> {
  await run("name the disks", "udevadm", ["trigger", "--settle", ...paths]);
}

const kubeletDirectory = await Deno.makeTempDir({ prefix: "denolith-kubelet-" });
for (const folder of ["pods", "plugins"]) await Deno.mkdir(`${kubeletDirectory}/${folder}`);
const exec = new HostExec();

registerDiskTests({
  name: "lvm",
  disks: [nameOf(paths[0]), nameOf(paths[1])],
  exec,
  kubeletDirectory,
  makeFilesystem: async (name) => {
    await run("make a filesystem", "mke2fs", ["-q", "-F", "-t", "ext4", pathOf(name)]);
  },
  openExclusively: async (name) => {
    // dmsetup(8) opens a disk as mount(8) does
    const table = "0 2048 linear " + pathOf(name) + " 0";
    await run("hold the disk", "dmsetup", ["create", "--noudevsync", "held", "--table", table]);
    return {
      [Symbol.asyncDispose]: async () => {
        await run("let the disk go", "dmsetup", ["remove", "--noudevsync", "held"]);
      },
    };
  },
  reset: async () => {
    await run("remove the group", "sh", ["-c", "vgremove -qq --yes --force taken 2> /dev/null || :"]);
    for (const path of paths) {
      await run("remove the label", "sh", ["-c", `pvremove -qq --yes ${path} 2> /dev/null || :`]);
      await run("make the disk blank", "wipefs", ["--all", path]);
    }
    await trigger();
  },
});
