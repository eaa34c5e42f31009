/**
 * `kubectl denolith why` of objects that were made by hand: what earlier objects of the same name have left, what this
 * person may not read, volumes that nobody provisions, and many pods.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import {
  CLAIM_ANNOTATION,
  type LvmNode,
  lvmNodes,
  type LvmNodeStatus,
  type LvmVolume,
  lvmVolumes,
} from "../../k8s/api/lvm_objects.ts";
import {
  csiStorageCapacities,
  events,
  type KubeObject,
  leases,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods,
  type Resource,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { volumeSnapshotContents, volumeSnapshots } from "../../k8s/api/snapshot_objects.ts";
import { ApiError, type MergePatch } from "../../k8s/client/client.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { readClaimState } from "../../plugin/diagnosis/claim_state.ts";
import { explainClaim, type WhyAnswer } from "../../plugin/diagnosis/why.ts";
import { KubectlClient } from "../../plugin/kubectl_client.ts";
import { SELECTED_NODE_ANNOTATION } from "../../k8s/provisioner/claim.ts";
import { ClaimHarness } from "../fake/cluster/claim_harness.ts";
import { FakeKubectl } from "../fake/cluster/kubectl.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";

const HOUR_AGO = new Date(Date.now() - 3_600_000).toISOString();
const GROWING = { spec: { resources: { requests: { storage: "64Mi" } } } };
const WAITS = { storageClass: { volumeBindingMode: "WaitForFirstConsumer" } };

/** Returns the reasons of an answer. */
async function reasons(harness: ClaimHarness, target?: string): Promise<string[]> {
  return (await harness.why(target)).problems.map(({ reason }) => reason);
}

/** Gives an object other metadata, also those that the API server sets. */
function remake<T extends KubeObject>(
  harness: ClaimHarness,
  resource: Resource<T>,
  at: { name: string; namespace?: string },
  metadata: Partial<KubeObject["metadata"]>,
): void {
  const { name, namespace } = at;
  const collection = harness.api.collection(resource);
  const object = collection.get(name, namespace);
  collection.restore({ ...object, metadata: { ...object.metadata, ...metadata } as typeof object.metadata });
}

/** Adds an event about an object with a uid. */
function addEventAbout(
  harness: ClaimHarness,
  uid: string,
  reason: string,
  message: string,
  kind = "PersistentVolumeClaim",
) {
  harness.api.put(events, {
    metadata: { name: `e.${crypto.randomUUID()}`, namespace: "default" },
    involvedObject: { kind, name: kind === "Pod" ? "web" : "data", namespace: "default", uid },
    ...{ reason, message, type: "Warning", lastTimestamp: new Date().toISOString() },
  } as never);
}

/** Explains the claim for somebody who may not read some kinds. */
async function whyWithout(harness: ClaimHarness, ...forbidden: Resource[]): Promise<WhyAnswer> {
  const client = new KubectlClient(new FakeKubectl({ url: harness.api.url, role: "viewer" }));
  const refuse = (name: "get" | "list") => {
    const original = client[name].bind(client) as (resource: Resource, ...rest: unknown[]) => Promise<unknown>;
    const refusing = async (resource: Resource, ...rest: unknown[]) => {
      if (!forbidden.includes(resource)) return await original(resource, ...rest);
      throw new ApiError(`${name} ${resource.plural}: Forbidden`, { status: 403, reason: "Forbidden" });
    };
    Object.assign(client, { [name]: refusing });
  };
  refuse("get");
  refuse("list");
  const at = { driver: DRIVER, namespace: "default", name: "data", now: new Date() };
  return explainClaim(await readClaimState(client, at));
}

