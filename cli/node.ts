/**
 * `denolith node`: the node plugin of a cluster.
 *
 * @module
 */

import { dirname } from "@std/path";
import manifest from "../deno.json" with { type: "json" };
import { startClusterProcess } from "./cluster_process.ts";
import { EXIT, type Flags } from "./command_line.ts";
import { loggingListener, lvmReadiness } from "../csi/standalone.ts";
import { type Machine, openMachine } from "../lvm/machine.ts";
import { parseGroupLimits } from "../csi/group_limits.ts";
import { Identity, Node } from "../csi/proto/csi_pb.ts";
import { requireDriverName } from "../csi/driver_options.ts";
import { identityHandlers } from "../csi/identity.ts";
import { nodeHandlers } from "../csi/node.ts";
import { parseGroupList, patternMatcher } from "../csi/group_list.ts";
import { serveRegistration } from "../csi/registration.ts";
import { serve } from "../csi/server.ts";
import { bindService, type BoundService } from "../csi/service.ts";
import { requireNodeId } from "../csi/topology.ts";
import { type Clock, systemClock, waitForAbort } from "../base/clock.ts";
import { EarlierGuards } from "../lvm/group_snapshots/suspension.ts";
import type { VolumeId } from "../base/ids.ts";
import { GRACE_MS } from "./sandbox.ts";
import type { ApiClient } from "../k8s/client/client.ts";
import type { Definitions } from "../k8s/client/definitions.ts";
import { EventRecorder } from "../k8s/runtime/events.ts";
import { Informer } from "../k8s/runtime/informer.ts";
import { Controller } from "../k8s/runtime/controller.ts";
import {
  CLAIM_ANNOTATION,
  type LvmNode,
  lvmNodes,
  type LvmSnapshot,
  lvmSnapshots,
  type LvmVolume,
  lvmVolumes,
} from "../k8s/api/lvm_objects.ts";
import { DoctorReconciler } from "../k8s/agent/doctor_reconciler.ts";
import { MachineEvents } from "../k8s/agent/machine_events.ts";
import { NodeReconciler } from "../k8s/agent/node_reconciler.ts";
import { nodeIoLimiterSettings, watchLimits } from "../k8s/agent/node_limits.ts";
import { recordedLvOf } from "../k8s/agent/object_reconciler.ts";
import { heldForLongSince } from "../k8s/api/volume_conditions.ts";
import { nodes } from "../k8s/api/objects.ts";
import { PhysicalVolumeConditions, PoolConditions } from "../k8s/agent/node_conditions.ts";
import { OrphanReconciler } from "../k8s/agent/orphan_reconciler.ts";
import { SnapshotReconciler } from "../k8s/agent/snapshot_reconciler.ts";
import { copyProgressOf } from "../k8s/agent/volume_progress.ts";
import { VolumeReconciler } from "../k8s/agent/volume_reconciler.ts";
import { KEYS_CONDITION } from "../k8s/agent/volume_status.ts";
import { conditionsOf } from "../k8s/api/conditions.ts";
import { defined } from "../base/defined.ts";
import { ANY_GROUP } from "../lvm/model/groups.ts";
import type { Stats } from "../lvm/staging/staging.ts";
import { withRealPaths } from "../lvm/host/mounts.ts";
import { type CreateExec, openExec } from "../lvm/host/open_exec.ts";
import { parseSnapshotAutoextend } from "../lvm/snapshots/cow_autoextend.ts";
import { logCommand, logNoMountTable, logNoTransferAddress, startLogging } from "./logging.ts";
import type { Metrics } from "./metrics/metrics.ts";
import { NodeState } from "./node_state.ts";
import { cgroupRoot, kubeletPaths } from "./paths.ts";
import { labelNames, thinPoolOptions } from "./shared_flags.ts";
import { transferOptions } from "./transfers.ts";
import { parseDiskRules } from "../lvm/disks/rules.ts";
import { backoffOf } from "../k8s/runtime/backoffs.ts";
import { DiskReports } from "../k8s/disks/disk_reports.ts";
import { DiskTaker } from "../k8s/disks/disk_taker.ts";
import { DiskTaking } from "../lvm/disks/taking.ts";
import { readNamedDisks } from "../lvm/disks/reading.ts";
import type { TransferAgent, TransferAgentOptions, TransferNetwork } from "../k8s/transfers/transfer_agent.ts";

