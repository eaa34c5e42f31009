/**
 * Moves of a claim's volume between two fake nodes, with what Kubernetes does about the PersistentVolume.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf } from "../../base/ids.ts";
import { parseQuantity } from "../../base/size.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { type LvmSnapshot, lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { type KubeObject, persistentVolumeClaims } from "../../k8s/api/objects.ts";
import { grantsOf } from "../../k8s/api/transfers.ts";
import type { ApiClient, WatchEvent } from "../../k8s/client/client.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { nodeOfVolume } from "../../k8s/handover/persistent_volume.ts";
import { VOLUME_FINALIZER } from "../../k8s/provisioner/persistent_volume.ts";
import { TOPOLOGY_KEY, waitUntil } from "../fake/cluster/control_plane.ts";
import { FakePod } from "../fake/cluster/fake_pod.ts";
import { MiB, request } from "../fake/cluster/volume_cluster.ts";
import { MoveCluster, MOVED, PV_NAME } from "../fake/cluster/move_cluster.ts";

/** Asserts that the volume is on the second node alone, with its data, and the PersistentVolume as it was. */
async function assertMoved(s: MoveCluster): Promise<void> {
  await s.idle();
  assertEquals(s.lvmVolumes, ["volume node-2 Ready"]);
  assertEquals(s.machines.map((machine) => machine.allLvs().length), [0, 1]);
  const lv = s.lv(1)!;
  assertEquals([...lv.content.data], ["letters"]);
  assertEquals([...lv.tags].filter((tag) => /held|source|from|copied/.test(tag)), []);
  assertEquals(s.cluster.api.objects(lvmSnapshots), []);
  await waitUntil(() => s.claim?.status?.phase === "Bound" && s.persistentVolume?.status?.phase === "Bound", "Bound");
  const { metadata, spec } = s.persistentVolume!;
  assertEquals([metadata.name, metadata.labels], [PV_NAME, { tier: "gold" }]);
  assertEquals(nodeOfVolume(s.persistentVolume!, TOPOLOGY_KEY), "node-2");
  assertEquals([spec?.claimRef?.uid, spec?.csi?.volumeHandle], [s.claim?.metadata.uid, MOVED]);
}

for (const mutableAffinity of [false, true]) {
  Deno.test(`a move ${mutableAffinity ? "with" : "without"} MutablePVNodeAffinity leaves the volume on the other node alone`, async () => {
    await using s = await MoveCluster.start({ mutableAffinity });
    const { uid } = s.persistentVolume!.metadata;
    s.startMover();
    s.addMove();
    const { status } = await s.waitForState("Complete");
    await assertMoved(s);
    assertEquals(status?.affinityMethod, mutableAffinity ? "Patch" : "Recreate");
    assertEquals(s.persistentVolume!.metadata.uid === uid, mutableAffinity);
    assertEquals(s.persistentVolume!.spec?.persistentVolumeReclaimPolicy, "Delete");
    const hasFinalizer = () => s.persistentVolume!.metadata.finalizers?.includes(VOLUME_FINALIZER) ?? false;
    await waitUntil(hasFinalizer, "the finalizer of the driver");
    assert(status!.heldTime! <= status!.releasedTime!);
    await s.cluster.client.delete(lvmMoves, { name: MOVED });
    await waitUntil(() => s.move === undefined, "no LVMMove");
    await s.cluster.client.delete(persistentVolumeClaims, { namespace: "shop", name: "data" });
    await waitUntil(() => s.persistentVolume === undefined && s.lvmVolumes.length === 0, "all deleted");
  });
}

