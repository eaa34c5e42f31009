import { assertEquals } from "@std/assert";
import type { LvmNode, LvmVolume } from "../api/lvm_objects.ts";
import { lvmVolumeFor } from "../api/volume_mapping.ts";
import { FakeInformer } from "../../tests/fake/cluster/informer.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import type { FreeSpaceGrowth, WakeUpKind } from "../runtime/wake_ups.ts";
import { wakeSpaceWaiters } from "./waiting_work.ts";

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

/** Starts with a node, and returns the wake-ups since. */
function setUp(first: LvmNode) {
  const [nodes, volumes] = [new FakeInformer<LvmNode>(), new FakeInformer<LvmVolume>()];
  let notify = (_nodeName: string) => {};
  const agents = { isSilent: () => false, subscribe: (listener: typeof notify) => void (notify = listener) };
  const woken: string[] = [];
  const wake = (kind: WakeUpKind, growth: unknown) => {
    const { nodeName, largestBytes } = growth as FreeSpaceGrowth;
    woken.push(`${kind} ${nodeName} ${largestBytes / MiB}`);
  };
  wakeSpaceWaiters({ nodes, volumes, agents }, { wake });
  nodes.set("a", first);
  woken.splice(0);
  return { nodes, volumes, report: (name: string) => notify(name), takeWoken: () => woken.splice(0) };
}

Deno.test("wakeSpaceWaiters() wakes all when a node reports more space, and when its agent reports again", () => {
  const { nodes, report, takeWoken } = setUp(node("1Gi"));
  nodes.set("a", node("512Mi"));
  assertEquals(takeWoken(), []);
  nodes.set("a", node("768Mi"));
  assertEquals(takeWoken(), ["space a 768"]);
  report("a");
  assertEquals(takeWoken(), ["space a 768"]);
  report("unknown");
  assertEquals(takeWoken(), []);
});

for (
  const [what, after] of [
    ["is gone", undefined],
    ["has failed", { ...PENDING, status: { state: "Failed", error } }],
  ] as const
) {
  Deno.test(`wakeSpaceWaiters() wakes for what a volume was to take, which ${what}`, () => {
    const { volumes, takeWoken } = setUp(node("1Gi"));
    volumes.set("v", PENDING);
    volumes.set("v", { ...PENDING, status: { state: "Pending", volumeGroup: "data" } });
    assertEquals(takeWoken(), []);
    volumes.set("v", after);
    assertEquals(takeWoken(), ["unreserved a 1024"]);
    volumes.set("v", undefined);
    assertEquals(takeWoken(), [], "it held nothing any more");
  });
}

Deno.test("wakeSpaceWaiters() wakes nothing for a volume that is created, and for one whose space a report shows", () => {
  const { nodes, volumes, takeWoken } = setUp(node("1Gi"));
  volumes.set("v", PENDING);
  volumes.set("v", CREATED);
  nodes.set("a", node("124Mi", [{ name: PENDING.metadata.name, size: "900Mi" }]));
  volumes.set("v", undefined);
  assertEquals(takeWoken(), [], "the next report has the space");
});

Deno.test("wakeSpaceWaiters() wakes for the reserved space when an expansion has failed", () => {
  const { volumes, takeWoken } = setUp(node("1Gi", [{ name: PENDING.metadata.name, size: "900Mi" }]));
  const expanding = { ...CREATED, metadata: { ...CREATED.metadata, generation: 2 } };
  volumes.set("v", { ...expanding, spec: { ...CREATED.spec, size: "950Mi" } });
  volumes.set("v", {
    ...expanding,
    spec: { ...CREATED.spec, size: "950Mi" },
    status: { ...CREATED.status, observedGeneration: 2, error },
  });
  assertEquals(takeWoken(), ["unreserved a 1024"]);
});