/**
 * The number of objects of a kind that are reconciled at once. LVM makes the changes of a group one by one, but they
 * share its reports.
 */
const MAX_CONCURRENT_RECONCILES = 16;

/** The time that pending events may take at the end, in milliseconds. */
const EVENT_DRAIN_MS = 2_000;

/**
 * Serves a node until the process is asked to end.
 *
 * @param end aborted when the process is asked to end
 * @param createExec creates what runs its commands
 * @returns the exit status: 1 when calls in progress did not complete in time
 */
export async function node(flags: Flags, end: AbortSignal, createExec: CreateExec = openExec): Promise<number> {
  await startLogging(flags["log-level"]!, flags["log-format"]!);
  return await runNode(flags, end, { createExec });
}

/** Seams of a test. */
interface Seams {
  /** Time. */
  readonly clock?: Clock;
  /** Creates what runs its commands. */
  readonly createExec?: CreateExec;
  /** Serves the CSI services. */
  readonly serveServices?: typeof serve;
  /** How agents reach each other. */
  readonly network?: TransferNetwork;
}

/** Does what {@linkcode node} does, without logging. */
export async function runNode(flags: Flags, end: AbortSignal, seams: Seams = {}): Promise<number> {
  const { clock = systemClock, createExec = openExec, serveServices = serve } = seams;
  const options = { ...await parseNodeFlags(flags, createExec), clock };
  if (flags["transfer-address"] !== undefined && options.transfer === undefined) {
    logNoTransferAddress(flags["transfer-advertise"]);
  }
  const { nodeName, driver, thin, socket, exec } = options;
  const state = new NodeState(clock);
  if (!options.registers) state.registrationError = undefined;
  await using cluster = await startClusterProcess(flags, "node", () => state.notReadyReasons(), clock);
  const { client, metrics, definitions } = cluster;
  const events = new EventRecorder(client, {
    component: `${driver}/node`,
    instance: nodeName,
    onDropped: metrics.onEventDropped,
    clock,
  });
  const ownObjects = { fieldSelector: `spec.nodeName=${nodeName}`, clock };
  const volumeObjects = new Informer(client, lvmVolumes, ownObjects);
  const snapshotObjects = new Informer(client, lvmSnapshots, ownObjects);

  const nodeObjects = new Informer(client, lvmNodes, { fieldSelector: `metadata.name=${nodeName}`, clock });

  const machineEvents = new MachineEvents();
  const limiting = { cgroupRoot: options.cgroupRoot, defaults: options.defaultLimits, objects: volumeObjects };
  const onBytes = metrics.registerTransfers();
  const transfers = options.transfer && await createTransfers({
    ...options.transfer,
    ...defined({ network: seams.network }),
    client,
    exec,
    driver,
    nodeName,
    snapshots: snapshotObjects,
    clock,
    onChange: () => machineEvents.onChange(),
    onBytes,
  });
  const machine = openMachine({
    ...options,
    ...defined({ remote: transfers }),
    listener: loggingListener(machineEvents),
    scratch: dirname(socket),
    earlierGuards: new EarlierGuards(clock, end),
    recorded: {
      volume: (id) => recordedLvOf(volumeObjects.get(id)),
      snapshot: (id) => recordedLvOf(snapshotObjects.get(id)),
    },
    limiting: nodeIoLimiterSettings({ ...limiting, reconciler: () => machineEvents.receivers.volumes }),
  });
  watchLimits(volumeObjects, { limiter: machine.limiter, defaults: options.defaultLimits });
  const informers = { volumeObjects, snapshotObjects, nodeObjects };
  const parts = { client, definitions, events, machine, state, machineEvents, transfers, end };
  const agent = createAgent({ ...options, ...informers, ...parts });
  registerMetrics(metrics, {
    ...{ driver, thin, volumeObjects, snapshotObjects, machine, state, clock, orphans: agent.orphans },
  });
  const createController = (
    name: "lvmvolume" | "lvmsnapshot",
    reconciler: VolumeReconciler | SnapshotReconciler,
    ownerOf?: (key: string) => string,
  ) =>
    new Controller({
      name,
      ownerOf,
      reconcile: (key) => reconciler.reconcile(key),
      parallel: MAX_CONCURRENT_RECONCILES,
      backoff: backoffOf(name),
      onReconciled: metrics.onReconciled,
      onDepth: metrics.onDepth,
      drainMs: GRACE_MS,
    });
  const namespaceOf = (name: string) => agent.volumes.namespaceOf(name);
  const volumeController = createController("lvmvolume", agent.volumes, namespaceOf).watch(volumeObjects);
  const snapshotController = createController("lvmsnapshot", agent.snapshots).watch(snapshotObjects);
  const trimCounters = metrics.registerTrimming(() => machine.trimmer.lastSuccesses());
  const counters = {
    onSnapshotExtended: metrics.registerCowExtensions(),
    onTrimmed: trimCounters.succeeded,
    onTrimFailed: trimCounters.failed,
  };
  machineEvents.connect({ ...agent, volumeController, snapshotController, counters });

  const labels = topologyLabels(flags, client);
  const onUnmounted = (id: VolumeId) => agent.volumes.requeueUnmounted(id);
  const onStats = (id: VolumeId, stats: Stats) => agent.volumes.recordUsage(id, stats);
  const server = await serveServices(socket, csiServices({ options, machine, metrics, labels, onStats, onUnmounted }));
  machine.background.start();
  const registration = options.registers
    ? await serveRegistration(options.registrationSocket, {
      driver,
      endpoint: socket,
      onStatus: (error) => state.registrationError = error,
    })
    : undefined;
  const running = [
    ...[volumeObjects, snapshotObjects, nodeObjects].map((informer) => informer.start(end)),
    ...[volumeController, snapshotController, agent.node].map((runnable) => runnable.run(end)),
    transfers?.run(machine, end),
  ];

  await waitForAbort(end);
  await registration?.close(0);
  const drained = await server.close(GRACE_MS);
  await Promise.all(running);
  await events.stop(EVENT_DRAIN_MS);
  await machine.background.stop();
  await exec.idle();
  return drained ? EXIT.success : EXIT.failure;
}

