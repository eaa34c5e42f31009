import { existsSync } from "node:fs";
import { assert, assertEquals } from "@std/assert";
import { connect } from "../contract/helpers/csi_client.ts";
import { assertFails, mountCapability } from "../contract/helpers/host.ts";
import { DriverProcess } from "../demo/driver_process.ts";
import { DRIVER_FLAGS } from "./driver_command.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { kubeconfigOf } from "../fake/cluster/kubeconfig.ts";
import { callAndBreak } from "../fuzz/http2.ts";
import { freePorts } from "../rig/free_ports.ts";

const PROBE = new URL("permissions_probe.ts", import.meta.url).pathname;
const VOLUME_ID = "v1-00000000000000000000000000000000";
const MAIN = new URL("../../main.ts", import.meta.url).pathname;

/** Creates a folder with a mount root, a socket with a listener beside the driver's, and a TCP port with a listener. */
async function setUp() {
  const folder = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-permissions-" }));
  for (const name of ["root", "root-other", "socket"]) await Deno.mkdir(`${folder}/${name}`);
  const otherSocket = `${folder}/socket/other.sock`;
  const listeners = [
    Deno.listen({ transport: "unix", path: otherSocket }),
    Deno.listen({ hostname: "127.0.0.1", port: 0 }),
  ] as const;
  return {
    root: `${folder}/root`,
    outside: `${folder}/root-other`,
    socket: `${folder}/socket/csi.sock`,
    otherSocket,
    port: (listeners[1].addr as Deno.NetAddr).port,
    async [Symbol.asyncDispose]() {
      for (const listener of listeners) listener.close();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

type Fixture = Awaited<ReturnType<typeof setUp>>;

async function runProbe(name: string, fixture: Fixture, ...more: string[]) {
  return await startProbe(name, fixture, { more });
}

/** Runs the probe. @param options `detached` makes it the leader of a session */
async function startProbe(
  name: string,
  { socket, root, otherSocket, port }: Fixture,
  { detached = false, more = [] }: { detached?: boolean; more?: readonly string[] } = {},
) {
  const args = ["run", ...DRIVER_FLAGS, PROBE, name, socket, root, otherSocket, String(port), ...more];
  const options = { args, detached, stdin: "null", stdout: "piped", stderr: "piped", env: { NO_COLOR: "1" } } as const;
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), options).spawn().output(); // output() alone never detaches
  return { code, stdout: new TextDecoder().decode(stdout), stderr: new TextDecoder().decode(stderr) };
}

function allWith(outcomes: Record<string, string>, outcome: string): Record<string, string> {
  return Object.fromEntries(Object.keys(outcomes).map((name) => [name, outcome]));
}

Deno.test("a subcommand's body can do its work, and Deno denies it everything else", async () => {
  await using fixture = await setUp();
  await Deno.symlink("/proc/self/environ", `${fixture.root}/environ`);
  const { code, stdout, stderr } = await runProbe("probe", fixture);
  assertEquals([code, stderr], [0, ""]);
  const [inside, outside] = stdout.trim().split("\n").map((line) => JSON.parse(line));
  assertEquals(inside.permitted, allWith(inside.permitted, "done"));
  assertEquals(inside.refused, allWith(inside.refused, "refused"));
  assert(Object.keys(inside.refused).length > 15, "the test tries them all");
  assertEquals(outside, allWith(outside, "refused"), "the process that started it has given its permissions up");
});

Deno.test("a process of the cluster reaches the API server and no other address", async () => {
  await using fixture = await setUp();
  using api = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const [http] = freePorts(1);
  const kubeconfig = `${fixture.outside}/kubeconfig`;
  const server = `https://127.0.0.1:${api.addr.port}`;
  await Deno.writeTextFile(`${kubeconfig}.other`, "");
  await Deno.writeTextFile(kubeconfig, kubeconfigOf({ server }));
  const { code, stdout, stderr } = await runProbe("cluster", fixture, kubeconfig, `${api.addr.port}`, `${http}`);
  assertEquals([code, stderr], [0, ""]);
  const { permitted, refused } = JSON.parse(stdout.split("\n")[0]!);
  assertEquals(permitted, allWith(permitted, "done"));
  assertEquals(refused, allWith(refused, "refused"));
});

for (
  const [name, end, status] of [
    ["throw", "an uncaught error in the worker", 1],
    ["reject", "an unhandled rejection in the worker", 1],
    ["end", "the end of the worker's subcommand", 0],
  ] as const
) {
  Deno.test(`${end} ends the process with status ${status}, and kills no command that changes something`, async () => {
    await using fixture = await setUp();
    const { root } = fixture;
    await new Deno.Command("mkfifo", { args: [`${root}/fifo`] }).output();
    const { code, stderr } = await runProbe(name, fixture);
    assertEquals([code, stderr.includes("unforeseen")], [status, status === 1], stderr);
    // The command waits for somebody who writes into its FIFO.
    using fifo = await Deno.open(`${root}/fifo`, { read: true, write: true });
    await fifo.write(new TextEncoder().encode("x"));
    const written = () => existsSync(`${root}/written`) ? Deno.readTextFileSync(`${root}/written`) : "";
    await waitUntil(() => written() === "x", "what dd writes");
  });
}

Deno.test("only the commands of a service are in its session; signals to the group of another driver reach none of them", async () => {
  await using fixture = await setUp();
  for (const detached of [true, false]) {
    const { stdout } = await startProbe("session", fixture, { detached });
    const [, pid, parent, session] = /^(\d+) \(dd\) \w (\d+) \d+ (\d+) /.exec(stdout) ?? []; // proc(5)
    assertEquals(session, detached ? parent : pid, stdout);
  }
});

/** Starts a driver under the permission set of deno.json, with the mount root. */
async function startDriver(socket: string, mountRoot: string): Promise<DriverProcess> {
  const flags = ["--endpoint", socket, "--mount-roots", mountRoot, "--volume-groups", "none", "--node-id", "n"];
  const command = [Deno.execPath(), "run", ...DRIVER_FLAGS, MAIN, "standalone", ...flags];
  return await DriverProcess.start({ command, socket });
}

Deno.test("the driver under the written set refuses paths outside the mount roots, also by a link", async () => {
  await using fixture = await setUp();
  const { root, outside, socket } = fixture;
  await using driver = await startDriver(socket, root);
  using csi = connect(socket);
  const volumeCapability = mountCapability();
  const stage = (stagingTargetPath: string) =>
    csi.node.nodeStageVolume({ volumeId: VOLUME_ID, stagingTargetPath, volumeCapability });
  await assertFails("INVALID_ARGUMENT", stage(`${outside}/staged`), "--mount-roots");
  await Deno.symlink(outside, `${root}/link`);
  await assertFails("FAILED_PRECONDITION", stage(`${root}/link/staged`), "link");
  await assertFails("FAILED_PRECONDITION", stage(`${root}/link`), "link");
  await assertFails(
    "FAILED_PRECONDITION",
    csi.node.nodeUnpublishVolume({ volumeId: VOLUME_ID, targetPath: `${root}/link/x` }),
  );
  await assertFails("NOT_FOUND", csi.node.nodeGetVolumeStats({ volumeId: VOLUME_ID, volumePath: outside }));
  assertEquals([...Deno.readDirSync(outside)], []);
  assertEquals(await driver.stop(), 0);
});

Deno.test("the driver survives calls whose clients break the connection before the answer", async () => {
  await using fixture = await setUp();
  const { root, socket } = fixture;
  await using driver = await startDriver(socket, root);
  await callAndBreak(socket);
  using csi = connect(socket);
  assertEquals((await csi.identity.getPluginInfo()).name, "lvm.denolith.dev");
  assertEquals(await driver.stop(), 0);
});

Deno.test("the driver under the written set works in a mount root that is a link", async () => {
  await using fixture = await setUp();
  const { root, outside, socket } = fixture;
  await Deno.symlink(root, `${outside}/link`);
  await Deno.mkdir(`${root}/pod`);
  await using _driver = await startDriver(socket, `${outside}/link`);
  using csi = connect(socket);
  await csi.node.nodeUnpublishVolume({ volumeId: VOLUME_ID, targetPath: `${outside}/link/pod` });
  assertEquals([...Deno.readDirSync(root)], []);
});
