/**
 * Snapshots while processes are killed, and with the official csi-snapshotter.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { TempFolder } from "../../rig/temp_folder.ts";
import { runRandom } from "../../rig/seeded_random.ts";
import { DriverPods } from "./helpers/driver_pods.ts";
import { OutOfClusterController } from "./helpers/out_of_cluster_controller.ts";
import { startController } from "./helpers/host_processes.ts";
import { FULL } from "./helpers/test_namespace.ts";
import { QUICK } from "./helpers/objects.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";

/** The number of snapshots in a round. */
const SNAPSHOTS_PER_ROUND = 3;

/** The maximum time between the start of a round and a kill, in milliseconds: a snapshot takes some seconds here. */
const KILL_WITHIN_MS = 6_000;

/** The processes to kill: every component that takes part in a snapshot. */
const VICTIMS = ["controller", "node", "kubelet", "snapshot-controller", "API server"] as const;

/** Creates a claim `data` and a pod `user` that uses it. @returns the name of a class for small snapshots */
async function prepare(snapshots: SnapshotTestNamespace): Promise<string> {
  const { ns } = snapshots;
  await ns.createClaim({ name: "data", class: await ns.createStorageClass("plain", { parameters: QUICK }) });
  await ns.createPod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("user");
  await ns.exec("user", "echo kept > /data/file && sync");
  return await snapshots.createSnapshotClass("quarter", { parameters: { snapSize: "25%" } });
}

/** Creates a second claim, which a group snapshot has with the first one. @returns the name of a class of group snapshots */
async function prepareGroup(snapshots: SnapshotTestNamespace): Promise<string> {
  const { ns } = snapshots;
  await ns.createClaim({ name: "log", class: `${ns.namespace}-plain` });
  await ns.createPod({ name: "logger", claims: [{ name: "log", path: "/log" }] });
  await ns.waitForRunning("logger");
  await ns.kubectl("label", "persistentvolumeclaims", "data", "log", "app=db");
  return await snapshots.createGroupSnapshotClass("groups");
}

Deno.test("snapshots become ready or are deleted whichever process is killed meanwhile, and nothing is left of deleted ones", async () => {
  await using snapshots = await SnapshotTestNamespace.open("kills");
  const className = await prepare(snapshots);
  const groupClass = await prepareGroup(snapshots);
  const { ns } = snapshots;
  await using driver = await DriverPods.open(ns.cluster);
  const random = runRandom();
  const rounds = FULL ? [...VICTIMS, ...VICTIMS] : VICTIMS;
  const kept: { name: string; id: string }[] = [];
  const groups: { name: string; ids: readonly string[] }[] = [];
  for (const [round, victim] of rounds.entries()) {
    const names = Array.from({ length: SNAPSHOTS_PER_ROUND }, (_, n) => `round-${round}-${n}`);
    const [toDelete, groupsToDelete] = [kept.splice(0), groups.splice(0)];
    const group = `group-${round}`;
    await Promise.all([
      snapshots.createGroupSnapshot(group, { app: "db", className: groupClass }),
      ...groupsToDelete.map(({ name }) => ns.requestDeletion("VolumeGroupSnapshot", name)),
      ...names.map((name) => snapshots.createSnapshot(name, { claim: "data", class: className })),
      ...toDelete.map(({ name }) => ns.requestDeletion("VolumeSnapshot", name)),
    ]);
    // The moment is random: a kill at any moment must do no harm.
    await new Promise((resolve) => setTimeout(resolve, random() * KILL_WITHIN_MS));
    await kill(victim, { snapshots, driver });
    // A snapshot that is deleted before its creation is confirmed leaves nothing, either.
    const early = await ns.waitFor("VolumeSnapshot", names[0]!, (now) => now !== undefined, "is there");
    await ns.requestDeletion("VolumeSnapshot", names[0]!);
    for (const name of names.slice(1)) kept.push({ name, id: (await snapshots.waitUntilReady(name)).id });
    const members = [...(await snapshots.waitUntilGroupReady(group)).values()];
    assertEquals(members.length, 2);
    groups.push({ name: group, ids: members.map(({ id }) => id) });
    assertEquals((await ns.runOnNode("dmsetup info -c --noheadings -o suspended")).includes("Suspended"), false);
    await ns.waitForDeletion("VolumeSnapshot", names[0]!);
    for (const { name, ids } of groupsToDelete) {
      await ns.waitForDeletion("VolumeGroupSnapshot", name);
      await snapshots.waitUntilDeleted(ids);
    }
    for (const { name } of toDelete) await ns.waitForDeletion("VolumeSnapshot", name);
    await snapshots.waitUntilDeleted([...toDelete.map(({ id }) => id), snapshots.handleFor(early)]);
  }
  for (const { name, ids } of groups) {
    await ns.deleteAndWait("VolumeGroupSnapshot", name);
    await snapshots.waitUntilDeleted(ids);
  }
  for (const { name } of kept) await ns.deleteAndWait("VolumeSnapshot", name);
  await snapshots.waitUntilDeleted(kept.map(({ id }) => id));
  assertEquals(await ns.exec("logger", "touch /log/file && sync && ls /log/file"), "/log/file\n");
  assertEquals(await ns.exec("user", "cat /data/file"), "kept\n");
});

