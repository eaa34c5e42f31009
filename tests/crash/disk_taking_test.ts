/**
 * An agent that dies while it takes a disk: before and after each command and each request. The next agent completes it, or leaves
 * nothing, whatever became of the disk and of its acceptance meanwhile.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import type { FakeDisk } from "../fake/machine/disks.ts";
import { DiskNode, type Interceptor } from "../fake/cluster/disk_node.ts";
import { sampleCases } from "../rig/sample.ts";

const NAME = "ata-SPARE_c";

/** Prepares a node on which a disk is accepted: for a new group, or for one that is there. */
async function prepare(hasGroup: boolean): Promise<{ s: DiskNode; disk: FakeDisk }> {
  const s = new DiskNode();
  if (hasGroup) s.machine.addGroup("data", 1n << 30n);
  const disk = s.addDisk("c");
  await s.agent()();
  s.accept(NAME);
  return { s, disk };
}

/** Counts the moments at which an agent can die while it takes the disk. */
async function countMoments(hasGroup: boolean): Promise<number> {
  let count = 0;
  const { s } = await prepare(hasGroup);
  await s.agent(() => void count++)();
  return count;
}

/** Returns what lets an agent die at a moment: from then on, it reaches nothing. */
function dieAt(moment: number): Interceptor & { at?: string } {
  let count = 0;
  const intercept: Interceptor & { at?: string } = (what, when) => {
    if (count++ < moment) return;
    intercept.at ??= `${when} ${what}`;
    throw new Error("the agent is dead");
  };
  return intercept;
}

/** What becomes of the world while no agent runs, and what must be true in the end. */
interface Fate {
  readonly name: string;
  readonly happens: (s: DiskNode, disk: FakeDisk) => void;
  /** @param wasWritten whether there was a physical volume on the disk at the kill, or the disk was in the group */
  readonly check: (s: DiskNode, disk: FakeDisk, wasWritten: { pv: boolean; member: boolean; writes: number }) => void;
}

const isMember = (s: DiskNode) => s.machine.groups.some(({ pvs }) => pvs.some(({ path }) => path === "/dev/sdc"));

function assertTaken(s: DiskNode): void {
  assertEquals(isMember(s), true);
  assertEquals(s.machine.host.unusedPvs, []);
  assertEquals(s.outcome(NAME)?.state, "Taken");
  const pvs = s.machine.groups.flatMap(({ pvs }) => pvs).filter(({ path }) => path === "/dev/sdc");
  assertEquals(pvs.map(({ uuid }) => uuid), [s.outcome(NAME)?.physicalVolumeUUID]);
}

const FATES: readonly Fate[] = [
  { name: "nothing", happens: () => {}, check: assertTaken },
  {
    name: "the acceptance is withdrawn",
    happens: (s) => void (s.node.spec.acceptedDisks = []),
    check: (s, _disk, { member }) => {
      if (member) return assertTaken(s);
      assertEquals([isMember(s), s.machine.host.unusedPvs, s.outcome(NAME)], [false, [], undefined]);
    },
  },
  {
    name: "the disk gets a filesystem",
    happens: (s, disk) => {
      if (!isMember(s) && s.machine.host.unusedPvs.length === 0) disk.signatures.push("xfs");
    },
    check: (s, disk, { pv, writes }) => {
      if (pv) return assertTaken(s);
      assertEquals([disk.writes, disk.signatures, s.layout.filter((line) => line.includes("sdc"))], [
        writes,
        ["xfs"],
        [],
      ]);
      assertEquals(s.outcome(NAME)?.state, "Refused");
    },
  },
  {
    name: "the node starts again",
    happens: (_s, disk) => void disk.attached++,
    check: (s, disk, { pv, writes }) => {
      if (pv) return assertTaken(s);
      assertEquals([disk.writes, isMember(s), s.outcome(NAME)?.state], [writes, false, "Refused"]);
    },
  },
];

for (const hasGroup of [false, true]) {
  const where = hasGroup ? "a group that is there" : "a new group";
  for (const fate of FATES) {
    Deno.test(`an agent may die at any moment while it takes a disk for ${where}, and meanwhile: ${fate.name}`, async () => {
      const moments = await countMoments(hasGroup);
      assert(moments > 40, `${moments} moments`);
      let written = 0;
      const all = Array.from({ length: moments }, (_, moment) => moment);
      const drawn = await sampleCases(`${where}, ${fate.name}`, all, 4);
      for (const moment of drawn) {
        const { s, disk } = await prepare(hasGroup);
        const kill = dieAt(moment);
        await s.agent(kill)().catch(() => {});
        const member = isMember(s);
        const pv = member || s.machine.host.unusedPvs.length > 0;
        if (pv && !member) written++;
        const { writes } = disk;
        fate.happens(s, disk);
        const run = s.agent();
        for (let count = 0; count < 3; count++) await run();
        try {
          fate.check(s, disk, { pv, member, writes });
        } catch (error) {
          throw new Error(`dead ${kill.at}: ${(error as Error).message}`, { cause: error });
        }
      }
      assert(written > 2 || drawn.length < moments, "it was killed between the physical volume and the group");
    });
  }
}
