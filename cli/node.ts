/**
 * `denolith node`: the driver on a node of a cluster, from its flags to its end.
 *
 * @module
 */

import { dirname } from "@std/path";
import manifest from "../deno.json" with { type: "json" };
import { startClusterProcess } from "./cluster_process.ts";
import { type Flags, UsageError } from "./command_line.ts";
import { logging, lvmReadiness } from "../csi/standalone.ts";
import { openMachine } from "../lvm/machine.ts";
import { parseGroupLimits } from "../csi/group_limits.ts";
import { Identity, Node } from "../csi/proto/csi_pb.ts";
import { identityHandlers, requireDriverName } from "../csi/identity.ts";
import { nodeHandlers } from "../csi/node.ts";
import { parseGroupList } from "../csi/parameters.ts";
import { serveRegistration } from "../csi/registration.ts";
import { serve } from "../csi/server.ts";
import { bindService } from "../csi/service.ts";
import { requireNodeId } from "../csi/topology.ts";
import { waitForAbort } from "../lvm/clock.ts";
import { GRACE_MS } from "./shutdown.ts";
import type { ApiClient } from "../k8s/client/client.ts";
import { EventRecorder } from "../k8s/runtime/events.ts";
import { Informer } from "../k8s/runtime/informer.ts";
import { Controller } from "../k8s/runtime/controller.ts";
import { lvmSnapshots, lvmVolumes } from "../k8s/api/lvm_objects.ts";
import { NodeReconciler } from "../k8s/agent/node_reconciler.ts";
import { nodeIoLimiterSettings, watchLimits } from "../k8s/agent/node_limits.ts";
import { recordedLvOf } from "../k8s/agent/object_reconciler.ts";
import { nodes } from "../k8s/api/objects.ts";
import { PoolConditions } from "../k8s/agent/pool_conditions.ts";
import { OrphanReconciler } from "../k8s/agent/orphan_reconciler.ts";
import { SnapshotReconciler } from "../k8s/agent/snapshot_reconciler.ts";
import { copyProgressById } from "../k8s/agent/volume_progress.ts";
import { VolumeReconciler } from "../k8s/agent/volume_reconciler.ts";
import { HostExec } from "../lvm/exec.ts";
import { ANY_GROUP } from "../lvm/model/groups.ts";
import { withRealPaths } from "../lvm/host/mounts.ts";
import { parseSnapshotAutoextend } from "../lvm/snapshots/cow_autoextend.ts";
import type { SurveyedGroup } from "../lvm/model/survey.ts";
import { startLogging } from "./logging.ts";
import { cgroupRoot, kubeletPaths } from "./paths.ts";
import { thinPoolOptions } from "./flags.ts";
import { defined } from "../lvm/defined.ts";

/** How many objects of a kind are worked on at once: LVM does one change of a group at a time, but they share its reports. */
const MAX_CONCURRENT_RECONCILES = 16;

/** How long events that are due may take at the end, in milliseconds. */
const EVENT_DRAIN_MS = 2_000;

