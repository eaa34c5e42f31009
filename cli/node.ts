/**
 * `denolith node`: the driver on a node of a cluster, from its flags to its end.
 *
 * @module
 */

import { dirname } from "@std/path";
import manifest from "../deno.json" with { type: "json" };
import { openCluster } from "./cluster_process.ts";
import { type Flags, UsageError } from "./command_line.ts";
import { lvmAnswers } from "../csi/standalone.ts";
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
import { aborted, GRACE_MS } from "./shutdown.ts";
import type { ApiClient } from "../k8s/client/client.ts";
import { EventRecorder } from "../k8s/runtime/events.ts";
import { Informer } from "../k8s/runtime/informer.ts";
import { Loop } from "../k8s/runtime/controller.ts";
import { lvmSnapshots, lvmVolumes } from "../k8s/api/lvm_objects.ts";
import { NodeAgent } from "../k8s/agent/node_reconciler.ts";
import { followLimits, nodeLimiting } from "../k8s/agent/node_limits.ts";
import { recordedIn } from "../k8s/agent/object_reconciler.ts";
import { nodes } from "../k8s/api/objects.ts";
import { PoolAgent } from "../k8s/agent/pool_conditions.ts";
import { OrphanAgent } from "../k8s/agent/orphan_reconciler.ts";
import { SnapshotAgent } from "../k8s/agent/snapshot_reconciler.ts";
import { copiesIn } from "../k8s/agent/volume_progress.ts";
import { VolumeAgent } from "../k8s/agent/volume_reconciler.ts";
import { HostExec } from "../lvm/exec.ts";
import { ANY_GROUP } from "../lvm/model/groups.ts";
import { withRealPaths } from "../lvm/host/mounts.ts";
import { parseStorePolicy } from "../lvm/snapshots/cow_growth.ts";
import type { SurveyedGroup } from "../lvm/model/survey.ts";
import { startLogging } from "./logging.ts";
import { cgroupRoot, kubeletPaths } from "./paths.ts";
import { thinOptions } from "./thin_pool_flags.ts";

/** How many objects of a kind are worked on at once: LVM does one change of a group at a time, but they share its reports. */
const PARALLEL = 16;

/** How long events that are due may take at the end, in milliseconds. */
const EVENTS_MS = 2_000;

