/**
 * `kubectl denolith doctor`: a request that an agent answers.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { DOCTOR_ANNOTATION, lvmNodes } from "../../k8s/api/lvm_objects.ts";
import { waitUntil } from "../fake/control_plane.ts";
import type { Exec } from "../../lvm/exec.ts";
import { StorageError } from "../../lvm/error.ts";
import { FakeCluster } from "../fake/node_cluster.ts";
import { pluginOver } from "../fake/plugin_run.ts";
import { machineWith, MiB } from "../fake/volume_cluster.ts";

/** Starts a node. */
async function setUp() {
  const machine = machineWith({ data: 256n * MiB });
  const state = { lvmHangs: false };
  const exec: Exec = {
    run: (command) =>
      state.lvmHangs && command.program === "lvm"
        ? Promise.reject(new StorageError("Unavailable", "lvm fullreport: no answer within 20 s"))
        : machine.run(command),
    idle: () => machine.idle(),
  };
  const cluster = await FakeCluster.start({ n1: exec });
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
