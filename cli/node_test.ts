import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { stub } from "@std/testing/mock";
import { dirname } from "@std/path";
import { mountCapability } from "../tests/contract/helpers/host.ts";
import { connect, connectToService } from "../tests/contract/helpers/csi_client.ts";
import { Registration } from "../csi/proto/registration_pb.ts";
import { CLAIM_ANNOTATION, lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes } from "../k8s/api/lvm_objects.ts";
import { lvmSnapshotFor } from "../k8s/api/snapshot_mapping.ts";
import {
  customResourceDefinitions,
  DEFINITIONS_CONDITION,
  SCHEMA_ANNOTATION,
  SCHEMA_VERSION,
} from "../k8s/client/definitions.ts";
import { snapshotIdOf, volumeIdOf } from "../base/ids.ts";
import { HttpClient } from "../k8s/client/http_client.ts";
import type { Exec } from "../lvm/exec.ts";
import type { OpenExecOptions } from "../lvm/host/open_exec.ts";
import { lvmVolumeFor } from "../k8s/api/volume_mapping.ts";
import { nodes } from "../k8s/api/objects.ts";
import { DiskTaker } from "../k8s/disks/disk_taker.ts";
import { FakeApiServer } from "../tests/fake/cluster/api_server.ts";
import { waitUntil } from "../tests/fake/cluster/control_plane.ts";
import { FakeMachine } from "../tests/fake/machine/machine.ts";
import { namedRequest } from "../tests/fake/request.ts";
import {
  collectPrinted,
  flagsOf,
  httpGet,
  httpPort,
  RunningSubcommand,
  SubcommandFolder,
} from "../tests/fake/subcommand.ts";
import { node } from "./node.ts";

const DRIVER = "lvm.denolith.dev";