type NodeOptions = Awaited<ReturnType<typeof parseNodeFlags>>;

/** Parses the flags of the subcommand, except those of the cluster process and of topology. */
async function parseNodeFlags(flags: Flags, createExec: CreateExec) {
  const nodeName = requireNodeId(flags["node-name"]!);
  const driver = requireDriverName(flags["driver-name"]!);
  const { kubeletDir, socket, registrationSocket } = kubeletPaths(flags);
  const mountRoots = await withRealPaths([kubeletDir]);
  return {
    nodeName,
    driver,
    socket,
    registrationSocket,
    mountRoots,
    kubeletDirectory: kubeletDir,
    namespace: flags.namespace!,
    registers: flags["disable-registration"] === undefined,
    groups: flags["volume-groups"] === undefined ? ANY_GROUP : parseGroupList(flags["volume-groups"]),
    /** The groups that the doctor checks: those that are named, or else those that it finds in use. */
    checkedGroups: flags["volume-groups"] === undefined ? undefined : parseGroupList(flags["volume-groups"]),
    defaultLimits: parseGroupLimits(flags),
    exec: await createExec({
      onCommand: logCommand,
      mountTableDirectory: dirname(socket),
      onNoMountTable: logNoMountTable,
      ...defined({ lvmConfig: flags["lvm-config"], devicesFile: flags["lvm-devices-file"] }),
    }),
    cgroupRoot: cgroupRoot(flags),
    thin: thinPoolOptions(flags),
    transfer: transferOptions(flags),
    diskRules: flags["disk-rules"] === undefined ? undefined : parseDiskRules(flags["disk-rules"], patternMatcher),
    snapshotAutoextend: parseSnapshotAutoextend(flags["snapshot-autoextend"]!),
  };
}

