import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../exec.ts";
import { volumeIdOf } from "../../base/ids.ts";
import type { Volume } from "../inventory/volume.ts";
import { mappingPath } from "../encryption/mapping.ts";
import { FORMAT, VOLUME } from "../model/tags.ts";
import { readDeviceUses, requireSuspendable } from "./usage.ts";

/** A device in the answer of lsblk. */
interface Row {
  readonly name: string;
  readonly mountpoint: string | null;
  readonly children?: readonly Row[];
}

async function read(...blockdevices: readonly Row[]) {
  const commands: string[] = [];
  const run = ({ program, args }: Command) => {
    commands.push([program, ...args].join(" "));
    return Promise.resolve({ code: 0, stdout: JSON.stringify({ blockdevices }), stderr: "" });
  };
  const exec = { run, idle: () => Promise.resolve() };
  return { uses: await readDeviceUses(exec, blockdevices.map(({ name }) => name)), commands };
}

Deno.test("readDeviceUses() asks for whole paths, and returns what is on each device, and on that", async () => {
  const { uses, commands } = await read(
    { name: "/dev/mapper/a-one", mountpoint: "[SWAP]" },
    {
      name: "/dev/mapper/a-two",
      mountpoint: null,
      children: [{
        name: "/dev/mapper/crypt",
        mountpoint: null,
        children: [{ name: "/dev/mapper/on-it", mountpoint: "/data" }],
      }],
    },
  );
  assertEquals(commands, ["lsblk --json --paths --output NAME,MOUNTPOINT /dev/mapper/a-one /dev/mapper/a-two"]);
  const onIt = { path: "/dev/mapper/on-it", mountPoint: "/data", holders: [] };
  assertEquals(uses, [
    { path: "/dev/mapper/a-one", mountPoint: "[SWAP]", holders: [] },
    { path: "/dev/mapper/a-two", holders: [{ path: "/dev/mapper/crypt", holders: [onIt] }] },
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
  const row = (name: string, mountpoint: string | null, ...children: readonly Row[]) => ({
    name,
    mountpoint,
    children,
  });
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
