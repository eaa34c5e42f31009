/**
 * Moves over a real API server and kube-controller-manager, without and with the gate MutablePVNodeAffinity: the controller and
 * two agents over fake machines. `deno test -A` runs this in less than a minute; its name keeps it out of `task test`.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { runController } from "../../cli/controller.ts";
import { runNode } from "../../cli/node.ts";
import type { LvmVolume } from "../../k8s/api/lvm_objects.ts";
import type { PersistentVolume, PersistentVolumeClaim } from "../../k8s/api/objects.ts";
import type { LvmMove } from "../../k8s/handover/moves.ts";
import { nodeOfVolume } from "../../k8s/handover/persistent_volume.ts";
import { TOPOLOGY_KEY } from "../../csi/topology.ts";
import { flagsOf } from "../fake/subcommand.ts";
import { machineWith } from "../fake/cluster/volume_cluster.ts";
import { ControlPlane } from "../rig/control_plane.ts";
import { freePorts } from "../rig/free_ports.ts";
import { ensureKubernetes } from "../rig/kubernetes.ts";
import { pollUntil } from "../rig/poll_until.ts";
import { RunFolder } from "../rig/run_folder.ts";
import { CRDS } from "./deploy.ts";
import { SYSTEM_NAMESPACE } from "./suite/helpers/driver_pods.ts";
import { claimObject, classObject, DRIVER } from "./suite/helpers/objects.ts";

const NODES = ["node-1", "node-2"] as const;
const log = (line: string) => console.error(line);

/** Starts the processes of a cluster on this machine. */
async function start(apiserverFlags: readonly string[]) {
  await using stack = new AsyncDisposableStack();
  const folder = stack.use(await RunFolder.createTemp("denolith-move-"));
  const plane = await ControlPlane.start({ folder, programs: await ensureKubernetes(log), apiserverFlags });
  const apply = (object: object) => plane.kubectl(["apply", "--filename", "-"], { stdin: JSON.stringify(object) });
  const get = async <T>(kind: string, name: string) =>
    JSON.parse(await plane.kubectl(["get", kind, name, "--output=json"])) as T;
  await plane.kubectl(["apply", "--filename", CRDS]);
  await plane.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
  await apply({ apiVersion: "v1", kind: "Namespace", metadata: { name: SYSTEM_NAMESPACE } }); // of the Leases
  for (const name of NODES) {
    await apply({ apiVersion: "v1", kind: "Node", metadata: { name, labels: { [TOPOLOGY_KEY]: name } } });
    const drivers = [{ name: DRIVER, nodeID: name, topologyKeys: [TOPOLOGY_KEY] }];
    await apply({ apiVersion: "storage.k8s.io/v1", kind: "CSINode", metadata: { name }, spec: { drivers } });
  }
  const machines = NODES.map(() => machineWith({ data: 1n << 30n }));
  const end = new AbortController();
  const common = ["--kubeconfig", plane.kubeconfig, "--http-address", "127.0.0.1:0", "--disable-process-metrics"];
  const kubeletDir = await Deno.realPath(await Deno.makeTempDir());
  stack.defer(() => Deno.remove(kubeletDir, { recursive: true }));
  const ports = freePorts(NODES.length);
  const running = NODES.map((name, index) => {
    const onNode = ["--node-name", name, "--kubelet-dir", `${kubeletDir}/${index}`, "--disable-registration"];
    const transfers = ["--transfer-address", `127.0.0.1:${ports[index]}`, "--transfer-advertise", "127.0.0.1"];
    Deno.mkdirSync(`${kubeletDir}/${index}`);
    return runNode(flagsOf("node", ...common, ...onNode, ...transfers), end.signal, {
      createExec: () => machines[index]!,
    });
  });
  running.push(runController(flagsOf("controller", ...common, "--transfer-port", `${ports[0]}`), end.signal));
  stack.defer(async () => {
    end.abort();
    assertEquals(new Set(await Promise.all(running)), new Set([0]));
  });
  const kept = stack.move();
  return { plane, apply, get, machines, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

for (const isMutable of [false, true]) {
  Deno.test(`a volume moves ${isMutable ? "with" : "without"} MutablePVNodeAffinity, and its claim is Bound`, async () => {
    await using s = await start(isMutable ? ["--feature-gates=MutablePVNodeAffinity=true"] : []);
    const parameters = { volumeGroup: "data" };
    const allowedTopologies = [{ matchLabelExpressions: [{ key: TOPOLOGY_KEY, values: [...NODES] }] }];
    await s.apply({ ...classObject("local", { parameters, volumeBindingMode: "Immediate" }), allowedTopologies });
    await s.apply(claimObject({ name: "data", class: "local", volumeMode: "Block" }));
    await s.plane.kubectl(["wait", "--for=jsonpath={.status.phase}=Bound", "pvc", "data", "--timeout=60s"]);
    const claim = await s.get<PersistentVolumeClaim>("pvc", "data");
    const name = claim.spec!.volumeName!;
    const before = await s.get<PersistentVolume>("pv", name);
    const id = before.spec!.csi!.volumeHandle;
    const { spec: { nodeName } } = await s.get<LvmVolume>("lvmvolume", id);
    const [source, target] = nodeName === NODES[0] ? [0, 1] : [1, 0];
    const lvOf = (index: number) =>
      s.machines[index]!.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${id}`))?.lv;
    lvOf(source)!.content.data = new Set(["letters"]);
    await s.apply({
      apiVersion: "lvm.denolith.dev/v1alpha1",
      kind: "LVMMove",
      metadata: { name: id },
      spec: {
        driverName: DRIVER,
        persistentVolume: name,
        claim: { namespace: "default", name: "data", uid: claim.metadata.uid },
        sourceNode: NODES[source],
        targetNode: NODES[target],
      },
    });
    let move = await s.get<LvmMove>("lvmmove", id);
    const isOver = async () => {
      move = await s.get<LvmMove>("lvmmove", id);
      return ["Complete", "Failed"].includes(move.status?.state ?? "");
    };
    const options = { action: "wait for the end of the move", timeoutMs: 120_000, intervalMs: 200 };
    await pollUntil(isOver, options).catch(() => {});
    const { state, affinityMethod, error } = move.status ?? {};
    assertEquals([state, affinityMethod, error], ["Complete", isMutable ? "Patch" : "Recreate", undefined]);
    const after = await s.get<PersistentVolume>("pv", name);
    assertEquals(after.metadata.uid === before.metadata.uid, isMutable);
    assertEquals(nodeOfVolume(after, TOPOLOGY_KEY), NODES[target]);
    assertEquals(after.spec?.persistentVolumeReclaimPolicy, "Delete");
    assertEquals(after.metadata.annotations, before.metadata.annotations);
    assertEquals((await s.get<PersistentVolumeClaim>("pvc", "data")).status?.phase, "Bound");
    assertEquals([lvOf(source), [...lvOf(target)!.content.data!]], [undefined, ["letters"]]);
    const seconds = (Date.parse(move.status!.releasedTime!) - Date.parse(move.status!.heldTime!)) / 1000;
    log(`${affinityMethod}: nobody could use the volume for ${seconds} s`);
  });
}