Deno.test("why: what was said of an earlier claim of the same name is not said of this one", async () => {
  await using harness = new ClaimHarness();
  harness.addClaim();
  addEventAbout(
    harness,
    crypto.randomUUID(),
    "ProvisioningFailed",
    "not enough free space in data (1 GiB free) [NoSpace]",
  );
  assertEquals(await reasons(harness), ["Provisioning"]);
  const { uid } = harness.api.objects(persistentVolumeClaims)[0]!.metadata;
  addEventAbout(harness, uid!, "ProvisioningFailed", "none matches x; there are y [NoSuchVolumeGroup]");
  assertEquals(await reasons(harness), ["NoSuchVolumeGroup"]);
});

Deno.test("why: what was said of an earlier pod of the same name is not said of this one", async () => {
  await using harness = new ClaimHarness();
  harness.addBound();
  harness.addPod({ spec: { nodeName: "n1" } });
  addEventAbout(harness, crypto.randomUUID(), "FailedMount", "e2fsck -p: exit 4 [FilesystemDamaged]", "Pod");
  assertEquals(await reasons(harness), []);
});

Deno.test("why: the volume of an earlier claim of the same name is not this claim's", async () => {
  await using harness = new ClaimHarness();
  harness.addVolume({ status: { error: { code: "FailedPrecondition", message: "it is in use" } } as never });
  harness.api.collection(persistentVolumes).delete({ name: "pv", namespace: undefined }, {});
  remake(harness, lvmVolumes, { name: harness.id }, { creationTimestamp: HOUR_AGO });
  harness.addClaim();
  const { problems, state } = await harness.why();
  assertEquals([state, problems.map(({ reason }) => reason)], ["Pending", ["Provisioning"]]);
  remake(harness, lvmVolumes, { name: harness.id }, { creationTimestamp: new Date().toISOString() });
  assertEquals((await harness.why()).problems[0]!.message, "it is in use");
});

Deno.test("why: the content of an earlier VolumeSnapshot of the same name is not this one's", async () => {
  await using harness = new ClaimHarness();
  harness.addSnapshot({ boundVolumeSnapshotContentName: "z-content", readyToUse: false }, null);
  const [{ metadata: { uid } }] = harness.api.objects(volumeSnapshots) as [KubeObject];
  const put = (name: string, ref: object, message: string) =>
    harness.api.put(volumeSnapshotContents, {
      metadata: { name },
      spec: {
        ...{ driver: DRIVER, deletionPolicy: "Retain", source: { volumeHandle: harness.id } },
        volumeSnapshotRef: { name: "cut", namespace: "default", ...ref },
      },
      status: { error: { message } },
    });
  put("a-content", { uid: crypto.randomUUID() }, "parameter snapSize 3: too small [WrongParameter]");
  put("z-content", { uid }, "the COW space of data does not fit [NoSpace]");
  assertEquals(await reasons(harness, "vs/cut"), ["NoSpace"]);
});

Deno.test("why: a failure of an earlier expansion or modification, after which it succeeded, is over", async () => {
  await using harness = new ClaimHarness();
  harness.addBound({ claim: { ...GROWING, spec: { ...GROWING.spec, volumeAttributesClassName: "gold" } } });
  const { uid } = harness.api.objects(persistentVolumeClaims)[0]!.metadata;
  for (const work of ["Resize", "Modify"]) {
    addEventAbout(harness, uid!, `Volume${work}Failed`, "something that nobody foresaw");
    await new Promise((resolve) => setTimeout(resolve, 5));
    addEventAbout(harness, uid!, `Volume${work}Successful`, "done");
  }
  assertEquals(await reasons(harness), ["Resizing", "Modifying"]);
});

Deno.test("why: pods that have ended do not hide the one that waits", async () => {
  await using harness = new ClaimHarness();
  harness.addBound();
  const volumes = [{ name: "v", persistentVolumeClaim: { claimName: "data" } }];
  for (const name of ["a", "b", "c", "d", "e", "f"]) {
    harness.api.put<Pod>(pods, {
      metadata: { name, namespace: "default" },
      ...{ spec: { volumes, nodeName: "n1" } as never, status: { phase: "Succeeded" } as never },
    });
  }
  harness.addPod({ spec: { nodeName: "n1" } });
  harness.addEvent("FailedMount", "e2fsck -p: exit 4 [FilesystemDamaged]", "Pod", "web");
  assertEquals(await reasons(harness), ["FilesystemDamaged"]);
});

