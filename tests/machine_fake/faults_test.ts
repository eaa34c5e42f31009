import { assert, assertEquals } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { REPORT_COMMAND } from "../../lvm/model/report_command.ts";
import { connect } from "../contract/helpers/csi_client.ts";
import { failure, type FakeGroup, FakeMachine, ok } from "../fake/machine/machine.ts";
import { leaveMetadataFree } from "../fake/machine/metadata_area.ts";
import { mount } from "../fake/machine/mount_tools.ts";
import { assertFails, failureStatus, Harness, mountCapability, volumeRequest } from "../contract/helpers/host.ts";

const GROUPS = ["test-small", "test-large"] as const;

/** Starts a driver on a machine of its own, with one group on each of two disks. */
async function createHarness() {
  const machine = new FakeMachine();
  machine.addGroup(GROUPS[0], 1n << 30n);
  machine.addGroup(GROUPS[1], 2n << 30n);
  const harness = await Harness.start(machine, GROUPS);
  const hangDisk = (disk: string) => {
    const pending = Promise.withResolvers<void>();
    machine.hungPvs.set(disk, pending);
    return () => {
      machine.hungPvs.delete(disk);
      pending.resolve();
    };
  };
  return { machine, harness, hangDisk, [Symbol.asyncDispose]: () => harness[Symbol.asyncDispose]() };
}

Deno.test("a disk that hangs stops its group, and no other", async () => {
  await using fixture = await createHarness();
  const { harness: { csi }, harness: driver } = fixture;
  const inFirst = { ...volumeRequest(), parameters: { volumeGroup: GROUPS[0] } };
  const inSecond = { ...volumeRequest(), parameters: { volumeGroup: GROUPS[1] } };
  const first = await driver.create(inFirst);
  const second = await driver.create(inSecond);
  const unknown = "v1-00000000000000000000000000000000";
  assertEquals((await csi.controller.listVolumes({})).entries.length, 2); // by a report, as which the group is shown
  const resume = fixture.hangDisk("/dev/vdb");

  const third = await driver.create({ ...volumeRequest(), parameters: { volumeGroup: GROUPS[1] } });
  assertEquals(await driver.create(inSecond), second);
  const stagingTargetPath = await driver.stage(second);
  await csi.node.nodeUnstageVolume({ volumeId: second, stagingTargetPath });
  await csi.controller.controllerExpandVolume({ volumeId: second, capacityRange: { requiredBytes: 64n << 20n } });
  await csi.controller.deleteVolume({ volumeId: third });
  const { snapshot } = await csi.controller.createSnapshot({ name: "cut", sourceVolumeId: second });
  await csi.controller.deleteSnapshot({ snapshotId: snapshot!.snapshotId });

  const unresponsive = "volume group test-small does not respond";
  await assertFails("UNAVAILABLE", driver.create(inFirst), unresponsive);
  await assertFails("UNAVAILABLE", driver.stage(first), unresponsive);
  await assertFails("UNAVAILABLE", csi.controller.deleteVolume({ volumeId: first }), unresponsive);
  await assertFails("UNAVAILABLE", csi.controller.deleteVolume({ volumeId: unknown }), unresponsive);
  await assertFails("UNAVAILABLE", csi.controller.deleteSnapshot({ snapshotId: unknown }), unresponsive);
  await assertFails("UNAVAILABLE", driver.create(), unresponsive); // it may be there
  assertEquals((await csi.controller.listVolumes({})).entries.length, 2);
  assertEquals((await csi.controller.getCapacity({ parameters: { volumeGroup: GROUPS[0] } })).availableCapacity, 0n);

  resume();
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals(await driver.create(inFirst), first);
  for (const volumeId of [first, second]) await csi.controller.deleteVolume({ volumeId });
  assertEquals(await driver.lvs(), []);
});

Deno.test("a group that does not answer is read again only when the report before has ended", async () => {
  await using fixture = await createHarness();
  await fixture.harness.csi.controller.getCapacity({});
  fixture.hangDisk("/dev/vdb");
  await fixture.harness.csi.controller.getCapacity({});
  const commands = await fixture.harness.exec.recordCommands(async () => {
    for (let count = 0; count < 3; count++) await fixture.harness.csi.controller.getCapacity({});
  });
  assertEquals(commands.length, 3);
  assert(commands.every((command) => command.endsWith("--devices /dev/vdc")), commands.join("\n"));
});

