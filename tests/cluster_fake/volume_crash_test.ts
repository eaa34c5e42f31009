/**
 * Crashes of a node's agent: before, after and during every command of a volume's lifecycle in a cluster. The agent
 * starts again, and the lifecycle continues.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { volumeIdOf } from "../../lvm/ids.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { CrashingExec, crashMomentsOf, type CrashPoint } from "../crash/crashing_exec.ts";
import { FakeCluster } from "../fake/node_cluster.ts";
import { FakeMachine } from "../fake/machine.ts";
import { namedRequest } from "../fake/request.ts";

const MiB = 1n << 20n;
const NODE = "node-1";

/**
 * Creates, expands and deletes a volume, by a controller that repeats uncertain calls. @returns the agent's commands
 */
async function runLifecycle(point?: CrashPoint): Promise<CrashingExec["commands"]> {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const crashingExec = new CrashingExec(machine, point);
  // The controller has to know the node before the agent crashes at its first command.
  await using cluster = await FakeCluster.start({ [NODE]: machine });
  await cluster.stopAgent(NODE);
  const agent = cluster.startAgent(NODE, crashingExec);
  const crashed = crashingExec.crashed.then((at) => {
    agent.crash();
    cluster.startAgent(NODE, machine);
    return at;
  });
  const id = volumeIdOf("one");
  const retry = async <T>(call: () => Promise<T>): Promise<T> => {
    for (let tries = 1;; tries++) {
      try {
        return await call();
      } catch (error) {
        if (tries === 5) throw error;
      }
    }
  };
  const created = await retry(() => cluster.volumes.create(namedRequest("one", 32n * MiB), { preferred: [] }));
  assertEquals([created.size, machine.allLvs().map(({ lv }) => lv.size)], [32n * MiB, [32n * MiB]]);
  const grown = await retry(() => cluster.volumes.expand(id, { required: 64n * MiB }));
  const [onlyLv] = machine.allLvs();
  assertEquals([grown.size, machine.allLvs().length, onlyLv!.lv.size], [64n * MiB, 1, 64n * MiB]);
  assertEquals(cluster.api.objects(lvmVolumes)[0]?.status?.lvUUID, onlyLv!.lv.uuid);
  await retry(() => cluster.volumes.delete(id));
  assertEquals([cluster.api.objects(lvmVolumes), machine.allLvs(), machine.groups[0]!.tags.size], [[], [], 0]);
  if (point !== undefined) await Promise.race([crashed, new Promise((resolve) => setTimeout(resolve, 1_000))]);
  return [...crashingExec.commands];
}

// The operations of a crashed agent stay pending, so the sanitizers cannot wait for them.
const NO_SANITIZERS = { sanitizeOps: false, sanitizeResources: false };

Deno.test(
  "an agent may crash at any moment of a volume's lifecycle in a cluster: nothing is lost, nothing is created twice",
  NO_SANITIZERS,
  async () => {
    const commands = await runLifecycle();
    const points = commands.flatMap((command, index) =>
      crashMomentsOf(command).map((moment) => ({ index, command, moment }))
    );
    assert(points.length > 10, `only ${points.length} moments`);
    for (const point of points) {
      try {
        await runLifecycle(point);
      } catch (error) {
        throw new Error(`${point.moment.name} command ${point.index} (${point.command.args[0]}): ${error}`, {
          cause: error,
        });
      }
    }
  },
);
