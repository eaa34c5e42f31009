/**
 * Lists of changed blocks by the controller: it asks agents by real connections, over a fake API server and fake machines.
 *
 * @module
 */

import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { CREATED_ANNOTATION, lvmSnapshots } from "../../k8s/api/lvm_objects.ts";
import { formatListGrant, listGrantAnnotation, listGrantsOf } from "../../k8s/api/transfers.ts";
import { makeCredentials } from "../../k8s/transfers/certificate.ts";
import { dial } from "../../k8s/transfers/dial.ts";
import { fingerprintOfPem } from "../../k8s/transfers/proof.ts";
import { findRemoteAgent } from "../../k8s/transfers/remote_agent.ts";
import { waitForAbort } from "../../base/clock.ts";
import type { Extent, ExtentList } from "../../lvm/differences/differences.ts";
import { receiveList } from "../../lvm/differences/remote_list.ts";
import { StorageError } from "../../base/error.ts";
import type { Command } from "../../lvm/exec.ts";
import { type SnapshotId, snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { DRIVER, FakeCluster, type ProcessOptions } from "../fake/cluster/node_cluster.ts";
import { assertFailsWith, machineWith, MiB, request } from "../fake/cluster/volume_cluster.ts";

const [A, B] = ["node-1", "node-2"].map((name) => ({ allowed: [name], preferred: [] }));
const CHUNK = 4096n;
const raw = { format: { state: "raw" }, range: { required: 32n * MiB } } as const;

/** Starts a cluster of two nodes, with a volume on the first one, and two snapshots of it between which chunks changed. */
async function start(options: ProcessOptions = {}) {
  const machines = { "node-1": machineWith({ data: 1n << 30n }), "node-2": machineWith({ data: 1n << 30n }) };
  const transfers = options.transfers ?? true;
  const cluster = await FakeCluster.start(machines, { transfers, ...options });
  const isConnected = async (name: string) =>
    void await cluster.nodes.waitFor(name, (node) => node?.status?.transfer !== undefined, { timeoutMs: 5_000 });
  if (transfers) await Promise.all(Object.keys(machines).map(isConnected));
  const machine = machines["node-1"];
  await cluster.volumes.create(request("v", raw), A!);
  const { lv } = machine.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${volumeIdOf("v")}`))!;
  const write = async (...chunks: readonly number[]) => {
    for (const chunk of chunks) {
      const args = ["if=/dev/urandom", `of=/dev/mapper/data-${lv.name.replaceAll("-", "--")}`];
      const place = ["bs=4096", `seek=${chunk}`, "count=1"];
      await machine.run({ program: "dd", args: [...args, ...place], mutates: true });
    }
  };
  const snapshot = async (name: string, source = "v") => {
    const wanted = { id: snapshotIdOf(name), name, source: volumeIdOf(source), cowSize: FULL_COW };
    return (await cluster.snapshots.create(wanted)).id;
  };
  const base = await snapshot("base");
  await write(1, 5, 6, 100);
  const target = await snapshot("target");
  const list = (more: { readonly signal?: AbortSignal; readonly groupSize?: number } = {}) =>
    cluster.lists.list({ base, target, from: 0n, groupSize: 100, ...more });
  return {
    ...{ cluster, machine, base, target, write, snapshot, list },
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

async function chunksOf({ extents }: Pick<ExtentList, "extents">): Promise<string[]> {
  const all: Extent[] = [];
  for await (const group of extents) all.push(...group);
  return all.map(({ offset, length }) => `${offset / CHUNK}+${length / CHUNK}`);
}

const CHANGED = ["1+1", "5+2", "100+1"];

Deno.test("the agent of the snapshots' node lists what changed, and no permission is left", async () => {
  await using s = await start();
  const { cluster } = s;
  const list = await s.list();
  assertEquals([list.size, await chunksOf(list)], [32n * MiB, CHANGED]);
  assertEquals(
    cluster.api.objects(lvmSnapshots).flatMap(({ metadata }) =>
      Object.keys(metadata.annotations ?? {}).filter((name) => name !== CREATED_ANNOTATION)
    ),
    [],
  );
});

Deno.test("a list is continued by another connection when the agent is replaced by another process", async () => {
  await using s = await start();
  const { cluster, machine } = s;
  const { extents } = await s.list({ groupSize: 1 });
  const received = [...(await extents.next()).value as Extent[]];
  await cluster.stopAgent("node-1");
  // while nobody answers
  const rest = chunksOf({ extents });
  cluster.startAgent("node-1", machine, { transfers: true });
  assertEquals([received.map(({ offset }) => offset), await rest], [[CHUNK], CHANGED.slice(1)]);
});

Deno.test("a list that breaks again and again, before anything comes, fails with what the agent said", async () => {
  await using s = await start();
  let tries = 0;
  s.machine.fault = ({ program }: Command) => {
    if (program !== "dd") return undefined;
    tries++;
    throw new StorageError("Unavailable", "running dd: not found");
  };
  const { extents } = await s.list();
  await assertFailsWith("Unavailable", chunksOf({ extents }), "running dd: not found");
  s.machine.fault = undefined;
  assertEquals(tries, 5);
});

Deno.test("without a way to the agent, the answer says which value has to be set", async () => {
  await using s = await start({ transfers: false });
  await assertFailsWith("Unavailable", s.list(), "transfer.enabled");
});

Deno.test("an agent that is not reached fails the list at once", async () => {
  await using s = await start();
  await s.cluster.stopAgent("node-1");
  await assertFailsWith("Unavailable", s.list(), "the agent of");
});

Deno.test("snapshots of two volumes, or of two nodes, are not compared", async () => {
  await using s = await start();
  const { cluster, base } = s;
  await cluster.volumes.create(request("w", raw), B!);
  const other = await s.snapshot("other", "w");
  const list = (base: SnapshotId, target: SnapshotId) => cluster.lists.list({ base, target, from: 0n, groupSize: 1 });
  await assertFailsWith("InvalidArgument", list(base, other), "of volumes");
  await assertFailsWith("NotFound", list(snapshotIdOf("none"), other));
  await assertFailsWith("NotFound", list(other, snapshotIdOf("none")));
  const merge = { spec: { sourceVolume: volumeIdOf("v") } };
  await cluster.client.patch(lvmSnapshots, { name: other }, { merge });
  await cluster.snapshotObjects.waitFor(other, (now) => now?.spec.sourceVolume === volumeIdOf("v"));
  await assertFailsWith("FailedPrecondition", list(base, other), "full backup");
});

Deno.test("when the client has gone, the agent stops reading, and the snapshot can be deleted", async () => {
  await using s = await start();
  const { cluster, machine, base } = s;
  const [reached, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  machine.fault = async ({ program, signal }: Command) => {
    if (program !== "dd") return undefined;
    machine.fault = undefined;
    reached.resolve();
    await waitForAbort(signal!);
    ended.resolve();
    throw new StorageError("Unavailable", "ended");
  };
  const gone = new AbortController();
  const { extents } = await s.list({ signal: gone.signal });
  const reading = assertRejects(() => chunksOf({ extents }), StorageError);
  await reached.promise;
  gone.abort();
  await Promise.all([reading, ended.promise]);
  await cluster.snapshots.delete(base);
});

/** Asks an agent as somebody does who has a key of its own. @param until the end of the permission, in milliseconds since 1970 */
async function ask({ cluster, base, target }: Awaited<ReturnType<typeof start>>, until: number) {
  const credentials = await makeCredentials("controller", new Date());
  const fingerprint = (await fingerprintOfPem(credentials.certificate))!;
  const annotations = { [listGrantAnnotation({ fingerprint })]: formatListGrant({ fingerprint, until }) };
  await cluster.client.patch(lvmSnapshots, { name: target }, { merge: { metadata: { annotations } } });
  const remote = await findRemoteAgent({ client: cluster.client, driver: DRIVER }, "node-1");
  const connection = await dial(remote, { credentials });
  return await receiveList(connection, { driver: DRIVER, base, target, from: 0n, groupSize: 1 });
}

Deno.test("who is allowed by an LVMSnapshot gets a list, and nobody later", async () => {
  await using s = await start();
  assertEquals(await chunksOf(await ask(s, Date.now() + 60_000)), CHANGED);
  await assertFailsWith("Unavailable", ask(s, Date.now() - 1), "the permission is over");
});

Deno.test("no more than four lists are made at a time on a node", async () => {
  await using s = await start();
  const gate = Promise.withResolvers<undefined>();
  s.machine.fault = ({ program }: Command) => program === "dd" ? gate.promise : undefined;
  const refused: string[] = [];
  const lists = [1, 2, 3, 4, 5, 6].map(() =>
    s.list().then(chunksOf).catch((error: StorageError) => void refused.push(`${error.kind}: ${error.message}`))
  );
  await waitUntil(() => refused.length === 2, "two refusals");
  gate.resolve(undefined);
  assertEquals((await Promise.all(lists)).filter((chunks) => chunks !== undefined), Array(4).fill(CHANGED));
  for (const message of refused) assertMatch(message, /^Unavailable: .*4 lists/);
  await waitUntil(
    () => s.cluster.api.objects(lvmSnapshots).every((each) => listGrantsOf(each).size === 0),
    "no grants",
  );
});

Deno.test("permissions that a controller left when it died are removed by the next list", async () => {
  await using s = await start();
  const { cluster, target } = s;
  const fingerprint = "ab".repeat(32);
  const annotations = {
    [listGrantAnnotation({ fingerprint })]: formatListGrant({ fingerprint, until: 0 }),
    other: "1",
  };
  await cluster.client.patch(lvmSnapshots, { name: target }, { merge: { metadata: { annotations } } });
  await cluster.snapshotObjects.waitFor(target, (object) => listGrantsOf(object!).size === 1);
  await chunksOf(await s.list());
  const object = await cluster.client.get(lvmSnapshots, { name: target });
  assertEquals(object.metadata.annotations, { other: "1", [CREATED_ANNOTATION]: "true" });
});
