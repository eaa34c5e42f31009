import { assertEquals } from "@std/assert";
import { failure, FakeMachine } from "../../tests/fake/machine/machine.ts";
import { readSurvey } from "../model/survey.ts";
import { GroupSectors } from "./sectors.ts";

Deno.test("GroupSectors reads the largest sectors of a group's disks once, and again when it has other disks", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  machine.addGroup("fast", 1n << 30n).sectorBytes = 4_096;
  let reads = 0;
  machine.fault = ({ program }) => void (program === "lsblk" && reads++);
  const sectors = new GroupSectors(machine);
  const read = async () =>
    (await sectors.addTo((await readSurvey(machine)).groups)).map(({ name, sectorBytes }) => [name, sectorBytes]);
  assertEquals(await read(), [["data", 512n], ["fast", 4_096n]]);
  assertEquals([await read(), reads], [[["data", 512n], ["fast", 4_096n]], 2]);
  machine.groups[0]!.sectorBytes = 4_096;
  machine.groups[0]!.pvs[0]!.path = "/dev/sdx";
  assertEquals([await read(), reads], [[["data", 4_096n], ["fast", 4_096n]], 3]);
});

Deno.test("GroupSectors leaves out what it cannot read, and reads it with the next report", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const sectors = new GroupSectors(machine);
  const [group] = (await readSurvey(machine)).groups;
  const of = async (pvPaths: readonly string[]) => (await sectors.addTo([{ ...group!, pvPaths }]))[0]!.sectorBytes;
  assertEquals(await of([]), undefined);
  machine.fault = ({ program }) => program === "lsblk" ? failure(32, "lsblk: not a block device") : undefined;
  assertEquals(await of(group!.pvPaths), undefined);
  machine.fault = undefined;
  assertEquals(await of(group!.pvPaths), 512n);
});
