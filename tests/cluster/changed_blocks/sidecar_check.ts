/**
 * Backups by external-snapshot-metadata without a guest: a real API server, the real sidecar and its iterator, the controller
 * and an agent over a fake machine. `deno test -A` runs this in less than a minute; its name keeps it out of `task test`.
 *
 * @module
 */

import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { runController } from "../../../cli/controller.ts";
import { runNode } from "../../../cli/node.ts";
import { readBytes } from "../../../lvm/host/device_bytes.ts";
import { connect } from "../../contract/helpers/csi_client.ts";
import { blockCapability } from "../../contract/helpers/host.ts";
import { flagsOf } from "../../fake/subcommand.ts";
import { machineWith, MiB } from "../../fake/cluster/volume_cluster.ts";
import { makeServerCertificate } from "../../rig/certificates.ts";
import { ControlPlane } from "../../rig/control_plane.ts";
import { freePorts } from "../../rig/free_ports.ts";
import { ensureKubernetes } from "../../rig/kubernetes.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { RunFolder } from "../../rig/run_folder.ts";
import { ensureSnapshotMetadata } from "../../rig/snapshot_metadata.ts";
import { CRDS } from "../deploy.ts";
import { applySnapshotMetadata } from "./sidecar.ts";

const SIZE = 32n * MiB;
const NODE = "node-1";
const NAMESPACE = "backup";
const log = (line: string) => console.error(line);

