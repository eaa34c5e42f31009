import { assertEquals, assertRejects } from "@std/assert";
import { spareDisk } from "../../tests/fake/machine/disks.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { Lvm } from "../client/client.ts";
import { StorageError } from "../../base/error.ts";
import type { DiskRecord, DiskStep } from "./orders.ts";
import type { NamedDisk } from "./reading.ts";
import { DiskTaking } from "./taking.ts";

const RECORD: DiskRecord = { name: "ata-SPARE_b", group: "data", pvUuid: "aaaaaa-bbbb-cccc-dddd-eeee-ffff-gggggg" };

const DISK: NamedDisk = {
  ...{ name: "ata-SPARE_b", ids: ["ata-SPARE_b"], path: "/dev/sdb", number: "8:16", size: 10n << 30n },
  ...{ group: "data", identity: "i", objections: [] },
};

Deno.test("act() runs nothing when the name of the disk leads to another one, or to none, by then", async () => {
  for (const disks of [[spareDisk("c", { ids: ["ata-SPARE_b"] })], []]) {
    const machine = new FakeMachine();
    const group = machine.addGroup("data", 1n << 30n);
    machine.host.disks.push(...disks);
    const commands: string[] = [];
    machine.fault = ({ program, args }) => {
      if (program === "lvm") commands.push(args.join(" "));
      return undefined;
    };
    const lvm = new Lvm(machine);
    const taking = new DiskTaking({ lvm, rules: [], kubeletDirectory: "/var/lib/kubelet" });
    const steps: DiskStep[] = [
      { kind: "createPv", disk: DISK, record: RECORD },
      { kind: "createGroup", disk: DISK, record: RECORD },
      { kind: "extendGroup", disk: DISK, group: group as never },
    ];
    for (const step of steps) {
      const words = "/dev/disk/by-id/ata-SPARE_b does not lead to device 8:16 any more";
      await assertRejects(() => taking.act(step), StorageError, words);
    }
    assertEquals([commands, disks.map(({ writes }) => writes)], [[], disks.map(() => 0)]);
  }
});

Deno.test("running resolves when a command that outlasted its deadline has ended", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const machine = new FakeMachine();
  machine.host.disks.push(spareDisk("b"));
  machine.fault = ({ args: [subcommand] }) => {
    if (subcommand === "pvcreate") throw new StorageError("StillRunning", "it runs", { completion: promise });
    return undefined;
  };
  const taking = new DiskTaking({ lvm: new Lvm(machine), rules: [], kubeletDirectory: "/var/lib/kubelet" });
  await assertRejects(() => taking.act({ kind: "createPv", disk: DISK, record: RECORD }), StorageError, "it runs");
  let isOver = false;
  const ended = taking.running!.then(() => void (isOver = true));
  await new Promise((settled) => setTimeout(settled));
  assertEquals(isOver, false);
  resolve();
  await ended;
  assertEquals(taking.running, undefined);
});

Deno.test("act() lets LVM read the new disk beside those of the group, while another disk hangs", async () => {
  const machine = new FakeMachine();
  const { pvs } = machine.addGroup("data", 1n << 30n);
  machine.host.disks.push(spareDisk("b"));
  const lvm = new Lvm(machine);
  await lvm.report();
  const commands: string[] = [];
  machine.fault = ({ program, args }) => {
    if (args[0] === "fullreport" && !args.includes("--devices")) {
      throw new StorageError("Unavailable", "no answer", { completion: new Promise(() => {}) });
    }
    if (program === "lvm" && args[0] === "vgextend") commands.push(args.join(" "));
    return undefined;
  };
  const [group] = await lvm.report();
  const taking = new DiskTaking({ lvm, rules: [], kubeletDirectory: "/var/lib/kubelet" });
  await taking.act({ kind: "extendGroup", disk: DISK, group: group! }).catch(() => {});
  const path = "/dev/disk/by-id/ata-SPARE_b";
  assertEquals(commands, [`vgextend --devices ${pvs[0]!.path},${path} data ${path}`]);
});
