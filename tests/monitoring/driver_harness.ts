/**
 * An agent and a controller in this process, as a cluster has them, over a fake machine and a fake API server. They are in a
 * state in which each metric that the dashboard and the alerts use has a series.
 *
 * @module
 */

import { runController } from "../../cli/controller.ts";
import { runNode } from "../../cli/node.ts";
import { CLAIM_ANNOTATION, lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { nodes } from "../../k8s/api/objects.ts";
import type { ConditionReason } from "../../k8s/api/condition_reasons.ts";
import { lvmSnapshotFor } from "../../k8s/api/snapshot_mapping.ts";
import { lvmVolumeFor, type NamedVolumeRequest } from "../../k8s/api/volume_mapping.ts";
import { IMPORT_FINALIZER, type LvmImport, lvmImports } from "../../k8s/handover/imports.ts";
import { copyRequestName, lvmMoves, MOVE_FINALIZER } from "../../k8s/handover/moves.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import { CACHE_PV } from "../../lvm/model/tags.ts";
import { connect } from "../contract/helpers/csi_client.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";
import { FakeCgroups } from "../fake/machine/cgroups.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { FakeMachine, type FakeMount } from "../fake/machine/machine.ts";
import { namedRequest } from "../fake/request.ts";
import { collectPrinted, flagsOf, RunningSubcommand, SubcommandFolder } from "../fake/subcommand.ts";
import { freePorts } from "../rig/free_ports.ts";
import type { ScrapeTarget } from "../rig/prometheus.ts";

const DRIVER = "lvm.denolith.dev";
const NODE = "n1";
const POD = "0a1b2c3d-1111-2222-3333-444455556666";
const MiB = 1n << 20n;
/** The volumes: a limited one, a RAID volume, a thin one, one whose cache fails, and one whose lvcreate fails. */
const REQUESTS = {
  limited: { limits: { readIops: { rate: 500n, perGiB: false }, writeBps: { rate: 4n * MiB, perGiB: false } } },
  mirrored: { layout: { type: "raid1", mirrors: 1 } },
  thin: { thin: { poolSize: { percent: 50n } } },
  cached: { layout: { type: "writecache", cacheSize: 64n * MiB } },
  failing: {},
} as const satisfies Readonly<Record<string, Partial<NamedVolumeRequest>>>;

/** A driver that can be scraped. It ends when it is disposed of. */
export interface DriverHarness extends AsyncDisposable {
  readonly machine: FakeMachine;
  /** The addresses of the agent and of the controller, with the labels of their pods. */
  readonly targets: readonly ScrapeTarget[];
  /** The number of commands that the agent has run. */
  readonly commands: () => number;
  /** Makes calls to both processes, some of which fail, and has an object reconciled. */
  readonly call: () => Promise<void>;
  /** Makes the agent report its groups again. */
  readonly report: () => Promise<void>;
  /** The thin pool. */
  readonly pool: () => { dataPercent: number };
  /** The filesystem that the kernel has made read-only. */
  readonly readOnlyMount: FakeMount;
}

/**
 * Starts the driver.
 *
 * @param options `withFailures`: whether there is a volume whose lvcreate fails, and is tried again and again
 */
export async function startDriver({ withFailures = true } = {}): Promise<DriverHarness> {
  await using stack = new AsyncDisposableStack();
  const resources = [lvmVolumes, lvmSnapshots, lvmNodes, lvmMoves, lvmImports];
  const api = stack.use(FakeApiServer.start({ resources }));
  api.put(nodes, { metadata: { name: NODE } });
  const folder = stack.use(await SubcommandFolder.create(api.url));
  stack.use(collectPrinted());
  const client = stack.use(new HttpClient({ url: api.url }, { userAgent: "denolith/test (administrator)" }));
  const machine = new FakeMachine();
  machine.addGroup("data", 12n << 30n, 4n * MiB, 3).pvs[2]!.tags = new Set([CACHE_PV]);
  const failing = volumeIdOf("failing");
  machine.fault = ({ args }) => {
    if (args[0] !== "lvcreate" || !args.some((arg) => arg.includes(failing))) return undefined;
    throw new StorageError("Unavailable", "lvcreate: no answer");
  };
  let commands = 0;
  const exec = {
    run: (...args: Parameters<FakeMachine["run"]>) => {
      commands++;
      return machine.run(...args);
    },
    idle: () => machine.idle(),
    readMountTable: () => machine.readMountTable(),
  };

  const [agentPort, controllerPort] = freePorts(2);
  const cgroups = new FakeCgroups(`${folder.path}/cgroup`);
  cgroups.mount();
  cgroups.addPod(`kubepods/pod${POD}`);
  const agentFlags = flagsOf(
    ...["node", "--node-name", NODE, "--kubelet-dir", folder.path, "--kubeconfig", folder.kubeconfig],
    ...["--http-address", `127.0.0.1:${agentPort}`, "--disable-registration", "--cgroup-root", cgroups.root],
    "--thin-pool-autoextend-threshold=100",
  );
  const startAgent = () =>
    RunningSubcommand.start(
      (end) => runNode(agentFlags, end, { createExec: () => exec }),
      () => api.objects(lvmNodes)[0]?.status?.volumeGroups !== undefined,
    );
  const object = (name: string) => api.objects(lvmVolumes).find(({ metadata }) => metadata.name === volumeIdOf(name));
  {
    await using _agent = await startAgent();
    for (const [name, more] of Object.entries(REQUESTS)) {
      if (name === "failing" && !withFailures) continue;
      const request = namedRequest(name, 64n * MiB, { erase: "none", ...more });
      const object = lvmVolumeFor(request, { driver: DRIVER, nodeName: NODE });
      const annotations = { ...object.metadata.annotations, [CLAIM_ANNOTATION]: `shop/${name}` };
      api.put(lvmVolumes, { ...object, metadata: { ...object.metadata, annotations } });
    }
    const isReady = (name: string) => object(name)?.status?.state === "Ready";
    await waitUntil(() => ["limited", "mirrored", "thin", "cached"].every(isReady), "the volumes");
    const snapshot = { name: "snapshot", id: snapshotIdOf("snapshot"), source: volumeIdOf("limited") };
    api.put(lvmSnapshots, {
      ...lvmSnapshotFor({ ...snapshot, cowSize: { bytes: 16n * MiB } }, { driver: DRIVER, nodeName: NODE }),
    });
    await waitUntil(() => api.objects(lvmSnapshots)[0]?.status?.state === "Ready", "the snapshot");
  }
  api.put(lvmVolumes, failedCopy());
  putUnusableVolume(api);
  putStuckMove(api);
  putStuckImport(api);

  const lvOf = (name: string) => {
    const tag = `denolith.volume=${volumeIdOf(name)}`;
    return machine.allLvs().find(({ lv }) => lv.tags.has(tag))!.lv;
  };
  lvOf("cached").cacheHealth = "error";
  Object.assign(lvOf("mirrored").raid!, { action: "recover", syncPercent: 50, isNew: false });
  const mount = (name: string, target: string): FakeMount => {
    const lv = lvOf(name);
    const source = `/dev/mapper/data-${lv.name.replaceAll("-", "--")}`;
    const mount = { target: `${folder.path}/${target}`, source, fsType: "ext4", root: "/", readOnly: false };
    machine.mounts.push({ ...mount, deviceNumber: `253:${lv.minor}`, lv });
    return machine.mounts.at(-1)!;
  };
  mount("limited", `pods/${POD}/volumes/kubernetes.io~csi/pvc-1/mount`);
  const readOnlyMount = mount("mirrored", "plugins/kubernetes.io/csi/pv/mirrored/globalmount");
  readOnlyMount.remountedReadOnly = true;
  const pool = () => machine.allLvs().find(({ lv }) => lv.thinPool !== undefined)!.lv.thinPool!;
  pool().dataPercent = 96;

  stack.use(await startAgent());
  const controllerSocket = `${folder.path}/controller/csi.sock`;
  const controllerFlags = flagsOf(
    ...["controller", "--kubeconfig", folder.kubeconfig, "--endpoint", `unix://${controllerSocket}`],
    ...["--http-address", `127.0.0.1:${controllerPort}`, "--namespace", "default"],
  );
  const hasSocket = () => {
    try {
      return Deno.statSync(controllerSocket).isSocket === true;
    } catch {
      return false;
    }
  };
  stack.use(await RunningSubcommand.start((end) => runController(controllerFlags, end), hasSocket));
  const agent = stack.use(connect(`${folder.path}/plugins/${DRIVER}/csi.sock`));
  const controller = stack.use(connect(controllerSocket));
  const kept = stack.move();
  const labels = (pod: string) => ({ namespace: "denolith-system", node: NODE, pod });
  return {
    ...{ machine, pool, readOnlyMount },
    targets: [
      { address: `127.0.0.1:${agentPort}`, labels: labels("denolith-node-x") },
      { address: `127.0.0.1:${controllerPort}`, labels: labels("denolith-controller-y") },
    ],
    commands: () => commands,
    call: async () => {
      await agent.node.nodeGetInfo();
      await agent.node.nodeStageVolume().catch(() => {});
      await controller.controller.listVolumes();
      await client.patch(lvmVolumes, { name: failing }, { merge: touched() }); // it is reconciled
    },
    report: async () => {
      await client.patch(lvmNodes, { name: NODE }, { merge: touched() });
    },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

/** Returns a patch of an object that changes nothing of what it asks for. */
function touched() {
  return { metadata: { annotations: { "example.com/touched": crypto.randomUUID() } } };
}

/** Returns an LVMVolume whose copy has failed halfway: nobody finishes it. */
function failedCopy() {
  const { metadata, spec } = volumeOn(NODE, "copy", { status: { state: "Failed" } });
  const error = { code: "NoSpace" as const, message: "the node has no space for it" };
  const copy = { copied: "16Mi", total: "64Mi" };
  return { metadata, spec, status: { state: "Failed" as const, observedGeneration: 1, error, copy } };
}

/** Creates an LVMVolume whose LV is missing, that is held for a move, and whose keys could not be changed. */
function putUnusableVolume(api: FakeApiServer): void {
  const lastTransitionTime = new Date(Date.now() - 3_600_000).toISOString();
  const condition = (type: string, status: "True" | "False", reason: ConditionReason) => ({
    ...{ type, status, reason, message: "", lastTransitionTime },
  });
  const conditions = [condition("Held", "True", "NotInUse"), condition("KeysChanged", "False", "KeyChangeFailed")];
  const volume = volumeOn(NODE, "lost", { spec: { held: true }, status: { state: "Lost", conditions } });
  api.put(lvmVolumes, volume);
  // a move of another driver, which nobody carries out, and without which the controller would release the volume
  const spec = { ...handoverSpec("lost"), driverName: "other.example.com", sourceNode: NODE, targetNode: "n2" };
  api.put(lvmMoves, { metadata: { name: volume.metadata.name }, spec });
}

/** Creates a move that failed, and keeps its copy: its volume is lost. */
function putStuckMove(api: FakeApiServer): void {
  const error = { code: "FailedPrecondition" as const, message: "the disks of the node are gone" };
  const spec = { ...handoverSpec("moved"), sourceNode: NODE, targetNode: "n2" };
  const move = api.put(lvmMoves, {
    metadata: { name: volumeIdOf("moved"), finalizers: [MOVE_FINALIZER] },
    ...{ spec, status: { state: "Undoing", error } },
  });
  const copy = { round: 0, snapshot: snapshotIdOf("moved"), last: true };
  api.put(lvmVolumes, volumeOn(NODE, "moved", { status: { state: "Lost" } }));
  api.put(
    lvmVolumes,
    volumeOn("n2", copyRequestName(move), {
      spec: { copy, source: { volume: volumeIdOf("moved") } },
      status: { state: "Ready" },
    }),
  );
}

/** Creates an import that cannot be undone: its volume was moved to another node. */
function putStuckImport(api: FakeApiServer): void {
  const volume = volumeOn("n2", "imported", { status: { state: "Ready" } });
  const error = { code: "FailedPrecondition" as const, message: "it cannot be returned" };
  api.put(lvmVolumes, volume);
  api.put(lvmImports, {
    metadata: { name: volume.metadata.name, finalizers: [IMPORT_FINALIZER] },
    spec: { ...handoverSpec("imported"), from: "OpenEBS", volume: { nodeName: NODE } } as LvmImport["spec"],
    status: { state: "Undoing", imported: true, error },
  });
}

/** Returns an LVMVolume on a node for a request of a name. */
function volumeOn(
  nodeName: string,
  name: string,
  { spec = {}, status }: { spec?: Partial<LvmVolume["spec"]>; status: LvmVolume["status"] & object },
) {
  return {
    metadata: { name: volumeIdOf(name), annotations: { [CLAIM_ANNOTATION]: `shop/${name}` } },
    spec: { ...{ driverName: DRIVER, requestName: name, nodeName, size: "64Mi" }, ...spec } as LvmVolume["spec"],
    status: { volumeGroup: "data", lvUUID: `lv-of-${name}`, ...status },
  };
}

/** Returns what the specs of moves and imports have in common. */
function handoverSpec(name: string) {
  const claim = { namespace: "shop", name, uid: `uid-of-${name}` };
  return { driverName: DRIVER, persistentVolume: `pv-of-${name}`, claim };
}