/** Returns the complete reports among commands: those that read all disks. */
function completeReports(commands: readonly string[]): string[] {
  return commands.filter((command) => command.startsWith("lvm fullreport") && !command.includes("--devices"));
}

Deno.test("a disk in no group that hangs stops nothing, and only one report waits for it", async () => {
  await using fixture = await createHarness();
  const { harness: driver } = fixture;
  const before = await driver.create();
  const resume = fixture.hangDisk("/dev/sdz");
  const commands = await driver.exec.recordCommands(async () => {
    const volumeId = await driver.create();
    const stagingTargetPath = await driver.stage(volumeId);
    await driver.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
    for (const id of [before, volumeId]) await driver.csi.controller.deleteVolume({ volumeId: id });
    await driver.waitUntilIdle();
  });
  assertEquals(completeReports(commands).length, 1);
  assertEquals(fixture.machine.allLvs(), []);
  resume();
  await driver.csi.controller.listVolumes({}); // the last one that reads each group
  const afterwards = await driver.exec.recordCommands(() => driver.csi.controller.listVolumes({}));
  assertEquals(completeReports(afterwards).length, 1);
});

Deno.test("before LVM ever answered, a disk that hangs makes everything UNAVAILABLE, and only one report waits for it", async () => {
  const machine = new FakeMachine();
  machine.addGroup(GROUPS[0], 1n << 30n);
  const hung = Promise.withResolvers<void>();
  machine.hungPvs.set("/dev/vdb", hung);
  await using driver = await Harness.start(machine, GROUPS);
  await assertFails("UNAVAILABLE", driver.create(), "no answer");
  const commands = await driver.exec.recordCommands(() => assertFails("UNAVAILABLE", driver.create(), "no answer"));
  assertEquals(completeReports(commands), []);
  machine.hungPvs.clear();
  hung.resolve();
  await new Promise((resolve) => setTimeout(resolve));
  await driver.create();
});

Deno.test("a change that hangs keeps its volume locked until it is over, and no other", async () => {
  await using fixture = await createHarness();
  const { harness: driver, machine } = fixture;
  const pending = Promise.withResolvers<void>();
  machine.fault = ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    machine.fault = undefined;
    throw new StorageError("StillRunning", "lvm lvcreate: still running", { completion: pending.promise });
  };
  const request = volumeRequest();
  await assertFails("ABORTED", driver.create(request), "still running");
  await assertFails("ABORTED", driver.create(request), "creation of it is running");
  await driver.create();
  pending.resolve();
  await new Promise((resolve) => setTimeout(resolve));
  await driver.create(request);
  assertEquals((await driver.lvs()).length, 2);
});

Deno.test("a group of others that LVM cannot read stops no call", async () => {
  await using fixture = await createHarness();
  const { harness: driver, machine } = fixture;
  const volumeId = await driver.create();
  machine.fault = ({ args }) => {
    if (args[0] !== "fullreport" || args.includes("--devices")) return undefined;
    return failure(5, "  Cannot process volume group foreign");
  };
  const other = await driver.create();
  const stagingTargetPath = await driver.stage(volumeId);
  await driver.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  assertEquals((await driver.csi.controller.listVolumes({})).entries.length, 2);
  for (const id of [volumeId, other]) await driver.csi.controller.deleteVolume({ volumeId: id });
  await driver.waitUntilIdle();
  assertEquals(machine.allLvs(), []);
});

Deno.test("a group of the driver that LVM cannot read stops its own volumes alone, and errors quote LVM", async () => {
  await using fixture = await createHarness();
  const { harness: driver, machine } = fixture;
  const [first, second] = [
    await driver.create({ parameters: { volumeGroup: GROUPS[0] } }),
    await driver.create({ parameters: { volumeGroup: GROUPS[1] } }),
  ];
  machine.fault = ({ args }) => {
    const at = args.indexOf("--devices");
    if (args[0] !== "fullreport" || (at >= 0 && !args[at + 1]!.includes("/dev/vdb"))) return undefined;
    return failure(5, "  Cannot process volume group test-small");
  };
  await assertFails("UNAVAILABLE", driver.stage(first), "Cannot process volume group test-small");
  await assertFails("UNAVAILABLE", driver.csi.controller.deleteVolume({ volumeId: first }), "Cannot process");
  await driver.csi.controller.deleteVolume({ volumeId: second });
  machine.fault = undefined;
  await driver.csi.controller.deleteVolume({ volumeId: first });
  assertEquals(await driver.lvs(), []);
});

