/**
 * Crashes of a node's agent: before, after and during every command of a volume's lifecycle in a cluster. The agent
 * starts again, and the lifecycle continues.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { CrashingExec, type CrashPoint, crashPoints } from "../crash/crashing_exec.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";
import { sampleCases } from "../rig/sample.ts";

const MiB = 1n << 20n;
const NODE = "node-1";

/** Failures for which an orchestrator repeats a call: ABORTED and UNAVAILABLE. */
const REPEATED = ["Busy", "StillRunning", "Unavailable"];

/** The record of a lifecycle: the points at which the agent could crash, and whether it did. */
interface LifecycleRecord {
  readonly points: readonly CrashPoint[];
  readonly hasCrashed: boolean;
}

/** Creates, expands and deletes a volume, by a controller that repeats calls whose outcome is unknown. */
async function runLifecycle(point?: CrashPoint): Promise<LifecycleRecord> {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const crashingExec = new CrashingExec(machine, point);
  // The controller has to know the node before the agent crashes at its first command.
  await using cluster = await FakeCluster.start({ [NODE]: machine });
  await cluster.stopAgent(NODE);
  const agent = cluster.startAgent(NODE, crashingExec);
  const restarted = crashingExec.crashed.then(() => {
    agent.crash();
    cluster.startAgent(NODE, machine);
  });
  const id = volumeIdOf("one");
  /** Repeats a call once the crashed agent is started again. It crashes once, so one repetition must do. */
  const repeatAfterCrash = async <T>(call: () => Promise<T>): Promise<T> => {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof StorageError && REPEATED.includes(error.kind) && crashingExec.hasCrashed)) throw error;
      await restarted;
      return await call();
    }
  };
  const created = await repeatAfterCrash(() =>
    cluster.volumes.create(namedRequest("one", 32n * MiB), { preferred: [] })
  );
  assertEquals([created.size, machine.allLvs().map(({ lv }) => lv.size)], [32n * MiB, [32n * MiB]]);
  const grown = await repeatAfterCrash(() => cluster.volumes.expand(id, { required: 64n * MiB }));
  const [onlyLv] = machine.allLvs();
  assertEquals([grown.size, machine.allLvs().length, onlyLv!.lv.size], [64n * MiB, 1, 64n * MiB]);
  assertEquals(cluster.api.objects(lvmVolumes)[0]?.status?.lvUUID, onlyLv!.lv.uuid);
  await repeatAfterCrash(() => cluster.volumes.delete(id));
  assertEquals([cluster.api.objects(lvmVolumes), machine.allLvs(), machine.groups[0]!.tags.size], [[], [], 0]);
  const points = crashPoints(crashingExec.commands);
  crashingExec.disarm(); // what the agent does later belongs to no step
  if (crashingExec.hasCrashed) await restarted;
  return { points, hasCrashed: crashingExec.hasCrashed };
}

// The operations of a crashed agent stay pending, so the sanitizers cannot wait for them.
const NO_SANITIZERS = { sanitizeOps: false, sanitizeResources: false };

Deno.test(
  "an agent may crash at any moment of a volume's lifecycle in a cluster: nothing is lost, nothing is created twice",
  NO_SANITIZERS,
  async () => {
    const points = await certainPoints();
    assert(points.length > 10, `only ${points.length} moments`);
    const failures: string[] = [];
    const missed: CrashPoint[] = [];
    for (const point of await sampleCases("volume", points, 3)) {
      try {
        if (!await crashesAt(point)) missed.push(point);
      } catch (error) {
        failures.push(`${error}, after a crash ${keyOf(point)}`);
      }
    }
    assertEquals(failures, [], `of ${points.length} crashes`);
    // How many reports the agent reads depends on how busy this machine is; its changes do not.
    const required = missed.filter(({ command }) => !command.startsWith("lvm fullreport"));
    assertEquals(required.map(keyOf), [], "the agent did not crash there");
    assert(missed.length <= 2, `of ${points.length} crashes, these did not happen: ${missed.map(keyOf).join("; ")}`);
  },
);

/** Returns the points that several lifecycles have in common: the agent may read one report for several changes. */
async function certainPoints(): Promise<readonly CrashPoint[]> {
  const { points } = await runLifecycle();
  const others = [await runLifecycle(), await runLifecycle()].map((record) => new Set(record.points.map(keyOf)));
  return points.filter((point) => others.every((keys) => keys.has(keyOf(point))));
}

function keyOf({ moment, command, occurrence }: CrashPoint): string {
  return `${moment.name} ${command} ${occurrence}`;
}

/**
 * Runs a lifecycle until the agent comes to its point, and returns whether it crashed there. Where background work reads
 * one report for several changes, the agent may miss one.
 */
async function crashesAt(point: CrashPoint): Promise<boolean> {
  for (let attempt = 1; attempt <= 10; attempt++) if ((await runLifecycle(point)).hasCrashed) return true;
  return false;
}
