import { assertEquals, assertThrows } from "@std/assert";
import {
  lvchange,
  lvchangeTags,
  lvconvert,
  lvcreate,
  lvextend,
  lvremove,
  lvremoveTogether,
  pvcreate,
  pvremove,
  vgchange,
  vgcreate,
  vgextend,
} from "./command_lines.ts";

const addtag = ["denolith=test", "denolith.volume=v"];
const config = "activation/monitoring=0";

const COMMANDS: readonly (readonly [args: string[], line: string])[] = [
  // volumes
  [
    lvcreate({ yes: true, wipesignatures: "y", name: "v", zero: "y", size: 8n, addtag }, "data"),
    "lvcreate --yes --wipesignatures y --name v --zero y --size 8b " +
    "--addtag denolith=test --addtag denolith.volume=v data",
  ],
  [
    lvcreate({ yes: true, size: 8n, type: "raid1", mirrors: 1 }, "data", ["/dev/sda", "/dev/sdb"]),
    "lvcreate --yes --size 8b --type raid1 --mirrors 1 data /dev/sda /dev/sdb",
  ],
  [
    lvcreate({ size: 8n, type: "raid10", mirrors: 1, stripes: 2, stripesize: 65536n }, "data"),
    "lvcreate --size 8b --type raid10 --mirrors 1 --stripes 2 --stripesize 65536b data",
  ],
  [
    lvcreate({ name: "v", type: "thin", thinpool: "pool", config, virtualsize: 8n }, "data"),
    "lvcreate --name v --type thin --thinpool pool --config activation/monitoring=0 --virtualsize 8b data",
  ],
  [lvextend({ size: 16n }, "data/v", ["/dev/sda"]), "lvextend --size 16b data/v /dev/sda"],
  [lvextend({ size: 16n, config }, "data/v"), "lvextend --size 16b --config activation/monitoring=0 data/v"],
  [lvchange({ activate: "y" }, "data/v"), "lvchange --activate y data/v"],
  [
    lvchange({ activate: "y", activationmode: "degraded", config }, "data/v"),
    "lvchange --activate y --activationmode degraded --config activation/monitoring=0 data/v",
  ],
  [lvchange({ activate: "n" }, "data/v"), "lvchange --activate n data/v"],
  [lvchange({ refresh: true }, "data/v"), "lvchange --refresh data/v"],
  [lvchange({ permission: "rw" }, "data/v"), "lvchange --permission rw data/v"],
  [lvchangeTags(["--deltag", "a", "--addtag", "b"], "data/v"), "lvchange --deltag a --addtag b data/v"],
  [lvremove({ yes: true, uuid: "a-b" }, "data/v"), "lvremove --yes --select lv_uuid=a-b data/v"],
  // disks
  [
    pvcreate({ uuid: "a-b", norestorefile: true, config: "x=1" }, "/dev/disk/by-id/d"),
    "pvcreate --uuid a-b --norestorefile --config x=1 /dev/disk/by-id/d",
  ],
  [pvremove("/dev/sdb"), "pvremove /dev/sdb"],
  [vgcreate("data", "/dev/sdb"), "vgcreate data /dev/sdb"],
  [vgextend("data", "/dev/sdb"), "vgextend data /dev/sdb"],
  // snapshots
  [
    lvcreate({ yes: true, snapshot: true, permission: "r", name: "s", size: 4n }, "data/v"),
    "lvcreate --yes --snapshot --permission r --name s --size 4b data/v",
  ],
  [
    lvcreate({ yes: true, snapshot: true, permission: "rw", name: "s", setactivationskip: "n", config }, "data/v"),
    "lvcreate --yes --snapshot --permission rw --name s --setactivationskip n --config activation/monitoring=0 data/v",
  ],
  [lvconvert({ yes: true, splitsnapshot: true }, "data/s"), "lvconvert --yes --splitsnapshot data/s"],
  // thin pools
  [
    lvcreate({ yes: true, type: "thin-pool", zero: "y", name: "pool", size: 8n, config }, "data"),
    "lvcreate --yes --type thin-pool --zero y --name pool --size 8b --config activation/monitoring=0 data",
  ],
  [
    lvextend({ poolmetadatasize: 4n, config }, "data/pool"),
    "lvextend --poolmetadatasize 4b --config activation/monitoring=0 data/pool",
  ],
  [lvremove({ uuid: "a-b" }, "data/pool"), "lvremove --select lv_uuid=a-b data/pool"],
  [
    lvremoveTogether([
      { options: { yes: true, uuid: "a-b", tags: ["c"], closed: true }, lv: "data/v" },
      { options: { uuid: "c-d", withoutGroupTag: "e" }, lv: "data/w" },
    ]),
    'lvremove --yes --config activation/retry_deactivation=0 --select (lv_uuid=a-b && lv_tags="c") || ' +
    '(lv_uuid=c-d && vg_tags!="e") data/v data/w',
  ],
  // groups
  [vgchange({ addtag: ["a"] }, "data"), "vgchange --addtag a data"],
  [
    lvremove({ yes: true, uuid: "a-b", tags: ["c", "d"], withoutDependents: true, healthy: true }, "data/v"),
    'lvremove --yes --select lv_uuid=a-b && lv_tags="c" && lv_tags="d" && lv_role!=origin && lv_health_status="" data/v',
  ],
  [
    vgchange({ deltag: ["a"], select: { uuid: "a-b", tags: ["c"], withoutTags: ["d"] } }, "data"),
    'vgchange --deltag a --select lv_uuid=a-b && lv_tags="c" && lv_tags!="d" data',
  ],
  [vgchange({ deltag: ["a", "b"] }, "data"), "vgchange --deltag a --deltag b data"],
];

for (const [args, line] of COMMANDS) {
  Deno.test(`command: ${line}`, () => assertEquals(args.join(" "), line));
}

Deno.test("a value with spaces is one argument", () => {
  assertEquals(lvextend({ config: "a b" }, "data/v"), ["lvextend", "--config", "a b", "data/v"]);
});

Deno.test("a command that selects has a UUID: an empty selection would match each LV", () => {
  assertThrows(() => lvremove({ yes: true, uuid: "" }, "data/v"), RangeError, "without UUID");
});
