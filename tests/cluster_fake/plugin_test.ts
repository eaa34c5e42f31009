/**
 * The kubectl plugin over a cluster of agents, each on a fake machine.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { parse } from "@std/yaml";
import { formatAge } from "../../plugin/tables.ts";
import { REMOVE_ORPHANS_ANNOTATION } from "../../k8s/agent/orphans.ts";
import { lvmNodes, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { events, leases, nodes, persistentVolumeClaims, persistentVolumes } from "../../k8s/api/objects.ts";
import { snapshotIdOf } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { runPlugin } from "../../plugin/subcommands/run.ts";
import { FakeKubectl } from "../fake/cluster/kubectl.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";
import { machineWith, MiB, request } from "../fake/cluster/volume_cluster.ts";

/** Starts two nodes, and creates a volume with a PersistentVolume on the first one. */
async function setUp() {
  const machines = { n1: machineWith({ data: 1024n * MiB }), n2: machineWith({ data: 512n * MiB, fast: 256n * MiB }) };
  const cluster = await FakeCluster.start(machines);
  const { id } = await cluster.volumes.create(request("claimed"), { preferred: ["n1"] });
  cluster.api.put(persistentVolumes, {
    metadata: { name: "pv" },
    spec: {
      csi: { driver: DRIVER, volumeHandle: id },
      claimRef: { namespace: "shop", name: "db" },
      persistentVolumeReclaimPolicy: "Delete",
    },
    status: { phase: "Bound" },
  });
  for (const name of ["n1", "n2"]) await cluster.agent(name).node.refresh();
  return {
    ...{ cluster, machines, id, api: cluster.api },
    plugin: pluginOver(cluster.api),
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}

Deno.test("kubectl denolith status: shows the nodes, how full they are, and that nothing is wrong", async () => {
  await using s = await setUp();
  const { status, output, errors } = await s.plugin(["status"], { role: "viewer" });
  assertEquals([status, errors], [0, ""]);
  assertMatch(output, /^context fake, namespace default\n\nDriver {6}lvm\.denolith\.dev\nNodes {7}2\n/);
  assertMatch(output, /Space .* of .* free/);
  assertMatch(output, /Volumes {5}1 \(1 Ready\)/);
  assertMatch(output, /n1 +Alive .* data +1 GiB +992 MiB +3% +1\n/);
  assertMatch(output, /Nothing is wrong\.$/);
});

Deno.test("kubectl denolith status: says that the controller has gone, and nothing where a sidecar never had a Lease", async () => {
  await using s = await setUp();
  const { plugin } = s;
  const status = async (holderIdentity: string, ageMs: number) => {
    const renewTime = new Date(Date.now() - ageMs).toISOString();
    const namespace = `n-${crypto.randomUUID()}`; // the Lease that was renewed last counts
    s.api.put(leases, {
      metadata: { name: "lvm-denolith-dev", namespace },
      spec: { holderIdentity, leaseDurationSeconds: 15, renewTime },
    });
    return (await plugin(["status"], { role: "viewer" })).output;
  };
  const lost = await status("controller-1", 120_000);
  assertStringIncludes(lost, "NoController lease/lvm-denolith-dev");
  assertStringIncludes(lost, "no controller that creates volumes is active: controller-1 held its Lease");
  assertMatch(await status("controller-1", 20_000), /Nothing is wrong\.$/);
  assertStringIncludes(await status("", 5_000), "no controller that creates volumes is active: nobody holds its Lease");
});

Deno.test("kubectl denolith status: names what is wrong, the worst first, with its age and, wide, what to do", async () => {
  await using s = await setUp();
  await s.cluster.stopAgent("n2");
  s.machines.n1.allLvs()[0]!.lv.tags.clear(); // somebody removed the tags of the volume's LV
  await s.cluster.agent("n1").node.refresh();
  const isLost = (volume?: LvmVolume) => volume?.status?.state === "Lost";
  const lost = await s.cluster.objects.waitFor(s.id, isLost, { timeoutMs: 5_000 });
  // the time of the plugin is that of the objects, whose times are in whole seconds, and later
  const lostSince = lost!.status!.conditions!.find(({ reason }) => reason === "Lost")!.lastTransitionTime!;
  const now = new Date(Date.parse(lostSince) + 400_000);
  const seen = s.api.objects(lvmNodes).find(({ metadata }) => metadata.name === "n2")!.status!.lastUpdateTime;
  const { output } = await s.plugin(["status", "--output", "wide"], { now });
  assertMatch(output, /Nodes {7}2, 2 without a living agent/); // by a clock that is minutes ahead, both are silent
  assert(output.includes(`ERROR NodeDown node/n2, for ${formatAge(seen, now)}\n`), output);
  assertMatch(
    output,
    /ERROR Lost claim\/shop\/db, for 6m40s\n {2}.*\n(.*\n)*? {2}kubectl denolith help runbook lost-volume/,
  );
});

Deno.test("kubectl denolith status: says what becomes free when deleted volumes are erased", async () => {
  await using s = await setUp();
  const lvmNode = s.api.objects(lvmNodes).find(({ metadata }) => metadata.name === "n1")!;
  const volumeGroups = lvmNode.status!.volumeGroups!.map((group) => ({
    ...group,
    erasing: { volumes: 1, space: "64Mi" },
  }));
  s.api.restore(lvmNodes, { ...lvmNode, status: { ...lvmNode.status, volumeGroups } });
  assertMatch((await s.plugin(["status"])).output, /Space .* free, \d+% used, 64 MiB of it being erased\n/);
});

Deno.test("kubectl denolith nodes, volumes, snapshots: are tables, JSON with sizes in bytes, and YAML", async () => {
  await using s = await setUp();
  await s.cluster.snapshots.create({ id: snapshotIdOf("cut"), name: "cut", source: s.id, cowSize: FULL_COW });
  const [volumes, json, yaml, snapshots, nodesJson] = await Promise.all([
    s.plugin(["volumes"]),
    s.plugin(["volumes", "-o", "json"]),
    s.plugin(["volumes", "--output=yaml"]),
    s.plugin(["snapshots"]),
    s.plugin(["nodes", "-o", "json"]),
  ]);
  const [, , title, row] = volumes.output.split("\n");
  assertMatch(title!, /^CLAIM +NODE +GROUP +SIZE +USED +STATE +LAYOUT +CONTENT +AGE +VOLUME$/);
  assertMatch(row!, new RegExp(`^shop/db +n1 +data +32 MiB +Ready +linear +ext4 +\\d+s +${s.id}$`));
  const parsed = JSON.parse(json.output);
  assertEquals([parsed.context, parsed.namespace, parsed.volumes[0].size], ["fake", "default", Number(32n * MiB)]);
  assertEquals(parse(yaml.output), parsed);
  assertMatch(snapshots.output, /n1 +data .* Ready/);
  assertEquals(
    JSON.parse(nodesJson.output).nodes.map((node: { name: string; agent: string; groups: { name: string }[] }) => [
      ...[node.name, node.agent],
      ...node.groups.map(({ name }) => name),
    ]),
    [["n1", "Alive", "data"], ["n2", "Alive", "data", "fast"]],
  );
});

Deno.test("kubectl denolith: gives up the network before it reads, and ui once it listens", async () => {
  await using s = await setUp();
  const order: string[] = [];
  const note = (what: string) => () => void order.push(what);
  const before = s.api.requests.length;
  const onDropNetwork = () => void order.push(`dropped after ${s.api.requests.length - before} requests`);
  await s.plugin(["orphans"], { onDropNetwork, onPrint: note("orphans") });
  const end = new AbortController();
  await s.plugin(["--context", "fake", "ui"], {
    signal: end.signal,
    onDropNetwork: note("dropped"),
    onPrint: (text) => {
      order.push(text.slice(0, 4));
      end.abort();
    },
  });
  assertEquals(order, ["dropped after 0 requests", "orphans", "dropped", "Open"]);
});

Deno.test("kubectl denolith: all lists take --all-namespaces, and kubectl gets the user, the group and the time limit", async () => {
  await using s = await setUp();
  const flags = ["--as", "alice", "--as-group", "admins", "--request-timeout", "1m30s"];
  for (const command of ["status", "nodes", "volumes", "snapshots", "disks", "orphans"]) {
    const { status, errors, commands } = await s.plugin([...flags, command, "-A"]);
    assertEquals([status, errors], [0, ""], command);
    const given = ["--as=alice", "--as-group=admins", "--request-timeout=1m30s"];
    for (const args of commands) assertEquals(args.slice(-3), given, command);
  }
});

Deno.test("kubectl denolith volumes: --node and --namespace select", async () => {
  await using s = await setUp();
  const count = async (...args: string[]) =>
    JSON.parse((await s.plugin(["volumes", "-o", "json", ...args])).output).volumes.length;
  assertEquals(await count("--node", "n1"), 1);
  assertEquals(await count("--node", "n2"), 0);
  assertEquals(await count("-n", "shop"), 1);
  assertEquals(await count("-n", "sho"), 0);
});

Deno.test("kubectl denolith nodes, volumes, snapshots: names select, and one that is that of nothing ends with status 1", async () => {
  await using s = await setUp();
  await s.cluster.snapshots.create({ id: snapshotIdOf("cut"), name: "cut", source: s.id, cowSize: FULL_COW });
  const listed = async (kind: string, ...args: string[]) => {
    const { status, output, errors } = await s.plugin([kind, ...args, "-o", "json"]);
    const rows = output === "" ? [] : JSON.parse(output)[kind];
    return { status, errors, rows: rows.map(({ name, id }: { name?: string; id?: string }) => name ?? id) };
  };
  const found = (...rows: string[]) => ({ status: 0, errors: "", rows });
  assertEquals(await listed("nodes", "n2"), found("n2"));
  assertEquals(await listed("nodes", "n2", "n1"), found("n1", "n2"));
  for (const name of ["db", "shop/db", "pv", s.id]) assertEquals(await listed("volumes", name), found(s.id), name);
  assertEquals(await listed("snapshots", snapshotIdOf("cut")), found(snapshotIdOf("cut")));
  assertEquals(await listed("nodes", "n1", "n9"), {
    ...{ status: 1, errors: "kubectl denolith: nodes: there is no n9", rows: ["n1"] },
  });
  assertEquals(await listed("volumes", "db", "--node", "n2"), {
    ...{ status: 1, errors: "kubectl denolith: volumes: there is no db on node n2", rows: [] },
  });
  assertEquals((await listed("volumes", "other/db")).status, 1);
});

Deno.test("kubectl denolith nodes, volumes, snapshots: labels of Nodes, claims and VolumeSnapshots select", async () => {
  await using s = await setUp();
  const labels = { app: "db" };
  s.api.collection(nodes).patch({ metadata: { labels } }, { name: "n2", namespace: undefined });
  s.api.put(persistentVolumeClaims, { metadata: { name: "db", namespace: "shop", labels }, spec: {} });
  await s.cluster.volumes.create(request("other"), { preferred: ["n1"] }); // which has no claim
  const listed = async (...args: string[]) => (await s.plugin([...args, "-o", "name"], { role: "viewer" })).output;
  assertEquals(await listed("nodes", "-l", "app=db"), "lvmnode.lvm.denolith.dev/n2");
  assertEquals(await listed("nodes", "-l", "app=web"), "");
  assertEquals(await listed("volumes", "-lapp=db"), `lvmvolume.lvm.denolith.dev/${s.id}`);
  assertEquals((await listed("volumes")).split("\n").length, 2);
  assertEquals(await listed("volumes", "--selector", "app=web"), "");
  const { output } = await s.plugin(["volumes", "-l", "app=web", "-n", "shop"]);
  assertMatch(output, /There are no volumes of claims of namespace shop, with the labels app=web\.$/);
});

Deno.test("kubectl denolith volumes: templates and columns print what JSON has", async () => {
  await using s = await setUp();
  const output = async (format: string) => (await s.plugin(["volumes", "-o", format])).output;
  assertEquals(await output('jsonpath={range .volumes[*]}{.claim} {.size}{"\\n"}{end}'), `shop/db ${32n * MiB}\n`);
  assertEquals((await output("custom-columns=CLAIM:.claim,NODE:.node")).split("\n"), [
    "CLAIM     NODE",
    "shop/db   n1",
  ]);
  const { output: state } = await s.plugin(["why", "node/n1", "-o", "jsonpath={.state}"]);
  assertEquals(state, "Alive");
});

Deno.test("kubectl denolith why node/NAME: has what is wrong on the node, and what it consists of", async () => {
  await using s = await setUp();
  s.machines.n1.allLvs()[0]!.lv.tags.clear();
  await s.cluster.agent("n1").node.refresh();
  await s.cluster.objects.waitFor(s.id, (volume) => volume?.status?.state === "Lost", { timeoutMs: 5_000 });
  const why = async (name: string) =>
    JSON.parse((await s.plugin(["why", name, "-o", "json"], { role: "viewer" })).output);
  const one = await why("node/n1");
  assertEquals([one.object, one.state], ["node/n1", "Alive"]);
  assertEquals(one.problems.map(({ reason, object }: Record<string, string>) => `${reason} ${object}`), [
    "Lost claim/shop/db",
  ]);
  const facts = Object.fromEntries(one.facts);
  assertEquals([facts["Group data"], facts["Volumes"]], ["992 MiB of 1 GiB free, 3% used", "1 Lost"]);
  const other = await why("no/n2");
  assertEquals([other.problems, Object.keys(Object.fromEntries(other.facts))], [[], [
    "Agent",
    "Group data",
    "Group fast",
  ]]);
  s.api.put(nodes, { metadata: { name: "n3" } });
  const { output } = await s.plugin(["why", "node/n3"]);
  assertMatch(output, /node\/n3 is NotReported\n\nINFO NodeWithoutAgent node\/n3\n {2}it has no LVMNode/);
  const none = await s.plugin(["why", "lvmnode/n4"]);
  assertEquals([none.status, none.errors], [1, "kubectl denolith: why: there is no node n4"]);
});

Deno.test("kubectl denolith status --watch: shows it again when an object changes, until it is interrupted", async () => {
  await using s = await setUp();
  const end = new AbortController();
  const texts: string[] = [];
  const options = { signal: end.signal, onPrint: (text: string) => void texts.push(text) };
  const running = s.plugin(["volumes", "--watch"], options);
  await waitUntil(() => texts.length === 1);
  await s.cluster.volumes.create(request("second"), { preferred: ["n2"] });
  await waitUntil(() => texts.some((text) => / n2 +\w+ .*Ready/.test(text)));
  end.abort();
  assertEquals((await running).status, 0);
});

Deno.test("kubectl denolith: says what this user may not read, and what the driver's absence looks like", async () => {
  await using s = await setUp();
  s.api.removeResource(lvmNodes);
  const { status, errors } = await s.plugin(["status"]);
  assertEquals(status, 1);
  assertMatch(errors, /^kubectl denolith: this cluster has no LVMNodes: the driver is not installed in it/);
});

/** Returns the value of the annotation that a command asks for the removal of an orphan with. */
function words(commands: readonly (readonly string[])[]): string {
  const patch = commands.flat().find((arg) => arg.startsWith("--patch="))!;
  return JSON.parse(patch.slice("--patch=".length)).metadata.annotations[REMOVE_ORPHANS_ANNOTATION];
}

Deno.test("kubectl denolith orphans: lists them, and asks before one is removed by its agent", async () => {
  await using s = await setUp();
  await s.cluster.client.patch(lvmVolumes, { name: s.id }, { merge: { metadata: { finalizers: null } } });
  await s.cluster.client.delete(lvmVolumes, { name: s.id });
  await s.cluster.volumes.create(request("other"), { preferred: ["n1"] });
  const agent = s.cluster.agent("n1");
  await agent.node.refresh();
  await agent.clock.advance(60_000);
  await agent.node.refresh();
  const { output } = await s.plugin(["orphans"]);
  const uuid = /([\w]{6}(?:-[\w]{4}){5}-[\w]{6})/.exec(output)![1]!;
  assertMatch(output, new RegExp(`n1 +data/\\S+ +32 MiB +${uuid}`));

  const refused = await s.plugin(["orphans", "--remove", uuid], { answer: false });
  assertEquals([refused.status, refused.output], [1, "Nothing was changed."]);
  assertMatch(refused.questions[0]!, /^Remove data\/\S+ \(32 MiB\) on node n1 of context fake, and its data\?$/);
  assertEquals(s.api.objects(lvmNodes)[0]!.metadata.annotations, undefined);

  const asked = await s.plugin(["orphans", "--remove", uuid], { answer: true });
  assertEquals(asked.status, 0, asked.errors);
  assertEquals(words(asked.commands), uuid);
  await waitUntil(() => s.machines.n1.allLvs().length === 1, "the removal of the orphan");
  const unknown = await s.plugin(["orphans", "--remove", "aaaaaa-bbbb-cccc-dddd-eeee-ffff-gggggg", "--yes"]);
  assertMatch(`${unknown.status} ${unknown.errors}`, /^1 .*no agent names an orphan with the UUID aaaaaa/);
});

Deno.test("kubectl denolith forget-node: shows the plan, asks, and refuses a node that lives", async () => {
  await using s = await setUp();
  const alive = await s.plugin(["forget-node", "n1"], { answer: true });
  assertEquals(alive.status, 1);
  assertMatch(alive.errors, /it seems to be alive: its agent reported \d+ s ago/);

  await s.cluster.stopAgent("n1");
  const later = new Date(Date.now() + 400_000);
  const no = await s.plugin(["forget-node", "n1"], { answer: false, now: later });
  assertEquals([no.status, no.questions], [1, ["Give up node n1 of context fake?"]]);
  assertMatch(
    no.output,
    /Volumes of PersistentVolumes, moves and imports: would be marked as Lost\n(.*\n)*Nothing was changed\.$/,
  );
  assertEquals(s.api.objects(lvmNodes).length, 2);

  const plan = await s.plugin(["forget-node", "n1", "-o", "json"], { now: later });
  assertEquals([plan.questions, JSON.parse(plan.output).done], [[], false]);

  const done = await s.plugin(["forget-node", "n1", "--yes"], { now: later });
  assertEquals([done.status, done.questions, done.errors], [0, [], ""]);
  assertMatch(done.output, /its LVMNode is removed/);
  assertEquals(s.api.objects(lvmNodes).map(({ metadata }) => metadata.name), ["n2"]);
  assertEquals(s.api.objects(lvmVolumes)[0]!.status?.state, "Lost");
  const reasons = await s.plugin(["status", "-o", "json"], { now: new Date() });
  assertEquals(JSON.parse(reasons.output).problems.map(({ reason }: { reason: string }) => reason), [
    "NodeForgotten", // and not that its agent is missing, which is known
  ]);
  const sent = s.api.objects(events) as unknown as Record<string, string>[];
  const own = sent.filter(({ reportingComponent }) => reportingComponent === "lvm.denolith.dev/forget-node");
  assertEquals(own.map(({ reason, reportingInstance }) => `${reason} ${reportingInstance}`).sort(), [
    "Lost n1",
    "VolumeLost n1",
  ]);
});

Deno.test("kubectl denolith forget-node: a node that comes back while the question is open is left alone", async () => {
  await using s = await setUp();
  await s.cluster.stopAgent("n1");
  const { uid } = s.api.objects(lvmNodes)[0]!.metadata;
  const now = () => new Date(Date.now() + 400_000);
  const confirm = () => {
    const status = { lastUpdateTime: now().toISOString() };
    s.api.collection(lvmNodes).patch({ status }, { name: "n1", namespace: undefined }, "status" as never);
    return true;
  };
  const errors: string[] = [];
  const { error } = console;
  console.error = (text: string) => void errors.push(text);
  try {
    const terminal = {
      isInteractive: true,
      hasColours: false,
      print: () => {},
      note: () => {},
      write: () => {},
      replace: () => {},
      confirm,
    };
    const kubectl = () => new FakeKubectl({ url: s.api.url, role: "operator" });
    assertEquals(await runPlugin(["forget-node", "n1"], { terminal, kubectl, now }), 1);
  } finally {
    console.error = error;
  }
  assertMatch(errors.join("\n"), /it seems to be alive: its agent reported 0 s ago/);
  assertEquals(s.api.objects(lvmNodes)[0]!.metadata.uid, uid, "its LVMNode was not removed");
});

Deno.test("kubectl denolith status: a volume group of which little is known is not said to be broken", async () => {
  await using s = await setUp();
  const volumeGroups = [{ name: "data", uuid: "u", size: "1Gi", free: "1Gi" }];
  const status = { lastUpdateTime: new Date().toISOString(), volumeGroups } as never;
  s.api.put(lvmNodes, { metadata: { name: "n3" }, spec: { driverName: DRIVER }, status });
  const { output } = await s.plugin(["status", "-o", "wide"]);
  assertMatch(output, /^n3 .* data +1 GiB +1 GiB +0% +0 +0 /m);
  assertMatch(output, /Nothing is wrong\.$/);
});

Deno.test("kubectl denolith: colours are for terminals that have them", async () => {
  await using s = await setUp();
  s.api.put(nodes, { metadata: { name: "n3" } });
  const now = new Date(); // of both, since the table has ages
  const plain = await s.plugin(["nodes"], { now });
  const coloured = await s.plugin(["nodes"], { hasColours: true, now });
  assert(!plain.output.includes("\x1b"));
  assert(coloured.output.includes("\x1b[32mAlive\x1b[0m"));
  assertEquals(coloured.output.split("\x1b").map((part) => part.replace(/^\[\d+m/, "")).join(""), plain.output);
});
