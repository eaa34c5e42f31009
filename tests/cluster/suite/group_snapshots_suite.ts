/**
 * Group snapshots, with the official snapshot-controller.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import { lvmVolumeFor } from "../../../k8s/api/volume_mapping.ts";
import { volumeIdOf } from "../../../base/ids.ts";
import { namedRequest } from "../../fake/request.ts";
import { waitForMoreRounds } from "./helpers/checking_writer.ts";
import { example } from "./helpers/example_files.ts";
import { DRIVER, QUICK } from "./helpers/objects.ts";
import { SnapshotTestNamespace } from "./helpers/snapshot_test_namespace.ts";
import { createTestGroup, removePool } from "./helpers/test_group.ts";
import { FULL, type TestNamespace } from "./helpers/test_namespace.ts";

/** The claims, in the order in which numbers are written to them, and where a pod has them. */
const CLAIMS = ["thick", "thin", "raw"] as const;
const FILES = ["/thick/number", "/thin/number", "/dev/raw"];
const MOUNTS = [
  { name: "thick", path: "/thick" },
  { name: "thin", path: "/thin" },
  { name: "raw", devicePath: "/dev/raw" },
];

/** Writes numbers, each to the first file, then to the second one, and so on, and waits each time until it is on the disk. */
const WRITER = `
trap 'exit 0' TERM
n=0
while :; do
  n=$((n + 1))
  for f in ${FILES.join(" ")}; do
    printf '%-511d\\n' $n | dd of=$f conv=notrunc,fsync 2>/dev/null || exit 1
  done
  echo $n > /tmp/rounds
done
`;

/** Returns the numbers that a pod finds in the files. */
async function readNumbers(ns: TestNamespace, pod: string): Promise<number[]> {
  const lines = await ns.exec(pod, `for f in ${FILES.join(" ")}; do head -n 1 $f; done`);
  return lines.trim().split("\n").map(Number);
}

Deno.test("a group snapshot of thick, thin and block volumes in use has no later write without the earlier, and goes as a whole", async () => {
  await using snapshots = await SnapshotTestNamespace.open("group");
  const { ns } = snapshots;
  await using group = await createTestGroup(ns, 200);
  const thick = await ns.createStorageClass("thick", { parameters: QUICK });
  const parameters = { volumeGroup: group.name, thinProvision: "yes", erase: "none" };
  const thin = await ns.createStorageClass("thin", { parameters });
  const claims = [{ name: "thick", class: thick }, { name: "thin", class: thin }, {
    ...{ name: "raw", class: thick },
    volumeMode: "Block" as const,
  }];
  for (const claim of claims) await ns.createClaim(claim);
  await ns.kubectl("label", "persistentvolumeclaims", ...CLAIMS, "app=db");
  await ns.createPod({ name: "writer", claims: MOUNTS, command: WRITER });
  await ns.waitForRunning("writer");
  await waitForMoreRounds(ns, "writer");

  const className = await snapshots.createGroupSnapshotClass("groups");
  const before = Number(await ns.exec("writer", "cat /tmp/rounds"));
  await snapshots.createGroupSnapshot("all", { app: "db", className });
  const members = await snapshots.waitUntilGroupReady("all");
  assertEquals([...members.keys()].sort(), [...CLAIMS].sort());
  const after = Number(await ns.exec("writer", "cat /tmp/rounds"));
  await waitForMoreRounds(ns, "writer");

  for (const claim of claims) {
    const from = { kind: "VolumeSnapshot", name: members.get(claim.name)!.snapshot.metadata.name } as const;
    await ns.createClaim({ ...claim, name: `${claim.name}-restored`, from });
  }
  const mounts = MOUNTS.map((mount) => ({ ...mount, name: `${mount.name}-restored` }));
  await ns.createPod({ name: "reader", claims: mounts });
  await ns.waitForRunning("reader");
  const [first, second, third] = await readNumbers(ns, "reader") as [number, number, number];
  console.log(`written before: ${before}, in the snapshots: ${first}, ${second}, ${third}, after: ${after}`);
  assert(first >= second && second >= third && first - third <= 1, "a later write without the earlier one");
  assert(before <= third && first <= after + 1, "another time");

  // one of them is not deleted alone
  const { snapshot: { metadata: { name: one } }, id } = members.get("thin")!;
  await ns.requestDeletion("VolumeSnapshot", one);
  await ns.waitForEvent("VolumeSnapshot", one, "SnapshotDeletePending", /belongs to group snapshot/);
  assertEquals(await snapshots.snapshotState(id), "Ready");

  for (const pod of ["writer", "reader"]) await ns.deleteAndWait("Pod", pod);
  for (const name of CLAIMS) await ns.deleteAndWait("PersistentVolumeClaim", `${name}-restored`);
  await ns.deleteAndWait("VolumeGroupSnapshot", "all");
  await snapshots.waitUntilDeleted([...members.values()].map((member) => member.id));
  assertEquals(ns.informer("VolumeSnapshot").list(), []);
  // what waited to end the suspension leaves no process, of which a pod may have only so many
  const processes = await ns.runOnNode("ps -eo stat=,comm=");
  assertEquals(processes.split("\n").filter((line) => /^Z.*\b(?:sleep|find)\b/.test(line)), []);
  for (const name of CLAIMS) await ns.deleteAndWait("PersistentVolumeClaim", name);
  await ns.waitForCleanup();
  await removePool(ns, group.name);
});

