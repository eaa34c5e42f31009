/**
 * An upgrade from version 0.1.0 to this version and back, while pods use their volumes. The suite runs in a cluster of its
 * own, which starts with version 0.1.0.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { IMAGE } from "../../../deploy/image/archive.ts";
import type { Pod } from "../../../k8s/api/objects.ts";
import {
  applyCrds,
  applyManifests,
  type DriverManifests,
  PRESENT_VERSION,
  waitForRollout,
  WORKLOADS,
} from "../deploy.ts";
import { EARLIER_IMAGE, ensureEarlierVersion } from "../earlier_version.ts";
import { checkingWriter, waitForMoreRounds } from "./checking_writer.ts";
import { DriverPods, type Role, SYSTEM_NAMESPACE } from "./driver_pods.ts";
import { WAIT_MS } from "./object_watcher.ts";
import { requestSize, waitForSize } from "./resizing.ts";
import { SnapshotTestNamespace } from "./snapshot_test_namespace.ts";
import { createTestGroup, removePool } from "./test_group.ts";
import type { TestNamespace } from "./test_namespace.ts";

/** A version of the driver. */
type Version = "0.1.0" | "this";

/** The versions that run. */
type Versions = Readonly<Record<Role, Version>>;

/**
 * The versions that follow each other, from version 0.1.0 and back to it. A line applies the manifests of the version that
 * changes, except those of the process that stays.
 */
const STEPS: readonly Versions[] = [
  { controller: "this", node: "0.1.0" },
  { controller: "this", node: "this" },
  { controller: "0.1.0", node: "this" },
  { controller: "0.1.0", node: "0.1.0" },
];

const FILES = { controller: "controller.yaml", node: "node.yaml" } as const satisfies Record<
  Role,
  keyof typeof WORKLOADS
>;

const IMAGES: Readonly<Record<Version, string>> = { "0.1.0": EARLIER_IMAGE, this: IMAGE };

/** The two kinds of volumes of each generation, whose names begin with it. */
const KINDS = ["thick", "thin"] as const;

/** The volumes that one pod uses from the start to the end, with their paths in it. */
const KEPT = [
  { name: "kept-thick", path: "/thick" },
  { name: "kept-thin", path: "/thin" },
  { name: "kept-raw", devicePath: "/raw" },
] as const;

/** What the test works with. */
interface Upgrade {
  readonly ns: TestNamespace;
  readonly snapshots: SnapshotTestNamespace;
  readonly driver: DriverPods;
  /** Full names of classes. */
  readonly classes: Readonly<Record<typeof KINDS[number] | "snapshots", string>>;
}

/** Says how far the test is, and how long the last part took. */
function stopwatch(): (what: string) => void {
  let last = performance.now();
  return (what) => {
    console.error(`upgrade: ${what}: ${Math.round((performance.now() - last) / 1000)} s`);
    last = performance.now();
  };
}

/** Returns the images of the driver's pods. */
async function runningImages({ ns }: Upgrade): Promise<Record<Role, string>> {
  const image = (role: Role) =>
    ns.kubectl(
      ...["--namespace", SYSTEM_NAMESPACE, "get", "pods", "--selector", `app.kubernetes.io/component=${role}`],
      "--output=jsonpath={.items[*].spec.containers[0].image}",
    );
  return { controller: await image("controller"), node: await image("node") };
}

/** Replaces one process by that of another version, and waits until the one before is gone. */
async function change(upgrade: Upgrade, from: Versions, to: Versions): Promise<void> {
  const { ns, driver } = upgrade;
  const { controlPlane } = ns.cluster;
  const role: Role = from.node === to.node ? "controller" : "node";
  const other: Role = role === "node" ? "controller" : "node";
  const manifests: DriverManifests = to[role] === "this" ? PRESENT_VERSION : await ensureEarlierVersion(console.error);
  const before = driver.podsOf(role).map(({ metadata }) => `pod/${metadata.name}`);
  // The CRDs of a later version stay when its processes go.
  if (to[role] === "this") await applyCrds(controlPlane, manifests.crds);
  const isWhole = to[role] === to[other];
  await applyManifests(controlPlane, manifests.manifests, isWhole ? {} : { without: FILES[other] });
  await waitForRollout(controlPlane, WORKLOADS[FILES[role]]);
  await ns.kubectl("--namespace", SYSTEM_NAMESPACE, "wait", "--for=delete", ...before, `--timeout=${WAIT_MS / 1000}s`);
  const expected = { controller: IMAGES[to.controller], node: IMAGES[to.node] };
  assertEquals(await runningImages(upgrade), expected);
}

