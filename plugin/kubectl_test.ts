import { assertEquals, assertMatch, assertRejects } from "@std/assert";
import { ApiError, isConflict, isGone, isNotFound } from "../k8s/client/client.ts";
import { lvmVolumes } from "../k8s/api/lvm_objects.ts";
import { events, leases } from "../k8s/api/objects.ts";
import {
  type Kubectl,
  kubectlArguments,
  type KubectlCommand,
  type KubectlOutput,
  readAndShow,
  spawnFailure,
} from "./kubectl.ts";
import { readLines } from "../k8s/client/response.ts";
import { checkFlags, parseCommandLine } from "../cli/command_line.ts";
import { PLUGIN, PLUGIN_COMMANDS } from "./subcommands.ts";
import { clusterNames } from "./completion.ts";
import { KubectlClient } from "./kubectl_client.ts";

Deno.test("kubectlArguments() has a closed list of subcommands, with values that kubectl cannot take for flags", () => {
  const merge = { metadata: { annotations: { a: "'b' $c" } } };
  const cases: [KubectlCommand, string[]][] = [
    [{ verb: "get", path: "/api/v1/nodes?limit=1" }, ["get", "--raw", "/api/v1/nodes?limit=1"]],
    [{ verb: "create", path: "/x", body: {} }, ["create", "--raw", "/x", "--filename", "-"]],
    [{ verb: "replace", path: "/x", body: {} }, ["replace", "--raw", "/x", "--filename", "-"]],
    [{ verb: "delete", path: "/x", body: {} }, ["delete", "--raw", "/x", "--filename", "-"]],
    [{ verb: "patch", resource: lvmVolumes, at: { name: "v" }, subresource: "status", merge }, [
      ...["patch", "lvmvolumes.v1alpha1.lvm.denolith.dev", "v", "--type=merge", `--patch=${JSON.stringify(merge)}`],
      ...["--output=json", "--subresource=status"],
    ]],
    [{ verb: "patch", resource: events, at: { name: "e", namespace: "n" }, merge: {} }, [
      ...["patch", "events.v1.", "e", "--type=merge", "--patch={}", "--output=json", "--namespace=n"],
    ]],
    [{ verb: "config" }, ["config", "view", "--minify", "--output=json"]],
  ];
  for (const [command, expected] of cases) assertEquals(kubectlArguments(command), expected);
  assertEquals(kubectlArguments({ verb: "config" }, { context: "a b", as: "me", kubeconfig: "/k" }).slice(4), [
    ...["--kubeconfig=/k", "--context=a b", "--as=me"],
  ]);
});

Deno.test("spawnFailure() names what keeps kubectl from being run", () => {
  const denied = new Deno.errors.NotCapable("Requires --allow-run ... with LD_PRELOAD environment variable. Al");
  assertMatch(spawnFailure(denied), /the environment variable LD_PRELOAD, which may load other code; unset it/);
  assertMatch(spawnFailure(new Deno.errors.NotFound("x")), /not found in PATH/);
  assertMatch(spawnFailure(new Error("exec format error")), /cannot be run: exec format error/);
});

/** Returns a client whose commands all end like this. */
function clientWith(
  output: Partial<KubectlOutput>,
  onRun: () => Promise<void> = () => Promise.resolve(),
): KubectlClient {
  const kubectl: Kubectl = {
    run: async () => {
      await onRun();
      return { code: 0, stdout: "", stderr: "", ...output };
    },
    readLines: () => {
      throw new Error("not asked for");
    },
  };
  return new KubectlClient(kubectl);
}

Deno.test("a path of Windows gets to kubectl as it is", async () => {
  const kubeconfig = "C:\\Users\\me\\.kube\\my config";
  const request = parseCommandLine(PLUGIN, ["status", "--kubeconfig", kubeconfig]);
  if (request.kind !== "run") throw new Error("it is a command");
  await checkFlags("status", PLUGIN_COMMANDS.status, request.flags);
  assertEquals(kubectlArguments({ verb: "config" }, request.flags).at(-1), `--kubeconfig=${kubeconfig}`);
});

Deno.test("what kubectl prints with CR and LF, as on Windows, is read as without", async () => {
  const object = '{"metadata":{"name":"l"}}\r\n';
  assertEquals((await clientWith({ stdout: object }).get(leases, { name: "l", namespace: "n" })).metadata.name, "l");
  const notFound = clientWith({ code: 1, stderr: 'Error from server (NotFound): "l" not found\r\n' });
  const error = await assertRejects(() => notFound.get(leases, { name: "l", namespace: "n" }), ApiError);
  assertEquals([error.status, error.message], [404, 'get leases l: NotFound: "l" not found']);
  const changes = [{ type: "ADDED", object: { metadata: { name: "l" } } }, {
    type: "DELETED",
    object: { metadata: {} },
  }];
  const bytes = new TextEncoder().encode(changes.map((event) => `${JSON.stringify(event)}\r\n`).join(""));
  const types: string[] = [];
  for await (const line of readLines(ReadableStream.from([bytes]))) types.push(JSON.parse(line).type);
  assertEquals(types, ["ADDED", "DELETED"]);
  const output = { code: 0, stdout: "prod\r\ntest\r\n", stderr: "" };
  const kubectl = {
    run: () => Promise.resolve(output),
    readLines: () => {
      throw new Error("not asked for");
    },
  };
  assertEquals(await clusterNames(() => kubectl).contexts({}), ["prod", "test"]);
});