/** A cluster of processes on this machine, with the sidecar. */
async function start() {
  await using stack = new AsyncDisposableStack();
  const folder = stack.use(await RunFolder.createTemp("denolith-sidecar-"));
  const programs = await ensureSnapshotMetadata(log);
  const plane = await ControlPlane.start({ folder, programs: await ensureKubernetes(log) });
  const apply = (object: object) => plane.kubectl(["apply", "--filename", "-"], { stdin: JSON.stringify(object) });
  await plane.kubectl(["apply", "--filename", CRDS]);
  const [transferPort, grpcPort, httpPort] = freePorts(3) as [number, number, number];
  await applySnapshotMetadata(plane, log, `localhost:${grpcPort}`);
  await plane.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
  await apply({ apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } });
  await apply({ apiVersion: "v1", kind: "Node", metadata: { name: NODE } });
  await makeServerCertificate(folder, "sidecar", ["localhost"]);

  const machine = machineWith({ data: 1n << 30n });
  const kubeletDir = await Deno.realPath(await Deno.makeTempDir()); // short: it is a part of the paths of sockets
  stack.defer(() => Deno.remove(kubeletDir, { recursive: true }));
  const endpoint = `${kubeletDir}/csi.sock`;
  const end = new AbortController();
  const common = ["--kubeconfig", plane.kubeconfig, "--http-address", "127.0.0.1:0", "--disable-process-metrics"];
  const onNode = ["--node-name", NODE, "--kubelet-dir", kubeletDir, "--disable-registration"];
  const transfers = ["--transfer-address", `127.0.0.1:${transferPort}`, "--transfer-advertise", "127.0.0.1"];
  const asked = ["--endpoint", `unix://${endpoint}`, "--transfer-port", `${transferPort}`];
  const running = [
    runNode(flagsOf("node", ...common, ...onNode, ...transfers), end.signal, { createExec: () => machine }),
    runController(flagsOf("controller", ...common, ...asked), end.signal),
  ];
  stack.defer(async () => {
    end.abort();
    assertEquals(await Promise.all(running), [0, 0]);
  });
  const path = "--output=jsonpath={.status.transfer.address}";
  const isThere = async () =>
    await plane.kubectl(["get", "lvmnodes", NODE, "--ignore-not-found", path]) !== "" &&
    await Deno.stat(endpoint).then(() => true, () => false);
  await pollUntil(isThere, { action: "start the controller and the agent", timeoutMs: 60_000, intervalMs: 200 });
  const csi = stack.use(connect(endpoint));
  await folder.start("sidecar", programs.sidecar, [
    ...[`--csi-address=${endpoint}`, `--kubeconfig=${plane.kubeconfig}`, `--port=${grpcPort}`],
    ...[`--http-endpoint=127.0.0.1:${httpPort}`, `--tls-cert=${folder.file("certs/sidecar.crt")}`],
    `--tls-key=${folder.file("certs/sidecar.key")}`,
  ]);
  const isServing = async () => (await fetch(`http://127.0.0.1:${httpPort}/health`).then((r) => r.text())) === "ok";
  await pollUntil(() => isServing().catch(() => false), {
    ...{ action: "start the sidecar", timeoutMs: 60_000, intervalMs: 200 },
  });
  const kept = stack.move();
  return {
    ...{ plane, apply, machine, csi, folder, programs },
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

type Harness = Awaited<ReturnType<typeof start>>;

/** Takes a snapshot, with the VolumeSnapshot that a backup program sees. @returns a file with its content */
async function takeSnapshot(s: Harness, sourceVolumeId: string, name: string): Promise<string> {
  const request = { name, sourceVolumeId, parameters: { snapSize: "100%" } };
  const { snapshot } = await s.csi.controller.createSnapshot(request);
  const snapshotHandle = snapshot!.snapshotId;
  const snapshotKind = { apiVersion: "snapshot.storage.k8s.io/v1" };
  const driver = { driver: "lvm.denolith.dev", deletionPolicy: "Retain" };
  await s.apply({ ...snapshotKind, kind: "VolumeSnapshotClass", metadata: { name: "class" }, ...driver });
  const [source, ref] = [{ snapshotHandle }, { name, namespace: NAMESPACE }];
  const spec = { ...driver, volumeSnapshotClassName: "class", source, volumeSnapshotRef: ref };
  await s.apply({ ...snapshotKind, kind: "VolumeSnapshotContent", metadata: { name }, spec });
  const bound = { volumeSnapshotClassName: "class", source: { volumeSnapshotContentName: name } };
  await s.apply({ ...snapshotKind, kind: "VolumeSnapshot", metadata: { name, namespace: NAMESPACE }, spec: bound });
  const setStatus = (kind: string, status: object) =>
    s.plane.kubectl([
      ...[`--namespace=${NAMESPACE}`, "patch", kind, name, "--subresource=status", "--type=merge"],
      ...["--patch", JSON.stringify({ status: { readyToUse: true, ...status } })],
    ]);
  await setStatus("volumesnapshotcontent", { snapshotHandle });
  await setStatus("volumesnapshot", { boundVolumeSnapshotContentName: name });
  const { group, lv } = s.machine.allLvs().find(({ lv }) => lv.tags.has(`denolith.snapshot=${snapshotHandle}`))!;
  lv.active = true;
  const device = s.folder.file(name);
  const devicePath = `/dev/mapper/${group.name}-${lv.name.replaceAll("-", "--")}`;
  await Deno.writeFile(device, await readBytes(s.machine, devicePath, { offset: 0, length: Number(SIZE) }));
  return device;
}

/** Runs the backup program. @returns whether it succeeded, and its output */
async function backUp({ plane, folder, programs }: Harness, ...args: string[]): Promise<[boolean, string]> {
  const common = [`-namespace=${NAMESPACE}`, `-file=${folder.file("image")}`, "-service-account=default"];
  const command = new Deno.Command(programs.backup, {
    args: [...common, ...args],
    env: { KUBECONFIG: plane.kubeconfig },
    stderr: "inherit",
  });
  const { success, stdout } = await command.output();
  return [success, new TextDecoder().decode(stdout)];
}

Deno.test("external-snapshot-metadata lists what the agents list, to those who may, and a backup is restored", async () => {
  await using s = await start();
  const { plane, csi, machine } = s;
  await s.apply({
    ...{ apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRoleBinding", metadata: { name: NAMESPACE } },
    roleRef: {
      ...{ apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "denolith-snapshot-metadata-client" },
    },
    subjects: [{ kind: "ServiceAccount", name: "default", namespace: NAMESPACE }],
  });
  await s.apply({ apiVersion: "v1", kind: "ServiceAccount", metadata: { name: "stranger", namespace: NAMESPACE } });
  const kinds = { thick: {}, thin: { thinProvision: "yes", thinPoolSize: "256Mi" } };
  for (const [kind, parameters] of Object.entries(kinds)) {
    const topology = [{ segments: { "topology.lvm.denolith.dev/node": NODE } }];
    const { volume } = await csi.controller.createVolume({
      ...{ name: kind, capacityRange: { requiredBytes: SIZE }, parameters, volumeCapabilities: [blockCapability()] },
      accessibilityRequirements: { requisite: topology, preferred: topology },
    });
    const { group, lv } = machine.allLvs().find(({ lv }) => lv.tags.has(`denolith.volume=${volume!.volumeId}`))!;
    lv.active = true;
    const write = async (chunks: readonly number[]) => {
      const of = `of=/dev/mapper/${group.name}-${lv.name.replaceAll("-", "--")}`;
      for (const chunk of chunks) {
        const args = ["if=/dev/urandom", of, "bs=4096", `seek=${chunk}`, "count=1"];
        await machine.run({ program: "dd", args, mutates: true });
      }
    };
    await write(Array.from({ length: 200 }, (_, index) => index * 16));
    const one = await takeSnapshot(s, volume!.volumeId, `${kind}-1`);
    await write(Array.from({ length: 50 }, (_, index) => index * 160));
    const two = await takeSnapshot(s, volume!.volumeId, `${kind}-2`);

    const [, output] = await backUp(s, `-snapshot=${kind}-1`, `-device=${one}`);
    const full = JSON.parse(output);
    assertEquals([full.capacity, full.file], [Number(SIZE), full.device]);
    const given = [`-snapshot=${kind}-2`, `-previous=${kind}-1`, `-device=${two}`];
    const [isComplete, cancelled] = await backUp(s, ...given, "-max-results=1", "-stop-after=2");
    assertEquals(isComplete, false);
    assertStringIncludes(cancelled, "cancelled");
    const [isAllowed, refused] = await backUp(s, ...given, "-service-account=stranger");
    assertEquals(isAllowed, false);
    assertStringIncludes(refused, "PermissionDenied");
    const restored = s.folder.file("restored");
    await Deno.writeFile(restored, new Uint8Array(Number(SIZE)));
    const [, last] = await backUp(s, ...given, "-max-results=7", `-restore=${restored}`);
    const next = JSON.parse(last);
    assertEquals([next.capacity, next.file, next.restored], [Number(SIZE), next.device, next.device], last);
    const changed = 50 * (kind === "thick" ? 4096 : 65_536);
    assertEquals([next.bytes, next.ranges, next.records], [changed, 50, Math.ceil(50 / 7)]);
    assert(next.device !== full.device);
  }
  const annotations = await plane.kubectl([
    "get",
    "lvmsnapshots",
    "--output=jsonpath={.items[*].metadata.annotations}",
  ]);
  assert(!annotations.includes("changed-blocks"), annotations);
  assertEquals(machine.allLvs().filter(({ lv }) => lv.thinPool?.metadataSnapshot), []);
});
