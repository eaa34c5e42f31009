/**
 * An invariant of all fakes of a cluster: nothing waits in silence. At the end of a test, each object that is not as it
 * should be has a key in the queue of its controller, a delay, or something that wakes it, and an event or its status
 * says why it waits.
 *
 * @module
 */

import { isFinished } from "../../../k8s/handover/handover.ts";
import { type LvmImport, lvmImports } from "../../../k8s/handover/imports.ts";
import { type LvmMove, lvmMoves } from "../../../k8s/handover/moves.ts";
import {
  LVM_SNAPSHOT_FINALIZER,
  LVM_VOLUME_FINALIZER,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../../../k8s/api/lvm_objects.ts";
import {
  events,
  type KubeObject,
  persistentVolumeClaims,
  persistentVolumes,
  type Resource,
} from "../../../k8s/api/objects.ts";
import { volumeGroupSnapshotContents, volumeSnapshotContents } from "../../../k8s/api/snapshot_objects.ts";
import { keyOfClaim } from "../../../k8s/provisioner/claim_provisioner.ts";
import { shouldProvision } from "../../../k8s/provisioner/claim.ts";
import { isManagedBy, nextReclaimStep } from "../../../k8s/provisioner/persistent_volume.ts";
import { Controller } from "../../../k8s/runtime/controller.ts";
import { needsExpansion, nextSize } from "../../../k8s/resizer/resize_plan.ts";
import { groupSnapshotRules } from "../../../k8s/snapshotter/group_content.ts";
import { snapshotRules } from "../../../k8s/snapshotter/snapshot_content.ts";
import type { FakeApiServer } from "./api_server.ts";

/** The driver's name in most tests. */
const DRIVER = "lvm.denolith.dev";

/** The controllers that run in this process. */
const running = new Set<Controller>();

const { run } = Controller.prototype;
Controller.prototype.run = async function (this: Controller, signal: AbortSignal): Promise<void> {
  running.add(this);
  signal.addEventListener("abort", () => running.delete(this));
  try {
    await run.call(this, signal);
  } finally {
    running.delete(this); // it may end by itself, as when it loses its Lease
  }
};

/** The objects of a kind that a controller has to bring to their goal. */
interface Rule {
  /** The controller, by its name. */
  readonly controller: string;
  /** The kind. */
  readonly resource: Resource;
  /** Reports whether the controller still has to do something for an object. */
  // deno-lint-ignore no-explicit-any
  readonly isUnsettled: (object: any, of: { readonly api: FakeApiServer; readonly driver: string }) => boolean;
  /** Returns the key of an object; its name, when absent. */
  // deno-lint-ignore no-explicit-any
  readonly keyOf?: (object: any) => string;
}

/** Reports whether the agent of a node has to do something for an object. */
function isUnsettledOnNode(finalizer: string) {
  return (
    { metadata: { generation = 0, deletionTimestamp, finalizers }, spec, status }: LvmVolume,
    { driver }: { readonly driver: string },
  ) => {
    if (spec.driverName !== driver) return false;
    if (deletionTimestamp !== undefined) return finalizers?.includes(finalizer) ?? false;
    // a copy that has the snapshot which it should have waits for the mover, whose LVMMove is looked at itself
    if (spec.copy !== undefined && status?.copy?.snapshot === spec.copy.snapshot) return false;
    return status?.state === undefined || status.state === "Pending" || (status.observedGeneration ?? 0) < generation;
  };
}

const RULES: readonly Rule[] = [
  {
    controller: "provisioner",
    resource: persistentVolumeClaims,
    isUnsettled: (claim, { api, driver }) => {
      const { uid } = claim.metadata;
      const isMade = api.objects(persistentVolumes).some(({ spec }) => spec?.claimRef?.uid === uid);
      return shouldProvision(claim, driver) && !isMade; // otherwise it is Kubernetes' turn to bind it
    },
    keyOf: keyOfClaim,
  },
  {
    controller: "resizer",
    resource: persistentVolumeClaims,
    isUnsettled: (claim, { api, driver }) => {
      const volume = api.objects(persistentVolumes).find(({ spec }) => {
        return spec?.csi?.driver === driver && spec.claimRef?.uid === claim.metadata.uid;
      });
      if (volume === undefined || !needsExpansion(claim)) return false;
      return nextSize(claim, volume, { hasFinalError: false }) !== undefined; // otherwise it is kubelet's turn
    },
  },
  {
    controller: "reclaimer",
    resource: persistentVolumes,
    isUnsettled: (volume, { driver }) => isManagedBy(volume, driver) && nextReclaimStep(volume) !== "nothing",
  },
  {
    controller: "snapshotter",
    resource: volumeSnapshotContents,
    isUnsettled: (content, { driver }) =>
      content.spec.driver === driver && snapshotRules.nextStep(content) !== "nothing",
  },
  {
    controller: "groupsnapshotter",
    resource: volumeGroupSnapshotContents,
    isUnsettled: (content, { driver }) =>
      content.spec.driver === driver && groupSnapshotRules.nextStep(content) !== "nothing",
  },
  { controller: "lvmvolume", resource: lvmVolumes, isUnsettled: isUnsettledOnNode(LVM_VOLUME_FINALIZER) },
  { controller: "lvmsnapshot", resource: lvmSnapshots, isUnsettled: isUnsettledOnNode(LVM_SNAPSHOT_FINALIZER) },
  {
    controller: "mover",
    resource: lvmMoves,
    isUnsettled: (move: LvmMove, { driver }) => move.spec.driverName === driver && !isFinished(move),
  },
  {
    controller: "importer",
    resource: lvmImports,
    isUnsettled: (self: LvmImport, { driver }) => self.spec.driverName === driver && !isFinished(self),
  },
];

/** The waits that Kubernetes itself names in events, such as `WaitForFirstConsumer` and `ExternalProvisioning`. */
const NAMED_BY_KUBERNETES = /^(?:the scheduler|the provisioner .* of its class)$/;

/** Returns the controllers of the agent of a node; `undefined` while none runs there. */
type AgentControllers = (nodeName: string) => readonly Controller[] | undefined;

/** Options of {@linkcode requireWakeUps}. */
export interface WakeUpsOptions {
  /** The agents; there are none, when absent. */
  readonly agentOf?: AgentControllers;
  /** The driver's name; the usual one of tests, when absent. */
  readonly driver?: string;
  /** The time in which a key is enqueued, and an event is written, in milliseconds; 5,000. */
  readonly timeoutMs?: number;
}

/** Requires that nothing waits in silence. Call it while the controllers run. */
export async function requireWakeUps(
  api: FakeApiServer,
  { agentOf = () => undefined, driver = DRIVER, timeoutMs = 5_000 }: WakeUpsOptions = {},
): Promise<void> {
  for (const end = Date.now() + timeoutMs;;) {
    const silent = silentObjects(api, { agentOf, driver });
    if (silent.length === 0) return;
    if (Date.now() > end) throw new Error(`these objects wait in silence: ${silent.join("; ")}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function silentObjects(
  api: FakeApiServer,
  { agentOf, driver }: Required<Pick<WakeUpsOptions, "agentOf" | "driver">>,
): string[] {
  return RULES.flatMap(({ controller: name, resource, isUnsettled, keyOf }) => {
    if (!api.hasResource(resource)) return [];
    return api.objects(resource).filter((object) => isUnsettled(object, { api, driver })).flatMap((object) => {
      const { namespace, name: objectName } = object.metadata;
      const key = keyOf?.(object) ?? (namespace === undefined ? objectName : `${namespace}/${objectName}`);
      const { nodeName } = (object as { spec?: { nodeName?: string } }).spec ?? {};
      const isOnNode = resource === lvmVolumes || resource === lvmSnapshots;
      const candidates = isOnNode ? agentOf(nodeName ?? "") ?? [] : [...running];
      const controllers = candidates.filter((one) => one.name === name && running.has(one));
      if (controllers.length === 0) return []; // nobody runs who could do something
      const waits = controllers.flatMap((one) => one.nextAttempt(key) ?? []);
      const described = `${resource.kind} ${key} (${name})`;
      if (waits.length === 0) return [`${described}: nothing tries it again`];
      const isResting = !waits.includes("turn") && !waits.some((wait) => NAMED_BY_KUBERNETES.test(wait));
      return isResting && !isExplained(api, object) ? [`${described}: nothing says that it waits for ${waits}`] : [];
    });
  });
}

/** Reports whether an object, or an event about it, says why it is not as it should be. */
function isExplained(api: FakeApiServer, object: KubeObject & { status?: unknown }): boolean {
  const { uid } = object.metadata;
  const { error, message, readyToUse, conditions = [] } = (object.status ?? {}) as {
    error?: unknown;
    message?: string;
    readyToUse?: boolean;
    conditions?: { message?: string }[];
  };
  return error !== undefined || Boolean(message) || readyToUse === false || conditions.some(({ message }) => message) ||
    api.objects(events).some(({ involvedObject }) => involvedObject?.uid === uid);
}