Deno.test("why: a hundred pods that wait for the same are not told one by one", async () => {
  await using harness = new ClaimHarness(WAITS);
  harness.addClaim();
  const volumes = [{ name: "v", persistentVolumeClaim: { claimName: "data" } }];
  for (let n = 0; n < 100; n++) {
    harness.api.put<Pod>(pods, {
      metadata: { name: `web-${n}`, namespace: "default" },
      ...{ spec: { volumes } as never, status: { phase: "Pending" } as never },
    });
  }
  const { problems, facts } = await harness.why() as unknown as WhyAnswer;
  assertEquals(problems.length, 5);
  assertMatch(new Map(facts).get("Pods")!, /^web-0, .*, and 95 more$/);
});

Deno.test("why: who may not read pods is not told that there are none", async () => {
  {
    await using harness = new ClaimHarness(WAITS);
    harness.addClaim();
    const { problems } = await whyWithout(harness, pods);
    assertEquals(problems.map(({ reason }) => reason), ["WaitsForConsumer"]);
  }
  await using harness = new ClaimHarness();
  harness.addBound({ claim: { metadata: { finalizers: ["kubernetes.io/pvc-protection"] } } });
  await harness.delete(persistentVolumeClaims, "data", "default");
  const { problems } = await whyWithout(harness, pods);
  assertEquals(problems.map(({ reason }) => reason), ["KeptByFinalizers"]);
  assertMatch(problems[0]!.message, /pods may use it, and pods are not read/);
});

Deno.test("why: who may read one namespace only is told what Kubernetes says of the claim", async () => {
  const outside = [storageClasses, persistentVolumes, lvmVolumes, lvmNodes, nodes, leases, csiStorageCapacities];
  {
    await using harness = new ClaimHarness();
    harness.addBound({ claim: GROWING });
    harness.addEvent("VolumeResizeFailed", "it is in use and has the snapshots a [OriginInUse]");
    assertEquals((await whyWithout(harness, ...outside)).problems.map(({ reason }) => reason), ["OriginInUse"]);
  }
  {
    await using harness = new ClaimHarness(WAITS);
    harness.addClaim();
    harness.addEvent("WaitForFirstConsumer", "waiting for first consumer to be created before binding");
    assertEquals((await whyWithout(harness, ...outside)).problems.map(({ reason }) => reason), ["NoConsumer"]);
  }
  await using harness = new ClaimHarness();
  harness.addClaim({ metadata: { annotations: { "volume.kubernetes.io/storage-provisioner": "ebs.csi.aws.com" } } });
  assertEquals((await whyWithout(harness, ...outside)).problems.map(({ reason }) => reason), ["OtherDriver"]);
});

Deno.test("why: a Node that may not be read is not said to be gone", async () => {
  await using harness = new ClaimHarness({ hasAgent: false });
  harness.addBound();
  const { problems } = await whyWithout(harness, nodes);
  assertEquals(problems.map(({ reason }) => reason), ["NodeWithoutAgent"]);
});

Deno.test("why: an agent whose Lease may not be read is not said to be silent", async () => {
  await using harness = new ClaimHarness({ seenAt: new Date(HOUR_AGO) });
  harness.addBound();
  assertEquals(await reasons(harness), ["AgentSilent"]);
  const { problems, facts } = await whyWithout(harness, leases);
  assertEquals([problems, new Map(facts).get("Node")], [[], "n1 (agent Unknown)"]);
});

Deno.test("why: a Bound claim is explained without lists of what a large cluster has much of", async () => {
  await using harness = new ClaimHarness();
  harness.addBound();
  const { commands } = await pluginOver(harness.api, { role: "viewer" })(["why", "data"]);
  const lists = commands.map((args) => args.join(" ")).filter((text) => text.includes("limit="));
  for (const large of [persistentVolumes, lvmVolumes, csiStorageCapacities]) {
    assertEquals(lists.filter((text) => text.includes(large.plural)), []);
  }
});

