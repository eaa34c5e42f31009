/**
 * `kubectl denolith doctor`: a request that an agent answers.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { DOCTOR_ANNOTATION, lvmNodes } from "../../k8s/api/lvm_objects.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import type { Exec } from "../../lvm/exec.ts";
import { StorageError } from "../../base/error.ts";
import { FakeCluster } from "../fake/cluster/node_cluster.ts";
import { runPlugin } from "../../plugin/subcommands/run.ts";
import type { Kubectl, KubectlCommand, KubectlLines, KubectlOutput } from "../../plugin/kubectl.ts";
import { FakeKubectl } from "../fake/cluster/kubectl.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";
import { machineWith, MiB } from "../fake/cluster/volume_cluster.ts";

/** Starts a node, and others. */
async function setUp(...others: readonly string[]) {
  const machine = machineWith({ data: 256n * MiB });
  const state = { lvmHangs: false };
  const exec: Exec = {
    run: (command) =>
      state.lvmHangs && command.program === "lvm"
        ? Promise.reject(new StorageError("Unavailable", "lvm fullreport: no answer within 20 s"))
        : machine.run(command),
    idle: () => machine.idle(),
  };
  const cluster = await FakeCluster.start({
    n1: exec,
    ...Object.fromEntries(others.map((name) => [name, machineWith({ data: 256n * MiB })])),
  });
  const stored = () => cluster.api.objects(lvmNodes)[0]!;
  return {
    ...{ cluster, state, stored, plugin: pluginOver(cluster.api, { role: "operator" }) },
    agent: cluster.agent("n1"),
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

Deno.test("kubectl denolith doctor: the agent answers once, and nothing is left in the object", async () => {
  await using s = await setUp();
  const { status, output, errors } = await s.plugin(["doctor", "n1", "-o", "json"]);
  const { level, checks, findings, node } = JSON.parse(output);
  assertEquals([errors, node, checks.length], ["", "n1", 10]);
  assertEquals(status, level === "error" ? 1 : 0);
  assert(Array.isArray(findings));
  assertEquals(s.stored().metadata.annotations?.[DOCTOR_ANNOTATION], undefined);
  await waitUntil(() => s.stored().status?.doctor === undefined, "the removal of the answer");
  const text = await s.plugin(["doctor", "n1"]);
  assertMatch(text.output, /Node n1, by its agent\n\n. tools /);
});

Deno.test("kubectl denolith doctor --all: has each node in one table, and ends with status 1 for an error or no answer", async () => {
  await using s = await setUp("n2", "n3");
  s.state.lvmHangs = true;
  await s.cluster.stopAgent("n3");
  const { status, output, errors } = await s.plugin(["doctor", "--all", "--timeout", "3"]);
  assertEquals([status, errors], [1, "Asking the agents of 3 nodes, for up to 3 s each …"]);
  assertMatch(
    output,
    /NODE +RESULT +ERRORS +WARNINGS\n +n1 +error +[1-9]\d* +\d+\n +error \w+: lvm: .*no answer within 20 s/,
  );
  assertMatch(output, /\n +n2 +(?:ok|info|warning|error) +\d+ +\d+\n/);
  assertMatch(output, /\n +n3 +no answer\n +the agent of node n3 has not answered within 3 s/);
  const { output: json } = await s.plugin(["doctor", "--all", "--timeout", "3", "-o", "json"]);
  const nodes = JSON.parse(json).nodes as { node: string; level?: string; error?: string }[];
  assertEquals(nodes.map(({ node, level, error }) => [node, level === "error", error !== undefined]).toSpliced(1, 1), [
    ["n1", true, false],
    ["n3", false, true],
  ]);
  for (const { metadata } of s.cluster.api.objects(lvmNodes)) {
    assertEquals(metadata.annotations?.[DOCTOR_ANNOTATION], undefined, metadata.name);
  }
});

Deno.test("kubectl denolith doctor --all: an interrupted one withdraws all requests", async () => {
  await using s = await setUp("n2", "n3");
  for (const name of ["n1", "n2", "n3"]) await s.cluster.stopAgent(name);
  const end = new AbortController();
  const asked = () =>
    s.cluster.api.objects(lvmNodes).filter(({ metadata }) => metadata.annotations?.[DOCTOR_ANNOTATION] !== undefined);
  const running = s.plugin(["doctor", "--all", "--timeout", "30"], { signal: end.signal });
  await waitUntil(() => asked().length === 3, "the requests");
  end.abort();
  const { status, errors } = await running;
  assertMatch(`${status} ${errors}`, /^1 [^]*: interrupted/);
  assertEquals(asked(), []);
});

Deno.test("kubectl denolith doctor --all: of a cluster that refuses, says so once", async () => {
  await using s = await setUp("n2");
  const viewer = pluginOver(s.cluster.api);
  s.cluster.api.faults.forbidden.add("lvmnodes");
  const { status, errors } = await viewer(["doctor", "--all"]);
  assertMatch(`${status} ${errors}`, /^1 kubectl denolith: list lvmnodes: Forbidden: /);
});

Deno.test("kubectl denolith doctor: tells that the agent finds definitions too old", async () => {
  await using s = await setUp();
  const message = "CustomResourceDefinitions are too old";
  const condition = { type: "DefinitionsOutdated", reason: "DefinitionsOutdated", message } as const;
  const tell = (status: "True" | "False") => {
    const conditions = [{ ...condition, status, lastTransitionTime: "2026-01-01T00:00:00Z" }];
    return s.cluster.client.patch(lvmNodes, { name: "n1" }, {
      merge: { status: { conditions } },
      subresource: "status",
    });
  };
  await tell("True");
  const { status, output } = await s.plugin(["doctor", "n1"]);
  assertEquals(status, 1);
  assertMatch(output, /✗ crds +too old\n {4}✗ lvm\.denolith\.dev: CustomResourceDefinitions are too old\n/);
  assertStringIncludes((await s.plugin(["doctor", "--all"])).output, `error crds: lvm.denolith.dev: ${message}`);
  await tell("False");
  assertEquals((await s.plugin(["doctor", "n1"])).output.includes("crds"), false);
});

Deno.test("kubectl denolith doctor: is answered while LVM does not report its volume groups", async () => {
  await using s = await setUp();
  s.state.lvmHangs = true;
  await assertRejects(() => s.agent.node.refresh());
  const { status, output } = await s.plugin(["doctor", "n1"]);
  assertEquals(status, 1);
  assertMatch(output, /✗ lvm: .*no answer within 20 s/);
});

Deno.test("kubectl denolith doctor: an agent that does not answer, or that there is none, ends with status 1", async () => {
  await using s = await setUp();
  const unknown = await s.plugin(["doctor", "n2"]);
  assertMatch(`${unknown.status} ${unknown.errors}`, /^1 .*node n2 has no LVMNode/);
  await s.cluster.stopAgent("n1");
  const silent = await s.plugin(["doctor", "n1", "--timeout", "1"]);
  assertMatch(`${silent.status} ${silent.errors}`, /^1 .*the agent of node n1 has not answered within 1 s/);
  assertEquals(s.stored().metadata.annotations?.[DOCTOR_ANNOTATION], undefined, "the request is withdrawn");
});

Deno.test("an answer that nobody removes expires, and the request is not answered again", async () => {
  await using s = await setUp();
  const merge = { metadata: { annotations: { [DOCTOR_ANNOTATION]: "left" } } };
  await s.cluster.client.patch(lvmNodes, { name: "n1" }, { merge });
  await waitUntil(() => s.stored().status?.doctor?.findings !== undefined, "the answer");
  const answeredAt = s.stored().status!.doctor!.time;
  await s.agent.doctor.idle();
  await s.agent.clock.advance(601_000);
  await waitUntil(() => s.stored().status?.doctor?.findings === undefined, "the expiry");
  assertEquals(s.stored().status?.doctor, { request: "left" });
  await s.agent.node.refresh();
  await s.agent.doctor.idle();
  assertEquals([s.stored().status?.doctor, typeof answeredAt], [{ request: "left" }, "string"]);
});

Deno.test("kubectl denolith doctor: asks nobody when the node is of another driver", async () => {
  await using s = await setUp();
  const { status, errors } = await s.plugin(["doctor", "n1", "--driver-name", "other.example.com"]);
  assertMatch(`${status} ${errors}`, /^1 .*node n1 is of the driver lvm\.denolith\.dev/);
  assertEquals(s.stored().metadata.annotations?.[DOCTOR_ANNOTATION], undefined);
});

Deno.test("kubectl denolith doctor: an interrupted one says so at once, and withdraws its request", async () => {
  await using s = await setUp();
  await s.cluster.stopAgent("n1");
  for (const delayMs of [0, 200]) {
    const end = new AbortController();
    const timer = setTimeout(() => end.abort(), delayMs);
    if (delayMs === 0) end.abort();
    const { status, errors } = await s.plugin(["doctor", "n1", "--timeout", "5"], { signal: end.signal });
    clearTimeout(timer);
    assertMatch(`${status} ${errors}`, /^1 .*: interrupted/);
    assertEquals(s.stored().metadata.annotations?.[DOCTOR_ANNOTATION], undefined);
  }
});

/** Runs `doctor n1` with a kubectl that does something else now and then. */
async function doctorWith(url: string, odd: Partial<Kubectl>, timeout = "5") {
  const real = new FakeKubectl({ url, role: "operator" });
  const printed: string[] = [];
  const print = (text: string) => void printed.push(text);
  await runPlugin(["doctor", "n1", "--timeout", timeout], {
    kubectl: () => ({ run: (command) => real.run(command), readLines: (...args) => real.readLines(...args), ...odd }),
    terminal: {
      ...{ isInteractive: false, hasColours: false, print, replace: print },
      ...{ note: () => {}, write: () => {}, confirm: () => false },
    },
  });
  return printed.join("\n");
}

Deno.test("kubectl denolith doctor: leaves the request of somebody else alone who asks while it withdraws its own", async () => {
  await using s = await setUp();
  await s.cluster.stopAgent("n1");
  const real = new FakeKubectl({ url: s.cluster.api.url, role: "operator" });
  const isAsked = () => s.stored().metadata.annotations?.[DOCTOR_ANNOTATION] !== undefined;
  const run = async (command: KubectlCommand): Promise<KubectlOutput> => {
    const isWithdrawal = command.verb === "get" && /lvmnodes\/n1$/.test(command.path) && isAsked();
    const output = await real.run(command);
    if (isWithdrawal) {
      const merge = { metadata: { annotations: { [DOCTOR_ANNOTATION]: "other" } } };
      await s.cluster.client.patch(lvmNodes, { name: "n1" }, { merge });
    }
    return output;
  };
  const { error } = console;
  console.error = () => {};
  try {
    await doctorWith(s.cluster.api.url, { run }, "1");
  } finally {
    console.error = error;
  }
  assertEquals(s.stored().metadata.annotations?.[DOCTOR_ANNOTATION], "other");
});

Deno.test("kubectl denolith doctor: waits on when the server has forgotten the revision that it watches from", async () => {
  await using s = await setUp();
  const real = new FakeKubectl({ url: s.cluster.api.url, role: "operator" });
  let watches = 0;
  const readLines = (path: string, signal?: AbortSignal): KubectlLines => {
    if (watches++ > 0) return real.readLines(path, signal);
    const stderr = "Error from server (Expired): too old resource version";
    return { lines: (async function* () {})(), output: Promise.resolve({ code: 1, stdout: "", stderr }) };
  };
  assertMatch(await doctorWith(s.cluster.api.url, { readLines }), /Node n1, by its agent/);
  assertEquals(s.stored().metadata.annotations?.[DOCTOR_ANNOTATION], undefined);
});

Deno.test("kubectl denolith doctor: watches on from the object that it has read again, if that has no answer yet", async () => {
  await using s = await setUp();
  const real = new FakeKubectl({ url: s.cluster.api.url, role: "operator" });
  const watched: (string | null)[] = [];
  let read: string | undefined;
  const expired = { code: 1, stdout: "", stderr: "Error from server (Expired): too old resource version" };
  const readLines = (path: string, signal?: AbortSignal): KubectlLines => {
    watched.push(new URL(path, s.cluster.api.url).searchParams.get("resourceVersion"));
    if (watched.length > 1) return real.readLines(path, signal);
    return { lines: (async function* () {})(), output: Promise.resolve(expired) };
  };
  const run = async (command: KubectlCommand): Promise<KubectlOutput> => {
    const output = await real.run(command);
    if (watched.length !== 1 || read !== undefined || command.verb !== "get") return output;
    const { metadata, status: { doctor: _, ...status } } = JSON.parse(output.stdout);
    read = metadata.resourceVersion;
    return { ...output, stdout: JSON.stringify({ ...JSON.parse(output.stdout), status }) };
  };
  const printed = doctorWith(s.cluster.api.url, { readLines, run });
  await waitUntil(() => watched.length === 2, "the second watch");
  assertEquals(watched[1], read);
  await s.cluster.client.patch(lvmNodes, { name: "n1" }, { merge: { metadata: { labels: { changed: "yes" } } } });
  assertMatch(await printed, /Node n1, by its agent/);
});
