import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../exec.ts";
import { volumeIdOf } from "../../base/ids.ts";
import type { Volume } from "../inventory/volume.ts";
import { mappingPath } from "../encryption/mapping.ts";
import { FORMAT, VOLUME } from "../model/tags.ts";
import { type DeviceNode, readDeviceTree } from "../model/device_tree.ts";
import { requireSuspendable } from "./usage.ts";

/** A device in the answer of lsblk. */
interface Row {
  readonly name: string;
  readonly kname: string;
  readonly type: string;
  readonly mountpoints: readonly (string | null)[];
  readonly children?: readonly Row[];
}

async function read(...blockdevices: readonly Row[]) {
  const commands: string[] = [];
  const run = ({ program, args }: Command) => {
    commands.push([program, ...args].join(" "));
    return Promise.resolve({ code: 0, stdout: JSON.stringify({ blockdevices }), stderr: "" });
  };
  const exec = { run, idle: () => Promise.resolve() };
  return { uses: await readDeviceTree(exec, blockdevices.map(({ name }) => name)), commands };
}

function row(name: string, mountpoint: string | null, ...children: readonly Row[]): Row {
  return { name, kname: "/dev/dm-7", type: "lvm", mountpoints: [mountpoint], children };
}

Deno.test("readDeviceTree() asks for whole paths, and returns what is on each device, and on that", async () => {
  const onIt = row("/dev/mapper/crypt", null, row("/dev/mapper/on-it", "/data"));
  const { uses, commands } = await read(row("/dev/mapper/a-one", "[SWAP]"), row("/dev/mapper/a-two", null, onIt));
  const columns = "NAME,KNAME,TYPE,MOUNTPOINTS";
  assertEquals(commands, [`lsblk --json --paths --output ${columns} /dev/mapper/a-one /dev/mapper/a-two`]);
  const node = (name: string, mountPoints: readonly string[], ...children: readonly DeviceNode[]) => {
    return { name, kernelName: "/dev/dm-7", type: "lvm", mountPoints, children };
  };
  assertEquals(uses, [
    node("/dev/mapper/a-one", ["[SWAP]"]),
    node("/dev/mapper/a-two", [], node("/dev/mapper/crypt", [], node("/dev/mapper/on-it", ["/data"]))),
  ]);
});

Deno.test("a block volume is not suspended that the machine itself needs, plain or encrypted", async () => {
  const id = volumeIdOf("v");
  const device = "/dev/mapper/data-vol";
  const volume = (...tags: string[]) =>
    ({
      ...{ id, tags: { format: { state: "raw" } }, group: { name: "data" } },
      lv: { name: "vol", devicePath: device, deviceNumber: "253:7", open: true, tags: [VOLUME + id, ...tags] },
    }) as unknown as Volume;
  const [encrypted, mapping] = [volume(`${FORMAT}luks2:formatted:${crypto.randomUUID()}:raw`), mappingPath(id)];
  const cases: [expected: string | undefined, Volume, Row][] = [
    [undefined, volume(), row(device, null)],
    ["it is swap space", volume(), row(device, "[SWAP]")],
    ["/dev/md0 is on it", volume(), row(device, null, row("/dev/md0", null))],
    [undefined, encrypted, row(device, null, row(mapping, null))],
    ["it is swap space", encrypted, row(device, null, row(mapping, "[SWAP]"))],
    ["/dev/md0 is on it", encrypted, row(device, null, row(mapping, null, row("/dev/md0", null)))],
    ["/dev/md0 is on it", encrypted, row(device, null, row("/dev/md0", null), row(mapping, null))],
    [`${mapping} is on it`, volume(), row(device, null, row(mapping, null))],
  ];
  for (const [expected, volume, lsblk] of cases) {
    const { uses: [use] } = await read(lsblk);
    const require = () => requireSuspendable(volume, use, [], ["/pods"]);
    if (expected === undefined) require();
    else assertEquals(assertThrows(require, StorageError, expected).kind, "FailedPrecondition");
  }
});