async function kill(
  victim: typeof VICTIMS[number],
  { snapshots, driver }: { snapshots: SnapshotTestNamespace; driver: DriverPods },
): Promise<void> {
  const { ns } = snapshots;
  if (victim === "snapshot-controller") return await snapshots.restartSnapshotController();
  if (victim === "API server") {
    await ns.cluster.controlPlane.stopApi();
    return await ns.cluster.controlPlane.startApi();
  }
  if (victim === "kubelet") {
    await ns.node.restartKubelet();
    return await ns.node.ready();
  }
  const before = driver.readyContainers(victim);
  await driver.killProcess(victim);
  await driver.waitForReady(victim, { before });
}

Deno.test("csi-snapshotter does over the socket what the snapshotter does", async () => {
  await using snapshots = await SnapshotTestNamespace.open("official");
  const className = await prepare(snapshots);
  const { ns } = snapshots;
  await using controller = await OutOfClusterController.open(ns, ["--disable-controllers", "snapshotter"]);
  await using _sidecar = await controller.startSidecarProcess("csi-snapshotter");
  await snapshots.createSnapshot("first", { claim: "data", class: className });
  const { snapshot, id } = await snapshots.waitUntilReady("first");
  assertEquals([id, snapshot.status?.restoreSize], [snapshots.handleFor(snapshot), "16Mi"]);
  const keep = await snapshots.createSnapshotClass("keep", { deletionPolicy: "Retain" });
  await snapshots.createSnapshot("kept", { claim: "data", class: keep });
  const kept = await snapshots.waitUntilReady("kept");
  for (const name of ["first", "kept"]) await ns.deleteAndWait("VolumeSnapshot", name);
  await ns.deleteAndWait("VolumeSnapshotContent", kept.content.metadata.name);
  await snapshots.waitUntilDeleted([id]);
  assert(await snapshots.findLv(kept.id), "the snapshot is kept");
  const givenContent = await snapshots.createContent("given", { handle: kept.id, snapshot: "given" });
  await snapshots.createSnapshot("given", { content: givenContent });
  assertEquals((await snapshots.waitUntilReady("given")).id, kept.id);
  await ns.deleteAndWait("VolumeSnapshot", "given");
  await snapshots.waitUntilDeleted([kept.id]);
});

Deno.test("the snapshotter and csi-snapshotter at once: one leads, the other takes over, and no snapshot is taken twice", async () => {
  await using snapshots = await SnapshotTestNamespace.open("both");
  const className = await prepare(snapshots);
  const { ns } = snapshots;
  await using controller = await OutOfClusterController.open(ns, ["--disable-controllers", "snapshotter"]);
  await using sidecar = await controller.startSidecarProcess("csi-snapshotter");
  const first = await controller.waitForLeaseHolder("csi-snapshotter");
  assert(!first.startsWith("host-"), `the official one holds the Lease, not ${first}`);
  // Another of ours, with its loops on, which finds the Lease taken.
  await using folder = await TempFolder.create("/tmp", "denolith-");
  await using _ours = await startController(ns.cluster.controlPlane, folder.path);

  const names = Array.from({ length: 4 }, (_, n) => `snapshot-${n}`);
  await Promise.all(names.map((name) => snapshots.createSnapshot(name, { claim: "data", class: className })));
  await snapshots.waitUntilReady(names[0]!);
  await sidecar.kill();
  const readySnapshots = await Promise.all(names.map((name) => snapshots.waitUntilReady(name)));
  assert(
    (await controller.waitForLeaseHolder("csi-snapshotter", first)).startsWith("host-"),
    "the loop holds the Lease now",
  );
  assertEquals(new Set(readySnapshots.map(({ id }) => id)).size, names.length);
  for (const { snapshot, id } of readySnapshots) assertEquals(id, snapshots.handleFor(snapshot));
  for (const name of names) await ns.deleteAndWait("VolumeSnapshot", name);
  await snapshots.waitUntilDeleted(readySnapshots.map(({ id }) => id));
});