/** Starts `denolith node` on a fake machine with the volume group `data`, as the node n1 of a fake cluster. */
async function setUp({ exec, flags = [], prepare }: {
  readonly exec?: (machine: FakeMachine) => Exec;
  readonly flags?: readonly string[];
  readonly prepare?: (api: FakeApiServer) => void;
} = {}) {
  await using stack = new AsyncDisposableStack();
  const api = stack.use(FakeApiServer.start({ resources: [lvmVolumes, lvmSnapshots, lvmNodes] }));
  prepare?.(api);
  api.put(nodes, { metadata: { name: "n1", labels: { rack: "r1", other: "x" } } });
  const folder = stack.use(await SubcommandFolder.create(api.url));
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const printed = stack.use(collectPrinted());
  const own = ["--node-name", "n1", "--kubelet-dir", folder.path, "--kubeconfig", folder.kubeconfig];
  const http = ["--http-address", "127.0.0.1:0", "--disable-process-metrics"];
  const all = flagsOf("node", ...own, ...http, ...flags);
  const execOptions: OpenExecOptions[] = [];
  const createExec = (options: OpenExecOptions) => {
    execOptions.push(options);
    return exec?.(machine) ?? machine;
  };
  const hasStarted = () => httpPort(printed) !== undefined && api.objects(lvmNodes).length > 0;
  const running = stack.use(await RunningSubcommand.start((end) => node(all, end, createExec), hasStarted));
  const kept = stack.move();
  return {
    ...{ api, machine, running, execOptions, log: printed.log },
    socket: `${folder.path}/plugins/${DRIVER}/csi.sock`,
    registration: `${folder.path}/plugins_registry/${DRIVER}-reg.sock`,
    get: (path: string) => httpGet(printed, path),
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

function volumeOf(name: string, driverName: string, state: NonNullable<LvmVolume["status"]>["state"] & string) {
  const spec = { driverName, requestName: name, nodeName: "n1", size: "32Mi", erase: "none" } as LvmVolume["spec"];
  return { metadata: { name: volumeIdOf(name) }, spec, status: { state, volumeGroup: "data", lvUUID: "gone" } };
}

Deno.test("denolith node: shows what kubelet says of its registration in /readyz", async () => {
  await using s = await setUp();
  const waitForReasons = (expected: string) => waitUntil(async () => await s.get("/readyz") === expected, expected);
  await waitForReasons("registration: kubelet has not asked for the driver yet\n");
  using kubelet = connectToService(s.registration, Registration);
  await kubelet.calls.notifyRegistrationStatus({ pluginRegistered: false, error: "no such socket" });
  await waitForReasons("registration: no such socket\n");
  await kubelet.calls.notifyRegistrationStatus({ pluginRegistered: true });
  await waitForReasons("ok\n");
});

Deno.test("denolith node: says in /readyz and in its LVMNode that definitions are too old, and serves kubelet all the same", async () => {
  const name = "lvmvolumes.lvm.denolith.dev";
  const prepare = (api: FakeApiServer) => {
    api.addResource(customResourceDefinitions);
    api.put(customResourceDefinitions, { metadata: { name } });
  };
  await using s = await setUp({ flags: ["--disable-registration"], prepare });
  const conditions = () => s.api.objects(lvmNodes)[0]?.status?.conditions ?? [];
  const told = () => conditions().find(({ type, status }) => type === "DefinitionsOutdated" && status === "True");
  await waitUntil(() => told() !== undefined, "the condition");
  assertStringIncludes(told()!.message, name);
  assertStringIncludes(await s.get("/readyz"), `${told()!.message}\n`);
  using client = connect(s.socket);
  assertEquals((await client.node.nodeGetInfo({})).nodeId, "n1");
  const [{ metadata }] = [s.api.put(lvmVolumes, volumeOf("gone", DRIVER, "Ready"))];
  const stateOf = () =>
    s.api.objects(lvmVolumes).find((object) => object.metadata.name === metadata.name)?.status?.state;
  await waitUntil(() => stateOf() === "Lost", "a status");
});

Deno.test("denolith node: says so when definitions become too old while it runs, and when they are upgraded", async () => {
  const name = "lvmvolumes.lvm.denolith.dev";
  const annotations = (version: number) => ({ [SCHEMA_ANNOTATION]: `${version}` });
  const prepare = (api: FakeApiServer) => {
    api.addResource(customResourceDefinitions);
    api.put(customResourceDefinitions, { metadata: { name, annotations: annotations(SCHEMA_VERSION) } });
  };
  await using s = await setUp({ flags: ["--disable-registration"], prepare });
  const waitForStatus = (expected: "True" | "False") => {
    const conditions = () => s.api.objects(lvmNodes)[0]?.status?.conditions ?? [];
    const isAsExpected = () =>
      conditions().some(({ type, status }) => type === DEFINITIONS_CONDITION && status === expected);
    return waitUntil(isAsExpected, `DefinitionsOutdated=${expected}`);
  };
  await waitForStatus("False");
  for (const [version, expected] of [[SCHEMA_VERSION - 1, "True"], [SCHEMA_VERSION, "False"]] as const) {
    await waitUntil(() => s.api.watchCount >= 3, "the watches");
    const metadata = { annotations: annotations(version) };
    s.api.collection(customResourceDefinitions).patch({ metadata }, { name, namespace: undefined });
    s.api.endWatches();
    await waitForStatus(expected);
    assertEquals((await s.get("/readyz")).includes(name), expected === "True");
  }
});

Deno.test("denolith node: takes no disk while definitions are too old", async () => {
  using takings = stub(DiskTaker.prototype, "reconcile", () => Promise.resolve());
  const flags = ["--disable-registration", "--disk-rules", "data=/nvme-.*/"];
  const prepare = (api: FakeApiServer) => {
    api.addResource(customResourceDefinitions);
    api.put(customResourceDefinitions, { metadata: { name: "lvmnodes.lvm.denolith.dev" } });
  };
  {
    await using s = await setUp({ flags, prepare });
    const isReported = () =>
      s.api.objects(lvmNodes)[0]?.status?.conditions?.some(({ reason }) => reason === "DefinitionsOutdated");
    await waitUntil(() => isReported() ?? false, "a report");
  }
  assertEquals(takings.calls.length, 0);
  await using _ = await setUp({ flags });
  await waitUntil(() => takings.calls.length > 0, "the disks");
});

/** Returns the claims, or else the volumes, of the series of a metric. */
async function namedBy(s: Awaited<ReturnType<typeof setUp>>, metric: string): Promise<string[]> {
  const series = (await s.get("/metrics")).matchAll(new RegExp(`^${metric}\\{(.*)\\} 1$`, "gm"));
  return [...series].map(([, labels]) => labels!.replace(/volume="v1-[0-9a-f]+",?/, "")).sort();
}

Deno.test("denolith node: names the lost volumes of its own driver by their claims, and those without their keys", async () => {
  await using s = await setUp({ flags: ["--disable-registration"] });
  for (const [name, driver] of [["one", DRIVER], ["two", DRIVER], ["other", "other.example.com"]] as const) {
    const volume = volumeOf(name, driver, "Lost");
    const annotations = { [CLAIM_ANNOTATION]: `shop/${name}` };
    const lastTransitionTime = new Date().toISOString();
    const condition = { type: "KeysChanged", reason: "KeyChangeFailed" as const, message: "", lastTransitionTime };
    const conditions = [{ ...condition, status: name === "two" ? "True" as const : "False" as const }];
    s.api.put(lvmVolumes, {
      ...{ ...volume, metadata: { ...volume.metadata, annotations } },
      status: { ...volume.status, conditions, ...(driver !== DRIVER && { copy: { copied: "1Gi", total: "1Gi" } }) },
    });
  }
  s.api.put(lvmVolumes, volumeOf("three", DRIVER, "Lost"));
  s.api.put(lvmVolumes, volumeOf("ready", "other.example.com", "Ready"));
  const claim = (name: string) => `persistentvolumeclaim="${name}",claim_namespace="shop"`;
  const all = ["", claim("one"), claim("two")];
  await waitUntil(async () => (await namedBy(s, "denolith_volume_lost")).length === all.length, "the lost volumes");
  assertEquals(await namedBy(s, "denolith_volume_lost"), all);
  assertEquals(await namedBy(s, "denolith_volume_keys_outdated"), [`${claim("one")},reason="KeyChangeFailed"`]);
  assertEquals(await namedBy(s, "denolith_copy_progress_ratio"), []);
});

Deno.test("denolith node: names the volumes of its own driver that nobody has been able to use for minutes", async () => {
  await using s = await setUp({ flags: ["--disable-registration"] });
  const held = (name: string, driver: string, minutes: number, status: "True" | "False" = "True") => {
    const lastTransitionTime = new Date(Date.now() - minutes * 60_000).toISOString();
    const volume = volumeOf(name, driver, "Lost"); // one whose LV the agent does not look for
    const condition = { type: "Held", status, reason: "NotInUse" as const, message: "", lastTransitionTime };
    return { ...volume, spec: { ...volume.spec, held: true }, status: { ...volume.status, conditions: [condition] } };
  };
  s.api.put(lvmVolumes, held("used", DRIVER, 6, "False"));
  s.api.put(lvmVolumes, held("other", "other.example.com", 6));
  for (const [name, minutes] of [["new", 4], ["one", 6], ["two", 60], ["three", 600]] as const) {
    s.api.put(lvmVolumes, held(name, DRIVER, minutes));
  }
  await waitUntil(async () => (await namedBy(s, "denolith_volume_held")).length === 3, "three held volumes");
});

Deno.test("denolith node: a logical volume has the claim of its volume, and a snapshot that of its source", async () => {
  await using s = await setUp({ flags: ["--disable-registration"] });
  const request = namedRequest("one", 32n << 20n, { erase: "none" });
  const volume = lvmVolumeFor(request, { driver: DRIVER, nodeName: "n1" });
  const annotations = { ...volume.metadata.annotations, [CLAIM_ANNOTATION]: "shop/one" };
  s.api.put(lvmVolumes, { ...volume, metadata: { ...volume.metadata, annotations } });
  await waitUntil(() => s.api.objects(lvmVolumes)[0]!.status?.state === "Ready", "the volume");
  const snapshot = { name: "s", id: snapshotIdOf("s"), source: request.id, cowSize: { bytes: 8n << 20n } };
  s.api.put(lvmSnapshots, lvmSnapshotFor(snapshot, { driver: DRIVER, nodeName: "n1" }));
  await waitUntil(() => s.api.objects(lvmSnapshots)[0]!.status?.state === "Ready", "the snapshot");
  const claims = async () =>
    [...(await s.get("/metrics")).matchAll(/^denolith_logical_volume_info\{.*lv="(\w+)-.*claim="(\w+)".*\} 1$/gm)]
      .map(([, kind, claim]) => `${kind} ${claim}`).sort();
  await waitUntil(async () => (await claims()).length === 2, "both");
  assertEquals(await claims(), ["snap one", "vol one"]);
});

Deno.test("denolith node: an LVMVolume says how full its filesystem is, as kubelet last asked for it", async () => {
  await using s = await setUp({ flags: ["--disable-registration"] });
  const volumeOfName = (name: string) =>
    lvmVolumeFor(namedRequest(name, 32n << 20n, { erase: "none" }), { driver: DRIVER, nodeName: "n1" });
  const { metadata: { name: volumeId } } = s.api.put(lvmVolumes, volumeOfName("one"));
  const status = (id = volumeId) => s.api.objects(lvmVolumes).find(({ metadata }) => metadata.name === id)?.status;
  await waitUntil(() => status()?.state === "Ready", "the volume");
  using csi = connect(s.socket);
  const volumePath = `${dirname(s.socket)}/globalmount`;
  await csi.node.nodeStageVolume({ volumeId, stagingTargetPath: volumePath, volumeCapability: mountCapability() });
  await csi.node.nodeGetVolumeStats({ volumeId, volumePath });
  s.api.put(lvmVolumes, volumeOfName("two")); // after which the agent reports
  await waitUntil(() => status()?.usedPercent !== undefined, "the usage");
  assertEquals(status()?.usedPercent, 1);
  // nothing is remembered of what is not mounted any more: another volume of the name is empty
  await csi.node.nodeUnstageVolume({ volumeId, stagingTargetPath: volumePath });
  using client = new HttpClient({ url: s.api.url }, { userAgent: "test" });
  const merge = { status: { usedPercent: null } };
  await client.patch(lvmVolumes, { name: volumeId }, { merge, subresource: "status" });
  const { metadata: { name: third } } = s.api.put(lvmVolumes, volumeOfName("three"));
  const lastGroup = () => s.api.objects(lvmNodes)[0]?.status?.volumeGroups?.[0];
  await waitUntil(() => status(third)?.state === "Ready" && lastGroup()?.lvCount === 3, "another report");
  s.api.put(lvmVolumes, volumeOfName("four"));
  await waitUntil(() => lastGroup()?.lvCount === 4, "a report after that");
  assertEquals(status()?.usedPercent, undefined);
});

Deno.test("denolith node: makes the volumes that the cluster asks of its node", async () => {
  await using s = await setUp();
  const request = namedRequest("one", 32n << 20n, { erase: "none" });
  s.api.put(lvmVolumes, lvmVolumeFor(request, { driver: DRIVER, nodeName: "n1" }));
  await waitUntil(() => s.api.objects(lvmVolumes)[0]!.status?.state === "Ready", "the volume");
  assertEquals(s.machine.allLvs().map(({ lv }) => lv.size), [32n << 20n]);
  assertMatch(await s.get("/metrics"), /^denolith_reconcile_duration_seconds_count\{controller="lvmvolume".*\} [1-9]/m);
});

Deno.test("denolith node: reports the topology labels that its Node has", async () => {
  const labels = ["--topology-labels", "rack,absent"];
  await using s = await setUp({ flags: ["--disable-registration", ...labels] });
  using csi = connect(s.socket);
  const { nodeId, accessibleTopology } = await csi.node.nodeGetInfo();
  const segments = { "topology.lvm.denolith.dev/node": "n1", rack: "r1" };
  assertEquals([nodeId, accessibleTopology?.segments], ["n1", segments]);
  assertEquals(hasSocket(s.registration), false);
});

Deno.test("denolith node: runs LVM with the settings of --lvm-config, and logs its commands at level debug", async () => {
  const flags = ["--lvm-config", "activation/udev_sync=0", "--lvm-devices-file", "auto", "--log-level", "debug"];
  await using s = await setUp({ flags });
  assertEquals(s.execOptions.map(({ lvmConfig }) => lvmConfig), ["activation/udev_sync=0"]);
  assertEquals(s.execOptions.map(({ devicesFile }) => devicesFile), ["auto"]);
  s.execOptions[0]!.onCommand!({ program: "lvm", args: ["lvs"], mutates: false }, { durationMs: 12.4, code: 5 });
  assertMatch(s.log.at(-1)!, /debug exec command command="lvm lvs" durationMs=12 code=5$/);
});

Deno.test("denolith node: says at debug why it does nothing for an object", async () => {
  await using s = await setUp({ flags: ["--disable-registration", "--log-level", "debug"] });
  s.api.put(lvmVolumes, volumeOf("other", "other.example.com", "Ready"));
  const name = s.api.put(lvmVolumes, lvmVolumeFor(namedRequest("one", 32n << 20n), { driver: DRIVER, nodeName: "n1" }))
    .metadata.name;
  const told = (key: string, because: string) =>
    s.log.some((line) => line.includes("nothing to do") && line.includes(key) && line.includes(because));
  await waitUntil(() => told(volumeIdOf("other"), "another driver's"), "the reason for the other driver's");
  await waitUntil(() => told(name, "its status is about this generation: Ready"), "the reason for its own");
  await waitUntil(
    () => s.api.objects(lvmNodes)[0]?.status?.volumeGroups?.[0]?.lvCount === 1,
    "a report with the volume",
  );
  using client = new HttpClient({ url: s.api.url }, { userAgent: "test" });
  const merge = { metadata: { annotations: { "example.com/report": "please" } } };
  await client.patch(lvmNodes, { name: "n1" }, { merge });
  await waitUntil(() => told("lvmnode", "the LVMNode says what LVM reports"), "the reason for the node");
});

Deno.test("denolith node: does not end before the commands that change something", async () => {
  const idle = Promise.withResolvers<void>();
  await using s = await setUp({
    exec: (machine) => ({ run: (command) => machine.run(command), idle: () => idle.promise }),
  });
  let hasEnded = false;
  const stopping = s.running.stop().finally(() => hasEnded = true);
  await waitUntil(() => !hasSocket(s.registration), "the end of the registration");
  await new Promise((resolve) => setTimeout(resolve, 50));
  assertEquals(hasEnded, false);
  idle.resolve();
  assertEquals(await stopping, 0);
});

function hasSocket(path: string): boolean {
  try {
    return Deno.lstatSync(path).isSocket === true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
