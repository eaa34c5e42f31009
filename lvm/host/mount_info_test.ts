import { assertEquals } from "@std/assert";
import table from "../../tests/fixtures/mountinfo.txt" with { type: "text" };
import { parseMountInfo } from "./mount_info.ts";
import { isDeletedNodeMount, isDeviceNodeMount, parseMounts } from "./mounts.ts";

const LINE = "28 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n";

Deno.test("parseMountInfo() replaces octal codes, skips optional fields, and keeps an empty source", () => {
  const mounts = parseMountInfo(table)!;
  assertEquals(mounts.map(({ target }) => target), [
    ...["/", "/dev", "/run", "/mnt/s", "/mnt/a b", "/mnt/blk", "/mnt/gone\\#\t\nx", "/mnt/btrfs", "/mnt/failed"],
  ]);
  assertEquals(mounts[2], {
    ...{ deviceNumber: "0:23", root: "/", target: "/run", options: ["rw", "nosuid", "nodev"] },
    ...{ fsType: "tmpfs", source: "", filesystemOptions: ["rw", "mode=755"] },
  });
});

Deno.test("parseMountInfo() refuses a table that is empty or cut off, or has a line that it cannot parse", () => {
  assertEquals(parseMountInfo(LINE)?.length, 1);
  const lines = ["", "\n", LINE.trimEnd(), `${LINE}\n`, `${LINE}29 28 0:5 / /d`, `${LINE}29 28 0:5 / /dev rw - d d\n`];
  for (const text of [...lines, LINE.replace(" - ", " "), LINE.replace("254:0", "254")]) {
    assertEquals(parseMountInfo(text), undefined, text);
  }
  for (let length = 0; length < table.length; length++) {
    const cut = table.slice(0, length);
    const expected = cut.endsWith("\n") ? cut.split("\n").length - 1 : undefined;
    assertEquals(parseMountInfo(cut)?.length, expected);
  }
});

Deno.test("parseMounts() returns what findmnt shows: paths in filesystems, access, removed nodes", () => {
  const byTarget = Object.fromEntries(parseMounts(table)!.map((mount) => [mount.target, mount]));
  assertEquals(byTarget["/mnt/btrfs"], {
    ...{ target: "/mnt/btrfs", source: "/dev/mapper/vg1-b[/sub]", fsType: "btrfs", root: "/sub", deviceNumber: "0:42" },
    ...{ flags: ["rw", "relatime"], readOnly: false, filesystemWritable: false },
  });
  const access = (target: string) => [byTarget[target]!.readOnly, byTarget[target]!.filesystemWritable];
  assertEquals([access("/mnt/s"), access("/mnt/a b"), access("/mnt/failed")], [
    [false, true],
    [true, true],
    [false, false],
  ]);
  const [node, removed] = [byTarget["/mnt/blk"]!, byTarget["/mnt/gone\\#\t\nx"]!];
  assertEquals([node.source, isDeviceNodeMount(node), isDeletedNodeMount(node)], ["d[/dm-0]", true, false]);
  assertEquals([isDeviceNodeMount(removed), isDeletedNodeMount(removed)], [false, true]);
});

Deno.test("parseMounts() leaves sources to findmnt that may be other names of volumes", () => {
  const parses = (source: string) => parseMounts(LINE + LINE.replace("/dev/vda", source)) !== undefined;
  const canonical = ["/dev/mapper/data-x", "/dev/nvme0n1p2", "/dev/sda", "/dev/fuse", "overlay", "host:/x", "//host/x"];
  assertEquals(canonical.filter((source) => !parses(source)), []);
  const others = ["/dev/dm-4", "/dev/data/x", "/dev/disk/by-uuid/x", "/dev/mapper/a/b", "/dev/link", "/srv/x"];
  assertEquals(others.filter(parses), []);
});
