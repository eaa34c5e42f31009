import { assert, assertEquals } from "@std/assert";
import { Identity } from "../../csi/proto/csi_pb.ts";
import { DRIVER_FOLDER, writeDriver } from "../../deploy/image/driver.ts";
import { LAUNCH_ENV, LAUNCH_FLAGS, MODULE } from "../../deploy/launch.ts";
import { callOverFetch, connect } from "../contract/helpers/csi_client.ts";
import { kibOf } from "../bench/proc.ts";
import { DriverProcess } from "../demo/driver_process.ts";
import { callAfterPing, callAndBreak } from "../fuzz/http2.ts";
import { DRIVER_FLAGS } from "./driver_command.ts";

const HTTP_SERVER = new URL("../../cli/http_server.ts", import.meta.url).href;

const EXEC = new URL("../../lvm/exec.ts", import.meta.url).href;

const MAIN = new URL("../../main.ts", import.meta.url).pathname;

/** The memory that a connection may cost after it is closed, in KiB: node:http2 of Deno 2.9.3 kept 20. */
const MAX_KIB = 6;

/** The same for a request over HTTP: node:http kept 1.9. */
const MAX_HTTP_KIB = 1;

/** The anonymous memory that the driver as it is shipped may have at rest, in MiB. It has 34, 4 of them for node:http2. */
const MAX_IDLE_MIB = 38;

const CONNECTIONS = 1_500;

/** The memory that a command may cost after its end, in KiB: `child.output()` kept 130. */
const MAX_COMMAND_KIB = 20;

const COMMANDS = 200;

/** Returns the anonymous memory of a process, in KiB. */
async function anonymousKib(pid: number): Promise<number> {
  return kibOf(await Deno.readTextFile(`/proc/${pid}/status`), "RssAnon")!;
}

Deno.test("the driver keeps nothing of connections that were closed: kubelet opens one for each call", async () => {
  const folder = await Deno.makeTempDir();
  const socket = `${folder}/csi.sock`;
  const flags = ["--endpoint", socket, "--mount-roots", folder, "--volume-groups", "none", "--node-id", "n"];
  const command = [Deno.execPath(), "run", ...DRIVER_FLAGS, MAIN, "standalone", ...flags];
  try {
    await using driver = await DriverProcess.start({ command, socket });
    const connect = async (count: number) => {
      for (let n = 0; n < count; n++) await callOverFetch(socket, Identity.method.getPluginInfo, {});
      return await anonymousKib(driver.pid);
    };
    const before = await connect(CONNECTIONS / 3); // what it takes once
    const perConnection = (await connect(CONNECTIONS) - before) / CONNECTIONS;
    assert(perConnection < MAX_KIB, `each left ${perConnection} KiB`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("the server uses no memory that was freed, whatever ends a connection", async () => {
  const folder = await Deno.makeTempDir();
  const socket = `${folder}/csi.sock`;
  const flags = ["--endpoint", socket, "--mount-roots", folder, "--volume-groups", "none", "--node-id", "n"];
  const overwriting = ["/usr/bin/env", "MALLOC_PERTURB_=85"]; // what is freed (mallopt(3)): its use ends the process
  const command = [...overwriting, Deno.execPath(), "run", ...DRIVER_FLAGS, MAIN, "standalone", ...flags];
  try {
    await using driver = await DriverProcess.start({ command, socket });
    await callOverFetch(socket, Identity.method.getPluginInfo, {}); // it says goodbye
    await callAndBreak(socket);
    await callAfterPing(socket);
    using client = connect(socket);
    await Promise.all(Array.from({ length: 20 }, () => client.identity.getPluginInfo()));
    assertEquals(await driver.stop(), 0, driver.log().join("\n"));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("the HTTP server keeps nothing of connections that were closed: kubelet opens one for each probe", async () => {
  const code = `import { serveHttp } from ${JSON.stringify(HTTP_SERVER)};
    const options = { notReadyReasons: () => [], metrics: () => Promise.resolve("") };
    console.log(serveHttp({ hosts: ["127.0.0.1"], port: 0 }, options).port);
    setInterval(() => {}, 1_000);`;
  const flags = DRIVER_FLAGS.filter((flag) => flag.startsWith("--v8"));
  const command = new Deno.Command(Deno.execPath(), { args: ["eval", ...flags, code], stdout: "piped" });
  await using server = command.spawn();
  const output = server.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const port = Number((await output.read()).value);
  const connect = async (count: number) => {
    for (let n = 0; n < count; n++) {
      using connection = await Deno.connect({ hostname: "127.0.0.1", port });
      await connection.write(new TextEncoder().encode("GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
      while (await connection.read(new Uint8Array(1_000)) !== null);
    }
    return await anonymousKib(server.pid);
  };
  try {
    const before = await connect(2 * CONNECTIONS);
    const perConnection = (await connect(4 * CONNECTIONS) - before) / (4 * CONNECTIONS);
    assert(perConnection < MAX_HTTP_KIB, `each left ${perConnection} KiB`);
  } finally {
    await output.cancel();
  }
});

Deno.test("the driver keeps nothing of commands that ended: V8 does not count their buffers, and collects them late", async () => {
  const code = `import { HostExec } from ${JSON.stringify(EXEC)};
    const exec = new HostExec({ ownSessions: false });
    const anonymousKib = () => Number(/RssAnon:\\s+(\\d+)/.exec(Deno.readTextFileSync("/proc/self/status"))[1]);
    const run = async (count) => {
      for (let n = 0; n < count; n++) await exec.run({ program: "df", args: ["--help"] });
      return anonymousKib();
    };
    const before = await run(${COMMANDS / 4});
    console.log((await run(${COMMANDS}) - before) / ${COMMANDS});`;
  const flags = DRIVER_FLAGS.filter((flag) => flag.startsWith("--v8"));
  const command = new Deno.Command(Deno.execPath(), { args: ["eval", ...flags, code], env: { MALLOC_ARENA_MAX: "1" } });
  const { stdout, stderr } = await command.output();
  const perCommand = Number.parseFloat(new TextDecoder().decode(stdout));
  assert(perCommand < MAX_COMMAND_KIB, `each left ${perCommand} KiB ${new TextDecoder().decode(stderr)}`);
});

Deno.test("the driver as it is shipped has little memory at rest", async () => {
  const folder = await Deno.makeTempDir();
  await writeDriver(folder);
  const [socket, place] = [`${folder}/csi.sock`, `${folder}${DRIVER_FOLDER}`];
  const flags = ["--endpoint", socket, "--mount-roots", folder, "--volume-groups", "none", "--node-id", "n"];
  const command = [
    ...["/usr/bin/env", ...LAUNCH_ENV, `DENO_DIR=${folder}/cache`],
    ...[Deno.execPath(), ...LAUNCH_FLAGS, `--config=${place}/deno.json`, `${place}/${MODULE}`, "standalone", ...flags],
  ];
  try {
    // the first start analyzes the modules, which takes memory once
    await (await DriverProcess.start({ command, socket }))[Symbol.asyncDispose]();
    await using driver = await DriverProcess.start({ command, socket });
    await callOverFetch(socket, Identity.method.getPluginInfo, {});
    const mib = await anonymousKib(driver.pid) / 1024;
    assert(mib < MAX_IDLE_MIB, `it has ${mib} MiB`);
    const maps = await Deno.readTextFile(`/proc/${driver.pid}/maps`);
    assert(!/ rwx/.test(maps), "no memory is writable and executable, as docs/adr/0002 says");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