Deno.test("why: a claim that may not be read is not said to be deleted", async () => {
  await using harness = new ClaimHarness();
  harness.addBound();
  await assertRejects(
    () => whyWithout(harness, persistentVolumeClaims),
    ApiError,
    "get persistentvolumeclaims: Forbidden",
  );
});

Deno.test("why: a claim that names a PersistentVolume waits for that one, whatever its class", async () => {
  for (const storageClassName of ["", "manual", "fast"]) {
    await using harness = new ClaimHarness();
    harness.addClaim({ spec: { storageClassName, volumeName: "pv" } });
    assertEquals(await reasons(harness), ["NoSuchPersistentVolume"]);
    harness.addVolume({ phase: "Available" });
    assertEquals(await reasons(harness), ["Binding"]);
    harness.addEvent("VolumeMismatch", 'Cannot bind to requested volume "pv": requested PV is too small');
    const { problems } = await harness.why();
    assertEquals(problems.map(({ reason }) => reason), ["VolumeMismatch"]);
    assertMatch(problems[0]!.remedy!, /^Create the claim again/);
  }
});

Deno.test("why: of a class without a provisioner, nobody creates the volume", async () => {
  await using harness = new ClaimHarness({ storageClass: { provisioner: "kubernetes.io/no-provisioner" } });
  harness.addClaim();
  assertEquals(await reasons(harness), ["NoProvisioner"]);
});

Deno.test("why: finalizers of others are not taken for those of snapshots and clones", async () => {
  for (
    const [name, severity] of [["example.com/backup", "warning"], [
      "snapshot.storage.kubernetes.io/pvc-as-source-protection",
      "info",
    ]]
  ) {
    await using harness = new ClaimHarness();
    harness.addBound({ claim: { metadata: { finalizers: [name] } } });
    await harness.delete(persistentVolumeClaims, "data", "default");
    const { problems } = await harness.why();
    assertEquals(problems.map(({ reason, severity }) => [reason, severity]), [["KeptByFinalizers", severity]]);
    assertEquals(/a snapshot or a clone/.test(problems[0]!.message), severity === "info");
  }
});

Deno.test("why: a scheduler's message about volumes is not said to be about something else", async () => {
  await using harness = new ClaimHarness(WAITS);
  harness.addClaim();
  const message = "0/1 nodes are available: 1 node(s) had volume node affinity conflict.";
  harness.addPod({
    status: { conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }] },
  });
  const { problems } = await harness.why();
  assertMatch(problems[0]!.remedy!, /look at the other claims of the pod/);
});

Deno.test("why: a pod of a Bound claim that has no node, since that of the volume is cordoned", async () => {
  await using harness = new ClaimHarness();
  harness.addBound();
  harness.api.collection(nodes).patch({ spec: { unschedulable: true } }, { name: "n1", namespace: undefined });
  harness.addPod();
  harness.addEvent(
    "FailedScheduling",
    "1 node(s) were unschedulable, 2 had volume node affinity conflict",
    "Pod",
    "web",
  );
  const { problems } = await harness.why();
  assertEquals(problems.map(({ reason, object }) => [reason, object]), [["Unschedulable", "pod/default/web"]]);
  assertMatch(problems[0]!.remedy!, /kubectl uncordon n1$/);
});

Deno.test("why: of many nodes without capacity, some are named", async () => {
  await using harness = new ClaimHarness(WAITS);
  harness.addClaim();
  for (let n = 0; n < 50; n++) {
    harness.api.put(csiStorageCapacities, {
      metadata: { name: `c-${n}`, namespace: "denolith-system" },
      ...{ storageClassName: "fast", capacity: "1Gi", nodeTopology: { matchLabels: { node: `worker-${n}` } } },
    });
  }
  harness.addEvent("FailedScheduling", "0/50 nodes: 50 node(s) did not have enough free storage.", "Pod", "web");
  harness.addPod();
  const { problems } = await harness.why();
  assertEquals(problems.map(({ reason }) => reason), ["NoCapacity"]);
  assertMatch(problems[0]!.message, /worker-0 1 GiB, .*, and 45 more nodes$/);
});

