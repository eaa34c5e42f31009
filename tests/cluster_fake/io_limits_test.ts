/**
 * Limits of a cluster's volumes, from the controller's call to the pod's cgroup and back: real client, informers and loops, over a
 * fake API server, a fake machine and a tree of files.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { events } from "../../k8s/api/objects.ts";
import type { IoLimits } from "../../lvm/settings/io_limits.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { FakeCgroups } from "../fake/machine/cgroups.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";

const GiB = 1n << 30n;
const POD = "0a1b2c3d-1111-2222-3333-444455556666";
const NODE = "node-1";

const LIMITS: IoLimits = { readIops: { rate: 500n, perGiB: false }, writeBps: { rate: 4n << 20n, perGiB: true } };

/** Starts a cluster of one node with a limited volume of 1 GiB. */
async function setUp() {
  const folder = await Deno.makeTempDir({ prefix: "denolith-limits-" });
  const cgroups = new FakeCgroups(`${folder}/cgroup`);
  const machine = new FakeMachine();
  machine.addGroup("data", 8n << 30n);
  const cluster = await FakeCluster.start({ [NODE]: machine }, { cgroupRoot: cgroups.root });
  const { id } = await cluster.volumes.create(namedRequest("pvc-1", GiB, { limits: LIMITS }), { preferred: [] });
  const { lv } = machine.allLvs()[0]!;
  const object = (): LvmVolume => cluster.api.objects(lvmVolumes)[0]!;
  return {
    machine,
    cgroups,
    cluster,
    id,
    lv,
    object,
    limitedCondition: () => object().status?.conditions?.find(({ type }) => type === "IOLimitsApplied"),
    eventReasons: () => cluster.api.objects(events).map(({ reason }) => reason),
    /** Adds what a machine shows when a pod uses the volume. */
    publish: () =>
      machine.mounts.push({
        target: `/mnt/pods/${POD}/volumes/kubernetes.io~csi/pvc-1/mount`,
        source: `/dev/mapper/data-${lv.name.replaceAll("-", "--")}`,
        ...{ fsType: "ext4", root: "/", readOnly: false, deviceNumber: `253:${lv.minor}`, lv },
      }),
    [Symbol.asyncDispose]: async () => {
      await cluster[Symbol.asyncDispose]();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

Deno.test("limits are recorded only in the LVMVolume, and a change replaces those that it names", async () => {
  await using s = await setUp();
  assertEquals(s.object().spec.ioLimits, { readIops: "500", writeBpsPerGiB: "4Mi" });
  assertEquals([...s.lv.tags].filter((tag) => tag.startsWith("denolith.io")), []);
  await s.cluster.volumes.setLimits(s.id, { readIops: { rate: 10n, perGiB: true }, writeIops: "max" });
  const changed = { readIopsPerGiB: "10", writeIops: "max", writeBpsPerGiB: "4Mi" };
  assertEquals(s.object().spec.ioLimits, changed);
  const { metadata: { resourceVersion } } = s.object();
  await s.cluster.volumes.setLimits(s.id, {});
  assertEquals([s.object().metadata.resourceVersion, s.object().spec.ioLimits], [resourceVersion, changed]);
  assertEquals(s.limitedCondition(), undefined, "no pod has it");
});

Deno.test("an agent that starts finds the pods with limited volumes, and applies the present limits", async () => {
  await using s = await setUp();
  s.cgroups.mount();
  const file = s.cgroups.addPod(`kubepods/burstable/pod${POD}`);
  await s.cluster.stopAgent(NODE);
  s.publish();
  await s.cluster.volumes.setLimits(s.id, { readIops: { rate: 7n, perGiB: false } });
  s.cluster.startAgent(NODE, s.machine, { cgroupRoot: s.cgroups.root });
  const readIoMax = () => Deno.readTextFileSync(file);
  await waitUntil(() => readIoMax() === `253:${s.lv.minor} riops=7 wbps=${4 << 20}\n`, "the limits");
  await waitUntil(() => s.limitedCondition()?.status === "True", "the condition");
  assertEquals(s.limitedCondition()?.message, "each pod is held to readIops 7, writeBps 4Mi");
  await waitUntil(() => s.eventReasons().includes("IOLimitsApplied"), "the event");

  await s.cluster.volumes.expand(s.id, { required: 3n * GiB });
  await waitUntil(() => readIoMax() === `253:${s.lv.minor} riops=7 wbps=${12 << 20}\n`, "limits for the new size");
  await waitUntil(
    () => s.limitedCondition()?.message.endsWith("writeBps 12Mi") ?? false,
    "the condition of the new size",
  );

  s.machine.mounts.pop();
  s.cluster.agent(NODE).machine.limiter.wake();
  await waitUntil(() => s.limitedCondition() === undefined, "that no pod has it");
  assertEquals(s.object().status?.conditions?.map(({ type }) => type), ["Healthy", "Ready"]);
});

Deno.test("a node that cannot apply limits reports it, and its volumes work all the same", async () => {
  await using s = await setUp();
  await s.cluster.stopAgent(NODE);
  s.publish();
  s.cluster.startAgent(NODE, s.machine, { cgroupRoot: s.cgroups.root });
  await waitUntil(() => s.limitedCondition()?.status === "False", "the condition");
  assertEquals([s.limitedCondition()?.reason, s.object().status?.state], ["NoCgroup2", "Ready"]);
  assert(s.limitedCondition()!.message.includes(s.cgroups.root));
  await waitUntil(() => s.eventReasons().includes("IOLimitsNotApplied"), "the event");
  // The obstacle can be removed.
  s.cgroups.mount();
  s.cgroups.addPod(`kubepods/pod${POD}`);
  s.cluster.agent(NODE).machine.limiter.wake();
  await waitUntil(() => s.limitedCondition()?.status === "True", "the condition");
});

Deno.test("an LVMVolume with an invalid limit is reported, and the limit is applied as soon as it is corrected", async () => {
  await using s = await setUp();
  s.cgroups.mount();
  const file = s.cgroups.addPod(`kubepods/pod${POD}`);
  s.publish();
  const patchLimits = (ioLimits: Record<string, string | null>) =>
    s.cluster.client.patch(lvmVolumes, { name: s.id }, { merge: { spec: { ioLimits } } as never });
  await patchLimits({ readIops: "none" });
  await waitUntil(() => s.limitedCondition()?.reason === "InvalidArgument", "the condition");
  assertEquals(Deno.readTextFileSync(file), "");
  await patchLimits({ readIops: "9", writeBpsPerGiB: null });
  await waitUntil(() => Deno.readTextFileSync(file) === `253:${s.lv.minor} riops=9\n`, "the limit");
});
