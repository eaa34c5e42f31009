/**
 * `kubectl denolith why` in a whole cluster: the driver's own controller and agents do what they do, and the answer is read
 * from what they left in the API server.
 *
 * @module
 */

import { assertEquals, assertMatch } from "@std/assert";
import { persistentVolumeClaims, pods } from "../../k8s/api/objects.ts";
import { SELECTED_NODE_ANNOTATION } from "../../k8s/provisioner/claim.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";
import { machineWith, MiB } from "../fake/cluster/volume_cluster.ts";
import { WholeCluster } from "../fake/cluster/whole_cluster.ts";
import { waitUntil } from "../fake/wait_until.ts";

interface Answer {
  readonly state: string;
  readonly problems: readonly { readonly reason: string; readonly message: string; readonly since?: string }[];
}

/** Starts a cluster of two nodes with 256 MiB each. */
async function setUp(options: { withController?: boolean } = {}) {
  const machines = { n1: machineWith({ data: 256n * MiB }), n2: machineWith({ data: 256n * MiB }) };
  const cluster = await WholeCluster.start(machines, options);
  const plugin = pluginOver(cluster.api, { role: "viewer" });
  const why = async (...args: string[]): Promise<Answer> =>
    JSON.parse((await plugin(["why", "-o", "json", ...(args.length === 0 ? ["data"] : args)])).output);
  return {
    ...{ cluster, machines, plugin, why },
    /** Waits until the first cause of an answer is this one, or there is none. @returns the answer */
    async waitFor(reason: string | undefined, ...args: string[]): Promise<Answer> {
      for (const end = Date.now() + 20_000;;) {
        const answer = await why(...args);
        const isGone = reason === undefined && answer.state === "Bound";
        if (answer.problems[0]?.reason === reason && (reason !== undefined || isGone)) return answer;
        if (Date.now() > end) assertEquals(answer, { waiting: reason } as unknown);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    },
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

Deno.test("why: a claim whose volume group got free space is Bound, and nothing is wrong any more", async () => {
  await using s = await setUp();
  s.cluster.addClaim({ name: "big", size: "200Mi" });
  s.cluster.addClaim({ name: "big2", size: "200Mi" });
  s.cluster.addClaim({ name: "data", size: "200Mi" });
  const pending = async () => {
    const answers = await Promise.all(["big", "big2", "data"].map(async (name) => [name, await s.why(name)] as const));
    const waiting = answers.filter(([, { problems }]) => problems[0]?.reason === "NoSpace");
    const bound = answers.filter(([, { state }]) => state === "Bound");
    return bound.length === 2 && waiting.length === 1 ? { waiting: waiting[0]![0], bound: bound[0]![0] } : undefined;
  };
  let found: Awaited<ReturnType<typeof pending>>;
  await waitUntil(async () => (found = await pending()) !== undefined, "one claim without a place");
  await s.cluster.agents.client.delete(persistentVolumeClaims, { namespace: "default", name: found!.bound });
  await s.waitFor(undefined, found!.waiting);
});

Deno.test("why: a claim that waits for its first consumer, without a pod and with one that finds no capacity", async () => {
  await using s = await setUp();
  s.cluster.addClaim({ className: "later", size: "1Gi" });
  await s.waitFor("NoConsumer");
  const message = "0/2 nodes are available: 2 node(s) did not have enough free storage.";
  s.cluster.api.put(pods, {
    metadata: { name: "web", namespace: "default" },
    spec: { volumes: [{ name: "v", persistentVolumeClaim: { claimName: "data" } }] } as never,
    status: {
      phase: "Pending",
      conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }],
    },
  });
  const published = () => s.why().then(({ problems }) => /n1 \d+ MiB, n2 \d+ MiB/.test(problems[0]?.message ?? ""));
  await waitUntil(published, "the published capacity");
  const { problems } = await s.waitFor("NoCapacity");
  assertMatch(problems[0]!.message, /finds no node with 1 GiB free .*: 0\/2 nodes .* each node can take: n1 \d+ MiB/);
});

Deno.test("why: the scheduler chose a node that the class excludes, and chooses again", async () => {
  await using s = await setUp();
  const matchLabelExpressions = [{ key: "topology.lvm.denolith.dev/node", values: ["n2"] }];
  s.cluster.addClass("only-n2", { allowedTopologies: [{ matchLabelExpressions }] });
  s.cluster.addClaim({ className: "only-n2", annotations: { [SELECTED_NODE_ANNOTATION]: "n1" } });
  const volumes = [{ name: "v", persistentVolumeClaim: { claimName: "data" } }];
  s.cluster.api.put(pods, { metadata: { name: "web", namespace: "default" }, spec: { volumes } as never });
  const { problems } = await s.waitFor("NodeExcludedByClass");
  assertMatch(problems[0]!.message, /not in the allowedTopologies of the class/);
  const reasons = async () => (await s.why()).problems.map(({ reason }) => reason).join();
  // the event comes before the choice is withdrawn
  await waitUntil(async () => await reasons() === "NodeExcludedByClass,NotScheduledYet", "both reasons");
});

Deno.test("why: a Lost volume, and its deletion", async () => {
  await using s = await setUp();
  s.cluster.addClaim();
  await s.waitFor(undefined);
  for (const machine of Object.values(s.machines)) for (const { lv } of machine.allLvs()) lv.tags.clear();
  for (const name of ["n1", "n2"]) await s.cluster.agents.agent(name).node.refresh();
  const { problems } = await s.waitFor("Lost");
  assertMatch(problems[0]!.message, /logical volume/);
  const { output } = await s.plugin(["why", "data"]);
  assertMatch(output, /claim\/default\/data is Bound\n\nERROR Lost claim\/default\/data/);
  assertMatch(output, /kubectl denolith help runbook lost-volume$/m);
});

Deno.test("why: there is no such claim, and nothing is left of one", async () => {
  await using s = await setUp({ withController: false });
  const { status, errors } = await s.plugin(["why", "nothing"]);
  assertEquals(status, 1);
  assertMatch(errors, /why: there is no claim nothing in namespace default, and nothing is left of one/);
});