Deno.test("a thin filesystem volume with snapshots moves, and its snapshots stay", async () => {
  const thin = { poolSize: { percent: 50n } } as const;
  await using s = await MoveCluster.start({ request: { thin }, reclaimPolicy: "Retain" });
  const { cluster } = s;
  const snapshot = { id: snapshotIdOf("s"), name: "s", source: MOVED, cowSize: FULL_COW };
  await cluster.snapshots.create(snapshot);
  s.startMover();
  s.addMove();
  await s.waitForState("Complete");
  assertEquals(s.lvmVolumes, ["volume node-2 Ready"]);
  assertEquals(s.persistentVolume!.spec?.persistentVolumeReclaimPolicy, "Retain");
  assertEquals([...s.lv(1)!.content.data], ["letters"]);
  assertEquals(s.lv(0), undefined);
  assertEquals(cluster.api.objects(lvmSnapshots).map(({ spec }) => spec.nodeName), ["node-1"]);
});

Deno.test("a volume that a pod uses is moved when it is unmounted, and nobody else may begin to use it", async () => {
  await using s = await MoveCluster.start();
  await using pod = await FakePod.start(s);
  s.startMover();
  s.addMove();
  const message = "nobody else may begin to use it, but its mount";
  await waitUntil(() => s.move?.status?.message?.startsWith(message) ?? false, "the mount in the message");
  const publishing = pod.publish(`${s.root}/other`);
  const refused = await assertRejects(() => publishing, StorageError, "it is being moved to another node");
  assertEquals(refused.kind, "FailedPrecondition");
  await pod.publish(); // kubelet repeats it
  const expansion = s.cluster.volumes.expand(MOVED, { required: 64n * MiB });
  await assertRejects(() => expansion, StorageError, "is being moved to another node");
  const other = s.cluster.snapshots.create({ id: snapshotIdOf("s"), name: "s", source: MOVED, cowSize: FULL_COW });
  await assertRejects(() => other, StorageError, "is being moved to another node");
  await pod.end();
  await s.waitForState("Complete");
  await assertMoved(s);
});

/** Waits until a volume is held whose pod still uses it: its copy has all that it had before. */
async function waitUntilHeld(s: MoveCluster): Promise<void> {
  const isHeld = () => s.lvmVolumes.join() === "copy node-2 Pending,volume node-1 Ready held";
  await waitUntil(isHeld, () => `a held volume: ${s.lvmVolumes}: ${JSON.stringify(s.move?.status)}`);
}

for (const kind of ["thick", "thin"] as const) {
  const more = kind === "thin" ? { request: { thin: { poolSize: { percent: 50n } } } } as const : {};

  Deno.test(`a ${kind} volume is copied while a pod uses it, and what the pod writes later is all that is left to send`, async () => {
    await using s = await MoveCluster.start(more);
    await using pod = await FakePod.start(s);
    let reads = 0;
    s.machines[0].fault = ({ program, args }) => {
      const isRead = program === "dd" && args.includes("iflag=direct,fullblock") && args.includes("bs=4194304");
      if (isRead && reads++ === 0) void s.write("/pod/during");
      return undefined;
    };
    s.startMover();
    s.addMove();
    await waitUntilHeld(s);
    await s.write("/pod/later");
    await pod.end();
    const { status } = await s.waitForState("Complete");
    assertEquals([...s.lv(1)!.content.data], ["letters", "/pod/during", "/pod/later"]);
    assertEquals([status?.copyMode, status?.offlineReason, status?.differences], ["Online", undefined, 1]);
    assertEquals(status?.copy?.received, "128Ki", "two units, each with a chunk that was written");
    assertEquals(status?.stages?.map(({ difference, held }) => [difference, held]), [[0, false], [1, true]]);
    assertEquals(status?.stages?.[1]?.received, "128Ki");
    assertEquals(reads, 1, "all of it is read once");
    await waitUntilAlone(s);
  });
}

/** Waits until nothing is left but one LV of a volume, and pools. */
async function waitUntilAlone(s: MoveCluster): Promise<void> {
  await waitUntil(() => s.cluster.api.objects(lvmSnapshots).length === 0, "no LVMSnapshot");
  await s.idle();
  const lvs = () => s.machines.flatMap((machine) => machine.allLvs()).filter(({ lv }) => lv.thinPool === undefined);
  await waitUntil(() => lvs().length === 1, () => `one LV: ${lvs().map(({ lv }) => lv.name)}`);
}

