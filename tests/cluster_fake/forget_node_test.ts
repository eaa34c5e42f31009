/**
 * A node that is forgotten, and one that comes back: the driver's controllers over a fake API server, and the command as a
 * user runs it.
 *
 * @module
 */

import { assertEquals, assertRejects } from "@std/assert";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import { forget } from "../../plugin/node_removal/forget_node.ts";
import { isForgotten, lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { type PersistentVolume, persistentVolumes } from "../../k8s/api/objects.ts";
import { readNodeObjects } from "../../plugin/node_removal/plan.ts";
import { StorageError } from "../../base/error.ts";
import { DRIVER_FLAGS } from "../process/driver_command.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";
import { kubeconfigOf } from "../fake/cluster/kubeconfig.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";

const ON_N1 = { preferred: ["n1"] };

/** Starts two nodes. The first one has a volume with a PersistentVolume and one without, and then disappears. */
async function setUp() {
  const machines = { n1: new FakeMachine(), n2: new FakeMachine() };
  for (const machine of Object.values(machines)) machine.addGroup("data", 1n << 30n);
  const cluster = await FakeCluster.start(machines);
  const createVolume = async (name: string) =>
    (await cluster.volumes.create(namedRequest(name, 32n << 20n, { erase: "none" }), ON_N1)).id;
  const [claimed, spare] = [await createVolume("claimed"), await createVolume("spare")];
  const volume: PersistentVolume = {
    metadata: { name: "pv" },
    spec: { csi: { driver: DRIVER, volumeHandle: claimed }, persistentVolumeReclaimPolicy: "Delete" },
  };
  cluster.api.put(persistentVolumes, { ...volume, status: { phase: "Bound" } });
  await cluster.stopAgent("n1");
  await cluster.client.delete(lvmNodes, { name: "n1" });
  await cluster.nodes.waitFor("n1", (node) => node === undefined, { timeoutMs: 5_000 });
  const waitFor = (id: string, predicate: (object: LvmVolume | undefined) => boolean) =>
    cluster.objects.waitFor(id, predicate, { timeoutMs: 5_000 });
  return {
    ...{ cluster, machines, claimed, spare, createVolume },
    async forget() {
      const events = new EventRecorder(cluster.client, { component: DRIVER, instance: "test" });
      const { client } = cluster;
      const nodeObjects = await readNodeObjects(client, { driver: DRIVER, nodeName: "n1" });
      await forget(client, nodeObjects, { events, now: new Date() });
      await events.stop(1_000);
      await waitFor(claimed, (object) => object !== undefined && isForgotten(object));
      await waitFor(spare, (object) => object === undefined);
    },
    /** Starts the node's agent again, and waits until it has read the state of the node. */
    async restartAgent() {
      const agent = cluster.startAgent("n1", machines.n1);
      await Promise.all([agent.objects.synced, agent.snapshotObjects.synced]);
      await agent.node.refresh();
      return agent;
    },
    waitFor,
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

Deno.test("the deletion of a volume waits for its node, until the node is forgotten", async () => {
  await using s = await setUp();
  const error = await assertRejects(() => s.cluster.volumes.delete(s.claimed), StorageError);
  assertEquals(error.kind, "Unavailable");
  await s.forget();
  await s.cluster.volumes.delete(s.claimed);
  assertEquals(s.cluster.api.objects(lvmVolumes), []);
});

Deno.test("a volume of a forgotten node is Lost for every call, and is not created again", async () => {
  await using s = await setUp();
  await s.forget();
  for (const call of [() => s.cluster.volumes.get(s.claimed), () => s.createVolume("claimed")]) {
    const error = await assertRejects(call, StorageError);
    assertEquals(error.kind, "Lost", error.message);
  }
  assertEquals(s.machines.n2.allLvs(), []);
});

Deno.test("a volume whose creation was pending on a forgotten node can be created on another one", async () => {
  await using s = await setUp();
  await s.forget();
  const volume = await s.cluster.volumes.create(namedRequest("spare", 32n << 20n), { preferred: ["n1", "n2"] });
  assertEquals([volume.id, volume.nodeId], [s.spare, "n2"]);
});

Deno.test("when a forgotten node comes back, volumes with a claim are Ready again, and the others are kept as orphans", async () => {
  await using s = await setUp();
  await s.forget();
  const agent = await s.restartAgent();
  const found = await s.waitFor(s.claimed, (object) => object?.status?.state === "Ready" && !isForgotten(object));
  assertEquals([found?.status?.error, found?.status?.lvUUID !== undefined], [undefined, true]);
  await agent.clock.advance(60_000);
  await agent.node.refresh();
  assertEquals(agent.orphans.orphans.map(({ taggedAs }) => taggedAs?.id), [s.spare]);
  assertEquals(s.machines.n1.allLvs().length, 2);

  await s.cluster.nodes.waitFor("n1", (node) => node !== undefined, { timeoutMs: 5_000 });
  await s.cluster.volumes.delete(s.claimed);
  assertEquals(s.machines.n1.allLvs().map(({ lv }) => lv.tags.has(`denolith.volume=${s.spare}`)), [true]);
});

Deno.test("a node that came back and disappears again is not forgotten by the earlier confirmation", async () => {
  await using s = await setUp();
  await s.forget();
  await s.restartAgent();
  await s.waitFor(s.claimed, (object) => object?.status?.state === "Ready" && !isForgotten(object));
  await s.cluster.stopAgent("n1");
  await s.cluster.client.delete(lvmNodes, { name: "n1" });
  await s.cluster.nodes.waitFor("n1", (node) => node === undefined);
  assertEquals((await assertRejects(() => s.cluster.volumes.delete(s.claimed), StorageError)).kind, "Unavailable");
});

Deno.test("the annotation alone forgets no node that has an agent", async () => {
  await using s = await setUp();
  await s.forget();
  await s.cluster.restartController({ waitMs: 100 });
  s.cluster.api.put(lvmNodes, { metadata: { name: "n1" }, spec: { driverName: DRIVER } });
  await s.cluster.nodes.waitFor("n1", (node) => node !== undefined, { timeoutMs: 5_000 });
  assertEquals((await assertRejects(() => s.cluster.volumes.delete(s.claimed), StorageError)).kind, "Unavailable");
  assertEquals(s.cluster.api.objects(lvmVolumes).length, 1);
});

const MAIN = new URL("../../main.ts", import.meta.url).pathname;
const TLS = new URL("../fixtures/tls/", import.meta.url).pathname;

/** Starts an API server, and the commands that an administrator runs. */
async function setUpCommand() {
  const [cert, key, ca] = await Promise.all(
    ["server.crt", "server.key", "ca.crt"].map((name) => Deno.readTextFile(TLS + name)),
  );
  const tls = { cert: cert!, key: key! };
  const api = FakeApiServer.start({ resources: [lvmVolumes, lvmSnapshots, lvmNodes], token: "secret", tls });
  const folder = await Deno.makeTempDir({ prefix: "denolith-forget-" });
  const kubeconfig = `${folder}/kubeconfig`;
  const server = { server: api.url, "certificate-authority-data": btoa(ca!) };
  await Deno.writeTextFile(kubeconfig, kubeconfigOf(server, { token: "secret" }));
  return {
    api,
    async runDenolith(...args: string[]): Promise<{ code: number; out: string; err: string }> {
      const command = ["run", ...DRIVER_FLAGS, MAIN, ...args, "--kubeconfig", kubeconfig];
      const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
        args: command,
        env: { NO_COLOR: "1" },
      }).output();
      return { code, out: new TextDecoder().decode(stdout), err: new TextDecoder().decode(stderr) };
    },
    async [Symbol.asyncDispose]() {
      await api[Symbol.asyncDispose]();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

Deno.test("denolith status: its permissions let it read the objects of a node from the cluster", async () => {
  await using s = await setUpCommand();
  await s.runDenolith("status", "--node-name", "n1"); // this machine may have no LVM, or the test may not be root
  const asked = s.api.requests.map(({ path, query }) => `${path.split("/").at(-1)} ${query.get("fieldSelector")}`);
  assertEquals(asked.sort(), ["lvmsnapshots spec.nodeName=n1", "lvmvolumes spec.nodeName=n1"]);
});
