/**
 * The kubectl plugin over a cluster whose definitions are older than it, as where an administrator has a newer plugin.
 *
 * @module
 */

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { lvmNodes, type NodeDisk } from "../../k8s/api/lvm_objects.ts";
import { customResourceDefinitions, DEFINITIONS, SCHEMA_ANNOTATION } from "../../k8s/client/definitions.ts";
import { MoveCluster } from "../fake/cluster/move_cluster.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";

const OUTDATED = ["lvmmoves.lvm.denolith.dev", "lvmnodes.lvm.denolith.dev"];

/** How a message names them. */
const NAMED = OUTDATED.map((name) => `${name} (0)`).join(", ");

/** Starts a cluster with a claim that can be moved, and a disk that can be accepted. */
async function setUp() {
  const move = await MoveCluster.start();
  const { api } = move.cluster;
  const agent = move.cluster.agent("node-1");
  await agent.node.refresh();
  await move.cluster.stopAgent("node-1");
  const disk: NodeDisk = {
    ...{ name: "nvme-SPARE", path: "/dev/nvme1n1", size: "100Gi", rotational: false },
    ...{ identity: "0123", volumeGroup: "fast", proposed: true },
  };
  const write = (change: object) =>
    void api.collection(lvmNodes).patch(change, { name: "node-1", namespace: undefined }, "status");
  write({ status: { disks: [disk] } });
  api.addResource(customResourceDefinitions);
  for (const name of DEFINITIONS) api.put(customResourceDefinitions, { metadata: { name } });
  const setVersions = (names: readonly string[]) => {
    for (const name of names) {
      const metadata = { annotations: { [SCHEMA_ANNOTATION]: "99" } };
      api.collection(customResourceDefinitions).patch({ metadata }, { name, namespace: undefined });
    }
  };
  setVersions(DEFINITIONS.filter((name) => !OUTDATED.includes(name)));
  return {
    ...{ move, api, disk, write, upgrade: () => setVersions(OUTDATED), plugin: pluginOver(api) },
    accepted: () => api.objects(lvmNodes).find(({ metadata }) => metadata.name === "node-1")!.spec.acceptedDisks,
    [Symbol.asyncDispose]: () => move[Symbol.asyncDispose](),
  };
}

Deno.test("kubectl denolith status: names definitions that are older than the plugin, once for all agents that say so, too", async () => {
  await using s = await setUp();
  const type = "DefinitionsOutdated";
  const condition = {
    type,
    status: "True",
    reason: type,
    message: "too old",
    lastTransitionTime: "2026-01-01T00:00:00Z",
  };
  s.write({ status: { conditions: [condition] } });
  const { status, output } = await s.plugin(["status", "-o", "json"], { role: "viewer" });
  assertEquals(status, 0);
  const problems = JSON.parse(output).problems.filter(({ reason }: { reason: string }) => reason === type);
  assertEquals(problems.length, 1);
  assertEquals(problems[0].object, "customresourcedefinition/lvmmoves.lvm.denolith.dev");
  assertStringIncludes(problems[0].message, `: ${NAMED}; upgrade them to`);
  assertStringIncludes(
    (await s.plugin(["status", "-o", "wide"])).output,
    "kubectl denolith help runbook upgrade/upgrade-the-driver",
  );
  s.upgrade();
  assertMatch((await s.plugin(["status"], { role: "viewer" })).output, /DefinitionsOutdated node\/node-1/);
});

Deno.test("kubectl denolith doctor: names definitions that are older than the plugin", async () => {
  await using s = await setUp();
  const doctor = async () => JSON.parse((await s.plugin(["doctor", "node-2", "-o", "json"])).output);
  const { findings: [finding], checks, level } = await doctor();
  assertEquals([checks[0].check, checks[0].level, level === "ok"], ["crds", "warning", false]);
  assertEquals([finding.check, finding.level], ["crds", "warning"]);
  assertStringIncludes(finding.message, NAMED);
  s.upgrade();
  assertEquals((await doctor()).checks.some(({ check }: { check: string }) => check === "crds"), false);
});

Deno.test("the plugin requests nothing while definitions are older than it, and says why", async () => {
  await using s = await setUp();
  const before = s.api.requests.length;
  const move = ["move", "data", "--namespace", "shop", "--to", "node-2", "--wait=false"];
  for (const args of [move, ["disks", "--accept", s.disk.name, "--yes"]]) {
    const { status, errors } = await s.plugin(args);
    assertMatch(
      `${status} ${errors}`,
      /^1 .*(?:create lvmmoves|patch lvmnodes) .*: CustomResourceDefinitions are too old/,
    );
    assertStringIncludes(errors, NAMED);
  }
  const written = s.api.requests.slice(before).filter(({ method }) => method !== "GET");
  assertEquals([written, s.move.move, s.accepted()], [[], undefined, undefined]);
  s.upgrade();
  assertEquals((await s.plugin(["disks", "--accept", s.disk.name, "--yes"])).status, 0);
  assertEquals(s.accepted()?.length, 1);
});

Deno.test("the plugin requests what it is asked for where its user may not read definitions", async () => {
  await using s = await setUp();
  s.api.faults.forbidden.add(customResourceDefinitions.plural);
  assertEquals((await s.plugin(["disks", "--accept", s.disk.name, "--yes"])).status, 0);
  assertEquals((await s.plugin(["status"])).output.includes("DefinitionsOutdated"), false);
});