/** Wraps a client, whose watches of snapshots of the first node show a permission late, as a busy API server does. */
function withLatePermissions(client: ApiClient): ApiClient {
  async function* late<T extends KubeObject>(events: AsyncIterable<WatchEvent<T>>) {
    for await (const event of events) {
      const isAllowed = event.type !== "BOOKMARK" && grantsOf(event.object as unknown as LvmSnapshot).length > 0;
      if (isAllowed) await new Promise((resolve) => setTimeout(resolve, 150));
      yield event;
    }
  }
  return new Proxy(client, {
    get(target, name) {
      const method = Reflect.get(target, name) as (...args: unknown[]) => unknown;
      if (name !== "watch") return method.bind(target);
      return (...[resource, options]: Parameters<ApiClient["watch"]>) => {
        const events = target.watch(resource, options);
        const isOfAgent = resource.plural === lvmSnapshots.plural && options.fieldSelector === "spec.nodeName=node-1";
        return isOfAgent ? late(events) : events;
      };
    },
  });
}

Deno.test("an agent waits for a permission that its watch has not shown yet, so that no try is lost", async () => {
  await using s = await MoveCluster.start({ wrap: withLatePermissions });
  const errors = new Set<string>();
  s.cluster.api.collection(lvmVolumes).listeners.add(() => {
    for (const { status } of s.cluster.api.objects(lvmVolumes)) {
      if (status?.copy?.lastError !== undefined) errors.add(status.copy.lastError);
    }
  });
  s.startMover();
  s.addMove();
  const { status } = await s.waitForState("Complete");
  await assertMoved(s);
  assertEquals([[...errors], status?.copy?.lastError], [[], undefined]);
});

Deno.test("a difference that is large is sent while a pod uses the volume, until it is small", async () => {
  await using s = await MoveCluster.start({ request: { range: { required: 64n * MiB } } });
  await using pod = await FakePod.start(s);
  /** Writes 35 MiB, without the first chunks of blocks. */
  const writeMuch = async (what: string) => {
    for (let block = 0; block < 13; block++) await s.write(what, { seek: block * 1024 + 16, count: 700 });
  };
  await writeMuch("/pod/before");
  let isBusy = false;
  s.machines[1].fault = ({ program, args }) => {
    if (!isBusy && program === "dd" && args.some((arg) => arg.startsWith("of="))) {
      isBusy = true;
      void writeMuch("/pod/during");
    }
    return undefined;
  };
  s.startMover();
  s.addMove();
  await waitUntilHeld(s);
  assertEquals(s.move?.status?.differences, 2, "the second had next to nothing");
  await s.write("/pod/later", { seek: 1024 * 15 + 16 });
  await pod.end();
  const { status } = await s.waitForState("Complete");
  assertEquals([...s.lv(1)!.content.data], ["letters", "/pod/before", "/pod/during", "/pod/later"]);
  assertEquals([status?.copyMode, status?.differences, status?.copy?.received], ["Online", 3, "64Ki"]);
  await waitUntilAlone(s);
});

Deno.test("a thick volume without space for temporary snapshots is moved offline, with a small one, and says so", async () => {
  await using s = await MoveCluster.start();
  const large = request("large", { range: { required: 960n * MiB } });
  await s.cluster.volumes.create(large, { allowed: ["node-1"], preferred: [] });
  const isFull = (free: string | undefined) => free !== undefined && parseQuantity(free)! < 40n * MiB;
  await s.cluster.nodes.waitFor("node-1", (node) => isFull(node?.status?.volumeGroups?.[0]?.free), {
    timeoutMs: 5_000,
  });
  await using pod = await FakePod.start(s);
  s.startMover();
  s.addMove();
  const isHeld = () => s.lvmVolumes.includes("volume node-1 Ready held");
  await waitUntil(isHeld, () => `a held volume: ${s.lvmVolumes}`);
  assertEquals(s.lvmVolumes.filter((each) => each.startsWith("copy")), []);
  await s.write("/pod/later");
  await pod.end();
  const { status } = await s.waitForState("Complete");
  assertEquals([...s.lv(1)!.content.data], ["letters", "/pod/later"]);
  assertEquals(status?.copyMode, "Offline");
  assertMatch(
    status?.offlineReason ?? "",
    /^temporary snapshots of a volume in use take 40 MiB, and the volume group data has \d+ MiB free$/,
  );
});

