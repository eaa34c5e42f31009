import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import type { LogicalVolume } from "../model/report.ts";
import {
  canonicalizePath,
  deviceMounts,
  filesystemMounts,
  isBelow,
  isDriverVolumeMount,
  isMountOfLv,
  type Mount,
  withRealPaths,
} from "./mounts.ts";

/** Creates a directory with a subdirectory and a link to it. */
async function createLinkedFolder() {
  const folder = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-mounts-" }));
  await Deno.mkdir(`${folder}/real`);
  await Deno.symlink("real", `${folder}/link`);
  return { folder, [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }) };
}

Deno.test("isBelow() compares whole names, and a directory is not below itself", () => {
  const below = (path: string) => isBelow(path, ["/mnt", "/var/lib/kubelet"]);
  assertEquals(["/mnt/a", "/var/lib/kubelet/pods/x"].map(below), [true, true]);
  assertEquals(["/mnt", "/mnt-2/a", "/var/lib", "/", "/a/mnt/b"].map(below), [false, false, false, false, false]);
});

Deno.test("withRealPaths() adds the targets of links, keeps missing directories, and refuses a link to the root", async () => {
  await using here = await createLinkedFolder();
  const { folder } = here;
  assertEquals(await withRealPaths([`${folder}/link`, `${folder}/absent`]), [
    `${folder}/link`,
    `${folder}/absent`,
    `${folder}/real`,
  ]);
  await Deno.symlink("/", `${folder}/everything`);
  await assertRejects(() => withRealPaths([`${folder}/everything`]), StorageError, "root directory");
});

Deno.test("canonicalizePath() follows a root that is a link, and keeps missing parts unchanged", async () => {
  await using here = await createLinkedFolder();
  const { folder } = here;
  const roots = await withRealPaths([`${folder}/link`, `${folder}/absent`]);
  assertEquals(await canonicalizePath(`${folder}/link/a/b`, roots), `${folder}/real/a/b`);
  assertEquals(await canonicalizePath(`${folder}/absent/a/b`, roots), `${folder}/absent/a/b`);
  await assertRejects(() => canonicalizePath(`${folder}/link/a`, [`${folder}/link`]), StorageError, "not below");
  await assertRejects(() => canonicalizePath(`${folder}/other/a`, roots), StorageError, "not below");
  await assertRejects(() => canonicalizePath(`${folder}/link/a`, [`${folder}/real`]), StorageError, "not below");
});

Deno.test("deviceMounts() returns the mounts of an LV's node, also when it was removed, and no folder of that name", () => {
  const lv = { devicePath: "/dev/mapper/data-vol", deviceNumber: "253:4" } as LogicalVolume;
  const mount = (root: string, fsType = "devtmpfs") => ({ root, fsType, target: `${fsType}${root}` }) as Mount;
  const mounts = [
    ...[mount("/dm-4"), mount("/mapper/data-vol", "tmpfs"), mount("/dm-4//deleted")],
    ...[mount("/dm-4", "ext4"), mount("/mapper/data-vol", "xfs"), mount("/dm-5"), mount("/dm-44"), mount("/")],
  ];
  const targets = (lv: LogicalVolume) => deviceMounts(mounts, lv).map(({ target }) => target);
  assertEquals(targets(lv), ["devtmpfs/dm-4", "tmpfs/mapper/data-vol", "devtmpfs/dm-4//deleted"]);
  const { deviceNumber: _, ...inactive } = lv;
  assertEquals(targets(inactive as LogicalVolume), ["tmpfs/mapper/data-vol"]);
});

Deno.test("a FUSE mount is none of a volume, whatever source a user gave it", () => {
  const name = `vol-${"0".repeat(32)}`;
  const devicePath = `/dev/mapper/data-${name.replaceAll("-", "--")}`;
  const lv = { devicePath, deviceNumber: "253:4" } as LogicalVolume;
  const isOfVolume = (fsType: string) => {
    const mount = { source: `${devicePath}[/a]`, fsType, deviceNumber: "0:70", root: "/a" } as Mount;
    return [filesystemMounts([mount], lv).length > 0, isMountOfLv(mount, name), isDriverVolumeMount(mount)];
  };
  for (const type of ["fuse", "fuse.sshfs"]) assertEquals(isOfVolume(type), [false, false, false]);
  for (const type of ["btrfs", "fuseblk"]) assertEquals(isOfVolume(type), [true, true, true]);
});
