/**
 * What the suite of the official resizer (kubernetes-csi/external-resizer) asks of decisions about an expansion.
 *
 * @module
 */

import type { PersistentVolume, PersistentVolumeClaim } from "../../k8s/api/objects.ts";
import { needsExpansion, nextSize, type ResizeState } from "../../k8s/resizer/resize_plan.ts";
import { accessModeOf, CallError, isInfeasible, isMaybeInProgress } from "../../k8s/sidecars/csi_client.ts";
import { formatBytes } from "../../base/size.ts";
import { refused, type Row, testRows } from "./rows.ts";

/** A claim in the middle of an expansion; sizes are quantities. */
interface Situation {
  readonly asked: string;
  readonly has?: string;
  readonly allocated?: string;
  readonly state?: ResizeState;
  /** The size of the PersistentVolume; that of the claim by default. */
  readonly volume?: string;
  readonly failed?: boolean;
  readonly conditions?: readonly string[];
  readonly phase?: string;
  readonly volumeName?: string;
}

function objects(situation: Situation): [PersistentVolumeClaim, PersistentVolume] {
  const { asked, has = "3Gi", allocated, state, volume = has, conditions = [], phase = "Bound", volumeName = "pv" } =
    situation;
  const claim = {
    metadata: { name: "data", namespace: "shop", uid: "u" },
    spec: { volumeName, resources: { requests: { storage: asked } } },
    status: {
      phase,
      capacity: { storage: has },
      ...(allocated !== undefined && { allocatedResources: { storage: allocated } }),
      ...(state !== undefined && { allocatedResourceStatuses: { storage: state } }),
      conditions: conditions.map((type) => ({ type, status: "True" })),
    },
  } as PersistentVolumeClaim;
  return [claim, { metadata: { name: "pv" }, spec: { capacity: { storage: volume } } } as PersistentVolume];
}

const isCalled = (situation: Situation) => () => needsExpansion(...objects(situation));
const calls = (situation: Situation) => () => {
  const bytes = nextSize(...objects(situation), { hasFinalError: situation.failed ?? false });
  return bytes === undefined ? "nothing" : formatBytes(bytes);
};

testRows("csi-resizer: which claims are expanded", [
  ["one that asks for more", isCalled({ asked: "5Gi" }), true],
  ["one that asks for what it has", isCalled({ asked: "3Gi" }), false],
  ["one that asks for less", isCalled({ asked: "1Gi" }), false],
  ["one that is not bound", isCalled({ asked: "5Gi", phase: "Pending" }), false],
  ["one that names no volume", isCalled({ asked: "5Gi", volumeName: "" }), false],
]);

testRows("csi-resizer: the size that is asked of the driver", [
  ["a new expansion", calls({ asked: "5Gi" }), "5 GiB"],
  [
    "infeasible at 10, asks for 5 now",
    calls({ asked: "5Gi", allocated: "10Gi", state: "ControllerResizeInfeasible" }),
    "5 GiB",
  ],
  [
    "in progress at 10 with an unknown outcome, asks for 5 now",
    calls({ asked: "5Gi", allocated: "10Gi", state: "ControllerResizeInProgress" }),
    "10 GiB",
  ],
  [
    "in progress at 10, which failed for good, asks for 5 now",
    calls({ asked: "5Gi", allocated: "10Gi", state: "ControllerResizeInProgress", failed: true }),
    "5 GiB",
  ],
  [
    "the node has not expanded it yet, asks for more",
    calls({ asked: "7Gi", allocated: "5Gi", state: "NodeResizePending", volume: "5Gi" }),
    "nothing",
  ],
  [
    "the node expands it, asks for more",
    calls({ asked: "7Gi", allocated: "5Gi", state: "NodeResizeInProgress", volume: "5Gi" }),
    "nothing",
  ],
  [
    "the node could not expand it",
    calls({ asked: "5Gi", allocated: "5Gi", state: "NodeResizeInfeasible", volume: "5Gi" }),
    "5 GiB",
  ],
  ["allocated without a state", calls({ asked: "5Gi", allocated: "5Gi", volume: "5Gi" }), "5 GiB"],
  [
    "only the condition of an older controller",
    calls({ asked: "5Gi", volume: "5Gi", conditions: ["FileSystemResizePending"] }),
    "nothing",
  ],
]);

/** InvalidArgument, NotFound and OutOfRange. */
const INFEASIBLE: readonly number[] = [3, 5, 11];

testRows("csi-resizer: answers that cannot become others by waiting", [
  ...Array.from({ length: 16 }, (_, index) => index + 1).map((code): Row => [
    `gRPC code ${code}`,
    () => isInfeasible(new CallError(code, "failed")),
    INFEASIBLE.includes(code),
  ]),
  ["ResourceExhausted is tried again, and certain", () => isMaybeInProgress(new CallError(8, "failed")), false],
]);

testRows("csi-resizer: the access mode of the call", [
  ["ReadWriteOncePod", () => accessModeOf(["ReadWriteOncePod"]), "SINGLE_NODE_SINGLE_WRITER"],
  ["ReadWriteOnce", () => accessModeOf(["ReadWriteOnce"]), "SINGLE_NODE_MULTI_WRITER"],
  ["ReadWriteMany", () => accessModeOf(["ReadWriteMany"]), "MULTI_NODE_MULTI_WRITER"],
  [
    "ReadOnlyMany with ReadWriteOnce",
    () => accessModeOf(["ReadOnlyMany", "ReadWriteOnce"]),
    "MULTI_NODE_SINGLE_WRITER",
  ],
  ["ReadOnlyMany with ReadWriteOncePod", () => accessModeOf(["ReadOnlyMany", "ReadWriteOncePod"]), refused("no other")],
]);