Deno.test("a move that is asked to be offline copies nothing before the volume is held", async () => {
  await using s = await MoveCluster.start();
  await using pod = await FakePod.start(s);
  s.startMover();
  s.addMove({ offline: true });
  await waitUntil(() => s.lvmVolumes.join() === "volume node-1 Ready held", "a held volume");
  await pod.end();
  const { status } = await s.waitForState("Complete");
  assertEquals([status?.copyMode, status?.offlineReason, status?.differences], ["Offline", "it was asked for", 0]);
  await assertMoved(s);
});

/** Lets the temporary snapshots on the first node overflow. @returns their number */
function overflow(s: MoveCluster): number {
  const snapshots = s.machines[0].allLvs().filter(({ lv }) => lv.origin !== undefined);
  for (const { lv } of snapshots) lv.invalid = true;
  return snapshots.length;
}

Deno.test("a first snapshot that overflows before it is copied leads to an offline move, which says why", async () => {
  await using s = await MoveCluster.start();
  let overflowed = 0;
  s.machines[0].fault = ({ program, args }) => {
    if (overflowed === 0 && program === "dd" && args.includes("bs=4194304")) overflowed = overflow(s);
    return undefined;
  };
  s.startMover();
  s.addMove();
  const { status } = await s.waitForState("Complete");
  await assertMoved(s);
  assertEquals([overflowed, status?.copyMode, status?.differences], [1, "Offline", 0]);
  assert(status?.offlineReason?.includes("COW space overflowed"), status?.offlineReason);
});

Deno.test("a first snapshot that overflows before the last is taken leads to another whole copy, of the last one", async () => {
  await using s = await MoveCluster.start();
  await using pod = await FakePod.start(s);
  s.startMover();
  s.addMove();
  await waitUntilHeld(s);
  assertEquals(overflow(s), 1);
  await s.write("/pod/later");
  const messages = new Set<string | undefined>();
  s.cluster.api.collection(lvmMoves).listeners.add(() => messages.add(s.move?.status?.message));
  await pod.end();
  const { status } = await s.waitForState("Complete");
  assertEquals([...s.lv(1)!.content.data], ["letters", "/pod/later"]);
  assertEquals([status?.copyMode, status?.differences], ["Online", 1]);
  assert(messages.has("copies all of it again: what changed could not be had"), [...messages].join());
  await waitUntilAlone(s);
});

Deno.test("a move that is deleted while a pod uses the volume leaves no snapshot and no copy", async () => {
  await using s = await MoveCluster.start();
  await using _pod = await FakePod.start(s);
  s.startMover();
  s.addMove();
  await waitUntilHeld(s);
  await s.cluster.client.delete(lvmMoves, { name: MOVED });
  await waitUntil(() => s.move === undefined, "no LVMMove");
  assertEquals(s.lvmVolumes, ["volume node-1 Ready"]);
  await waitUntil(() => s.cluster.api.objects(lvmSnapshots).length === 0, "no LVMSnapshot");
  await waitUntilAlone(s);
});

Deno.test("a move that is deleted leaves everything as it was, and the volume can be used", async () => {
  await using s = await MoveCluster.start();
  await using pod = await FakePod.start(s);
  s.startMover();
  s.addMove();
  await waitUntil(() => s.lvmVolumes.includes("volume node-1 Ready held"), "a held volume");
  await s.cluster.client.delete(lvmMoves, { name: MOVED });
  await waitUntil(() => s.move === undefined, "no LVMMove");
  await waitUntil(() => !s.lv(0)!.tags.has("denolith.held"), "no tag");
  assertEquals(s.lvmVolumes, ["volume node-1 Ready"]);
  await pod.end();
  await using _again = await FakePod.start(s);
});

