import { assertEquals, assertThrows } from "@std/assert";
import { StorageError } from "../error.ts";
import type { Command, Exec } from "../exec.ts";
import { type DiskRule, parseDevices, parseLinks, readNamedDisks } from "./reading.ts";

/** What lsblk of util-linux 2.38 and 2.41 prints, shortened. */
const LSBLK = {
  blockdevices: [
    {
      ...{ name: "/dev/sda", type: "disk", size: 64424509440, rota: false, rm: false, hotplug: false, ro: false },
      ...{ tran: "sata", fstype: null, pttype: "gpt", mountpoints: [null] },
      children: [{ name: "/dev/sda1", type: "part", size: 1, mountpoints: ["/"] }],
    },
    {
      ...{ name: "/dev/sdb", type: "disk", size: 107374182400, rota: true, rm: false, hotplug: false, ro: false },
      ...{ tran: "sata", fstype: null, pttype: null, mountpoints: [null] },
    },
    {
      name: "/dev/loop0",
      type: "loop",
      size: 4096,
      rota: false,
      rm: false,
      hotplug: false,
      ro: true,
      mountpoints: ["/x"],
    },
  ],
};

/** Plays a machine: what the programs print, by the first words of the command. */
function machine(answers: Readonly<Record<string, string>>): Exec & { readonly commands: Command[] } {
  const commands: Command[] = [];
  return {
    commands,
    run: (command) => {
      commands.push(command);
      const line = `${command.program} ${command.args.join(" ")}`;
      const found = Object.keys(answers).find((start) => line.startsWith(start));
      return Promise.resolve({ code: found === undefined ? 1 : 0, stdout: answers[found ?? ""] ?? "", stderr: "no" });
    },
    idle: () => Promise.resolve(),
  };
}

const properties = (id: string, path = "pci-0000:00:1f.2-ata-1") =>
  `DEVPATH=/devices/x\nDEVLINKS=/dev/disk/by-path/${path} /dev/disk/by-id/${id}\nID_PATH=${path}\n`;

const ANSWERS = {
  lsblk: JSON.stringify(LSBLK),
  "udevadm info --query=property --name=/dev/sda": properties("ata-SYSTEM"),
  "udevadm info --query=property --name=/dev/sdb": properties("ata-DATA", "pci-0000:00:1f.2-ata-2"),
  findmnt: '{"filesystems": []}',
  wipefs: '{"signatures": []}',
};

const ALL: DiskRule = { group: "data", names: { matches: () => true } };

const named = async (answers: Readonly<Record<string, string>>, ...rules: DiskRule[]) =>
  (await readNamedDisks(machine(answers), rules)).disks.map((
    { name, group, objections },
  ) => [name, group, ...objections]);

Deno.test("readNamedDisks() proposes what nobody uses, says what speaks against others, and changes nothing", async () => {
  const exec = machine(ANSWERS);
  const { disks: [data, system, ...others], names } = await readNamedDisks(exec, [ALL]);
  assertEquals([...names].toSorted(), ["ata-DATA", "ata-SYSTEM"]);
  assertEquals(data, {
    ...{ name: "ata-DATA", path: "/dev/sdb", size: 100n << 30n, rotational: true, group: "data", objections: [] },
  });
  assertEquals([system?.name, system?.objections, others], [
    "ata-SYSTEM",
    ["it has a signature (gpt)", "it has partitions (/dev/sda1)"],
    [],
  ]);
  assertEquals(exec.commands.filter(({ mutates }) => mutates), []);
});

Deno.test("readNamedDisks() takes the first rule that names a disk", async () => {
  const rule = (group: string, more: Partial<DiskRule>) => ({ ...ALL, group, ...more });
  assertEquals(await named(ANSWERS, rule("fast", { rotational: false, minBytes: 100n << 30n })), []);
  assertEquals(
    await named(ANSWERS, rule("small", { maxBytes: 99n << 30n, rotational: true }), rule("slow", { rotational: true })),
    [
      ["ata-DATA", "slow"],
    ],
  );
  assertEquals(await named(ANSWERS, rule("data", { names: { matches: (name) => name === "ata-OTHER" } })), []);
});

Deno.test("readNamedDisks() believes what is on the disk, and not what udev saw", async () => {
  const only = { ...ALL, rotational: true };
  const signed = { ...ANSWERS, wipefs: '{"signatures": [{"type": "ceph_bluestore"}]}' };
  assertEquals(await named(signed, only), [["ata-DATA", "data", "it has a signature (ceph_bluestore)"]]);
  const { wipefs: _, ...unreadable } = ANSWERS;
  assertEquals((await named(unreadable, only))[0]![2]!.startsWith("it cannot be read: "), true);
  const { "udevadm info --query=property --name=/dev/sdb": __, ...unknown } = ANSWERS;
  assertEquals(await named(unknown, only), [], "a disk without a name");
});

Deno.test("readNamedDisks() refuses a disk whose device a pod has", async () => {
  const mount = {
    ...{ target: "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/uid", source: "udev[/sdb]" },
    ...{ fstype: "devtmpfs", fsroot: "/sdb", "maj:min": "0:5", "vfs-options": "rw", "fs-options": "rw" },
  };
  const answers = { ...ANSWERS, findmnt: JSON.stringify({ filesystems: [mount] }) };
  assertEquals(await named(answers, { ...ALL, rotational: true }), [
    ["ata-DATA", "data", "its device is mounted, as a block volume of a pod is"],
  ]);
});

Deno.test("parseDevices() takes what lsblk does not say for the worse", () => {
  const [device] = parseDevices('{"blockdevices": [{"name": "/dev/sdx", "size": null, "type": null}]}');
  assertEquals(device, {
    ...{ path: "/dev/sdx", type: "", size: 0n, removable: true, readOnly: true, mountPoints: [], holders: [] },
  });
  for (const text of ["", "{}", '{"blockdevices": [{}]}', '{"blockdevices": {"name": "x"}}']) {
    assertThrows(() => parseDevices(text), StorageError);
  }
});

Deno.test("parseLinks() finds the paths of multipath devices", () => {
  assertEquals(parseLinks("DM_MULTIPATH_DEVICE_PATH=1\n").isPath, true);
  assertEquals(parseLinks("DM_MULTIPATH_DEVICE_PATH=0\n").isPath, false);
  assertEquals(parseLinks("ID_FS_TYPE=mpath_member\n").isPath, true);
  assertEquals(parseLinks(""), { ids: [], isPath: false });
});
