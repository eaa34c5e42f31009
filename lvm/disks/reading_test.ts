import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import type { Command, Exec } from "../exec.ts";
import { type DiskRule, parseDevices, parseLinks, readNamedDisks } from "./reading.ts";

/** What lsblk of util-linux 2.38 and 2.41 prints, shortened. */
const LSBLK = {
  blockdevices: [
    {
      ...{
        name: "/dev/sda",
        "maj:min": "8:0",
        type: "disk",
        size: 64424509440,
        rota: false,
        rm: false,
        hotplug: false,
        ro: false,
      },
      ...{ tran: "sata", fstype: null, pttype: "gpt", mountpoints: [null] },
      children: [{ name: "/dev/sda1", type: "part", size: 1, mountpoints: ["/"] }],
    },
    {
      ...{
        name: "/dev/sdb",
        "maj:min": "8:16",
        type: "disk",
        size: 107374182400,
        rota: true,
        rm: false,
        hotplug: false,
        ro: false,
      },
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
  `DEVPATH=/devices/x\nDEVLINKS=/dev/disk/by-path/${path} /dev/disk/by-id/${id}\nID_PATH=${path}\n` +
  `USEC_INITIALIZED=1201\nDISKSEQ=3\n`;

const ANSWERS = {
  "lsblk --json --bytes --paths": JSON.stringify(LSBLK),
  "lsblk --json --bytes --nodeps": '{"blockdevices": [{"name": "sdb", "maj:min": "8:16", "size": 1, "ro": false}]}',
  "find -H /var/lib/kubelet": "",
  "udevadm info --query=property --name=/dev/sda": properties("ata-SYSTEM"),
  "udevadm info --query=property --name=/dev/sdb": properties("ata-DATA", "pci-0000:00:1f.2-ata-2"),
  findmnt: '{"filesystems": []}',
  wipefs: '{"signatures": []}',
};

const KUBELET = { kubeletDirectory: "/var/lib/kubelet" };

const ALL: DiskRule = { group: "data", names: { matches: () => true } };

const named = async (answers: Readonly<Record<string, string>>, ...rules: DiskRule[]) =>
  (await readNamedDisks(machine(answers), { rules, ...KUBELET })).disks.map((
    { name, group, objections },
  ) => [name, group, ...objections]);

Deno.test("readNamedDisks() proposes what nobody uses, says what speaks against others, and changes nothing", async () => {
  const exec = machine(ANSWERS);
  const { disks: [data, system, ...others], names } = await readNamedDisks(exec, { rules: [ALL], ...KUBELET });
  assertEquals([...names].toSorted(), ["ata-DATA", "ata-SYSTEM"]);
  const { identity, ...rest } = data!;
  assertEquals(identity?.length, 32);
  assertEquals(rest, {
    ...{
      name: "ata-DATA",
      ids: ["ata-DATA"],
      path: "/dev/sdb",
      number: "8:16",
      size: 100n << 30n,
      rotational: true,
      group: "data",
      objections: [],
    },
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

Deno.test("readNamedDisks() refuses a disk whose name leads to another device, or to none", async () => {
  const link = "lsblk --json --bytes --nodeps --output NAME,MAJ:MIN,SIZE,RO /dev/disk/by-id/ata-DATA";
  const other = { ...ANSWERS, [link]: '{"blockdevices": [{"name": "sda", "maj:min": "8:0", "size": 1, "ro": false}]}' };
  const only = { ...ALL, rotational: true };
  const path = "/dev/disk/by-id/ata-DATA";
  assertEquals(await named(withFirst(other, link), only), [[
    "ata-DATA",
    "data",
    `${path} leads to another device (sda)`,
  ]]);
  const none = { ...ANSWERS, [link]: '{"blockdevices": []}' };
  assertEquals(await named(withFirst(none, link), only), [["ata-DATA", "data", `${path} leads to no device`]]);
});

Deno.test("readNamedDisks() refuses a disk whose device a pod has: a mount, a node, or a link", async () => {
  const publish = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/uid";
  const mount = {
    ...{ target: publish, source: "udev[/sdb]" },
    ...{ fstype: "devtmpfs", fsroot: "/sdb", "maj:min": "0:5", "vfs-options": "rw", "fs-options": "rw" },
  };
  const refused = [["ata-DATA", "data", `it is a block volume of a pod (${publish})`]];
  const mounted = { ...ANSWERS, findmnt: JSON.stringify({ filesystems: [mount] }) };
  assertEquals(await named(mounted, { ...ALL, rotational: true }), refused);
  const made = { ...ANSWERS, "find -H /var/lib/kubelet/plugins": `${publish}\0` };
  assertEquals(await named(withFirst(made, "find -H /var/lib/kubelet/plugins"), { ...ALL, rotational: true }), refused);
  const { "find -H /var/lib/kubelet": _, ...unreadable } = ANSWERS;
  await assertRejects(() => named(unreadable, ALL), StorageError, "find -H /var/lib/kubelet/pods");
});

/** Returns answers in an order in which a longer beginning of a command comes first. */
function withFirst(answers: Readonly<Record<string, string>>, first: string): Record<string, string> {
  return { [first]: answers[first]!, ...answers };
}

Deno.test("parseDevices() takes what lsblk does not say for the worse", () => {
  const [device] = parseDevices('{"blockdevices": [{"name": "/dev/sdx", "size": null, "type": null}]}');
  assertEquals(device, {
    ...{
      path: "/dev/sdx",
      number: "",
      type: "",
      size: 0n,
      removable: true,
      readOnly: true,
      mountPoints: [],
      holders: [],
    },
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

Deno.test("parseLinks() tells since when a device is attached, if udev knows it", () => {
  assertEquals(parseLinks("USEC_INITIALIZED=7\nDISKSEQ=2\n").attachment, "2 7");
  assertEquals(parseLinks("USEC_INITIALIZED=7\n").attachment, "- 7", "Linux before 5.15");
  assertEquals(parseLinks("DISKSEQ=2\n").attachment, undefined);
});
