import { assertEquals, assertThrows } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine.ts";
import { snapshotIdOf, volumeIdOf } from "../ids.ts";
import { parseReport, REPORT_COMMAND } from "../model/report.ts";
import { needOf, nextLookMs, parseStorePolicy, type Store, storesAtRisk } from "./cow_growth.ts";
import { snapshotTags } from "../model/tags.ts";

const MiB = 1n << 20n;
const POLICY = { threshold: 70, step: 20 };
const [id, source] = [snapshotIdOf("cut"), volumeIdOf("one")];

/** A store of so many MiB of a snapshot of 1 GiB, in a group with so much free beside it. */
async function storesOf(
  { mib = 100n, free = 1100n, percent = 0, tags = snapshotTags("d", { id, source, erase: "zero" }) },
) {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", (1024n + mib + free) * MiB);
  const lvcreate = (...args: string[]) =>
    machine.run({ program: "lvm", args: ["lvcreate", "--yes", ...args], mutates: true });
  await lvcreate("--size", `${1024n * MiB}b`, "--name", "vol-1", "data");
  const addTags = tags.flatMap((tag) => ["--addtag", tag]);
  await lvcreate("--snapshot", "--size", `${mib * MiB}b`, "--name", "snap-1", ...addTags, "data/vol-1");
  group.lvs[1]!.storePercent = percent;
  return {
    group,
    read: async () => storesAtRisk(parseReport((await machine.run(REPORT_COMMAND)).stdout), "d"),
  };
}

async function need(options: Parameters<typeof storesOf>[0]): Promise<bigint | string> {
  const [store] = await (await storesOf(options)).read();
  const need = needOf(store!, POLICY);
  return need.kind === "grow" ? need.size / MiB : need.kind;
}

Deno.test("parseStorePolicy() takes a threshold and a step, or off", () => {
  assertEquals(parseStorePolicy("70:20"), POLICY);
  assertEquals(parseStorePolicy("off"), undefined);
  for (const text of ["", "70", "9:20", "100:20", "70:0", "70:1000", "70%:20%", " 70:20", "-70:20"]) {
    assertThrows(() => parseStorePolicy(text), Error, "threshold from 10 to 99");
  }
});

Deno.test("storesAtRisk() are those of the driver's snapshots that have a content and could overflow", async () => {
  const { group, read } = await storesOf({});
  assertEquals((await read()).map((store) => [store.id, store.source]), [[id, source]]);
  const [, store] = group.lvs;
  const count = async (change: object) => {
    const before = { ...store! };
    Object.assign(store!, change);
    const { length } = await read();
    Object.assign(store!, before);
    return length;
  };
  assertEquals(await count({ active: false }), 0, "how full it is is not known");
  assertEquals(await count({ invalid: true }), 0, "it is lost already");
  assertEquals(await count({ size: 1032n * MiB }), 0, "all of the volume has room");
  assertEquals(await count({ size: 1028n * MiB }), 1, "all of the volume has room, but not its table");
  assertEquals(await count({ tags: new Set(snapshotTags("other", { id, source, erase: "zero" })) }), 0);
  assertEquals(
    await count({ tags: new Set(["denolith=d", `denolith.snapshot=${id}`]) }),
    0,
    "tags that cannot be read",
  );
});

Deno.test("needOf(): at the threshold a step, or more to be below it; never more than is free, or of use", async () => {
  assertEquals(await need({ percent: 69.99 }), "none");
  assertEquals(await need({ percent: 70 }), 120n);
  assertEquals(await need({ percent: 100 }), 144n, "143 MiB would be 70 % full: a step is too little");
  assertEquals(await need({ percent: 70, free: 11n }), 108n, "what there is, in whole extents");
  assertEquals(await need({ percent: 70, free: 3n }), "stuck");
  assertEquals(await need({ percent: 90, mib: 1000n }), 1032n, "more would be of no use");
  const { group, read } = await storesOf({ percent: 90 });
  group.readOnly = true;
  assertEquals(needOf((await read())[0]!, POLICY).kind, "stuck");
});

Deno.test("nextLookMs() is never, a minute, or ten seconds when a store is at half its threshold", async () => {
  assertEquals(nextLookMs([], POLICY), undefined);
  const at = async (percent: number): Promise<Store[]> => await (await storesOf({ percent })).read();
  assertEquals(nextLookMs(await at(34.9), POLICY), 60_000);
  assertEquals(nextLookMs([...await at(0), ...await at(35)], POLICY), 10_000);
});
