import { assertEquals } from "@std/assert";
import { CLAIM_ANNOTATION, type LvmVolume } from "../../k8s/api/lvm_objects.ts";
import type { Event, PersistentVolumeClaim, StorageClass } from "../../k8s/api/objects.ts";
import { clusterState } from "../../tests/fake/cluster/cluster_states.ts";
import type { ClusterWork } from "../diagnosis/cluster_state.ts";
import { waitingClaims } from "./waiting_claims.ts";

const NOW = new Date("2026-05-01T12:00:00Z");

const storageClass = (name: string, volumeBindingMode: string) =>
  ({ metadata: { name }, provisioner: "d", volumeBindingMode }) as StorageClass;

function claim(name: string, storageClassName = "now", age = "2026-05-01T11:00:00Z"): PersistentVolumeClaim {
  return {
    metadata: { name, namespace: "shop", uid: `uid-${name}`, creationTimestamp: age },
    spec: { storageClassName, resources: { requests: { storage: "10Gi" } } },
    status: { phase: "Pending" },
  } as PersistentVolumeClaim;
}

function event(name: string, reason: string, message: string, more: object = {}): Event {
  const involvedObject = { kind: "PersistentVolumeClaim", namespace: "shop", name, uid: `uid-${name}` };
  return {
    metadata: { name: "e" },
    involvedObject,
    reason,
    message,
    lastTimestamp: "2026-05-01T11:30:00Z",
    ...more,
  } as unknown as Event;
}

/** Returns why claims wait, in short. */
function reasons(
  work: Partial<ClusterWork>,
  volumes: readonly object[] = [],
  unread: readonly string[] = [],
): (readonly string[])[] {
  const storageClasses = [storageClass("now", "Immediate"), storageClass("later", "WaitForFirstConsumer")];
  const all = { claims: [], claimEvents: [], storageClasses, moves: [], imports: [], ...work };
  const state = clusterState({ driver: "d", now: NOW, volumes: volumes as LvmVolume[], work: all, unread });
  return waitingClaims(state).map(({ claim, severity, reason, message }) => [claim, severity, reason, message]);
}

Deno.test("waitingClaims(): what the controller said last is the reason, but not what it said of an earlier claim", () => {
  const claimEvents = [
    event("a", "Provisioning", "the driver is creating a volume"),
    event("a", "ProvisioningFailed", "not enough free space in data [NoSpace]", {
      lastTimestamp: "2026-05-01T11:20:00Z",
    }),
    event("b", "ProvisioningFailed", "of an earlier claim", {
      involvedObject: { namespace: "shop", name: "b", uid: "x" },
    }),
    event("c", "Provisioning", "the driver is creating a volume"),
  ];
  assertEquals(reasons({ claims: [claim("a"), claim("b"), claim("c")], claimEvents }), [
    ["shop/a", "error", "NoSpace", "not enough free space in data"],
    ["shop/b", "info", "Provisioning", "the controller has not said anything of the claim yet"],
    ["shop/c", "info", "Provisioning", "the driver is creating a volume"],
  ]);
});

Deno.test("waitingClaims(): whoever may not read events is not told that there are none", () => {
  assertEquals(reasons({ claims: [claim("a")] }, [], ["events: Forbidden"]), [
    ["shop/a", "info", "Provisioning", "the events of claims are not read"],
  ]);
});

Deno.test("waitingClaims(): a claim of a class that waits for a pod says so", () => {
  const claimEvents = [event("b", "WaitForPodScheduled", "waiting for pod web-0 to be scheduled")];
  assertEquals(reasons({ claims: [claim("a", "later"), claim("b", "later")], claimEvents }), [
    ["shop/a", "info", "WaitsForConsumer", "its class waits for the first pod that uses the claim"],
    ["shop/b", "info", "WaitsForConsumer", "waiting for pod web-0 to be scheduled"],
  ]);
});

Deno.test("waitingClaims(): the agent's words about the volume, and the progress of its copy", () => {
  const volume = (name: string, status: object) => ({
    metadata: { name: `v1-${name}`, annotations: { [CLAIM_ANNOTATION]: `shop/${name}` } },
    ...{ spec: { driverName: "d", nodeName: "n1", size: "10Gi" }, status },
  });
  const error = { code: "NoSpace", reason: "MetadataAreaFull", message: "the metadata area is full" };
  const volumes = [volume("a", { copy: { copied: "2Gi", total: "10Gi" } }), volume("b", { error })];
  assertEquals(reasons({ claims: [claim("a"), claim("b")] }, volumes), [
    ["shop/b", "error", "MetadataAreaFull", "the metadata area is full"],
    ["shop/a", "info", "Copying", "its data is being copied: 2Gi of 10Gi"],
  ]);
});

Deno.test("waitingClaims() has what a claim requests, its class, and since when it waits; none where claims are not read", () => {
  const work = { claims: [claim("a")], claimEvents: [], storageClasses: [], moves: [], imports: [] };
  const [{ storageClass, size, since }] = waitingClaims(clusterState({ now: NOW, work })) as [
    ReturnType<typeof waitingClaims>[number],
  ];
  assertEquals([storageClass, size, since], ["now", 10n << 30n, "2026-05-01T11:00:00Z"]);
  assertEquals(waitingClaims(clusterState({ now: NOW })), []);
});