/** Options of {@linkcode createAgent}. */
interface AgentOptions
  extends
    Pick<NodeOptions, "exec" | "driver" | "nodeName" | "namespace" | "groups" | "checkedGroups" | "thin">,
    Pick<NodeOptions, "diskRules" | "kubeletDirectory">,
    Pick<Seams, "clock"> {
  readonly client: ApiClient;
  readonly definitions: Definitions;
  readonly events: EventRecorder;
  readonly volumeObjects: Informer<LvmVolume>;
  readonly snapshotObjects: Informer<LvmSnapshot>;
  readonly nodeObjects: Informer<LvmNode>;
  readonly machine: Machine;
  readonly state: NodeState;
  /** What happens on the machine, for the controllers. */
  readonly machineEvents: MachineEvents;
  /** What sends snapshots to other agents; absent where transfers are off. */
  readonly transfers: TransferAgent | undefined;
  readonly end: AbortSignal;
}

/** Creates what sends and fetches snapshots. It is loaded only where transfers are on. */
async function createTransfers(options: TransferAgentOptions): Promise<TransferAgent> {
  const { TransferAgent } = await import("../k8s/transfers/transfer_agent.ts");
  return new TransferAgent(options);
}

/** Creates the reconcilers of a node. */
function createAgent(options: AgentOptions) {
  const { events, driver, volumeObjects, snapshotObjects, machine, state, machineEvents, definitions } = options;
  const pools = new PoolConditions({ events, driver });
  const pvs = new PhysicalVolumeConditions({ events, groups: options.groups });
  const shared = { ...options, ...machine, onChange: machineEvents.onChange };
  const orphans = new OrphanReconciler(shared);
  const volumes = new VolumeReconciler({
    ...shared,
    objects: volumeObjects,
    parseGroups: parseGroupList,
    requeue: (name) => machineEvents.receivers.volumeController.wake(name),
  });
  const snapshots = new SnapshotReconciler({
    ...shared,
    objects: snapshotObjects,
    requeue: (name) => machineEvents.receivers.snapshotController.wake(name),
  });
  new DoctorReconciler({
    ...options,
    objects: options.nodeObjects,
    examine: async () => {
      const { examine } = await import("../lvm/doctor/doctor.ts"); // loaded when somebody asks for it
      return await examine({ exec: options.exec, driver, ...defined({ groups: options.checkedGroups }) });
    },
  });
  const disks = createDisks({ ...options, lvm: machine.lvm, onChange: machineEvents.onChange });
  const node = new NodeReconciler({
    ...options,
    objects: options.nodeObjects,
    overcommit: options.thin.overcommit,
    withRefusals: (groups) => machine.lvm.withRefusals(groups),
    transfer: () => options.transfers === undefined ? null : options.transfers.endpoint(),
    disks: disks && ((object) => disks.reports.update(object)),
    onReport: async (report) => {
      state.recordSurvey(report);
      machine.cowMonitor.observe(report);
      machine.trimmer.observe(report);
      await machine.filesystems.observe(report);
    },
    verify: async (report) => {
      if (volumeObjects.hasSynced) await volumes.verify(report);
      if (snapshotObjects.hasSynced) await snapshots.verify(report);
    },
    conditions: (report) => [
      definitions.condition(),
      ...[orphans, pools, pvs, ...(disks === undefined ? [] : [disks.taker])].flatMap((each) => each.observe(report)),
    ],
    onReported: async (object) => {
      pools.recordEvents(object);
      pvs.recordEvents(object);
      await orphans.reconcile(object);
      if (definitions.outdated === undefined) await disks?.taker.reconcile(object);
    },
  });
  definitions.subscribe(() => node.requeue());
  return { node, volumes, snapshots, orphans, pools };
}

