import { assert, assertEquals } from "@std/assert";
import { StorageError } from "../lvm/error.ts";
import { connect } from "../csi/client.ts";
import { FakeMachine, ok, refuse } from "./fake/machine.ts";
import { assertFails, Bench, volumeRequest } from "./contract/host.ts";

const GROUPS = ["test-small", "test-large"] as const;

/** A driver on a machine of its own, with one group on each of two disks. */
async function bench() {
  const machine = new FakeMachine();
  machine.addGroup(GROUPS[0], 1n << 30n);
  machine.addGroup(GROUPS[1], 2n << 30n);
  const bench = await Bench.start(machine, GROUPS);
  const hang = (disk: string) => {
    const hung = Promise.withResolvers<void>();
    machine.hung.set(disk, hung);
    return () => {
      machine.hung.delete(disk);
      hung.resolve();
    };
  };
  return { machine, bench, hang, [Symbol.asyncDispose]: () => bench[Symbol.asyncDispose]() };
}

Deno.test("a disk that hangs stops its group, and no other", async () => {
  await using here = await bench();
  const { bench: { csi }, bench: driver } = here;
  const inFirst = { ...volumeRequest(), parameters: { volumeGroup: GROUPS[0] } };
  const inSecond = { ...volumeRequest(), parameters: { volumeGroup: GROUPS[1] } };
  const first = await driver.create(inFirst);
  const second = await driver.create(inSecond);
  const unknown = "v1-00000000000000000000000000000000";
  const recover = here.hang("/dev/vdb");

  const third = await driver.create({ ...volumeRequest(), parameters: { volumeGroup: GROUPS[1] } });
  assertEquals(await driver.create(inSecond), second);
  const stagingTargetPath = await driver.stage(second);
  await csi.node.nodeUnstageVolume({ volumeId: second, stagingTargetPath });
  await csi.controller.controllerExpandVolume({ volumeId: second, capacityRange: { requiredBytes: 64n << 20n } });
  await csi.controller.deleteVolume({ volumeId: third });
  const { snapshot } = await csi.controller.createSnapshot({ name: "cut", sourceVolumeId: second });
  await csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });

  const silent = "volume group test-small does not answer";
  await assertFails("UNAVAILABLE", driver.create(inFirst), silent);
  await assertFails("UNAVAILABLE", driver.stage(first), silent);
  await assertFails("UNAVAILABLE", csi.controller.deleteVolume({ volumeId: first }), silent);
  await assertFails("UNAVAILABLE", csi.controller.deleteVolume({ volumeId: unknown }), silent);
  await assertFails("UNAVAILABLE", csi.controller.deleteSnapshot({ snapshotId: unknown }), silent);
  await assertFails("UNAVAILABLE", driver.create(), silent); // it may be there
  assertEquals((await csi.controller.listVolumes({})).entries.length, 2);
  assertEquals((await csi.controller.getCapacity({ parameters: { volumeGroup: GROUPS[0] } })).availableCapacity, 0n);

  recover();
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals(await driver.create(inFirst), first);
  for (const volumeId of [first, second]) await csi.controller.deleteVolume({ volumeId });
  assertEquals(await driver.lvs(), []);
});

Deno.test("a group that does not answer is asked again only when the question before is over", async () => {
  await using here = await bench();
  await here.bench.csi.controller.getCapacity({});
  here.hang("/dev/vdb");
  await here.bench.csi.controller.getCapacity({});
  const commands = await here.bench.exec.during(async () => {
    for (let count = 0; count < 3; count++) await here.bench.csi.controller.getCapacity({});
  });
  assertEquals(commands.length, 3);
  assert(commands.every((command) => command.endsWith("--devices /dev/vdc")), commands.join("\n"));
});

Deno.test("before LVM ever answered, a disk that hangs makes everything UNAVAILABLE", async () => {
  const machine = new FakeMachine();
  machine.addGroup(GROUPS[0], 1n << 30n);
  machine.hung.set("/dev/vdb", Promise.withResolvers());
  await using driver = await Bench.start(machine, GROUPS);
  await assertFails("UNAVAILABLE", driver.create(), "no answer");
});

Deno.test("a change that hangs keeps its volume locked until it is over, and no other", async () => {
  await using here = await bench();
  const { bench: driver, machine } = here;
  const hung = Promise.withResolvers<void>();
  machine.fault = ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    machine.fault = undefined;
    throw new StorageError("StillRunning", "lvm lvcreate: still running", { settled: hung.promise });
  };
  const request = volumeRequest();
  await assertFails("ABORTED", driver.create(request), "still running");
  await assertFails("ABORTED", driver.create(request), "creation of it is running");
  await driver.create();
  hung.resolve();
  await new Promise((resolve) => setTimeout(resolve));
  await driver.create(request);
  assertEquals((await driver.lvs()).length, 2);
});

