/**
 * Deletions that wait for a volume to be unmounted: from the PersistentVolume to the LV, over a fake API server and a
 * fake machine.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { inProcessCsi } from "../../cli/in_process_csi.ts";
import { controllerHandlers } from "../../csi/controller.ts";
import { type PersistentVolume, persistentVolumes } from "../../k8s/api/objects.ts";
import { ApiError } from "../../k8s/client/client.ts";
import { Reclaimer } from "../../k8s/provisioner/reclaimer.ts";
import { VOLUME_FINALIZER } from "../../k8s/provisioner/persistent_volume.ts";
import { EventRecorder } from "../../k8s/runtime/events.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { WakeUps } from "../../k8s/runtime/wake_ups.ts";
import { forget } from "../../plugin/node_removal/forget_node.ts";
import { readNodeObjects } from "../../plugin/node_removal/plan.ts";
import { wakeWaitingDeletions } from "../../k8s/service/waiting_work.ts";
import { lvmVolumes, REMOVE_ANNOTATION } from "../../k8s/api/lvm_objects.ts";
import { snapshotIdOf, type VolumeId } from "../../base/ids.ts";
import type { Command } from "../../lvm/exec.ts";
import { Locks } from "../../base/locks.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { interceptClient } from "../fake/cluster/intercepted_client.ts";
import { DRIVER, FakeCluster, type ProcessOptions } from "../fake/cluster/node_cluster.ts";
import { ANYWHERE, machineWith, remaining, request, waitUntilFormatted } from "../fake/cluster/volume_cluster.ts";

const NODE = "node-1";
const ACCESS = { kind: "mount", flags: [] } as const;

/** Starts a cluster of one node with a reclaimer, which is connected as in `denolith controller`. */
async function setUp({ wrap }: Pick<ProcessOptions, "wrap"> = {}) {
  const folder = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-deletion-" }));
  const machine = machineWith({ data: 1n << 30n });
  const cluster = await FakeCluster.start({ [NODE]: machine }, { mountRoots: [folder], ...(wrap && { wrap }) });
  const { client } = cluster;
  const stop = new AbortController();
  const volumes = new Informer(client, persistentVolumes);
  const handlers = controllerHandlers({ volumes: cluster.volumes, snapshots: cluster.snapshots, locks: new Locks() });
  const deleteCalls: number[] = [];
  const events = new EventRecorder(client, { component: DRIVER, instance: "test" });
  const csi = inProcessCsi({ handlers, onCallCompleted: ({ code }) => deleteCalls.push(code) });
  const wakeUps = new WakeUps();
  const reclaimer = new Reclaimer({
    ...{ driverName: DRIVER, client, csi, events, volumes, wakeUps },
    backoff: { startMs: 60_000, capMs: 60_000 }, // the test fails if anything waits for it
  });
  const { objects, snapshotObjects, nodes } = cluster;
  wakeWaitingDeletions({ volumes: objects, snapshots: snapshotObjects, nodes }, wakeUps);
  const running = [volumes.start(stop.signal), reclaimer.run(stop.signal)];
  const agent = cluster.agent(NODE);
  const path = (name: string) => `${folder}/${name}`;
  const lvOf = (id: VolumeId) => machine.allLvs().find(({ lv }) => lv.name.endsWith(id.slice("v1-".length)))!.lv;
  return {
    ...{ machine, cluster, agent, path, deleteCalls },
    /** Creates a volume with a PersistentVolume that its claim has released. */
    addReleased: async (name: string): Promise<VolumeId> => {
      const { id } = await cluster.volumes.create(request(name), ANYWHERE);
      await waitUntilFormatted(machine); // the steps below take no locks
      const object: PersistentVolume = {
        metadata: { name, finalizers: [VOLUME_FINALIZER] },
        spec: { persistentVolumeReclaimPolicy: "Delete", csi: { driver: DRIVER, volumeHandle: id } },
        status: { phase: "Bound" },
      };
      cluster.api.put(persistentVolumes, object);
      return id;
    },
    release: (name: string) =>
      client.patch(persistentVolumes, { name }, { merge: { status: { phase: "Released" } }, subresource: "status" }),
    stage: (id: VolumeId, name: string) => agent.machine.staging.stage(id, path(name), ACCESS),
    publish: async (id: VolumeId, staged: string, name: string) => {
      await agent.machine.staging.publish(id, {
        ...{ stagingPath: path(staged), target: path(name), access: ACCESS, readOnly: false, exclusive: false },
      });
    },
    unpublish: (id: VolumeId, name: string) =>
      agent.nodeService.nodeUnpublishVolume!({ volumeId: id, targetPath: path(name) } as never),
    unstage: (id: VolumeId, name: string) =>
      agent.nodeService.nodeUnstageVolume!({ volumeId: id, stagingTargetPath: path(name) } as never),
    /** Removes the node for good, as `denolith forget-node` does. */
    forgetNode: async () => {
      await cluster.stopAgent(NODE);
      const nodeObjects = await readNodeObjects(client, { driver: DRIVER, nodeName: NODE });
      await forget(client, nodeObjects, { events, reason: "its disks are gone", now: new Date() });
    },
    lvOf,
    /** Adds an LV that claims to be the volume as well, so that it cannot be found. */
    duplicateLv: (id: VolumeId) => {
      const lv = lvOf(id);
      machine.groups[0]!.lvs.push({ ...lv, name: "copy", uuid: "of-another-logical-volume", tags: new Set(lv.tags) });
    },
    sizeOf: (id: VolumeId) =>
      cluster.api.objects(lvmVolumes).find(({ metadata: { name } }) => name === id)?.status?.size,
    refusal: (id: VolumeId) => cluster.objects.get(id)?.status?.error?.code,
    /** Counts commands on the node and writes of objects from now on. */
    countWork: () => {
      const commands: string[] = [];
      machine.fault = ({ program, args }) => void commands.push(`${program} ${args[0]}`);
      const before = cluster.api.requests.length;
      const isWrite = ({ method, path }: { method: string; path: string }) =>
        method !== "GET" && !path.endsWith("/events") && !path.includes("/lvmnodes");
      return {
        commands,
        writes: () =>
          cluster.api.requests.slice(before).filter(isWrite).map(({ method, path }) =>
            `${method} ${
              path.split("/").filter((part) => /^(?:lvmvolumes|persistentvolumes|status)$/.test(part)).join(" ")
            }`
          ),
      };
    },
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await Promise.all(running);
      await events.stop(100);
      await cluster[Symbol.asyncDispose]();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

Deno.test("a deletion waits for the last unmount without retries, and ends at once after it", async () => {
  await using s = await setUp();
  const id = await s.addReleased("pvc-1");
  await s.stage(id, "staged");
  await s.publish(id, "staged", "pod");
  const first = s.countWork();
  await s.release("pvc-1");
  await waitUntil(() => s.refusal(id) === "InUse" && s.deleteCalls.length > 0, "the refusal");
  await delay(300);
  assertEquals(s.deleteCalls, [9], "one call of the controller, which answers FAILED_PRECONDITION");
  assertEquals(first.commands, [], "no report of LVM");
  assertEquals(first.writes(), [
    "PATCH persistentvolumes status", // the test's own
    "PATCH lvmvolumes",
    "DELETE lvmvolumes",
    "PATCH lvmvolumes status",
  ]);

  const waiting = s.countWork();
  await s.unpublish(id, "pod");
  await delay(100);
  assertEquals(waiting.commands.filter((line) => line.startsWith("lvm ")), [], "it is still staged");
  assertEquals([waiting.writes(), s.deleteCalls], [[], [9]]);

  const last = s.countWork();
  await s.unstage(id, "staged");
  await waitUntil(() => s.cluster.api.objects(persistentVolumes).length === 0, "the end of the PersistentVolume");
  assertEquals(s.deleteCalls, [9, 0]);
  assertEquals(last.writes(), ["PATCH lvmvolumes", "PATCH persistentvolumes", "DELETE persistentvolumes"]);
  await waitUntil(() => remaining(s.cluster, s.machine)[1] === 0, "the end of the logical volume");
});

Deno.test("a deletion is woken by the removal of the snapshots that prevented it, on the node and in the controller", async () => {
  await using s = await setUp();
  const id = await s.addReleased("pvc-1");
  const { volumes, snapshots } = s.cluster;
  const snapshot = await snapshots.create({
    ...{ id: snapshotIdOf("snap-1"), name: "snap-1", source: id, cowSize: { bytes: 8n << 20n } },
  });
  // as the official provisioner would, whose cache had no snapshot yet
  await s.cluster.client.patch(lvmVolumes, { name: id }, {
    merge: { metadata: { annotations: { [REMOVE_ANNOTATION]: "true" } } },
  });
  await s.cluster.client.delete(lvmVolumes, { name: id });
  await waitUntil(() => s.refusal(id) === "InUse", "the refusal");
  await s.release("pvc-1");
  await waitUntil(() => s.deleteCalls.length > 0, "the call");
  const waiting = s.countWork();
  await delay(300);
  assertEquals([waiting.commands, waiting.writes(), s.deleteCalls], [[], [], [9]]);
  await snapshots.delete(snapshot.id);
  await waitUntil(() => s.cluster.api.objects(persistentVolumes).length === 0, "the end of the PersistentVolume");
  await waitUntil(() => remaining(s.cluster, s.machine)[1] === 0, "the end of the logical volumes");
  assertEquals((await volumes.list()).length, 0);
});

Deno.test("a deletion is woken by the end of the copy that prevented it", async () => {
  await using s = await setUp();
  const id = await s.addReleased("pvc-1");
  const gate = Promise.withResolvers<void>();
  const isCopy = ({ program, args }: Command) =>
    program === "dd" && args.some((arg) => arg.startsWith("of=/dev/mapper/"));
  s.machine.fault = (command) => isCopy(command) ? gate.promise.then(() => undefined) : undefined;
  const copy = s.cluster.volumes.create(
    request("pvc-2", { range: { required: 32n << 20n }, source: { kind: "volume", id } }),
    ANYWHERE,
  );
  await waitUntil(() => s.machine.allLvs().length === 3, "the copy");
  await s.release("pvc-1");
  await waitUntil(() => s.deleteCalls.length > 0, "the call");
  gate.resolve();
  await copy;
  await waitUntil(() => s.cluster.api.objects(persistentVolumes).length === 0, "the end of the PersistentVolume");
});

Deno.test("a volume whose device another program has open is checked again with a growing delay", async () => {
  await using s = await setUp();
  const id = await s.addReleased("pvc-1");
  const { lv } = s.machine.allLvs()[0]!;
  const mount = { target: "/other", source: "/dev/other", fsType: "ext4", root: "/", readOnly: false };
  s.machine.mounts.push({ ...mount, deviceNumber: "7:99", lv });
  await s.release("pvc-1");
  await waitUntil(() => s.refusal(id) === "InUse", "the refusal");
  s.machine.mounts.pop();
  await waitUntil(() => s.cluster.api.objects(persistentVolumes).length === 0, "the end of the PersistentVolume");
});

Deno.test("a deletion that a node refused is woken when the node is forgotten, even if the volume was Lost before", async () => {
  await using s = await setUp();
  const id = await s.addReleased("pvc-1");
  s.machine.allLvs()[0]!.lv.uuid = "of-another-logical-volume";
  await s.release("pvc-1");
  await waitUntil(() => s.refusal(id) === "Lost" && s.deleteCalls.length > 0, "the refusal");
  await delay(100);
  assertEquals(s.deleteCalls, [9]);
  await s.forgetNode();
  await waitUntil(() => s.cluster.api.objects(persistentVolumes).length === 0, "the end of the PersistentVolume");
});

Deno.test("a node whose refusal could not be written writes it when the API server accepts it again", async () => {
  let failures = 0;
  await using s = await setUp({
    wrap: (client) => ({
      ...interceptClient(client, () => Promise.resolve()),
      patch: (resource, at, options) => {
        if (failures === 0 || resource.plural !== "lvmvolumes" || options.subresource !== "status") {
          return client.patch(resource, at, options);
        }
        failures--;
        return Promise.reject(
          new ApiError("the API server is overloaded", { status: 503, reason: "ServiceUnavailable" }),
        );
      },
    }),
  });
  const id = await s.addReleased("pvc-1");
  await s.stage(id, "staged");
  failures = 2;
  await s.release("pvc-1");
  await waitUntil(() => s.refusal(id) === "InUse", "the refusal");
  assertEquals(failures, 0);
  await s.unstage(id, "staged");
  await waitUntil(() => s.cluster.api.objects(persistentVolumes).length === 0, "the end of the PersistentVolume");
});

/** Returns a client with something that happens once, just before the next status of an LVMVolume is written. */
function interruptible() {
  const next: { interrupt?: (() => Promise<unknown>) | undefined } = {};
  const wrap: ProcessOptions["wrap"] = (client) => ({
    ...interceptClient(client, () => Promise.resolve()),
    patch: async (resource, at, options) => {
      const isStatus = resource.plural === "lvmvolumes" && options.subresource === "status";
      const { interrupt } = isStatus ? next : {};
      if (isStatus) next.interrupt = undefined;
      await interrupt?.();
      return await client.patch(resource, at, options);
    },
  });
  return { next, wrap };
}

Deno.test("a volume that is unmounted while the refusal of its deletion is written is deleted at once", async () => {
  const { next, wrap } = interruptible();
  await using s = await setUp({ wrap });
  const id = await s.addReleased("pvc-1");
  await s.stage(id, "staged");
  next.interrupt = () => s.unstage(id, "staged");
  await s.release("pvc-1");
  await waitUntil(() => s.cluster.api.objects(persistentVolumes).length === 0, "the end of the PersistentVolume");
  assertEquals(next.interrupt, undefined);
});

Deno.test("a check of the volumes that was decided before a refusal does not erase it from the status", async () => {
  const { next, wrap } = interruptible();
  await using s = await setUp({ wrap });
  const id = await s.addReleased("pvc-1");
  await s.stage(id, "staged");
  s.machine.allLvs()[0]!.lv.size *= 2n; // the check writes the new size
  next.interrupt = async () => {
    await s.release("pvc-1");
    await waitUntil(() => s.refusal(id) === "InUse", "the refusal");
  };
  await s.agent.node.refresh();
  await delay(100);
  assertEquals([next.interrupt, s.refusal(id)], [undefined, "InUse"]);
});

Deno.test("a volume that changes while its error is written does not keep the states of other volumes from users", async () => {
  const { next, wrap } = interruptible();
  await using s = await setUp({ wrap });
  const [id, other] = [await s.addReleased("pvc-1"), await s.addReleased("pvc-2")];
  s.duplicateLv(id);
  s.lvOf(other).size *= 2n;
  const merge = { metadata: { annotations: { note: "from others" } } };
  next.interrupt = () => s.cluster.client.patch(lvmVolumes, { name: id }, { merge });
  await s.agent.node.refresh();
  assertEquals([next.interrupt, s.sizeOf(other)], [undefined, "64Mi"]);
});

Deno.test("a waiting deletion of a volume that cannot be found does not keep the states of other volumes from users", async () => {
  await using s = await setUp();
  const [id, other] = [await s.addReleased("pvc-1"), await s.addReleased("pvc-2")];
  await s.stage(id, "staged");
  await s.release("pvc-1");
  await waitUntil(() => s.refusal(id) === "InUse", "the refusal");
  s.duplicateLv(id);
  s.lvOf(other).size *= 2n;
  await s.agent.node.refresh();
  assertEquals(s.sizeOf(other), "64Mi");
});
