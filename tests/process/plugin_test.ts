/**
 * The kubectl plugin as a process of its own, under its permission set, with a kubectl in PATH.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { lvmNodes, lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { PLUGIN_COMMANDS } from "../../plugin/subcommands.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

/** The flags of `deno run` before the plugin's module. */
const FLAGS = ["run", "--quiet", "--no-prompt", "--cached-only", "-P=kubectl-denolith", `--config=${ROOT}deno.json`];

/** An API server, and a folder with a kubectl for it. */
async function setUp() {
  const api = FakeApiServer.start({ resources: [lvmNodes, lvmVolumes, lvmSnapshots] });
  const folder = await Deno.makeTempDir({ prefix: "denolith-plugin-" });
  const script =
    `#!/bin/sh\necho "$*" >> "$SEEN"\nexec '${Deno.execPath()}' run -A --quiet --no-check --config=${ROOT}deno.json ` +
    `${ROOT}tests/fake/cluster/kubectl.ts "$@"\n`;
  await Deno.writeTextFile(`${folder}/kubectl`, script, { mode: 0o755 });
  await Deno.writeTextFile(`${folder}/seen`, "");
  const command = (args: readonly string[], env: Record<string, string> = {}) =>
    new Deno.Command(Deno.execPath(), {
      args: [...FLAGS, `${ROOT}plugin/main.ts`, ...args],
      ...{ stdout: "piped", stderr: "piped" },
      env: {
        ...{
          NO_COLOR: "1",
          PATH: `${folder}:${Deno.env.get("PATH")}`,
          SEEN: `${folder}/seen`,
          FAKE_API_SERVER: api.url,
        },
        ...env,
      },
    });
  return {
    api,
    /** Runs the plugin. @param env variables of the user beside those of this process */
    async run(args: readonly string[], env: Record<string, string> = {}) {
      const { code, stdout, stderr } = await command(args, env).output();
      return { code, stdout: new TextDecoder().decode(stdout), stderr: new TextDecoder().decode(stderr) };
    },
    /** Starts the plugin. */
    start: (args: readonly string[]) => command(args).spawn(),
    folder,
    /** Returns the arguments of the kubectl commands so far. */
    commands: async () => (await Deno.readTextFile(`${folder}/seen`)).trimEnd().split("\n"),
    async [Symbol.asyncDispose]() {
      await api[Symbol.asyncDispose]();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

Deno.test("kubectl denolith: reads the cluster by the kubectl in PATH, with the user's environment and nothing else", async () => {
  await using s = await setUp();
  s.api.put(lvmNodes, { metadata: { name: "n1" }, spec: { driverName: "lvm.denolith.dev" } });
  const { code, stdout, stderr } = await s.run(["status", "--context", "prod", "--kubeconfig", "/k"]);
  assertEquals([code, stderr], [0, ""]);
  assertMatch(stdout, /^context prod, namespace default\n/);
  assertMatch(stdout, /n1 +NotReported/);
  const commands = await s.commands();
  assert(commands.includes("config view --minify --output=json --kubeconfig=/k --context=prod"), commands.join("\n"));
  assert(commands.every((command) => / --kubeconfig=\/k --context=prod$/.test(command)), commands.join("\n"));
  assertEquals(commands.filter((command) => !/^(?:config view|get --raw \/api)/.test(command)), []);
});

Deno.test("kubectl denolith: without kubectl it ends with status 1 and says so", async () => {
  await using s = await setUp();
  const { code, stderr } = await s.run(["status"], { PATH: "/nowhere" });
  assertEquals(code, 1);
  assertMatch(stderr, /^kubectl denolith: kubectl: not found in PATH; install it/m);
});

Deno.test("kubectl denolith: names the variable that keeps kubectl from being run", async () => {
  await using s = await setUp();
  const { code, stderr } = await s.run(["status"], { LD_LIBRARY_PATH: "/x" });
  assertEquals(code, 1);
  assertMatch(stderr, /environment variable LD_LIBRARY_PATH, which may load other code; unset it/);
});

Deno.test("kubectl denolith ui: listens on loopback under its permission set, reads by kubectl, and ends on Ctrl-C", async () => {
  await using s = await setUp();
  s.api.put(lvmNodes, { metadata: { name: "n1" }, spec: { driverName: "lvm.denolith.dev" } });
  await using child = s.start(["ui"]);
  const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let printed = "";
  while (!printed.includes("Ctrl-C")) printed += (await lines.read()).value;
  const address = new URL(/http:\S+/.exec(printed)![0]);
  const opened = await fetch(address, { redirect: "manual" });
  await opened.body?.cancel();
  const headers = { cookie: opened.headers.get("set-cookie")!.split(";")[0]! };
  assertMatch(await (await fetch(address.origin, { headers })).text(), /<title>denolith<\/title>/);
  const stream = (await fetch(`${address.origin}/live/cluster`, { headers })).body!.getReader();
  assertMatch(new TextDecoder().decode((await stream.read()).value), /"n1":\{/);
  await stream.cancel();
  child.kill("SIGINT");
  await lines.cancel();
  assertEquals([(await child.status).code, await new Response(child.stderr).text()], [0, ""]);
});

Deno.test("kubectl denolith: gives up the loopback address: ui as soon as it listens, everything else at once", async () => {
  await using s = await setUp();
  const probe = `${s.folder}/probe.ts`;
  await Deno.writeTextFile(
    probe,
    `import { dropNetwork } from "${ROOT}plugin/main.ts";
    const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen() {} }, () => new Response("served"));
    await dropNetwork();
    const refused = await fetch("http://127.0.0.1:" + server.addr.port).then(() => "sent", ({ name }) => name);
    const states = ["127.0.0.1", "127.0.0.1:443"].map((host) => Deno.permissions.querySync({ name: "net", host }).state);
    console.log(refused, ...states);
    await server.shutdown();`,
  );
  const { stdout } = await new Deno.Command(Deno.execPath(), { args: [...FLAGS, probe] }).output();
  assertEquals(new TextDecoder().decode(stdout), "NotCapable prompt prompt\n");
});

Deno.test("kubectl denolith: flags are judged before kubectl is run, and a wrong one ends with status 2", async () => {
  await using s = await setUp();
  const cases: [string[], RegExp][] = [
    [["statu"], /unknown command "statu"; did you mean status\?/],
    [["status", "--otput", "json"], /unknown flag "--otput"; did you mean --output\?/],
    [["status", "-o", "xml"], /--output "xml": must be json, yaml, wide or jsonpath=\.\.\.\n/],
    [["status", "-o", "name"], /--output "name": must be json/],
    [["status", "-o", "jsonpath={.a"], /--output "jsonpath=\{\.a": a brace is not closed at "\{\.a"/],
    [["status", "-o", "json={.a}"], /--output "json=\{\.a\}": must be json/],
    [
      ["volumes", "-o", "jsonpath="],
      /--output "jsonpath=": must be json, yaml, wide, name, jsonpath=\.\.\. or custom-columns=\.\.\./,
    ],
    [["volumes", "-o", "custom-columns=A"], /--output "custom-columns=A": "A" is no TITLE:PATH/],
    [["volumes", "--node", "a/b"], /--node "a\/b": must be/],
    [["why"], /why: CLAIM is missing/],
    [["why", "deployment/x"], /CLAIM "deployment\/x": must be the name of a claim/],
    [["why", "x", "-n", "_"], /--namespace "_": must be/],
    [["status", "--context=--as=root"], /--context "--as=root": must not begin with a dash/],
    [["orphans", "--yes"], /orphans: --yes has no effect without --remove/],
    [["orphans", "--remove", "x"], /--remove "x": must be the UUID/],
    [["forget-node"], /NODE is missing/],
    [["doctor"], /doctor: NODE is missing; --all stands for all nodes/],
    [["doctor", "n1", "--all"], /doctor: NODE excludes --all/],
    [["move", "x"], /move: --to is missing: it names the node/],
    [["move", "x", "--cancel", "--dry-run"], /move: --dry-run excludes --cancel/],
    [["import", "x", "--cancel", "--dry-run"], /import: --dry-run excludes --cancel/],
    [["why", "x", "-A"], /why: unknown flag "-A"/],
    [["status", "--as-group", "admins"], /status: --as-group has no effect without --as/],
    [["move", "x", "--to", "n", "--force"], /move: --force has no effect without --evict/],
    [["completion", "tcsh"], /SHELL "tcsh": must be bash, zsh, fish, powershell or kubectl/],
    [["status", "--driver-name", "_"], /--driver-name "_": must be/],
  ];
  await Promise.all(cases.map(async ([args, expected]) => {
    const { code, stderr } = await s.run(args, { PATH: "/nowhere" });
    assertMatch(stderr, expected);
    assertMatch(stderr, /^kubectl denolith: /m);
    assertEquals(code, 2, `${args.join(" ")}: ${stderr}`);
  }));
});

Deno.test("kubectl denolith: every subcommand has help that fits 100 columns and says what its exit status means", async () => {
  await using s = await setUp();
  const overview = await s.run(["--help"]);
  await Promise.all(
    Object.keys(PLUGIN_COMMANDS).map(async (name) => {
      assert(overview.stdout.includes(`  ${name} `), name);
      const { code, stdout, stderr } = await s.run([name, "-h"]);
      assertEquals([code, stderr], [0, ""]);
      assert(stdout.startsWith(`Usage: kubectl denolith ${name}`), stdout);
      assertEquals(stdout.split("\n").filter((line) => line.length > 100), []);
      if (!["completion", "version"].includes(name)) assertMatch(stdout, /The exit status is/);
    }),
  );
});
