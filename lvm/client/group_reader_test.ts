import { assertEquals, assertRejects } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { StorageError } from "../../base/error.ts";
import type { Output } from "../exec.ts";
import { type VolumeId, volumeIdOf } from "../../base/ids.ts";
import type { VolumeRequest } from "../inventory/volume.ts";
import { openMachine } from "../machine.ts";
import { exactMatcher, type GroupMatcher } from "../model/groups.ts";
import { LINEAR } from "../model/layout.ts";
import { REPORT_COMMAND } from "../model/report_command.ts";
import { Lvm } from "./client.ts";

/** Creates a machine with the groups `own` and `foreign`, whose report of all groups LVM refuses. */
function machineWithForeignGroup(stderr: string, change = (report: string) => report): FakeMachine {
  const machine = new FakeMachine();
  machine.addGroup("own", 1n << 30n);
  machine.addGroup("foreign", 1n << 30n);
  const refused = async (): Promise<Output> => {
    const { stdout } = await machine.run({ ...REPORT_COMMAND, args: [...REPORT_COMMAND.args, "own"] });
    return { code: 5, stdout: change(stdout), stderr };
  };
  machine.fault = ({ args }) => {
    const isOfAll = args[0] === "fullreport" && args.length === REPORT_COMMAND.args.length;
    return isOfAll ? refused() : undefined;
  };
  return machine;
}

const CANNOT_PROCESS = "  Cannot process volume group foreign\n";

function requestFor(id: VolumeId, groups: GroupMatcher): VolumeRequest {
  return {
    ...{
      id,
      range: { required: 32n << 20n },
      groups,
      preference: "mostFree",
      format: { state: "raw" },
      mkfsOptions: [],
    },
    ...{ shared: true, erase: "none", layout: LINEAR, limits: {} },
  };
}

/** Returns what a report shows of each group. */
async function statesOf(lvm: Lvm): Promise<string[]> {
  return (await lvm.report()).map(({ name, responsive, readError }) =>
    `${name} ${responsive} ${readError ?? ""}`.trim()
  );
}

Deno.test("before LVM has read all groups, those that it shows are read alone, and one that it names is unreadable", async () => {
  const machine = machineWithForeignGroup(CANNOT_PROCESS);
  const lvm = new Lvm(machine);
  const states = ["own true", "foreign false LVM: exit 5: Cannot process volume group foreign"];
  for (let report = 0; report < 2; report++) assertEquals(await statesOf(lvm), states);
  machine.fault = undefined;
  assertEquals(await statesOf(lvm), ["own true", "foreign true"]);
});

Deno.test("a group is marked while LVM finds one of its physical volumes on several disks, and is changed by reading all", async () => {
  const machine = new FakeMachine();
  const [group] = ["own", "other"].map((name) => machine.addGroup(name, 1n << 30n));
  const copy = { ...group!, pvs: group!.pvs.map((pv) => ({ ...pv, path: "/dev/copy" })) };
  const lvm = new Lvm(machine);
  const read = async () => (await lvm.report()).map(({ name, duplicatePvs }) => `${name} ${duplicatePvs}`);
  assertEquals(await read(), ["own undefined", "other undefined"]);
  machine.groups.push(copy);
  assertEquals(await read(), ["own true", "other undefined"]);
  const [own] = await lvm.report();
  const command = ["lvcreate", "--yes", "--name", "one", "--size", `${32n << 20n}b`, "own"];
  await assertRejects(() => lvm.change(own!, command), StorageError, "with duplicate PV devices");
  assertEquals([group!.lvs, copy.lvs], [[], []]);
  machine.groups.pop();
  assertEquals(await read(), ["own undefined", "other undefined"]);
});

