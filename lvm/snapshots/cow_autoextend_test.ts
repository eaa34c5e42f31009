import { assertEquals, assertThrows } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { parseReport } from "../model/report_parser.ts";
import { REPORT_COMMAND } from "../model/report_command.ts";
import {
  cowsAtRisk,
  type CowUsage,
  decideCowExtension,
  nextCheckMs,
  parseSnapshotAutoextend,
} from "./cow_autoextend.ts";
import { snapshotTags } from "../model/tags.ts";

const MiB = 1n << 20n;
const AUTOEXTEND = { threshold: 70, percent: 20 };
const [id, source] = [snapshotIdOf("cut"), volumeIdOf("one")];

/** Creates a snapshot of a volume of 1 GiB with COW space of `mib` MiB, in a group with `free` MiB of free space. */
async function setUpCow(
  { mib = 100n, free = 1100n, percent = 0, tags = snapshotTags("d", { id, source, erase: "zero" }) },
) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", (1024n + mib + free) * MiB);
  const lvcreate = (...args: string[]) =>
    machine.run({ program: "lvm", args: ["lvcreate", "--yes", ...args], mutates: true });
  await lvcreate("--size", `${1024n * MiB}b`, "--name", "vol-1", "data");
  const addTags = tags.flatMap((tag) => ["--addtag", tag]);
  await lvcreate("--snapshot", "--size", `${mib * MiB}b`, "--name", "snap-1", ...addTags, "data/vol-1");
  group.lvs[1]!.cowPercent = percent;
  return {
    group,
    read: async () => cowsAtRisk(parseReport((await machine.run(REPORT_COMMAND)).stdout), "d"),
  };
}

async function decide(options: Parameters<typeof setUpCow>[0]): Promise<bigint | string> {
  const [cow] = await (await setUpCow(options)).read();
  const decision = decideCowExtension(cow!, AUTOEXTEND);
  return decision.kind === "extend" ? decision.size / MiB : decision.kind;
}

Deno.test("parseSnapshotAutoextend() accepts a threshold and a percentage, or off", () => {
  assertEquals(parseSnapshotAutoextend("70:20"), AUTOEXTEND);
  assertEquals(parseSnapshotAutoextend("off"), undefined);
  for (const text of ["", "70", "9:20", "100:20", "70:0", "70:1000", "70%:20%", " 70:20", "-70:20"]) {
    assertThrows(() => parseSnapshotAutoextend(text), Error, "threshold from 10 to 99");
  }
});

Deno.test("cowsAtRisk() returns the COW space of the driver's snapshots that could still overflow", async () => {
  const { group, read } = await setUpCow({});
  assertEquals((await read()).map((cow) => [cow.id, cow.source]), [[id, source]]);
  const [, cow] = group.lvs;
  const count = async (change: object) => {
    const before = { ...cow! };
    Object.assign(cow!, change);
    const { length } = await read();
    Object.assign(cow!, before);
    return length;
  };
  assertEquals(await count({ active: false }), 0, "its usage is not known");
  assertEquals(await count({ invalid: true }), 0, "it is lost already");
  assertEquals(await count({ size: 1032n * MiB }), 0, "it can hold the whole volume");
  assertEquals(await count({ size: 1028n * MiB }), 1, "it can hold the whole volume, but not its table");
  assertEquals(await count({ tags: new Set(snapshotTags("other", { id, source, erase: "zero" })) }), 0);
  assertEquals(
    await count({ tags: new Set(["denolith=d", `denolith.snapshot=${id}`]) }),
    0,
    "tags that cannot be read",
  );
});

Deno.test("decideCowExtension() extends at the threshold until below it, by no more than is free or useful", async () => {
  assertEquals(await decide({ percent: 69.99 }), "none");
  assertEquals(await decide({ percent: 70 }), 120n);
  assertEquals(await decide({ percent: 100 }), 144n, "143 MiB would be 70 % full: 20 % more is too little");
  assertEquals(await decide({ percent: 70, free: 11n }), 108n, "all that is free, in whole extents");
  assertEquals(await decide({ percent: 70, free: 3n }), "cannotExtend");
  assertEquals(await decide({ percent: 90, mib: 1000n }), 1032n, "more would be useless");
  const { group, read } = await setUpCow({ percent: 90 });
  group.readOnly = true;
  assertEquals(decideCowExtension((await read())[0]!, AUTOEXTEND).kind, "cannotExtend");
});

Deno.test("nextCheckMs() returns never, a minute, or ten seconds while any COW space is at half its threshold", async () => {
  assertEquals(nextCheckMs([], AUTOEXTEND), undefined);
  const cowsAt = async (percent: number): Promise<CowUsage[]> => await (await setUpCow({ percent })).read();
  assertEquals(nextCheckMs(await cowsAt(34.9), AUTOEXTEND), 60_000);
  assertEquals(nextCheckMs([...await cowsAt(0), ...await cowsAt(35)], AUTOEXTEND), 10_000);
});