Deno.test("KubectlClient: an object that is created or replaced has its apiVersion and kind, which the caller leaves out", async () => {
  const commands: KubectlCommand[] = [];
  const client = new KubectlClient({
    run: (command: KubectlCommand) => {
      commands.push(command);
      return Promise.resolve({ code: 0, stdout: `{"metadata":{"name":"l"}}`, stderr: "" });
    },
  } as Kubectl);
  const object = { metadata: { name: "l", namespace: "n" } };
  await client.create(leases, object);
  await client.replace(leases, object);
  const body = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", ...object };
  const path = "/apis/coordination.k8s.io/v1/namespaces/n/leases";
  assertEquals(commands, [{ verb: "create", path, body }, { verb: "replace", path: `${path}/l`, body }]);
});

Deno.test("KubectlClient: an error has the status and the reason of the API server, and its words", async () => {
  const errorFor = async (stderr: string) => {
    const client = clientWith({ code: 1, stderr });
    return await assertRejects(() => client.get(leases, { name: "l", namespace: "n" }), ApiError);
  };
  const notFound = await errorFor('Error from server (NotFound): leases.coordination.k8s.io "l" not found\n');
  assertEquals([isNotFound(notFound), notFound.message], [
    ...[true, 'get leases l: NotFound: leases.coordination.k8s.io "l" not found'],
  ]);
  assertEquals(isConflict(await errorFor("Error from server (Conflict): changed")), true);
  assertEquals(isGone(await errorFor("Error from server (Expired): too old")), true);
  const forbidden = await errorFor('warning: x\nError from server (Forbidden): leases "l" is forbidden');
  assertEquals([forbidden.status, forbidden.reason], [403, "Forbidden"]);
  assertEquals((await errorFor("Error from server (Odd): what")).status, 500);
  const unreachable = await errorFor("Unable to connect to the server: dial tcp: no such host");
  assertEquals([unreachable.status, unreachable.message], [
    ...[0, "get leases l: Unable to connect to the server: dial tcp: no such host"],
  ]);
  assertEquals((await errorFor("")).message, "get leases l: kubectl failed");
  const odd = await errorFor("Error from server (Forbidden): a\x1b[2J\tb\r\nc\x9b31m\n");
  assertEquals(
    odd.message,
    "get leases l: Forbidden: a\ufffd[2J b\nc\ufffd31m. The ClusterRole denolith-view allows it",
  );
});

Deno.test("readAndShow() shows what a command says that goes on, such as where to log in, and nothing else", async () => {
  const shown: string[] = [];
  const show = (text: string) => void shown.push(text);
  const { readable, writable } = new TransformStream<Uint8Array<ArrayBuffer>>();
  const writer = writable.getWriter();
  const text = readAndShow(readable, { afterMs: 10, show });
  await writer.write(new TextEncoder().encode("open https://login.example "));
  await new Promise((resolve) => setTimeout(resolve, 30));
  assertEquals(shown, ["open https://login.example "]);
  await writer.write(new TextEncoder().encode("and enter 123"));
  await writer.close();
  assertEquals(await text, "open https://login.example and enter 123");
  assertEquals(shown, ["open https://login.example "], "what it says at its end is in the answer");
  const quick = await readAndShow(new Blob(["warning: x"]).stream(), { afterMs: 60_000, show });
  assertEquals([quick, shown.length], ["warning: x", 1]);
});

Deno.test("KubectlClient: a watch that ends well is no error, and leaves nothing at the signal of its caller", async () => {
  const output = Promise.resolve({ code: 0, stdout: "", stderr: "" });
  const line = JSON.stringify({ type: "ADDED", object: { metadata: { name: "l" } } });
  let ended: AbortSignal | undefined;
  const client = new KubectlClient({
    run: () => Promise.reject(new Error("not asked for")),
    readLines: (_, signal) => {
      ended = signal;
      return { lines: ReadableStream.from([line]), output };
    },
  });
  const { signal } = new AbortController();
  let listeners = 0;
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...args: Parameters<typeof addEventListener>) => {
    listeners++;
    addEventListener.apply(signal, args);
  };
  signal.removeEventListener = (...args: Parameters<typeof removeEventListener>) => {
    listeners--;
    removeEventListener.apply(signal, args);
  };
  const seen = await Array.fromAsync(client.watch(leases, { resourceVersion: "1", signal }));
  assertEquals([seen.map(({ object }) => object.metadata.name), listeners, ended?.aborted], [["l"], 0, true]);
});

Deno.test("KubectlClient: a watch that nobody wants any more starts no kubectl, which would never end", async () => {
  const client = clientWith({}); // it fails if it is asked for lines
  const gone = AbortSignal.abort(new Error("gone"));
  const watching = Array.fromAsync(client.watch(leases, { resourceVersion: "1", signal: gone }));
  await assertRejects(() => watching, Error, "gone");
});

Deno.test("KubectlClient: runs six commands at once, and the others after them", async () => {
  let [running, most] = [0, 0];
  const release = Promise.withResolvers<void>();
  const client = clientWith({ stdout: '{"metadata":{"name":"l"}}' }, async () => {
    most = Math.max(most, ++running);
    await release.promise;
    running--;
  });
  const all = Array.from({ length: 20 }, (_, n) => client.get(leases, { name: `l${n}`, namespace: "n" }));
  await Promise.resolve();
  assertEquals([running, most], [6, 6]);
  release.resolve();
  assertEquals((await Promise.all(all)).length, 20);
  assertEquals(most, 6);
});
