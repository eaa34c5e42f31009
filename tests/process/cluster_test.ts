/**
 * The two processes of a cluster as a user starts them, under the written permission set, with a token and over TLS.
 *
 * @module
 */

import { dirname } from "@std/path";
import { assert, assertEquals, assertMatch } from "@std/assert";
import { connect, connectToService } from "../contract/helpers/csi_client.ts";
import { Registration } from "../../csi/proto/registration_pb.ts";
import { lvmNodes, lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { leases, nodes } from "../../k8s/api/objects.ts";
import { DriverProcess } from "../demo/driver_process.ts";
import { DRIVER_FLAGS } from "./driver_command.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";
import { kubeconfigOf } from "../fake/cluster/kubeconfig.ts";
import { loopbackAddresses } from "../fake/loopback.ts";
import { freePorts } from "../rig/free_ports.ts";
import { pollUntil } from "../rig/poll_until.ts";

const MAIN = new URL("../../main.ts", import.meta.url).pathname;
const TLS = new URL("../fixtures/tls/", import.meta.url).pathname;
const DRIVER = "lvm.denolith.dev";

/**
 * Starts an API server, and writes a kubeconfig for it into a folder.
 *
 * @param options the loopback address of the API server and of the process, as in URLs; the token of the process, which
 * the API server accepts by default
 */
async function setUp({ host = "127.0.0.1", token = "secret" } = {}) {
  const [cert, key, ca] = await Promise.all(
    ["server.crt", "server.key", "ca.crt"].map((name) => Deno.readTextFile(TLS + name)),
  );
  const api = FakeApiServer.start({
    resources: [lvmVolumes, lvmSnapshots, lvmNodes],
    token: "secret",
    host,
    ...(host === "127.0.0.1" ? { tls: { cert: cert!, key: key! } } : {}), // the only name in the certificate
  });
  const folder = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-cluster-" }));
  const kubeconfig = `${folder}/kubeconfig`;
  const cluster = { server: api.url, "certificate-authority-data": btoa(ca!) };
  await Deno.writeTextFile(kubeconfig, kubeconfigOf(cluster, { token }));
  const [port] = freePorts(1);
  return {
    api,
    folder,
    async start(subcommand: string, socket: string, ...flags: string[]): Promise<DriverProcess> {
      const own = ["--kubeconfig", kubeconfig, "--http-address", `:${port}`, ...flags];
      const command = [Deno.execPath(), "run", ...DRIVER_FLAGS, MAIN, subcommand, ...own];
      return await DriverProcess.start({ command, socket });
    },
    async get(path: string): Promise<[number, string]> {
      const response = await fetch(`http://${host}:${port}${path}`);
      return [response.status, await response.text()];
    },
    async [Symbol.asyncDispose]() {
      await api[Symbol.asyncDispose]();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

function leaseHolders(api: FakeApiServer): Record<string, string> {
  return Object.fromEntries(
    api.objects(leases).map(({ metadata: { name }, spec }) => [name, spec?.holderIdentity ?? ""]),
  );
}

Deno.test("denolith controller: serves under the Leases of the official sidecars and its own, and leaves them at SIGTERM", async () => {
  await using s = await setUp();
  const socket = `${s.folder}/socket/csi.sock`;
  await using driver = await s.start("controller", socket, "--endpoint", `unix://${socket}`, "--identity", "me");
  assertEquals(await s.get("/livez"), [200, "ok\n"]);
  assertEquals(await s.get("/readyz"), [200, "ok\n"]); // it listens on the socket only once it has listed its objects
  const names = [
    "capacity-lvm-denolith-dev",
    "external-resizer-lvm-denolith-dev",
    "external-snapshotter-leader-lvm-denolith-dev",
    "lvm-denolith-dev",
    "moves-lvm-denolith-dev",
  ];
  await pollUntil(() => Promise.resolve(Object.keys(leaseHolders(s.api)).length === names.length), {
    action: "lead",
    timeoutMs: 30_000,
  });
  const heldLeases = leaseHolders(s.api);
  assertEquals(Object.keys(heldLeases).sort(), names);
  for (const holder of Object.values(heldLeases)) assertMatch(holder, /^me-/);
  {
    using csi = connect(socket);
    assertEquals((await csi.identity.getPluginInfo()).name, DRIVER);
    assertEquals((await csi.controller.listVolumes()).entries, []);
    assertEquals((await csi.controller.listSnapshots()).entries, []);
  }
  // This cluster has no kinds of snapshots. The snapshotter checks that when it leads.
  const absentKindLines = () => driver.log().filter((line) => line.includes("the cluster does not have the kind"));
  await pollUntil(() => Promise.resolve(absentKindLines().length > 0), {
    action: "look for snapshots",
    timeoutMs: 30_000,
  });
  assertEquals(await s.get("/readyz"), [200, "ok\n"]);
  const [, metrics] = await s.get("/metrics");
  assert(metrics.includes('denolith_csi_operation_duration_seconds_count{method="ListVolumes",code="0"} 1'), metrics);
  assert(metrics.includes("process_resident_memory_bytes "), metrics);
  assertEquals(await driver.stop(), 0, driver.log().join("\n"));
  assertEquals(absentKindLines().length, 1);
  assertEquals(leaseHolders(s.api), Object.fromEntries(names.map((name) => [name, ""])));
  assertEquals([...Deno.readDirSync(`${s.folder}/socket`)], []);
});

Deno.test("denolith controller: carries out moves and imports also when all that sidecars do is left to these", async () => {
  await using s = await setUp();
  const socket = `${s.folder}/socket/csi.sock`;
  const disabled = ["--disable-controllers", "provisioner,resizer,snapshotter,capacity"];
  await using driver = await s.start("controller", socket, "--endpoint", `unix://${socket}`, ...disabled);
  await pollUntil(() => Promise.resolve(Object.keys(leaseHolders(s.api)).length > 0), {
    action: "lead",
    timeoutMs: 30_000,
  });
  assertEquals(Object.keys(leaseHolders(s.api)), ["moves-lvm-denolith-dev"]);
  assertEquals(await driver.stop(), 0, driver.log().join("\n"));
});

Deno.test("denolith node: registers with kubelet, is not ready without LVM, and leaves no socket at SIGTERM", async () => {
  await using s = await setUp();
  const socket = `${s.folder}/plugins/${DRIVER}/csi.sock`;
  const registry = `${s.folder}/plugins_registry`;
  const flags = ["--node-name", "n1", "--kubelet-dir", s.folder, "--disable-process-metrics"];
  await using driver = await s.start("node", socket, ...flags);
  assertEquals(await s.get("/livez"), [200, "ok\n"]);
  const [status, reasons] = await s.get("/readyz");
  assertEquals(status, 503);
  assert(reasons.includes("registration: kubelet has not asked for the driver yet\n"), reasons);
  const registration = `${registry}/${DRIVER}-reg.sock`;
  await pollUntil(() => Deno.stat(registration).catch(() => undefined), { action: "register", timeoutMs: 30_000 });
  {
    using kubelet = connectToService(registration, Registration);
    const { name, endpoint } = await kubelet.calls.getInfo();
    assertEquals([name, endpoint], [DRIVER, socket]);
    await kubelet.calls.notifyRegistrationStatus({ pluginRegistered: true });
    using csi = connect(endpoint);
    assertEquals((await csi.node.nodeGetInfo()).nodeId, "n1");
  }
  // Without LVM or root, the node is not ready for that reason alone.
  const isLvmReason = async () => ["ok\n", "LVM has not answered yet\n"].includes((await s.get("/readyz"))[1]);
  await pollUntil(isLvmReason, { action: "reach the API server", timeoutMs: 30_000 });
  const [, metrics] = await s.get("/metrics");
  for (const loop of ["lvmvolume", "lvmsnapshot"]) {
    assert(metrics.includes(`denolith_workqueue_depth{controller="${loop}"} 0`), metrics);
  }
  assert(!metrics.includes("process_resident_memory_bytes "), metrics);
  assertEquals(await driver.stop(), 0, driver.log().join("\n"));
  assertEquals([...Deno.readDirSync(registry), ...Deno.readDirSync(`${s.folder}/plugins/${DRIVER}`)], []);
});

Deno.test("denolith controller: with IPv6 alone, it reaches the API server and answers over HTTP", async () => {
  await using s = await setUp({ host: loopbackAddresses().at(-1)! });
  const socket = `${s.folder}/socket/csi.sock`;
  await using driver = await s.start("controller", socket, "--endpoint", `unix://${socket}`);
  assertEquals(await s.get("/livez"), [200, "ok\n"]);
  await pollUntil(() => Promise.resolve(Object.keys(leaseHolders(s.api)).length === 5), {
    action: "lead",
    timeoutMs: 30_000,
  });
  assertEquals(await driver.stop(), 0, driver.log().join("\n"));
});

Deno.test("denolith node: with IPv6 alone, it reaches the API server and answers over HTTP", async () => {
  await using s = await setUp({ host: loopbackAddresses().at(-1)! });
  const socket = `${s.folder}/plugins/${DRIVER}/csi.sock`;
  const [port] = freePorts(1);
  const flags = ["--node-name", "n1", "--kubelet-dir", s.folder, "--disable-registration"];
  const transfers = [
    "--transfer-address",
    `:${port}`,
    "--transfer-advertise",
    "fd00::7",
    "--transfer-domain",
    "ns.pod",
  ];
  await using driver = await s.start("node", socket, ...flags, ...transfers);
  assertEquals(await s.get("/livez"), [200, "ok\n"]);
  // it may listen, and look up the names of pods, of which this machine knows none
  const unknown = /connecting to fd00--7\.ns\.pod, as agents do: failed to lookup address information/;
  await pollUntil(() => Promise.resolve(driver.log().some((line) => unknown.test(line))), {
    action: "log that the agent has no name",
    timeoutMs: 30_000,
  });
  // without LVM or root, the node is not ready for that reason alone
  const isLvmReason = async () => ["ok\n", "LVM has not answered yet\n"].includes((await s.get("/readyz"))[1]);
  await pollUntil(isLvmReason, { action: "reach the API server", timeoutMs: 30_000 });
  assertEquals(await driver.stop(), 0, driver.log().join("\n"));
});

Deno.test("denolith node: while the API server refuses its credentials, it lives, is not ready, and says why", async () => {
  await using s = await setUp({ token: "expired" });
  const socket = `${s.folder}/plugins/${DRIVER}/csi.sock`;
  await using driver = await s.start("node", socket, "--node-name", "n1", "--kubelet-dir", s.folder);
  assertEquals(await s.get("/livez"), [200, "ok\n"]);
  await pollUntil(async () => (await s.get("/readyz"))[1].includes("the API server has not answered yet: HTTP 401"), {
    action: "read why the agent is not ready",
    timeoutMs: 30_000,
  });
  assertEquals((await s.get("/readyz"))[0], 503);
  assertEquals(await driver.stop(), 0, driver.log().join("\n"));
});

Deno.test("denolith node: reports the labels of its Node as topology, and leaves the registration to node-driver-registrar", async () => {
  await using s = await setUp();
  s.api.put(nodes, { metadata: { name: "n1", labels: { rack: "r1", "example.com/zone": "z1", other: "x" } } });
  const socket = `${s.folder}/plugins/${DRIVER}/csi.sock`;
  const flags = ["--node-name", "n1", "--kubelet-dir", s.folder, "--disable-registration"];
  const labels = ["--topology-labels", "rack,example.com/zone,absent"];
  await using driver = await s.start("node", socket, ...flags, ...labels);
  const reasons = async () => (await s.get("/readyz"))[1];
  await pollUntil(async () => ["ok\n", "LVM has not answered yet\n"].includes(await reasons()), {
    action: "be ready without kubelet",
    timeoutMs: 30_000,
  });
  {
    using csi = connect(socket);
    const { nodeId, accessibleTopology } = await csi.node.nodeGetInfo();
    assertEquals([nodeId, accessibleTopology?.segments], [
      "n1",
      { "topology.lvm.denolith.dev/node": "n1", rack: "r1", "example.com/zone": "z1" },
    ]);
  }
  assertEquals(await Deno.stat(`${s.folder}/plugins_registry`).catch(() => "none"), "none");
  assertEquals(await driver.stop(), 0, driver.log().join("\n"));
});

Deno.test("denolith node: at SIGTERM it leaves kubelet before it stops serving", async () => {
  await using s = await setUp();
  const socket = `${s.folder}/plugins/${DRIVER}/csi.sock`;
  const registration = `${s.folder}/plugins_registry/${DRIVER}-reg.sock`;
  await using driver = await s.start("node", socket, "--node-name", "n1", "--kubelet-dir", s.folder);
  const registered = () => Deno.stat(registration).catch(() => undefined);
  await pollUntil(registered, { action: "register", timeoutMs: 30_000 });
  const removed: string[] = [];
  const watcher = Deno.watchFs([dirname(socket), dirname(registration)]);
  const watching = (async () => {
    for await (const { kind, paths } of watcher) if (kind === "remove") removed.push(...paths);
  })();
  assertEquals(await driver.stop(), 0, driver.log().join("\n"));
  await pollUntil(() => Promise.resolve(removed.includes(socket) || undefined), { action: "stop", timeoutMs: 5_000 });
  watcher.close();
  await watching;
  assertEquals(removed.filter((path) => [socket, registration].includes(path)), [registration, socket]);
});
