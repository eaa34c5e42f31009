import { assertEquals } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine.ts";
import { snapshotIdOf, volumeIdOf } from "../ids.ts";
import { openMachine } from "../machine.ts";
import { ANY_GROUP } from "../model/groups.ts";
import { LINEAR } from "../model/layout.ts";
import type { Extent, ListRequest } from "./differences.ts";

const MiB = 1n << 20n;

Deno.test("a list has no group of ranges without a range, and no range without a length", async () => {
  const exec = new FakeMachine();
  exec.addGroup("data", 1024n * MiB);
  const machine = openMachine({ exec, driver: "d", groups: ANY_GROUP, mountRoots: ["/pods"], scratch: "/tmp" });
  await machine.volumes.create({
    ...{ id: volumeIdOf("v"), range: { required: 16n * MiB }, groups: ANY_GROUP, preference: "mostFree" },
    ...{ format: { state: "raw" }, mkfsOptions: [], shared: true, erase: "none", layout: LINEAR, limits: {} },
  });
  const [base, target] = [snapshotIdOf("base"), snapshotIdOf("target")];
  for (const id of [base, target]) {
    await machine.snapshots.create({ id, source: volumeIdOf("v"), cowSize: { bytes: 8n * MiB } });
  }
  const groupsOf = async (request: Omit<ListRequest, "groupSize">) => {
    const { extents } = await machine.differences.list({ ...request, groupSize: 10 });
    const groups: (readonly Extent[])[] = [];
    for await (const group of extents) groups.push(group);
    return groups;
  };
  assertEquals(await groupsOf({ base, target, from: 0n }), []);
  assertEquals(await groupsOf({ target, from: 16n * MiB }), []);
  assertEquals(await groupsOf({ target, from: 16n * MiB - 512n }), [[{ offset: 16n * MiB - 512n, length: 512n }]]);
  await machine.background.stop();
});