/** Serves until it is asked to end, and answers the exit status: 1 when calls under way had not ended in time. */
export async function node(flags: Flags, end: AbortSignal): Promise<number> {
  await startLogging(flags["log-level"]!, flags["log-format"]!);
  const nodeName = requireNodeId(flags["node-name"]!);
  const driver = requireDriverName(flags["driver-name"]!);
  const { kubeletRoot, socket, registrationSocket } = kubeletPaths(flags);
  const mountRoots = await withRealPaths([kubeletRoot]);
  const groups = flags["volume-groups"] === undefined ? ANY_GROUP : parseGroupList(flags["volume-groups"]);
  const defaults = parseGroupLimits(flags);
  const exec = new HostExec(flags["lvm-config"] === undefined ? {} : { lvmConfig: flags["lvm-config"] });

  let refused: string | undefined = "kubelet has not asked for the driver yet";
  let surveyed: readonly SurveyedGroup[] | undefined;
  await using cluster = await openCluster(flags, "node", () => [
    ...(refused === undefined ? [] : [`registration: ${refused}`]),
    ...(surveyed === undefined ? ["LVM has not answered yet"] : []),
  ]);
  const { client, metrics } = cluster;
  const events = new EventRecorder(client, { component: `${driver}/node`, instance: nodeName });
  const own = { fieldSelector: `spec.nodeName=${nodeName}` };
  const volumeObjects = new Informer(client, lvmVolumes, own);
  const snapshotObjects = new Informer(client, lvmSnapshots, own);
  const recorded = {
    volume: (id: string) => recordedIn(volumeObjects.get(id)),
    snapshot: (id: string) => recordedIn(snapshotObjects.get(id)),
  };
  const onChange = () => nodeAgent.poke();
  const limiting = nodeLimiting({
    cgroupRoot: cgroupRoot(flags),
    defaults,
    objects: volumeObjects,
    agent: () => volumeAgent,
  });
  const poolAgent = new PoolAgent({ events, driver });
  const thin = thinOptions(flags);
  const storeGrown = metrics.countGrownStores();
  const machine = openMachine({
    ...{ exec, driver, groups, mountRoots, recorded, limiting, thin },
    scratch: dirname(socket),
    storePolicy: parseStorePolicy(flags["grow-stores"]!),
    onRemoved: onChange,
    onPoolGrown: (words) => {
      poolAgent.onGrown(words);
      onChange();
    },
    onGrown: (store, size) => {
      storeGrown();
      snapshotAgent.grown(store, size);
    },
    onStuck: (store, why) => snapshotAgent.stuck(store, why),
    onProgress: (id) => volumeLoop.add(id),
    onTrimmed: (_, bytes) => trims.succeeded(bytes),
    onTrimFailed: (volume, why, failures) => {
      trims.failed();
      volumeAgent.trimFailed(volume, why, failures);
    },
    onTrimUnsupported: (volume) => volumeAgent.trimUnsupported(volume),
  });
  const { lvm, stores, trimmer, staging, health, filesystems, locks, limiter, background } = machine;
  followLimits(volumeObjects, { limiter, defaults });

  const nodeAgent = new NodeAgent({
    client,
    exec,
    driver,
    nodeName,
    groups,
    overcommit: thin.overcommit,
    onReport: async (report) => {
      surveyed = report;
      stores.see(report);
      trimmer.see(report);
      await filesystems.look(report);
      if (volumeObjects.hasSynced) await volumeAgent.verify(report);
      if (snapshotObjects.hasSynced) await snapshotAgent.verify(report);
    },
    conditions: (report) => [...orphanAgent.look(report), ...poolAgent.look(report)],
    onWritten: async (object) => {
      poolAgent.attend(object);
      await orphanAgent.attend(object);
    },
  });
  const shared = { client, events, ...machine, onChange, end };
  const orphanAgent = new OrphanAgent({ ...shared, volumeObjects, snapshotObjects, nodeName });
  const volumeAgent = new VolumeAgent({ ...shared, objects: volumeObjects, parseGroups: parseGroupList });
  const snapshotAgent = new SnapshotAgent({ ...shared, objects: snapshotObjects });
  const loopOf = (name: string, agent: VolumeAgent | SnapshotAgent) =>
    new Loop({
      name,
      reconcile: (key) => agent.reconcile(key),
      parallel: PARALLEL,
      backoff: { startMs: 1_000, capMs: 60_000 },
      onTurn: metrics.onTurn,
      onDepth: metrics.onDepth,
      drainMs: GRACE_MS,
    });
  const volumeLoop = loopOf("lvmvolume", volumeAgent).follow(volumeObjects);
  const loops = [volumeLoop, loopOf("lvmsnapshot", snapshotAgent).follow(snapshotObjects)];
  metrics.watchGroups(() => surveyed ?? []);
  metrics.watchPools(() => surveyed ?? [], thin.overcommit);
  metrics.watchOrphans({
    orphans: () => orphanAgent.orphans.length,
    lost: () =>
      volumeObjects.list().filter(({ spec, status }) => spec.driverName === driver && status?.state === "Lost").length,
  });
  metrics.watchLimits(() => limiter.inUse());
  metrics.watchFilesystems(() => filesystems.list());
  metrics.watchCopies(() => copiesIn(volumeObjects.list()));
  const trims = metrics.watchTrimming(() => trimmer.lastSuccesses());

  const identity = identityHandlers({ driver, version: manifest.version, ready: lvmAnswers(lvm) });
  const labels = topologyLabels(flags, client);
  const calls = nodeHandlers({ staging, health, nodeId: nodeName, mountRoots, locks, ...(labels && { labels }) });
  const server = await serve(socket, [
    bindService(Identity, identity, metrics.onAnswer),
    bindService(Node, calls, metrics.onAnswer),
  ]);
  background.start();
  const registration = await serveRegistration(registrationSocket, {
    driver,
    endpoint: socket,
    onStatus: (error) => refused = error,
  });
  const running = [
    volumeObjects.start(end),
    snapshotObjects.start(end),
    ...loops.map((loop) => loop.run(end)),
    nodeAgent.run(end),
  ];

  await aborted(end);
  await registration.close(0);
  const drained = await server.close(GRACE_MS);
  await Promise.all(running);
  await events.stop(EVENTS_MS);
  await background.stop();
  await exec.settled();
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