Deno.test("why: a pod without capacity is answered with the space that the erasure of deleted volumes frees", async () => {
  await using harness = new ClaimHarness(WAITS);
  harness.addClaim();
  harness.addPod();
  harness.addEvent("FailedScheduling", "0/1 nodes: 1 node(s) did not have enough free storage.", "Pod", "web");
  const group = { name: "data", erasing: { volumes: 2, space: "10Gi" } };
  for (const name of ["n2", "n3"]) {
    const status = { volumeGroups: [name === "n2" ? group : { name: "data" }] } as LvmNodeStatus;
    harness.api.put(lvmNodes, { metadata: { name }, spec: { driverName: DRIVER }, status });
  }
  const { problems } = await harness.why();
  assertEquals(problems.map(({ reason }) => reason), ["NoCapacity"]);
  assertMatch(problems[0]!.message, /; space that becomes free when deleted volumes are erased: 10 GiB in data on n2$/);
});

Deno.test("why: a volume without space is answered with what the erasure frees on its node", async () => {
  await using harness = new ClaimHarness();
  harness.addClaim();
  const erasing = (space: string) => ({ name: "data", erasing: { volumes: 1, space } });
  harness.api.put(lvmNodes, {
    ...{ metadata: { name: "n2" }, spec: { driverName: DRIVER } },
    status: { volumeGroups: [erasing("20Gi")] } as LvmNodeStatus,
  });
  harness.addEvent("ProvisioningFailed", "not enough free space in data (1 GiB free) [NoSpace]");
  const message = async () => (await harness.why()).problems[0]!.message;
  assertMatch(await message(), /: 20 GiB in data on n2$/);
  harness.addVolume({});
  assertEquals(await message(), "not enough free space in data (1 GiB free)");
  using client = new HttpClient({ url: harness.api.url }, { userAgent: "test" });
  const merge = { status: { volumeGroups: [erasing("3Gi")] } } as MergePatch<LvmNode>;
  await client.patch(lvmNodes, { name: "n1" }, { merge, subresource: "status" });
  assertMatch(await message(), /free\); space that becomes free when deleted volumes are erased: 3 GiB in data on n1$/);
});

Deno.test("why: a failure of an LVMVolume from before its deletion does not keep it", async () => {
  await using harness = new ClaimHarness();
  harness.addVolume({ metadata: { finalizers: ["x/y"], annotations: { [CLAIM_ANNOTATION]: "default/data" } } });
  harness.addEvent("Failed", "it is the origin of the snapshots a [HasSnapshots]", "LVMVolume", harness.id);
  await harness.delete(lvmVolumes, harness.id);
  const later = new Date(Date.now() + 60_000).toISOString();
  remake<LvmVolume>(harness, lvmVolumes, { name: harness.id }, { deletionTimestamp: later });
  assertEquals(await reasons(harness), ["Deleting"]);
});