Deno.test("a group that LVM cannot read from the start stops no call but those for what may be in it", async () => {
  const machine = machineWithForeignGroup(CANNOT_PROCESS);
  const groups = exactMatcher("own");
  const { volumes, background } = openMachine({
    exec: machine,
    driver: "d",
    groups,
    mountRoots: ["/p"],
    scratch: "/tmp",
  });
  const id = volumeIdOf("one");
  await volumes.create(requestFor(id, groups));
  await volumes.expand(id, { required: 64n << 20n });
  await volumes.delete(id);
  await background.idle();
  assertEquals(machine.allLvs(), []);
  const unknown = volumeIdOf("unknown");
  const words =
    "volume group foreign cannot be read: LVM: exit 5: Cannot process volume group foreign; look at its disks in pvs(8)";
  assertEquals((await assertRejects(() => volumes.delete(unknown), StorageError, words)).kind, "Unavailable");
  machine.fault = undefined;
  await volumes.delete(unknown);
  await background.stop();
});

Deno.test("a refused report that does not say which group it lacks, or is none, shows no group", async () => {
  const machines = [
    machineWithForeignGroup("  Internal error\n"),
    machineWithForeignGroup(CANNOT_PROCESS, () => '{"report": []}'),
    machineWithForeignGroup(CANNOT_PROCESS, (report) => report.slice(0, 20)),
  ];
  for (const machine of machines) {
    const lvm = new Lvm(machine);
    for (let report = 0; report < 2; report++) {
      assertEquals((await assertRejects(() => lvm.report(), StorageError)).kind, "CommandFailed");
    }
  }
});

/** What LVM 2.03.16 prints beside a report, which succeeds, of a group whose metadata it cannot read: as a whole, or their end. */
const WARNINGS = [
  "PV /dev/vdb is marked in use but no VG was found using it.",
  "Reading VG own on /dev/vdb failed.",
];

for (const warning of WARNINGS) {
  Deno.test(`a group that a report lacks is not gone when LVM warns: ${warning}`, async () => {
    const machine = new FakeMachine();
    const own = machine.addGroup("own", 1n << 30n);
    machine.addGroup("other", 1n << 30n);
    const groups = exactMatcher("own");
    const { lvm, volumes, background } = openMachine({
      ...{ exec: machine, driver: "d", groups, mountRoots: ["/p"], scratch: "/tmp" },
    });
    const id = volumeIdOf("one");
    const request = requestFor(id, groups);
    await volumes.create(request);
    machine.groups.shift();
    machine.host.warnings = [warning, "repair it with vgck --updatemetadata."];
    const readError = `LVM: ${warning.slice(0, -1)}`;
    for (let report = 0; report < 2; report++) {
      assertEquals(await statesOf(lvm), ["other true", `own false ${readError}`]);
    }
    for (const call of [() => volumes.create(request), () => volumes.delete(id)]) {
      assertEquals(
        (await assertRejects(call, StorageError, `volume group own cannot be read: ${readError}`)).kind,
        "Unavailable",
      );
    }
    machine.groups.unshift(own);
    machine.host.warnings = [];
    assertEquals(await statesOf(lvm), ["own true", "other true"]);
    await volumes.delete(id);
    await background.stop();
  });
}

Deno.test("a group that was never known is unreadable when LVM names it in a warning, and a PV of another group says nothing", async () => {
  const machine = new FakeMachine();
  machine.addGroup("own", 1n << 30n);
  machine.host.warnings = [
    "Reading VG foreign on /dev/vdz failed.",
    "PV /dev/vdy is marked in use but no VG was found using it.",
  ];
  const foreign = "foreign false LVM: Reading VG foreign on /dev/vdz failed";
  const lvm = new Lvm(machine);
  for (let report = 0; report < 2; report++) assertEquals(await statesOf(lvm), ["own true", foreign]);
});

Deno.test("a group that a report shows is there, also when LVM cannot read it on one of its disks", async () => {
  const machine = new FakeMachine();
  machine.addGroup("own", 1n << 30n, 4n << 20n, 2);
  machine.addGroup("other", 1n << 30n);
  const lvm = new Lvm(machine);
  await lvm.report();
  machine.host.warnings = WARNINGS;
  assertEquals(await statesOf(lvm), ["own true", "other true"]);
});