Deno.test("a command that holds LVM's global lock stops no call: a report of a group by its name does not need the lock", async () => {
  await using fixture = await createHarness();
  const { harness: driver, machine } = fixture;
  const volumeId = await driver.create();
  machine.fault = ({ args }) => {
    if (args[0] !== "fullreport" || GROUPS.some((name) => args.includes(name))) return undefined;
    throw new StorageError("Unavailable", "lvm fullreport: no answer", { completion: Promise.resolve() });
  };
  const stagingTargetPath = await driver.stage(volumeId);
  await driver.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  await driver.csi.controller.deleteVolume({ volumeId });
  await driver.waitUntilIdle();
  assertEquals(machine.allLvs(), []);
});

/** Broken answers of lvm to a report. */
const BROKEN_REPORTS = [
  ["half a JSON", (answer: string) => ok(answer.slice(0, answer.length / 2))],
  ["nothing", () => ok("")],
  ["a failure", () => failure(5, "  Internal error: /dev/vdb: something odd")],
  ["a failure with a report", (answer: string) => ({ ...ok(answer), code: 5 })],
  ["a report without the UUIDs of LVs", (answer: string) => ok(answer.replaceAll("lv_uuid", "lv_guid")), "UNAVAILABLE"],
] as const;

for (const [what, answer, code = "INTERNAL"] of BROKEN_REPORTS) {
  Deno.test(`a report that is ${what} is ${code}, and changes nothing`, async () => {
    await using fixture = await createHarness();
    const { harness: driver, machine } = fixture;
    const volumeId = await driver.create();
    const { stdout } = await machine.run(REPORT_COMMAND);
    machine.fault = ({ args }) => args[0] === "fullreport" ? answer(stdout) : undefined;
    const capacityRange = { requiredBytes: 64n << 20n };
    const calls = [
      () => driver.create(),
      () => driver.stage(volumeId),
      () => driver.csi.controller.deleteVolume({ volumeId }),
      () => driver.csi.controller.controllerExpandVolume({ volumeId, capacityRange }),
      () => driver.csi.controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId }),
    ];
    for (const call of calls) {
      const commands = await driver.exec.recordCommands(() => assertFails(code, call()));
      assertEquals(commands.filter((command) => !/^lvm fullreport /.test(command)), []);
    }
    machine.fault = undefined;
    await driver.csi.controller.deleteVolume({ volumeId });
    assertEquals(await driver.lvs(), []);
  });
}

Deno.test("a volume group whose metadata area is full refuses new volumes with RESOURCE_EXHAUSTED", async () => {
  await using fixture = await createHarness();
  fixture.machine.fault = ({ args }) =>
    args[0] === "lvcreate"
      ? failure(
        5,
        "  VG test-small 11 metadata on /dev/vdb (524325 bytes) too large for circular buffer (1043968 bytes with 518643 used)\n  Failed to write VG test-small.",
      )
      : undefined;
  await assertFails("RESOURCE_EXHAUSTED", fixture.harness.create(), "too large for circular buffer");
});

Deno.test("a group with a missing disk gets no new volumes: they are created in another group", async () => {
  await using fixture = await createHarness();
  fixture.machine.groups[0]!.missingPvs = 1;
  const parameters = { volumeGroup: GROUPS[0] };
  await assertFails(
    "RESOURCE_EXHAUSTED",
    fixture.harness.create({ parameters }),
    "1 of its physical volumes are missing",
  );
  await fixture.harness.create();
  assertEquals((await fixture.harness.singleLv()).path.split("/")[0], GROUPS[1]);
});

/** What makes LVM refuse all changes of a group, and the words of its refusal. */
const UNCHANGEABLE = [
  ["is read-only", (machine: FakeMachine) => void (machine.groups[0]!.readOnly = true)],
  ["is exported", (machine: FakeMachine) => void (machine.groups[0]!.exported = true)],
  ["is one of several with the same name", (machine: FakeMachine) => void machine.addGroup(GROUPS[0], 1n << 30n)],
  ...[
    `Cannot update volume group ${GROUPS[0]} with duplicate PV devices.`,
    `Cannot change VG ${GROUPS[0]} with unknown segments in it!`,
    `Cannot update volume group ${GROUPS[0]} while physical volumes are missing.`,
    `Cannot access VG ${GROUPS[0]} due to failed lock.`,
    `Cannot access VG ${GROUPS[0]} with system ID other with unknown local system ID.`,
  ].map((words) => [words, (machine: FakeMachine) => void (machine.groups[0]!.unchangeable = words)] as const),
] as const;

