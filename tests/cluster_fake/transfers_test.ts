/**
 * Volumes whose source is on another node, from the controller's call to the LV: two agents, over one fake API server and two
 * fake machines, with connections between them.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { grantsOf } from "../../k8s/api/transfers.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { runRandom } from "../rig/seeded_random.ts";
import { randomRuns, sampledTests } from "../rig/sample.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";
import type { Command } from "../../lvm/exec.ts";
import { KillableExec } from "../fake/machine/killable_exec.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { assertFailsWith, machineWith, MiB, request } from "../fake/cluster/volume_cluster.ts";

const [A, B] = ["node-1", "node-2"].map((name) => ({ allowed: [name], preferred: [] }));

/** Starts a cluster of two nodes whose agents take part in transfers. */
async function startTwoNodes(
  { sectorBytes, ...options }: { transfers?: boolean; waitMs?: number; sectorBytes?: number } = {},
) {
  const machines = [machineWith({ data: 1n << 30n }), machineWith({ data: 1n << 30n })] as const;
  if (sectorBytes !== undefined) machines[1].groups[0]!.sectorBytes = sectorBytes;
  const execs = machines.map((machine) => new KillableExec(machine));
  const cluster = await FakeCluster.start({ "node-1": execs[0]!, "node-2": execs[1]! }, {
    transfers: true,
    waitMs: 20_000,
    ...options,
  });
  if (options.transfers ?? true) {
    for (const name of ["node-1", "node-2"]) {
      const isReady = cluster.nodes.waitFor(name, (node) => node?.status?.transfer !== undefined, { timeoutMs: 5_000 });
      await isReady;
    }
  }
  return { cluster, machines, execs, [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose]() };
}

/** Returns the LV of a volume, and gives it data. */
function writeData(machine: FakeMachine, name: string, data: string) {
  const { lv } = machine.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${volumeIdOf(name)}`))!;
  lv.content.data = new Set([data]);
  return lv;
}

/** Returns the data and the tags of a volume that matter for its copy. */
function copyOf(machine: FakeMachine, name: string) {
  const { lv } = machine.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${volumeIdOf(name)}`))!;
  const tags = [...lv.tags].filter((tag) => /denolith\.(?:from|copied|source)=/.test(tag));
  return { data: [...lv.content.data], tags };
}

const raw = { format: { state: "raw" }, range: { required: 32n * MiB } } as const;

Deno.test("a volume from a snapshot of another node has its data, and nothing else is left", async () => {
  await using s = await startTwoNodes();
  const { cluster, machines: [a, b] } = s;
  await cluster.volumes.create(request("source", raw), A!);
  writeData(a, "source", "letters");
  const source = volumeIdOf("source");
  const snapshot = await cluster.snapshots.create({ id: snapshotIdOf("s"), name: "s", source, cowSize: FULL_COW });
  const created = await cluster.volumes.create(
    request("copy", { ...raw, source: { kind: "snapshot", id: snapshot.id } }),
    B!,
  );
  assertEquals(created.nodeId, "node-2");
  assertEquals(copyOf(b, "copy"), { data: ["letters"], tags: [`denolith.source=snapshot:${snapshot.id}`] });
  const [object] = cluster.api.objects(lvmVolumes).filter(({ metadata }) => metadata.name === volumeIdOf("copy"));
  assertEquals([object!.spec.sourceNode, object!.status?.state, object!.status?.copy], ["node-1", "Ready", undefined]);
  await waitUntil(() => cluster.api.objects(lvmSnapshots).every((each) => grantsOf(each).length === 0), "no grants");
  assertEquals(cluster.api.objects(lvmSnapshots).length, 1);
});

Deno.test("a clone of a volume of another node is of one moment, and its temporary snapshot is deleted", async () => {
  await using s = await startTwoNodes();
  const { cluster, machines: [a, b] } = s;
  await cluster.volumes.create(request("source", raw), A!);
  writeData(a, "source", "letters");
  const source = { kind: "volume", id: volumeIdOf("source") } as const;
  await cluster.volumes.create(request("copy", { ...raw, source }), B!);
  assertEquals(copyOf(b, "copy").data, ["letters"]);
  await waitUntil(() => cluster.snapshotObjects.list().length === 0, "no snapshot");
  await cluster.agent("node-1").machine.background.idle();
  assertEquals(a.allLvs().length, 1);
  await cluster.volumes.delete(source.id);
});

Deno.test("without transfers, the refusal names the node of the source", async () => {
  await using s = await startTwoNodes({ transfers: false });
  const { cluster } = s;
  await cluster.volumes.create(request("source", raw), A!);
  const source = { kind: "volume", id: volumeIdOf("source") } as const;
  const error = await assertFailsWith("NoSpace", cluster.volumes.create(request("copy", { ...raw, source }), B!));
  assert(error.message.includes("the source is on node node-1"), error.message);
  const both = { allowed: ["node-1", "node-2"], preferred: ["node-2"] };
  assertEquals((await cluster.volumes.create(request("copy", { ...raw, source }), both)).nodeId, "node-1");
});

Deno.test("the node of the source is preferred, and another one is taken when that has no space", async () => {
  await using s = await startTwoNodes();
  const { cluster } = s;
  await cluster.volumes.create(request("source", { ...raw, range: { required: 300n * MiB } }), A!);
  const source = volumeIdOf("source");
  const { id } = await cluster.snapshots.create({ id: snapshotIdOf("s"), name: "s", source, cowSize: FULL_COW });
  const both = { allowed: ["node-1", "node-2"], preferred: ["node-2"] };
  const wanted = (name: string) =>
    request(name, { ...raw, range: { required: 300n * MiB }, source: { kind: "snapshot", id } });
  assertEquals((await cluster.volumes.create(wanted("one"), both)).nodeId, "node-1");
  assertEquals((await cluster.volumes.create(wanted("two"), both)).nodeId, "node-2");
});