/** What is refused, and the words of the refusal. */
const REFUSALS: Readonly<Record<string, { prepare: (s: MoveCluster) => unknown; message: string }>> = {
  "to a node without enough space": {
    prepare: (s) =>
      s.cluster.volumes.create(request("large", { range: { required: 1000n * MiB } }), {
        allowed: ["node-2"],
        preferred: [],
      }),
    message: "node node-2: ",
  },
  "of a thick volume with a snapshot": {
    prepare: (s) => s.cluster.snapshots.create({ id: snapshotIdOf("s"), name: "s", source: MOVED, cowSize: FULL_COW }),
    message: "is the origin of the snapshots",
  },
};

for (const [what, { prepare, message }] of Object.entries(REFUSALS)) {
  Deno.test(`a move ${what} is refused, and nothing is changed`, async () => {
    await using s = await MoveCluster.start();
    await prepare(s);
    s.startMover();
    s.addMove();
    const { status } = await s.waitForState("Failed");
    assert(status!.error!.message.includes(message), status!.error!.message);
    assert(s.lvmVolumes.includes("volume node-1 Ready"), s.lvmVolumes.join());
    assert(!s.lv(0)!.tags.has("denolith.held"));
    assertEquals(s.persistentVolume!.spec?.persistentVolumeReclaimPolicy, "Delete");
  });
}

Deno.test("a move to disks on which the filesystem could not be mounted fails before the volume is held", async () => {
  const format = { state: "unformatted", type: "ext4" } as const;
  await using s = await MoveCluster.start({ request: { format } });
  const signatures = [{ type: "ext4", uuid: crypto.randomUUID() }];
  Object.assign(s.lv(0)!.content, { signatures, blockBytes: 1_024n });
  s.machines[1].groups[0]!.sectorBytes = 4_096;
  let isHeld = false;
  s.cluster.api.collection(lvmVolumes).listeners.add(() =>
    isHeld ||= s.lvmVolumes.some((text) => text.includes("held"))
  );
  s.startMover();
  s.addMove();
  const { status } = await s.waitForState("Failed");
  assert(status?.error?.message.includes("so that it could not be mounted"), status?.error?.message);
  assertEquals([status?.error?.code, isHeld], ["InvalidArgument", false]);
  await waitUntil(() => s.lvmVolumes.join() === "volume node-1 Ready", () => s.lvmVolumes.join());
});

Deno.test("a move to disks with larger sectors than a block volume was used with is refused", async () => {
  await using s = await MoveCluster.start({ targetSectorBytes: 4_096 });
  s.machines[0].openLvs.push(s.lv(0)!);
  s.cluster.agent("node-1").node.requeue();
  const known = () => s.cluster.api.objects(lvmVolumes)[0]?.status?.maximumSectorSize;
  await waitUntil(() => known() === "512", () => `the sectors of the volume: ${known()}`);
  const group = () => s.cluster.nodes.get("node-2")?.status?.volumeGroups?.[0]?.sectorSize;
  await waitUntil(() => group() === "4Ki", () => `the sectors of the group: ${group()}`);
  s.startMover();
  s.addMove();
  const { status } = await s.waitForState("Failed");
  assert(status?.error?.message.includes("has logical sectors of 4"), status?.error?.message);
  assertEquals(status?.copyMode, undefined); // nothing was held or copied
  assertEquals(s.lvmVolumes, ["volume node-1 Ready"]);
});

Deno.test("a move of a claim that is deleted meanwhile is undone, and the volume deleted", async () => {
  await using s = await MoveCluster.start();
  await using pod = await FakePod.start(s);
  s.startMover();
  s.addMove();
  await waitUntil(() => s.lvmVolumes.includes("volume node-1 Ready held"), "a held volume");
  await s.cluster.client.delete(persistentVolumeClaims, { namespace: "shop", name: "data" });
  await s.waitForState("Failed");
  await pod.end();
  await waitUntil(() => s.lvmVolumes.length === 0 && s.persistentVolume === undefined, "all deleted");
  await s.idle();
  assertEquals(s.machines.flatMap((machine) => machine.allLvs()), []);
});
