import { assertEquals } from "@std/assert";
import type { LvmNode, LvmVolume } from "../api/lvm_objects.ts";
import { lvmVolumeFor } from "../api/volume_mapping.ts";
import { FakeInformer } from "../../tests/fake/informer.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { requeueAwaitedSpace } from "./awaited_space.ts";

const MiB = 1n << 20n;
const PENDING = lvmVolumeFor(namedRequest("data", 900n * MiB), { driver: "d", nodeName: "a" });
const CREATED = { ...PENDING, status: { state: "Ready", volumeGroup: "data", lvUUID: "u", size: "900Mi" } } as const;
const error = { code: "NoSpace", message: "full" } as const;

function node(free: string, volumes: readonly { name: string; size: string }[] = []): LvmNode {
  const group = {
    ...{ name: "data", uuid: "g", size: "1Gi", free, extentSize: "4Mi", lvCount: 0, pvCount: 1, snapshotCount: 0 },
    ...{ missingPVCount: 0, writeable: true, volumes: [...volumes] },
  };
  return { metadata: { name: "a" }, spec: { driverName: "d" }, status: { volumeGroups: [group] } };
}

/** Starts with a node, and returns which controllers were woken since, with the space. */
function setUp(first: LvmNode) {
  const [nodes, volumes] = [new FakeInformer<LvmNode>(), new FakeInformer<LvmVolume>()];
  let notify = (_nodeName: string) => {};
  const agents = { isSilent: () => false, subscribe: (listener: typeof notify) => void (notify = listener) };
  const woken: string[] = [];
  const waiter = (name: string) => ({
    requeueExhausted: ({ nodeName, largestBytes }: { nodeName: string; largestBytes: bigint }) =>
      void woken.push(`${name} ${nodeName} ${largestBytes / MiB}`),
  });
  requeueAwaitedSpace(
    { nodes, volumes, agents },
    {
      ...{ provisioner: waiter("provisioner"), resizer: waiter("resizer") },
      ...{ snapshotter: waiter("snapshotter"), groupSnapshotter: waiter("groups") },
    },
  );
  nodes.set("a", first);
  woken.splice(0);
  return { nodes, volumes, report: (name: string) => notify(name), takeWoken: () => woken.splice(0) };
}

Deno.test("requeueAwaitedSpace() wakes all when a node reports more space, and when its agent reports again", () => {
  const { nodes, report, takeWoken } = setUp(node("1Gi"));
  nodes.set("a", node("512Mi"));
  assertEquals(takeWoken(), []);
  nodes.set("a", node("768Mi"));
  assertEquals(takeWoken(), ["provisioner a 768", "resizer a 768", "snapshotter a 768", "groups a 768"]);
  report("a");
  assertEquals(takeWoken(), ["provisioner a 768", "resizer a 768", "snapshotter a 768", "groups a 768"]);
  report("unknown");
  assertEquals(takeWoken(), []);
});

for (
  const [what, after] of [
    ["is gone", undefined],
    ["has failed", { ...PENDING, status: { state: "Failed", error } }],
  ] as const
) {
  Deno.test(`requeueAwaitedSpace() wakes the provisioner when a volume that was to have space ${what}`, () => {
    const { volumes, takeWoken } = setUp(node("1Gi"));
    volumes.set("v", PENDING);
    volumes.set("v", { ...PENDING, status: { state: "Pending", volumeGroup: "data" } });
    assertEquals(takeWoken(), []);
    volumes.set("v", after);
    assertEquals(takeWoken(), ["provisioner a 1024"]);
    volumes.set("v", undefined);
    assertEquals(takeWoken(), [], "it held nothing any more");
  });
}

Deno.test("requeueAwaitedSpace() wakes nothing for a volume that is created, and for one whose space a report shows", () => {
  const { nodes, volumes, takeWoken } = setUp(node("1Gi"));
  volumes.set("v", PENDING);
  volumes.set("v", CREATED);
  nodes.set("a", node("124Mi", [{ name: PENDING.metadata.name, size: "900Mi" }]));
  volumes.set("v", undefined);
  assertEquals(takeWoken(), [], "the next report has the space");
});

Deno.test("requeueAwaitedSpace() wakes the provisioner when an expansion has failed", () => {
  const { volumes, takeWoken } = setUp(node("1Gi", [{ name: PENDING.metadata.name, size: "900Mi" }]));
  const expanding = { ...CREATED, metadata: { ...CREATED.metadata, generation: 2 } };
  volumes.set("v", { ...expanding, spec: { ...CREATED.spec, size: "950Mi" } });
  volumes.set("v", {
    ...expanding,
    spec: { ...CREATED.spec, size: "950Mi" },
    status: { ...CREATED.status, observedGeneration: 2, error },
  });
  assertEquals(takeWoken(), ["provisioner a 1024"]);
});