Deno.test("a volume is not created from a snapshot on a node on whose disks its filesystem could not be mounted", async () => {
  await using s = await startTwoNodes({ sectorBytes: 4_096 });
  const { cluster, machines: [a, b] } = s;
  await cluster.volumes.create(request("source", raw), A!);
  a.openLvs.push(writeData(a, "source", "letters"));
  const source = volumeIdOf("source");
  const { id } = await cluster.snapshots.create({ id: snapshotIdOf("s"), name: "s", source, cowSize: FULL_COW });
  cluster.agent("node-1").node.requeue();
  await cluster.objects.waitFor(source, (volume) => volume?.status?.maximumSectorSize === "512", { timeoutMs: 5_000 });
  const copy = request("copy", { ...raw, source: { kind: "snapshot", id } });
  const error = await assertFailsWith("NoSpace", cluster.volumes.create(copy, B!));
  assert(error.message.includes("node node-2: volume group data, which it would be in, has logical"), error.message);
  assertEquals(b.allLvs(), []);
});

/**
 * Creates a copy by a controller that repeats its call, and disturbs it once, when a command is about to run.
 *
 * @param isMoment whether it is that command; the second argument is the number of commands before it
 * @returns the number of commands on both machines, and whether it was disturbed
 */
async function copyWith(
  disturb: (s: Cluster) => void | Promise<void>,
  isMoment: (command: string, before: number) => boolean,
): Promise<{ commands: number; isDisturbed: boolean }> {
  await using s = await startTwoNodes({ waitMs: 3_000 });
  const { cluster, machines: [a, b] } = s;
  await cluster.volumes.create(request("source", raw), A!);
  writeData(a, "source", "letters");
  const source = { kind: "volume", id: volumeIdOf("source") } as const;
  let [isDisturbed, commands] = [false, 0];
  const fault = async ({ program, args }: Command) => {
    if (!isMoment(`${program} ${args.join(" ")}`, commands++) || isDisturbed) return undefined;
    isDisturbed = true;
    await disturb(s);
    return undefined;
  };
  a.fault = b.fault = fault;
  const create = () => cluster.volumes.create(request("copy", { ...raw, source }), B!);
  let created = await create().catch((error) => error);
  for (let attempt = 0; attempt < 10 && created instanceof Error; attempt++) created = await create().catch((e) => e);
  if (created instanceof Error) throw created;
  assertEquals([created.nodeId, copyOf(b, "copy").data], ["node-2", ["letters"]]);
  await waitUntil(() => cluster.api.objects(lvmSnapshots).length === 0, "no temporary snapshot");
  await cluster.agent("node-1").machine.background.idle();
  await cluster.agent("node-2").machine.background.idle();
  assertEquals([a.allLvs().length, b.allLvs().length], [1, 1]);
  assertEquals(cluster.api.objects(lvmVolumes).map(({ status }) => status?.state), ["Ready", "Ready"]);
  return { commands, isDisturbed };
}

type Cluster = Awaited<ReturnType<typeof startTwoNodes>>;

/** Lets the agent of a node die, and starts another. */
function killAgent({ cluster, machines, execs }: Cluster, node: number): void {
  const name = `node-${node + 1}`;
  execs[node]!.kill();
  cluster.agent(name).crash();
  cluster.startAgent(name, machines[node]!, { transfers: true });
}

function killController({ cluster }: Cluster): void {
  cluster.restartController({ waitMs: 3_000 });
}

/** The moments at which something dies: a command is about to run. */
const MOMENTS = {
  "an LV is created": /lvcreate/,
  "the temporary snapshot is taken": /lvcreate .*--snapshot/,
  "the source is read": /^dd if=.* iflag=direct,fullblock/,
  "the destination is written": /^dd of=.* oflag=direct/,
  "the copy is completed": /lvchange .*--deltag denolith.copied/,
};

/** What is killed leaves its timers. */
const UNSANITIZED = { sanitizeOps: false, sanitizeResources: false };

/** One in so many of these tests runs in `task test`; all run in `task test:crashes`. */
const crashTest = await sampledTests(4);

for (const [moment, pattern] of Object.entries(MOMENTS)) {
  const kills = {
    "the agent of node-1": (s: Cluster) => killAgent(s, 0),
    "the agent of node-2": (s: Cluster) => killAgent(s, 1),
    "the controller": killController,
  };
  for (const [who, kill] of Object.entries(kills)) {
    crashTest(`a transfer survives a kill of ${who} when ${moment}`, UNSANITIZED, async () => {
      assert((await copyWith(kill, (command) => pattern.test(command))).isDisturbed, "it died");
    });
  }
}

/** How many transfers something dies in at a random moment. */
const RANDOM_KILLS = randomRuns(2, 12);

Deno.test("a transfer survives kills at random moments: any command of either machine", UNSANITIZED, async () => {
  const { commands } = await copyWith(() => {}, () => false);
  const random = runRandom();
  const kills = [(s: Cluster) => killAgent(s, 0), (s: Cluster) => killAgent(s, 1), killController];
  let disturbed = 0;
  for (let kill = 0; kill < RANDOM_KILLS; kill++) {
    const moment = Math.floor(random() * commands);
    const isMoment = (_command: string, before: number) => before === moment;
    const { isDisturbed } = await copyWith(kills[kill % kills.length]!, isMoment).catch((error) => {
      throw new Error(`kill ${kill % kills.length} at command ${moment} of ${commands}: ${error.message}`);
    });
    if (isDisturbed) disturbed++;
  }
  assert(disturbed >= RANDOM_KILLS / 2, `${disturbed} were killed`);
});