Deno.test.each(UNCHANGEABLE)(
  "while a group %s, its changes are FAILED_PRECONDITION, and it gets no new volumes",
  async (words, refuse) => {
    await using fixture = await createHarness();
    const { harness: driver, machine } = fixture;
    const volumeId = await driver.create({ parameters: { volumeGroup: GROUPS[0] } });
    refuse(machine);
    const first = await driver.create({ name: "elsewhere" });
    assertEquals(machine.groups[1]!.lvs.length, 1, "the next group is tried");
    await driver.csi.controller.deleteVolume({ volumeId: first });
    const calls = [
      () => driver.stage(volumeId),
      () => driver.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: 64n << 20n } }),
      () => driver.csi.controller.createSnapshot({ name: "cut", sourceVolumeId: volumeId }),
      () => driver.csi.controller.deleteVolume({ volumeId }),
    ];
    for (const call of calls) await assertFails("FAILED_PRECONDITION", call(), words.replace("is one of several ", ""));
    await driver.create();
    assertEquals(machine.groups[1]!.lvs.length, 1);
    await assertFails("RESOURCE_EXHAUSTED", driver.create({ parameters: { volumeGroup: GROUPS[0] } }), GROUPS[0]);
    assertEquals(
      (await driver.csi.controller.getCapacity({ parameters: { volumeGroup: GROUPS[0] } })).availableCapacity,
      0n,
    );
  },
);

Deno.test("a volume is created elsewhere than in a damaged thin pool, which takes nothing of the space of other volumes", async () => {
  await using fixture = await createHarness();
  const { harness: driver, machine } = fixture;
  machine.fault = ({ args }) =>
    args.includes("--thinpool") && args.at(-1) === GROUPS[0]
      ? failure(5, `  Check of pool ${GROUPS[0]}/${GROUPS[0]}_thinpool failed (status:64). Manual repair required!`)
      : undefined;
  await driver.create({ name: "thin", parameters: { thinProvision: "yes" } });
  assertEquals(machine.groups[1]!.lvs.some(({ thinPool }) => thinPool !== undefined), true);
  await driver.create({ name: "thick", parameters: { volumeGroup: GROUPS[0] } });
});

Deno.test("a group with as many LVs as it may have, or a full metadata area, offers no space", async () => {
  const causes: [string, (group: FakeGroup) => void][] = [
    ["it has as many logical volumes as it may, 1", (group) => group.maxLvs = 1],
    ["its metadata area is full", (group) => leaveMetadataFree(group, 4000n)],
  ];
  for (const [reason, cause] of causes) {
    await using fixture = await createHarness();
    const { harness: driver, machine } = fixture;
    const parameters = { volumeGroup: GROUPS[0] };
    const volumeId = await driver.create({ name: "first", parameters });
    cause(machine.groups[0]!);
    assertEquals((await driver.csi.controller.getCapacity({ parameters })).availableCapacity, 0n);
    await assertFails("RESOURCE_EXHAUSTED", driver.create({ name: "second", parameters }), reason);
    await driver.create({ name: "second" });
    assertEquals(machine.groups[1]!.lvs.length, 1);
    await driver.csi.controller.controllerExpandVolume({ volumeId, capacityRange: { requiredBytes: 64n << 20n } });
    await driver.csi.controller.deleteVolume({ volumeId });
  }
});

Deno.test("a failure whose message gRPC cannot send as it is has its code, and the message is shortened", async () => {
  await using fixture = await createHarness();
  const { harness: driver, machine } = fixture;
  // an error of a program is cut after 1000 characters: here in the middle of one
  machine.fault = ({ args }) => args[0] === "lvcreate" ? failure(5, "x".repeat(999) + "\u{1F4BE}") : undefined;
  await assertFails("INTERNAL", driver.create(), "x".repeat(999));
  machine.fault = undefined;
  const flags = ["x".repeat(100_000)];
  const long = await failureStatus(driver.create({ volumeCapabilities: [mountCapability("ext4", flags)] }));
  assertEquals(long.code, "INVALID_ARGUMENT");
  assert(long.details.length < 4_096, `${long.details.length} characters`);
  await driver.create();
});