/** What a broken lvm may answer to a report. */
const ODD = [
  ["half a JSON", (answer: string) => ok(answer.slice(0, answer.length / 2))],
  ["nothing", () => ok("")],
  ["a failure", () => refuse(5, "  Internal error: /dev/vdb: something odd")],
  ["a failure with a report", (answer: string) => ({ ...ok(answer), code: 5 })],
  ["a report without a field", (answer: string) => ok(answer.replaceAll("lv_uuid", "lv_guid"))],
] as const;

for (const [what, answer] of ODD) {
  Deno.test(`a report that is ${what} is INTERNAL, and nothing is done on its ground`, async () => {
    await using here = await bench();
    const { bench: driver, machine } = here;
    const volumeId = await driver.create();
    machine.fault = async (command) => {
      if (command.args[0] !== "fullreport") return undefined;
      machine.fault = undefined;
      const { stdout } = await machine.run(command);
      return answer(stdout);
    };
    const { fault } = machine;
    const capacityRange = { requiredBytes: 64n << 20n };
    const calls = [
      () => driver.create(),
      () => driver.stage(volumeId),
      () => driver.csi.controller.deleteVolume({ volumeId }),
      () => driver.csi.controller.controllerExpandVolume({ volumeId, capacityRange }),
      () => driver.csi.controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId }),
    ];
    for (const call of calls) {
      machine.fault = fault;
      const commands = await driver.exec.during(() => assertFails("INTERNAL", call()));
      assertEquals(commands.filter((command) => !/^(?:lvm fullreport|findmnt) /.test(command)), []);
    }
    await driver.csi.controller.deleteVolume({ volumeId });
    assertEquals(await driver.lvs(), []);
  });
}

Deno.test("a volume group whose metadata area is full refuses new volumes with RESOURCE_EXHAUSTED", async () => {
  await using here = await bench();
  here.machine.fault = ({ args }) =>
    args[0] === "lvcreate"
      ? refuse(
        5,
        "  VG test-small 11 metadata on /dev/vdb (524325 bytes) too large for circular buffer (1043968 bytes with 518643 used)\n  Failed to write VG test-small.",
      )
      : undefined;
  await assertFails("RESOURCE_EXHAUSTED", here.bench.create(), "too large for circular buffer");
});

Deno.test("a disk that is missing keeps its group from new volumes, which go to another", async () => {
  await using here = await bench();
  here.machine.groups[0]!.missingPvs = 1;
  const parameters = { volumeGroup: GROUPS[0] };
  await assertFails("RESOURCE_EXHAUSTED", here.bench.create({ parameters }), "1 of its disks are missing");
  await here.bench.create();
  assertEquals((await here.bench.onlyLv()).path.split("/")[0], GROUPS[1]);
});

Deno.test("a mount that is busy is FAILED_PRECONDITION, and stays as it is until it is not", async () => {
  await using here = await bench();
  const { bench: driver, machine } = here;
  const volumeId = await driver.create();
  const stagingTargetPath = await driver.stage(volumeId);
  const targetPath = await driver.publish(volumeId);
  machine.busy.add(targetPath).add(stagingTargetPath);
  const mounts = machine.mounts.length;
  await assertFails("FAILED_PRECONDITION", driver.csi.node.nodeUnpublishVolume({ volumeId, targetPath }), "busy");
  await assertFails("FAILED_PRECONDITION", driver.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath }), "busy");
  assertEquals([machine.mounts.length, (await Deno.stat(targetPath)).isDirectory], [mounts, true]);
  machine.busy.clear();
  await driver.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
  await driver.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
});

Deno.test("two drivers of different names share a group and never touch each other's", async () => {
  await using here = await bench();
  const request = volumeRequest();
  const volumeId = await here.bench.create(request);
  const other = await Bench.serve(here.machine, GROUPS, here.bench.folder, {
    socket: "other.sock",
    driver: "other.denolith.dev",
  });
  {
    using csi = connect(other.socketPath);
    assertEquals((await csi.controller.listVolumes({})).entries, []);
    await csi.controller.deleteVolume({ volumeId });
    await assertFails("NOT_FOUND", csi.controller.controllerGetVolume({ volumeId }));
    // the name of the LV is taken, in this group and not in the other
    await assertFails("ALREADY_EXISTS", csi.controller.createVolume(request));
  }
  await other.stop(1000);
  await here.bench.onlyLv();
});

Deno.test("two drivers of one name make one LV between them", async () => {
  await using here = await bench();
  const { machine, bench: driver } = here;
  const other = await Bench.start(machine, GROUPS);
  const waiting: (() => void)[] = [];
  machine.fault = ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    // both have seen that there is none
    return new Promise((resolve) => {
      waiting.push(() => resolve(undefined));
      if (waiting.length === 2) waiting.forEach((go) => go());
    });
  };
  const request = volumeRequest();
  const results = await Promise.allSettled([driver.create(request), other.create(request)]);
  machine.fault = undefined;
  assertEquals(results.filter(({ status }) => status === "fulfilled").length, 1);
  await driver.onlyLv();
  assertEquals(await other.create(request), await driver.create(request));
  await other[Symbol.asyncDispose]();
});