/** Returns what identifies a pod's life: it changes with each restart. */
function lifeOf({ metadata, status }: Pod) {
  return { uid: metadata.uid, containers: status?.containerStatuses?.map(({ containerID }) => containerID) };
}

/** Returns the names of a generation's objects. */
const namesOf = (generation: number, prefix = "") => KINDS.map((kind) => `${prefix}${kind}-${generation}`);

/** Returns the mounts of a generation's claims in its pod. */
const mountsOf = (names: readonly string[]) => names.map((name, i) => ({ name, path: `/${KINDS[i]}` }));

const CONTENTS = KINDS.map((kind) => `/${kind}/file`).join(" ");

/** Creates volumes of each kind with a pod, lets them grow, and takes snapshots of them. */
async function createGeneration({ ns, snapshots, classes }: Upgrade, generation: number): Promise<void> {
  const claims = namesOf(generation);
  const pod = `user-${generation}`;
  for (const [i, name] of claims.entries()) await ns.createClaim({ name, class: classes[KINDS[i]!] });
  await ns.createPod({ name: pod, claims: mountsOf(claims) });
  await ns.waitForRunning(pod);
  await ns.exec(pod, `for f in ${CONTENTS}; do echo before ${generation} > $f; done; sync`);
  await Promise.all(claims.map((name) => requestSize(ns, name, "24Mi")));
  await Promise.all(claims.map((name) => waitForSize(ns, name, "24Mi")));
  for (const name of claims) await snapshots.createSnapshot(name, { claim: name, class: classes.snapshots });
  for (const name of claims) await snapshots.waitUntilReady(name);
  await ns.exec(pod, `for f in ${CONTENTS}; do echo after ${generation} > $f; done; sync`);
}

/** Restores the snapshots of a generation, lets its volumes grow, and deletes all of it. */
async function deleteGeneration({ ns, snapshots, classes }: Upgrade, generation: number): Promise<void> {
  const claims = namesOf(generation);
  const restored = namesOf(generation, "restored-");
  const [pod, reader] = [`user-${generation}`, `reader-${generation}`];
  const ids = await Promise.all(claims.map(async (name) => (await snapshots.waitUntilReady(name)).id));
  for (const [i, name] of claims.entries()) {
    const from = { kind: "VolumeSnapshot", name } as const;
    await ns.createClaim({ name: restored[i]!, class: classes[KINDS[i]!], size: "24Mi", from });
  }
  await ns.createPod({ name: reader, claims: mountsOf(restored) });
  await ns.waitForRunning(reader);
  const repeated = (line: string) => `${line} ${generation}\n`.repeat(KINDS.length);
  assertEquals(await ns.exec(reader, `cat ${CONTENTS}`), repeated("before"));
  assertEquals(await ns.exec(pod, `cat ${CONTENTS}`), repeated("after"));
  await ns.deleteAndWait("Pod", reader);
  await Promise.all(restored.map((name) => ns.deleteAndWait("PersistentVolumeClaim", name)));
  await Promise.all(claims.map((name) => ns.deleteAndWait("VolumeSnapshot", name)));
  await snapshots.waitUntilDeleted(ids);
  await Promise.all(claims.map((name) => requestSize(ns, name, "32Mi")));
  await Promise.all(claims.map((name) => waitForSize(ns, name, "32Mi")));
  const volumes = await Promise.all([...claims].map(async (name) => (await ns.volumeOf(name)).metadata.name));
  await ns.deleteAndWait("Pod", pod);
  await Promise.all(claims.map((name) => ns.deleteAndWait("PersistentVolumeClaim", name)));
  await Promise.all(volumes.map((name) => ns.waitForDeletion("PersistentVolume", name)));
}