Deno.test("a busy mount is FAILED_PRECONDITION, and is unmounted when it is no longer busy", async () => {
  await using fixture = await createHarness();
  const { harness: driver, machine } = fixture;
  const volumeId = await driver.create();
  const stagingTargetPath = await driver.stage(volumeId);
  const targetPath = await driver.publish(volumeId);
  machine.busyTargets.add(targetPath).add(stagingTargetPath);
  const mounts = machine.mounts.length;
  await assertFails("FAILED_PRECONDITION", driver.csi.node.nodeUnpublishVolume({ volumeId, targetPath }), "busy");
  await assertFails("FAILED_PRECONDITION", driver.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath }), "busy");
  assertEquals([machine.mounts.length, (await Deno.stat(targetPath)).isDirectory], [mounts, true]);
  machine.busyTargets.clear();
  await driver.csi.node.nodeUnpublishVolume({ volumeId, targetPath });
  await driver.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
});

Deno.test("a volume stays locked while the unmount after a failed mount is running", async () => {
  await using fixture = await createHarness();
  const { harness, machine } = fixture;
  const volumeId = await harness.create();
  const stagingTargetPath = await harness.stage(volumeId);
  await harness.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  const ended = Promise.withResolvers<void>();
  machine.fault = (command) => {
    if (command.program === "mount") {
      mount(machine, command.args);
      return failure(32, "mount: filesystem was mounted, but any subsequent operation failed");
    }
    if (command.program !== "umount") return undefined;
    throw new StorageError("StillRunning", "umount: still running", { completion: ended.promise });
  };
  await assertFails("ABORTED", harness.stage(volumeId), "filesystem was mounted");
  machine.fault = undefined;
  await assertFails("ABORTED", harness.stage(volumeId), "staging of it is running");
  machine.mounts.pop();
  ended.resolve();
  await new Promise((resolve) => setTimeout(resolve));
  await harness.stage(volumeId);
  assertEquals(machine.mounts.length, 4);
});

Deno.test("a host whose mke2fs.conf makes another type of filesystem gets no volume that it cannot mount again", async () => {
  await using fixture = await createHarness();
  const { harness: driver, machine } = fixture;
  machine.host.mke2fsConf.set("ext4", ["has_journal"]);
  const volumeId = await driver.create();
  await assertFails("FAILED_PRECONDITION", driver.stage(volumeId), "mke2fs created ext3");
  const tags = [...machine.allLvs()[0]!.lv.tags].filter((tag) => tag.startsWith("denolith.fs="));
  assertEquals(tags.map((tag) => tag.split(":")[0]), ["denolith.fs=formatting"]);
  assertEquals(machine.mounts.filter(({ lv }) => lv !== undefined), []);

  machine.host.mke2fsConf.set("ext4", ["has_journal", "extent"]); // the administrator mends it
  const stagingTargetPath = await driver.stage(volumeId);
  await driver.csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath });
  await driver.stage(volumeId);
});

Deno.test("two drivers of different names share a group and never touch each other's", async () => {
  await using fixture = await createHarness();
  const request = volumeRequest();
  const volumeId = await fixture.harness.create(request);
  const other = await Harness.serve(fixture.machine, GROUPS, fixture.harness.folder, {
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
  await fixture.harness.singleLv();
});

Deno.test("two drivers of the same name create one LV for one request", async () => {
  await using fixture = await createHarness();
  const { machine, harness: driver } = fixture;
  const other = await Harness.start(machine, GROUPS);
  const blocked: (() => void)[] = [];
  machine.fault = ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    // both have found that there is none
    return new Promise((resolve) => {
      blocked.push(() => resolve(undefined));
      if (blocked.length === 2) blocked.forEach((go) => go());
    });
  };
  const request = volumeRequest();
  const results = await Promise.allSettled([driver.create(request), other.create(request)]);
  machine.fault = undefined;
  assertEquals(results.filter(({ status }) => status === "fulfilled").length, 1);
  await driver.singleLv();
  assertEquals(await other.create(request), await driver.create(request));
  await other[Symbol.asyncDispose]();
});
