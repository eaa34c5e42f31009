/**
 * Disks that become physical volumes, and new volumes before their first stage, as agents make them, over real LVM, udev and
 * kernel. `deno test` runs this in the guest, as one bundle. The
 * disks of the guest have no names in /dev/disk/by-id, so a rule of udev gives them some.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { basename } from "@std/path";
import { type Command, HostExec } from "../../lvm/exec.ts";
import type { LogicalVolume } from "../../lvm/model/report.ts";
import { ANY_GROUP } from "../../lvm/model/groups.ts";
import { openMachine } from "../../lvm/machine.ts";
import { namedRequest } from "../fake/request.ts";
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

/** Returns what a report shows of a new LV, but for its place on the disks, the time of its creation, and whether udev looks at it. */
function essentials({ pvSegments: _, createdAt: _time, open: _open, tags, ...lv }: LogicalVolume): unknown {
  return { ...lv, tags: tags.toSorted() };
}

for (const type of ["ext4", "xfs", "btrfs"] as const) {
  Deno.test(`${type}: a new volume is as the kernel shows it, its first stage mounts it, and an unused one is gone at once [lvm]`, async () => {
    await run("make a group", "vgcreate", ["-qq", "--yes", "new-volumes", paths[0]]);
    const programs: string[] = [];
    const counting = {
      run: (command: Command) => {
        programs.push(command.program === "lvm" ? command.args[0]! : command.program);
        return exec.run(command);
      },
      idle: () => exec.idle(),
    };
    const folder = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-new-volumes-" }));
    const options = {
      exec: counting,
      driver: "test",
      groups: ANY_GROUP,
      mountRoots: [folder],
      scratch: `${folder}/own`,
    };
    const { background, formatter, lvm, staging, volumeFinder, volumes } = openMachine(options);
    const request = namedRequest(type, 512n << 20n, { format: { state: "unformatted", type } });
    const create = async () => {
      const groups = await lvm.report();
      const size = await volumes.createNew(groups, request);
      programs.splice(0);
      const created = await volumes.readCreated(request, groups.find(({ name }) => name === "new-volumes")!, size);
      assertEquals(programs.splice(0), ["dmsetup"]);
      const reported = volumeFinder.require(await lvm.report(), request.id);
      assertEquals(essentials(created.lv), essentials(reported.lv));
      formatter.formatSoon(request.id);
      await formatter.idle();
      programs.splice(0);
    };
    try {
      await create();
      await volumes.delete(request.id);
      const left = async () => (await lvm.report()).find(({ name }) => name === "new-volumes")!;
      assertEquals((await left()).lvs, []);
      await create();
      await staging.stage(request.id, `${folder}/staged`, { kind: "mount", flags: [] });
      assertEquals(
        programs.filter((name) => !["findmnt", "sync"].includes(name)).join(" "),
        "dmsetup lsblk vgchange wipefs mount",
      );
      await Deno.writeTextFile(`${folder}/staged/data`, "data");
      await staging.unstage(request.id, `${folder}/staged`);
      await volumes.delete(request.id);
      assertEquals((await left()).lvs.map(({ tags }) => tags.includes(`denolith.deleted=${request.id}`)), [true]);
    } finally {
      await background.stop();
      await run("remove the group", "vgremove", ["-qq", "--yes", "--force", "new-volumes"]);
    }
  });
}