/**
 * Returns the exit statuses of crashes of the driver's processes. On a busy machine, kubelet may end a process that
 * answers late: that is none.
 */
function crashes(driver: DriverPods): number[] {
  const pods = [...driver.podsOf("controller"), ...driver.podsOf("node")];
  return pods.flatMap(({ status }) => status?.containerStatuses ?? [])
    .flatMap(({ lastState }) => lastState?.terminated?.exitCode ?? [])
    .filter((code) => code !== 0 && code < 128);
}

/** Checks that the driver has no complaint: no crash, every volume Ready, no orphan. */
async function assertHealthy({ ns, driver }: Upgrade): Promise<void> {
  assertEquals(crashes(driver), []);
  const get = async (what: string, path: string) => (await ns.kubectl("get", what, `--output=jsonpath=${path}`)).trim();
  const states = await get("lvmvolumes,lvmsnapshots", `{range .items[*]}{.metadata.name}={.status.state} {end}`);
  assertEquals(states.split(" ").filter((state) => state !== "" && !state.endsWith("=Ready")), []);
  const orphans = `{.items[*].status.conditions[?(@.type=="OrphansFound")].status}`;
  assertEquals((await get("lvmnodes", orphans)).includes("True"), false, "orphans");
}

Deno.test("volumes of version 0.1.0 live on in this version, and in 0.1.0 again, while pods use them", async () => {
  await using snapshots = await SnapshotTestNamespace.open("upgrade");
  const { ns } = snapshots;
  await using driver = await DriverPods.open(ns.cluster);
  await using group = await createTestGroup(ns, 1000);
  const parameters = { volumeGroup: group.name };
  const classes = {
    thick: await ns.createStorageClass("thick", { parameters }),
    thin: await ns.createStorageClass("thin", {
      parameters: { ...parameters, thinProvision: "yes", thinPoolSize: "400Mi" },
    }),
    snapshots: await snapshots.createSnapshotClass("half", { parameters: { snapSize: "50%" } }),
  };
  const upgrade: Upgrade = { ns, snapshots, driver, classes };
  let versions: Versions = { controller: "0.1.0", node: "0.1.0" };
  const images = await runningImages(upgrade);
  assertEquals(images, { controller: EARLIER_IMAGE, node: EARLIER_IMAGE }, "run: deno task test:cluster upgrade");

  const say = stopwatch();
  for (const { name } of KEPT) {
    const volumeMode = name === "kept-raw" ? "Block" : "Filesystem";
    await ns.createClaim({ name, class: name === "kept-thin" ? classes.thin : classes.thick, volumeMode });
  }
  const command = checkingWriter(["/thick/file", "/thin/file", "/raw"], { pauseSeconds: 5 });
  await ns.createPod({ name: "writer", claims: KEPT, command });
  const writer = lifeOf(await ns.waitForRunning("writer"));
  await createGeneration(upgrade, 0);
  say("0.1.0 made volumes");

  for (const [i, next] of STEPS.entries()) {
    const title = `controller ${next.controller}, agents ${next.node}`;
    await change(upgrade, versions, next);
    versions = next;
    say(`${title}: replaced`);
    const size = `${24 + 8 * i}Mi`;
    await Promise.all(KEPT.map(({ name }) => requestSize(ns, name, size)));
    await Promise.all(KEPT.map(({ name }) => waitForSize(ns, name, size)));
    await deleteGeneration(upgrade, i);
    await createGeneration(upgrade, i + 1);
    await waitForMoreRounds(ns, "writer");
    assertEquals(lifeOf(await ns.waitForRunning("writer")), writer, "the pod was restarted");
    await assertHealthy(upgrade);
    say(`${title}: used`);
  }

  await deleteGeneration(upgrade, STEPS.length);
  await ns.deleteAndWait("Pod", "writer");
  for (const { name } of KEPT) await ns.deleteAndWait("PersistentVolumeClaim", name);
  await ns.waitForCleanup();
  await removePool(ns, group.name);
  assertEquals((await ns.runOnNode(`vgs --noheadings -o vg_tags,lv_count ${group.name}`)).trim(), "0");
  say("all removed");
});