/** Creates a claim of a volume on a node that is not there, as its agent would leave it. */
async function createClaimElsewhere(ns: TestNamespace, name: string): Promise<void> {
  const requestName = `${ns.namespace}-${name}`;
  const id = volumeIdOf(requestName);
  await ns.applyAs(
    lvmVolumes,
    lvmVolumeFor(namedRequest(requestName, 16n << 20n), { driver: DRIVER, nodeName: "elsewhere" }),
  );
  const status = { state: "Ready", observedGeneration: 1, volumeGroup: "data", lvUUID: "elsewhere", size: "16Mi" };
  const patch = JSON.stringify({ status });
  await ns.kubectl("patch", `lvmvolume/${id}`, "--subresource=status", "--type=merge", "--patch", patch);
  await ns.apply({
    apiVersion: "v1",
    kind: "PersistentVolume",
    metadata: { name: requestName },
    spec: {
      ...{ capacity: { storage: "16Mi" }, accessModes: ["ReadWriteOnce"], storageClassName: "none" },
      persistentVolumeReclaimPolicy: "Retain",
      claimRef: { namespace: ns.namespace, name },
      csi: { driver: DRIVER, volumeHandle: id },
    },
  });
  await ns.createClaim({ name, class: "none", volumeName: requestName });
  await ns.waitForBound(name);
}

Deno.test("a group snapshot of claims on two nodes is refused with the nodes, and leaves nothing", async () => {
  await using snapshots = await SnapshotTestNamespace.open("nodes");
  const { ns } = snapshots;
  const here = await ns.createStorageClass("here", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "here", class: here });
  await ns.waitForBound("here");
  await createClaimElsewhere(ns, "there");
  await ns.kubectl("label", "persistentvolumeclaims", "here", "there", "app=wide");
  const className = await snapshots.createGroupSnapshotClass("groups");
  await snapshots.createGroupSnapshot("wide", { app: "wide", className });
  const { status } = await ns.waitFor(
    "VolumeGroupSnapshot",
    "wide",
    (now) => now?.status?.error?.message?.includes("elsewhere") === true,
    "has the driver's error",
  );
  const content = status!.boundVolumeGroupSnapshotContentName!;
  const event = await ns.waitForEvent("VolumeGroupSnapshotContent", content, "GroupSnapshotCreationFailed");
  assertMatch(event.message!, new RegExp(`on node (?:${ns.node.name}|elsewhere), .* on node`));
  await ns.deleteAndWait("VolumeGroupSnapshot", "wide");
  await ns.waitForDeletion("VolumeGroupSnapshotContent", content);
  const lvs = await ns.runOnNode("lvs --noheadings -o lv_tags");
  assertEquals(lvs.includes("denolith.group="), false);
  // no agent removes it
  await ns.deleteAndWait("PersistentVolumeClaim", "there");
  await ns.requestDeletion("PersistentVolume", `${ns.namespace}-there`);
  const volume = `lvmvolume/${volumeIdOf(`${ns.namespace}-there`)}`;
  await ns.kubectl("patch", volume, "--type=merge", "--patch", JSON.stringify({ metadata: { finalizers: null } }));
  await ns.kubectl("delete", volume, "--ignore-not-found");
});

Deno.test("the example of a group snapshot runs as it is", { ignore: !FULL }, async () => {
  await using snapshots = await SnapshotTestNamespace.open("example");
  const { ns } = snapshots;
  for (const file of ["class", "claims", "pod", "snapshot"]) {
    await ns.apply(await example(`group-snapshot/${file}.yaml`));
  }
  const members = await snapshots.waitUntilGroupReady("orders-1");
  assertEquals([...members.keys()].sort(), ["orders", "orders-log"]);
  await ns.deleteAndWait("VolumeGroupSnapshot", "orders-1");
  await snapshots.waitUntilDeleted([...members.values()].map(({ id }) => id));
});
