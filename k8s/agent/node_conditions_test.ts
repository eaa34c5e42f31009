import { assertEquals } from "@std/assert";
import type { VolumeGroup } from "../../lvm/model/report.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { LvmNode } from "../api/lvm_objects.ts";
import { PoolConditions } from "./node_conditions.ts";

const NODE: LvmNode = { metadata: { name: "n" }, spec: { driverName: "d" } };

/** Returns a group with a pool of this data usage, and a thin LV of the driver in it. */
function groupWith(dataPercent: number, tags: string[], lvTags = ["denolith=d"]): VolumeGroup {
  const thinPool = { dataPercent, metadataPercent: 1, metadataSize: 1n, health: "", needsCheck: false, zeroes: true };
  const lvs = [{ name: "p", uuid: "u", size: 1n << 30n, tags, thinPool }, { name: "v", pool: "p", tags: lvTags }];
  return { name: "data", lvs } as unknown as VolumeGroup;
}

function testPools() {
  const events: string[] = [];
  const record = (_: unknown, type: string, reason: string) => void events.push(`${type} ${reason}`);
  return {
    poolConditions: new PoolConditions({ events: { record } as unknown as EventRecorder, driver: "d" }),
    events,
  };
}

Deno.test("a node reports a pool that is nearly full once, again when it is full, and not when it has free space", () => {
  const { poolConditions: pools, events } = testPools();
  const conditions = [10, 85, 86, 100, 40, 90].map((percent) => {
    const [condition] = pools.observe([groupWith(percent, ["denolith=d", "denolith.pool=made"])]);
    pools.recordEvents(NODE);
    return `${condition!.status} ${condition!.reason}`;
  });
  const nearFull = "True ThinPoolNearFull";
  assertEquals(conditions, ["False Ok", nearFull, nearFull, "True ThinPoolFull", "False Ok", nearFull]);
  assertEquals(events, ["Warning ThinPoolNearFull", "Warning ThinPoolFull", "Warning ThinPoolNearFull"]);
});

Deno.test("a node reports pools of others only when the driver has volumes in them, and reports extensions", () => {
  const { poolConditions: pools, events } = testPools();
  assertEquals(pools.observe([groupWith(99, [], ["other"])])[0]?.status, "False");
  assertEquals(pools.observe([groupWith(99, [])])[0]?.status, "True");
  pools.onExtended("it grew");
  pools.recordEvents(NODE);
  assertEquals(events, ["Normal ThinPoolExtended", "Warning ThinPoolNearFull"]);
});