/** Serves until it is asked to end, and answers the exit status: 1 when calls under way had not ended in time. */
export async function node(flags: Flags, end: AbortSignal): Promise<number> {
  await startLogging(flags["log-level"]!, flags["log-format"]!);
  const nodeName = requireNodeId(flags["node-name"]!);
  const driver = requireDriverName(flags["driver-name"]!);
  const { kubeletDir, socket, registrationSocket } = kubeletPaths(flags);
  const mountRoots = await withRealPaths([kubeletDir]);
  const groups = flags["volume-groups"] === undefined ? ANY_GROUP : parseGroupList(flags["volume-groups"]);
  const defaults = parseGroupLimits(flags);
  const exec = new HostExec(flags["lvm-config"] === undefined ? {} : { lvmConfig: flags["lvm-config"] });

  let registrationError: string | undefined = "kubelet has not asked for the driver yet";
  let lastSurvey: readonly SurveyedGroup[] | undefined;
  await using cluster = await startClusterProcess(flags, "node", () => [
    ...(registrationError === undefined ? [] : [`registration: ${registrationError}`]),
    ...(lastSurvey === undefined ? ["LVM has not answered yet"] : []),
  ]);
  const { client, metrics } = cluster;
  const events = new EventRecorder(client, { component: `${driver}/node`, instance: nodeName });
  const ownObjects = { fieldSelector: `spec.nodeName=${nodeName}` };
  const volumeObjects = new Informer(client, lvmVolumes, ownObjects);
  const snapshotObjects = new Informer(client, lvmSnapshots, ownObjects);
  const recorded = {
    volume: (id: string) => recordedLvOf(volumeObjects.get(id)),
    snapshot: (id: string) => recordedLvOf(snapshotObjects.get(id)),
  };
  const onChange = () => nodeReconciler.requeue();
  const limiting = nodeIoLimiterSettings({
    cgroupRoot: cgroupRoot(flags),
    defaults,
    objects: volumeObjects,
    reconciler: () => volumeReconciler,
  });
  const poolConditions = new PoolConditions({ events, driver });
  const thin = thinPoolOptions(flags);
  const countCowExtension = metrics.registerCowExtensions();
  const machine = openMachine({
    ...{ exec, driver, groups, mountRoots, recorded, limiting, thin },
    scratch: dirname(socket),
    snapshotAutoextend: parseSnapshotAutoextend(flags["snapshot-autoextend"]!),
    listener: logging({
      onRemoved: onChange,
      onPoolExtended: (message) => {
        poolConditions.onExtended(message);
        onChange();
      },
      onSnapshotExtended: (cow, size) => {
        countCowExtension();
        snapshotReconciler.recordCowExtended(cow, size);
      },
      onSnapshotCannotExtend: (cow, reason) => snapshotReconciler.recordCowCannotExtend(cow, reason),
      onProgress: (id) => volumeController.add(id),
      onTrimmed: (_, bytes) => trimCounters.succeeded(bytes),
      onTrimFailed: (volume, reason, failures) => {
        trimCounters.failed();
        volumeReconciler.recordTrimFailed(volume, reason, failures);
      },
      onTrimUnsupported: (volume) => volumeReconciler.recordTrimUnsupported(volume),
    }),
  });
  const { lvm, cowMonitor, trimmer, staging, health, filesystems, locks, limiter, background } = machine;
  watchLimits(volumeObjects, { limiter, defaults });

  const nodeReconciler = new NodeReconciler({
    client,
    exec,
    driver,
    nodeName,
    groups,
    overcommit: thin.overcommit,
    onReport: async (report) => {
      lastSurvey = report;
      cowMonitor.observe(report);
      trimmer.observe(report);
      await filesystems.observe(report);
      if (volumeObjects.hasSynced) await volumeReconciler.verify(report);
      if (snapshotObjects.hasSynced) await snapshotReconciler.verify(report);
    },
    conditions: (report) => [...orphanReconciler.observe(report), ...poolConditions.observe(report)],
    onWritten: async (object) => {
      poolConditions.recordEvents(object);
      await orphanReconciler.reconcile(object);
    },
  });
  const shared = { client, events, driver, ...machine, onChange, end };
  const orphanReconciler = new OrphanReconciler({ ...shared, volumeObjects, snapshotObjects, nodeName });
  const volumeReconciler = new VolumeReconciler({ ...shared, objects: volumeObjects, parseGroups: parseGroupList });
  const snapshotReconciler = new SnapshotReconciler({ ...shared, objects: snapshotObjects });
  const createController = (name: string, reconciler: VolumeReconciler | SnapshotReconciler) =>
    new Controller({
      name,
      reconcile: (key) => reconciler.reconcile(key),
      parallel: MAX_CONCURRENT_RECONCILES,
      backoff: { startMs: 1_000, capMs: 60_000 },
      onReconciled: metrics.onReconciled,
      onDepth: metrics.onDepth,
      drainMs: GRACE_MS,
    });
  const volumeController = createController("lvmvolume", volumeReconciler).watch(volumeObjects);
  const controllers = [volumeController, createController("lvmsnapshot", snapshotReconciler).watch(snapshotObjects)];
  metrics.registerGroups(() => lastSurvey ?? []);
  metrics.registerPools(() => lastSurvey ?? [], thin.overcommit);
  metrics.registerInconsistencies({
    orphans: () => orphanReconciler.orphans.length,
    lost: () =>
      volumeObjects.list().filter(({ spec, status }) => spec.driverName === driver && status?.state === "Lost").length,
  });
  metrics.registerLimits(() => limiter.limitedVolumes());
  metrics.registerReadOnlyFilesystems(() => filesystems.list());
  metrics.registerCopies(() => copyProgressById(volumeObjects.list()));
  const trimCounters = metrics.registerTrimming(() => trimmer.lastSuccesses());

  const identity = identityHandlers({ driver, version: manifest.version, ready: lvmReadiness(lvm) });
  const labels = topologyLabels(flags, client);
  const nodeService = nodeHandlers({ staging, health, nodeId: nodeName, mountRoots, locks, ...defined({ labels }) });
  const server = await serve(socket, [
    bindService(Identity, identity, metrics.onCallCompleted),
    bindService(Node, nodeService, metrics.onCallCompleted),
  ]);
  background.start();
  const registration = await serveRegistration(registrationSocket, {
    driver,
    endpoint: socket,
    onStatus: (error) => registrationError = error,
  });
  const running = [
    volumeObjects.start(end),
    snapshotObjects.start(end),
    ...controllers.map((controller) => controller.run(end)),
    nodeReconciler.run(end),
  ];

  await waitForAbort(end);
  await registration.close(0);
  const drained = await server.close(GRACE_MS);
  await Promise.all(running);
  await events.stop(EVENT_DRAIN_MS);
  await background.stop();
  await exec.idle();
  return drained ? 0 : 1;
}

/** Reads the labels of the Node that belong to its topology. */
function topologyLabels(flags: Flags, client: ApiClient) {
  const names = (flags["topology-labels"] ?? "").split(",").map((name) => name.trim()).filter((name) => name !== "");
  if (names.length === 0) return undefined;
  if (!names.every((name) => /^(?:[a-z0-9.-]{1,253}\/)?[A-Za-z0-9_.-]{1,63}$/.test(name))) {
    throw new UsageError(`--topology-labels ${flags["topology-labels"]}: must be names of labels, separated by commas`);
  }
  return async () => {
    const { metadata: { labels = {} } } = await client.get(nodes, { name: flags["node-name"]! });
    return Object.fromEntries(names.flatMap((name) => labels[name] === undefined ? [] : [[name, labels[name]]]));
  };
}