/** Creates what reports disks and takes those that are accepted; `undefined` without rules. */
function createDisks(
  { diskRules: rules, kubeletDirectory, lvm, ...options }:
    & Pick<
      AgentOptions,
      "client" | "nodeName" | "driver" | "events" | "volumeObjects" | "diskRules" | "kubeletDirectory"
    >
    & Pick<Machine, "lvm">
    & { readonly onChange: () => void },
) {
  if (rules === undefined) return undefined;
  const { events } = options;
  return {
    reports: new DiskReports({ events, read: () => readNamedDisks(lvm.exec, { rules, kubeletDirectory }) }),
    taker: new DiskTaker({ ...options, taking: new DiskTaking({ lvm, rules, kubeletDirectory }) }),
  };
}

/** Registers the metrics of a node, except the counters of background work. */
function registerMetrics(
  metrics: Metrics,
  { driver, thin, volumeObjects, snapshotObjects, machine, state, clock, orphans }:
    & Pick<AgentOptions, "driver" | "thin" | "volumeObjects" | "snapshotObjects" | "machine" | "state">
    & { readonly clock: Clock; readonly orphans: OrphanReconciler },
): void {
  const volumes = () => volumeObjects.list().filter(({ spec }) => spec.driverName === driver);
  const claimOf = (volume: LvmVolume | undefined) => volume?.metadata.annotations?.[CLAIM_ANNOTATION];
  const named = (volume: LvmVolume) => ({ volume: volume.metadata.name, claim: claimOf(volume) });
  const sourceOf = (id: string) => snapshotObjects.get(id)?.spec.sourceVolume ?? id;
  metrics.registerGroups(() => state.survey ?? [], driver, (id) => claimOf(volumeObjects.get(sourceOf(id))));
  metrics.registerPools(() => state.survey ?? [], thin.overcommit);
  metrics.registerOrphans(() => orphans.orphans.length);
  metrics.registerProblems({
    lost: () => volumes().filter(({ status }) => status?.state === "Lost").map(named),
    held: () => volumes().filter((volume) => heldForLongSince(volume, clock.date()) !== undefined).map(named),
    keysOutdated: () =>
      volumes().flatMap((volume) => {
        const { status, reason } = conditionsOf(volume).find(({ type }) => type === KEYS_CONDITION) ?? {};
        return status === "False" ? [{ ...named(volume), reason: reason! }] : [];
      }),
  });
  metrics.registerLimits(() => machine.limiter.limitedVolumes());
  metrics.registerReadOnlyFilesystems(() => machine.filesystems.list());
  metrics.registerCopies(() =>
    volumes().flatMap((volume) => {
      const done = copyProgressOf(volume);
      return done === undefined ? [] : [{ ...named(volume), done }];
    })
  );
}

/** Returns the CSI services of a node: Identity and Node. */
function csiServices({ options: { driver, nodeName, mountRoots }, machine, metrics, labels, onStats, onUnmounted }: {
  readonly options: NodeOptions;
  readonly machine: Machine;
  readonly metrics: Metrics;
  readonly labels: ReturnType<typeof topologyLabels>;
  readonly onStats: (id: VolumeId, stats: Stats) => void;
  readonly onUnmounted: (id: VolumeId) => void;
}): BoundService[] {
  const { lvm, staging, health, locks } = machine;
  const identity = identityHandlers({ driver, version: manifest.version, ready: lvmReadiness(lvm) });
  const nodeService = nodeHandlers({
    staging,
    health,
    nodeId: nodeName,
    mountRoots,
    locks,
    onStats,
    onUnmounted,
    ...defined({ labels }),
  });
  return [
    bindService(Identity, identity, metrics.onCallCompleted),
    bindService(Node, nodeService, metrics.onCallCompleted),
  ];
}

/**
 * Returns a function that reads the labels of the Node that belong to its topology, or `undefined` when no label does.
 *
 * @throws {UsageError} when `--topology-labels` cannot be parsed
 */
function topologyLabels(flags: Flags, client: ApiClient) {
  const list = flags["topology-labels"];
  if (list === undefined) return undefined;
  const names = labelNames(list, "--topology-labels");
  return async () => {
    const { metadata: { labels = {} } } = await client.get(nodes, { name: flags["node-name"]! });
    return Object.fromEntries(names.flatMap((name) => labels[name] === undefined ? [] : [[name, labels[name]]]));
  };
}