Deno.test("why: a VolumeSnapshot that is gone, and one that something keeps", async () => {
  for (const [deletionPolicy, reason] of [["Retain", "Retained"], ["Delete", "Deleting"]]) {
    await using harness = new ClaimHarness();
    harness.addSnapshot({ readyToUse: true }, {
      spec: {
        ...{ driver: DRIVER, deletionPolicy, source: { volumeHandle: harness.id } },
        volumeSnapshotRef: { name: "cut", namespace: "default" },
      },
    });
    await harness.delete(volumeSnapshots, "cut", "default");
    const { state, problems } = await harness.why("vs/cut");
    assertEquals([state, problems.map((one) => one.reason)], ["Deleted", [reason]]);
  }
  const cases = [
    ["snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection", /a claim is being created from it/],
    ["snapshot.storage.kubernetes.io/volumesnapshot-bound-protection", /is about to remove/],
    ["velero.io/keep", /not the snapshot-controller's: velero\.io\/keep/],
  ] as const;
  for (const [finalizer, message] of cases) {
    await using harness = new ClaimHarness();
    harness.addSnapshot({ readyToUse: true });
    remake(harness, volumeSnapshots, { name: "cut", namespace: "default" }, { finalizers: [finalizer] });
    await harness.delete(volumeSnapshots, "cut", "default");
    const { state, problems } = await harness.why("vs/cut");
    assertEquals(state, "Terminating");
    assertMatch(problems[0]!.message, message);
  }
});

Deno.test("why: a PersistentVolume without a status has a phase", async () => {
  await using harness = new ClaimHarness();
  harness.addVolume({});
  remake(harness, persistentVolumes, { name: "pv" }, {});
  const collection = harness.api.collection(persistentVolumes);
  const { status: _, ...rest } = collection.get("pv", undefined) as unknown as Record<string, unknown>;
  collection.restore(rest as never);
  harness.addClaim({ spec: { volumeName: "pv" } });
  const { facts } = await harness.why() as unknown as WhyAnswer;
  assertEquals(new Map(facts).get("PersistentVolume"), "pv (Pending)");
});

Deno.test("why: what the writer of a claim writes into annotations forges no line and no command", async () => {
  await using harness = new ClaimHarness();
  const annotations = {
    "volume.beta.kubernetes.io/storage-class": "x\n\nERROR Forged claim/other",
    [SELECTED_NODE_ANNOTATION]: "n1; reboot",
  };
  harness.addBound({ claim: { metadata: { annotations } } });
  harness.api.collection(lvmVolumes).patch({ metadata: { annotations: null } }, {
    name: harness.id,
    namespace: undefined,
  });
  harness.api.collection(lvmVolumes).delete({ name: harness.id, namespace: undefined }, {});
  const { output } = await pluginOver(harness.api, { role: "viewer" })(["why", "data"]);
  assertMatch(output, /^Class +x ERROR Forged claim\/other$/m);
  assert(!output.includes("reboot"), output);
});

Deno.test("why pod/NAME, pv/NAME and volume/NAME explain the claims of a pod or a volume", async () => {
  await using harness = new ClaimHarness();
  harness.addBound();
  harness.addPod();
  const run = pluginOver(harness.api, { role: "viewer" });
  const { problems, facts } = JSON.parse((await run(["why", "data", "-o", "json"])).output);
  const { name: volume } = harness.api.objects(lvmVolumes)[0]!.metadata;
  const { name: pv } = harness.api.objects(persistentVolumes)[0]!.metadata;
  for (const target of ["pod/web", `pv/${pv}`, `volume/${volume}`, `dvol/${volume}`]) {
    const { claims } = JSON.parse((await run(["why", target, "-o", "json"])).output);
    assertEquals(claims.map((claim: WhyAnswer) => [claim.problems, claim.facts]), [[problems, facts]], target);
  }
  const spec = { volumes: ["wal", "data"].map((name) => ({ name, persistentVolumeClaim: { claimName: name } })) };
  harness.api.collection(pods).patch({ spec }, { name: "web", namespace: "default" });
  const { status, output, errors } = await run(["why", "pod/web"]);
  assertEquals([status, errors], [0, ""]);
  assertMatch(
    output,
    /claim\/default\/wal is NotFound[^]*there is no claim wal in namespace default[^]*Create the claim/,
  );
  assertMatch(output, /claim\/default\/data is Bound/);
  const refusals = [["pod/absent", "there is no pod absent"], ["pv/absent", "not found"], ["secret/x", "pod/NAME"]];
  for (const [target, words] of refusals) assertMatch((await run(["why", target!])).errors, new RegExp(words!));
});
