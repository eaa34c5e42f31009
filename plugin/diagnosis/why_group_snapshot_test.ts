import { assertEquals, assertStringIncludes } from "@std/assert";
import { GROUP_SNAPSHOTS } from "./why_group_snapshot.ts";
import { snapshotAnswer } from "./why_snapshot.ts";
import type { VolumeGroupSnapshotContent } from "../../k8s/api/snapshot_objects.ts";
import { SYMPTOMS } from "./symptoms.ts";

const driver = "lvm.denolith.dev";
const since = "2026-03-01T08:00:00Z";
const message = "creating group snapshot g: the COW space of 160Mi does not fit";

Deno.test("why: a VolumeGroupSnapshot says what to do as soon as a snapshot has failed, before anything else reports it", () => {
  const { problems } = snapshotAnswer(
    GROUP_SNAPSHOTS,
    {
      ...{ driver, now: new Date(since), key: "default/both", events: [], snapshotEvents: [], unread: [] },
      snapshotterLease: undefined,
      ...{ nodeName: "n1", agentLeases: [] },
      lvmNode: {
        metadata: { name: "n1" },
        status: { lastUpdateTime: since, volumeGroups: [{ name: "data", erasing: { volumes: 1, space: "3Gi" } }] },
      },
      request: { metadata: { namespace: "default", name: "both", uid: "u" }, spec: { source: {} } },
      content: {
        metadata: { name: "content", uid: "c" },
        spec: {
          ...{ driver, deletionPolicy: "Delete", source: { volumeHandles: [] } },
          volumeGroupSnapshotRef: { namespace: "default", name: "both", uid: "u" },
        },
      },
      snapshots: [{
        metadata: { name: "v1-1", uid: "s", generation: 1 },
        spec: { driverName: driver, requestName: "s", nodeName: "n1", sourceVolume: "v1-2" },
        status: {
          ...{ state: "Failed", observedGeneration: 1, error: { code: "NoSpace", message } },
          conditions: [{ type: "Ready", status: "False", reason: "NoSpace", message, lastTransitionTime: since }],
        },
      }],
    } as unknown as Parameters<typeof snapshotAnswer<VolumeGroupSnapshotContent>>[1],
  );
  assertEquals(
    problems.map(({ reason, since, remedy, runbook }) => [reason, since, remedy, runbook !== undefined])[0],
    [
      ...[
        "NoSpace",
        since,
        SYMPTOMS.NoSpace.remedy,
        true,
      ],
    ],
  );
  assertStringIncludes(problems[0]!.message, "when deleted volumes are erased: 3 GiB in data on n1");
});
