/**
 * Snapshots while processes die, and with the official csi-snapshotter.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { TempFolder } from "../../rig/temp_folder.ts";
import { chanceOfRun } from "./chance.ts";
import { DriverPods } from "./driver_pods.ts";
import { Host } from "./host.ts";
import { startController } from "./host_programs.ts";
import { FULL } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";
import { SnapshotScene } from "./snapshot_scene.ts";

/** How many snapshots are taken in a round. */
const ROUND = 3;

/** Milliseconds in which a kill comes after a round was begun: taking a snapshot takes some seconds here. */
const KILL_WITHIN_MS = 6_000;

/** What is killed: every component that has a part in a snapshot. */
const VICTIMS = ["controller", "node", "kubelet", "snapshot-controller", "API server"] as const;

/** Makes a claim `data` and a pod `user` that has it; answers the name of a class for small snapshots. */
async function prepare(snapshots: SnapshotScene): Promise<string> {
  const { scene } = snapshots;
  await scene.claim({ name: "data", class: await scene.storageClass("plain", { parameters: QUICK }) });
  await scene.pod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await scene.running("user");
  await scene.exec("user", "echo kept > /data/file && sync");
  return await snapshots.snapshotClass("quarter", { parameters: { snapSize: "25%" } });
}

Deno.test("whoever is killed while snapshots are taken and deleted, all become ready, and nothing is left of those that are deleted", async () => {
  await using snapshots = await SnapshotScene.open("kills");
  const className = await prepare(snapshots);
  const { scene } = snapshots;
  await using driver = await DriverPods.open(scene.cluster);
  const chance = chanceOfRun();
  const rounds = FULL ? [...VICTIMS, ...VICTIMS] : VICTIMS;
  const old: { name: string; id: string }[] = [];
  for (const [round, victim] of rounds.entries()) {
    const names = Array.from({ length: ROUND }, (_, n) => `round-${round}-${n}`);
    const doomed = old.splice(0);
    await Promise.all([
      ...names.map((name) => snapshots.snapshot(name, { claim: "data", class: className })),
      ...doomed.map(({ name }) => scene.remove("VolumeSnapshot", name)),
    ]);
    // Any moment may be the wrong one: that is what is tried here.
    await new Promise((resolve) => setTimeout(resolve, chance() * KILL_WITHIN_MS));
    await kill(victim, { snapshots, driver });
    // One that is deleted before it is known whether it was taken leaves nothing, either.
    const early = await scene.wait("VolumeSnapshot", names[0]!, (now) => now !== undefined, "is there");
    await scene.remove("VolumeSnapshot", names[0]!);
    for (const name of names.slice(1)) old.push({ name, id: (await snapshots.ready(name)).id });
    await scene.gone("VolumeSnapshot", names[0]!);
    for (const { name } of doomed) await scene.gone("VolumeSnapshot", name);
    await snapshots.nothingLeft([...doomed.map(({ id }) => id), snapshots.idFor(early)]);
  }
  for (const { name } of old) await scene.delete("VolumeSnapshot", name);
  await snapshots.nothingLeft(old.map(({ id }) => id));
  assertEquals(await scene.exec("user", "cat /data/file"), "kept\n");
});

async function kill(
  victim: typeof VICTIMS[number],
  { snapshots, driver }: { snapshots: SnapshotScene; driver: DriverPods },
): Promise<void> {
  const { scene } = snapshots;
  if (victim === "snapshot-controller") return await snapshots.killController();
  if (victim === "API server") {
    await scene.cluster.controlPlane.stopApi();
    return await scene.cluster.controlPlane.startApi();
  }
  if (victim === "kubelet") {
    await scene.node.restartKubelet();
    return await scene.node.ready();
  }
  const before = driver.working(victim);
  await driver.killProcess(victim);
  await driver.back(victim, { before });
}

Deno.test("csi-snapshotter does in front of the socket what the loop does", async () => {
  await using snapshots = await SnapshotScene.open("official");
  const className = await prepare(snapshots);
  const { scene } = snapshots;
  await using host = await Host.open(scene, ["--disable-loops", "snapshotter"]);
  await using _sidecar = await host.sidecar("csi-snapshotter");
  await snapshots.snapshot("first", { claim: "data", class: className });
  const { snapshot, id } = await snapshots.ready("first");
  assertEquals([id, snapshot.status?.restoreSize], [snapshots.idFor(snapshot), "16Mi"]);
  const keep = await snapshots.snapshotClass("keep", { deletionPolicy: "Retain" });
  await snapshots.snapshot("kept", { claim: "data", class: keep });
  const kept = await snapshots.ready("kept");
  for (const name of ["first", "kept"]) await scene.delete("VolumeSnapshot", name);
  await scene.delete("VolumeSnapshotContent", kept.content.metadata.name);
  await snapshots.nothingLeft([id]);
  assert(await snapshots.lv(kept.id), "the snapshot is kept");
  const given = await snapshots.content("given", { handle: kept.id, snapshot: "given" });
  await snapshots.snapshot("given", { content: given });
  assertEquals((await snapshots.ready("given")).id, kept.id);
  await scene.delete("VolumeSnapshot", "given");
  await snapshots.nothingLeft([kept.id]);
});

Deno.test("the loop and csi-snapshotter at once: one works, the other goes on in its place, and no snapshot is taken twice", async () => {
  await using snapshots = await SnapshotScene.open("both");
  const className = await prepare(snapshots);
  const { scene } = snapshots;
  await using host = await Host.open(scene, ["--disable-loops", "snapshotter"]);
  await using official = await host.sidecar("csi-snapshotter");
  const first = await host.holder("csi-snapshotter");
  assert(!first.startsWith("host-"), `the official one holds the Lease, not ${first}`);
  // Another of ours, with its loops on, which finds the Lease taken.
  await using folder = await TempFolder.create("/tmp", "denolith-");
  await using _ours = await startController(scene.cluster.controlPlane, folder.path);

  const names = Array.from({ length: 4 }, (_, n) => `snapshot-${n}`);
  await Promise.all(names.map((name) => snapshots.snapshot(name, { claim: "data", class: className })));
  await snapshots.ready(names[0]!);
  await official.kill();
  const known = await Promise.all(names.map((name) => snapshots.ready(name)));
  assert((await host.holder("csi-snapshotter", first)).startsWith("host-"), "the loop holds the Lease now");
  assertEquals(new Set(known.map(({ id }) => id)).size, names.length);
  for (const { snapshot, id } of known) assertEquals(id, snapshots.idFor(snapshot));
  for (const name of names) await scene.delete("VolumeSnapshot", name);
  await snapshots.nothingLeft(known.map(({ id }) => id));
});
