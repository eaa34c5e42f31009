/**
 * The roles of people who use the plugin have the rights that it needs, and no other ones. A right that is missing fails any of the
 * plugin's tests, at the end of their API servers.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { type Pod, pods } from "../../k8s/api/objects.ts";
import { PLUGIN_COMMANDS } from "../../plugin/subcommands.ts";
import { volumeSnapshotContents } from "../../k8s/api/snapshot_objects.ts";
import { snapshotIdOf } from "../../base/ids.ts";
import { FULL_COW } from "../../lvm/settings/cow_size.ts";
import type { LoggedRequest } from "../fake/cluster/api_server.ts";
import { ImportCluster } from "../fake/cluster/import_cluster.ts";
import { MoveCluster } from "../fake/cluster/move_cluster.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";
import { grantedPermissions, type ProcessRole, roleInUserAgent, usedPermission } from "../fake/cluster/rbac.ts";
import { ANYWHERE, request } from "../fake/cluster/volume_cluster.ts";
import { Stage, waitFor } from "./troubleshooting/stage.ts";

/** Starts a cluster with a bound claim that a pod uses, a snapshot, and a claim that waits. */
async function setUp(stage: Stage): Promise<void> {
  await stage.start();
  await stage.bindClaim();
  await stage.startPod();
  await stage.takeSnapshot();
  stage.cluster.addClaim({ name: "waiting", size: "1Gi" });
}

/** What has an API server. */
interface WithApi {
  readonly cluster: { readonly api: Stage["cluster"]["api"] };
}

/** Returns the requests of somebody with a role. */
function requestsOf({ cluster: { api } }: WithApi, role: ProcessRole = "viewer"): readonly LoggedRequest[] {
  return api.requests.filter(({ headers }) => roleInUserAgent(headers.get("user-agent") ?? "") === role);
}

/** Returns the permissions that requests under a role used. */
function usedPermissions(role: ProcessRole, ...clusters: readonly WithApi[]): string[] {
  const requests = clusters.flatMap((each) => requestsOf(each, role));
  return [...new Set(requests.map((request) => usedPermission(request)))].sort();
}

/** Opens the page of the cluster and that of a volume. @param until resolves when they were seen */
async function watchPages(
  plugin: ReturnType<typeof pluginOver>,
  id: string,
  until: () => Promise<void>,
): Promise<void> {
  const end = new AbortController();
  const { promise: printed, resolve } = Promise.withResolvers<string>();
  const running = plugin(["ui"], { signal: end.signal, onPrint: resolve });
  const address = new URL(/http:\S+/.exec(await printed)![0]);
  const opened = await fetch(address, { redirect: "manual" });
  await opened.body?.cancel();
  const headers = { cookie: opened.headers.get("set-cookie")!.split(";")[0]! };
  const paths = ["/live/cluster", `/live/volumes/${id}`];
  const bodies = await Promise.all(paths.map(async (path) => (await fetch(address.origin + path, { headers })).body!));
  await until();
  await Promise.all(bodies.map((body) => body.cancel()));
  end.abort();
  await running;
}

Deno.test("denolith-view has the rights that reading subcommands and the completion use, and no other ones", async () => {
  await using stage = new Stage();
  await setUp(stage);
  const plugin = pluginOver(stage.cluster.api, { role: "viewer" });
  const watches = () => requestsOf(stage).filter(({ query }) => query.has("watch")).length;
  /** Runs a subcommand that shows its answer again and again, until it watches so many kinds. */
  const watch = async (kinds: number, ...args: string[]) => {
    const end = new AbortController();
    const before = watches();
    const running = plugin([...args, "--watch"], { signal: end.signal });
    await waitFor("the watches", () => watches() >= before + kinds || undefined);
    end.abort();
    await running;
  };
  for (const name of ["status", "nodes", "volumes", "snapshots", "orphans"]) await plugin([name]);
  for (const name of ["data", "waiting", "volumesnapshot/cut", "node/n1"]) await plugin(["why", name]);
  await plugin(["forget-node", "n1"]);
  for (const flags of [["--to", "n2", "--dry-run"], ["--cancel"]]) await plugin(["move", "data", ...flags]);
  await plugin(["drain", "n1", "--dry-run"]);
  await plugin(["dump", "--skip-doctor"]);
  await watch(3, "status");
  await watch(3, "why", "data");
  await watch(1, "why", "volumesnapshot/cut");
  stage.addGroupSnapshot(["data"]);
  await watch(1, "why", "volumegroupsnapshot/both");
  const kinds = Object.keys(PLUGIN_COMMANDS.why.argument.candidates.kinds).map((kind) => ["why", `${kind}/`]);
  for (const words of [["why", ""], ["doctor", ""], ["why", "--namespace", ""], ...kinds]) {
    await plugin(["__complete", ...words]);
  }
  await watchPages(plugin, stage.volume()!.spec!.csi!.volumeHandle, async () => {
    const isWatched = () => requestsOf(stage).some(({ path, query }) => /events$/.test(path) && query.has("watch"));
    await waitFor("the watch of events", () => isWatched() || undefined);
  });
  await using openEbs = await ImportCluster.start("OpenEBS");
  await using topoLvm = await ImportCluster.start("TopoLVM");
  for (const { cluster: { api } } of [openEbs, topoLvm]) {
    for (const claim of [["data", "-n", "shop"], []]) {
      await pluginOver(api, { role: "viewer" })(["import", ...claim, "--dry-run"]);
    }
  }
  assertEquals(usedPermissions("viewer", stage, openEbs, topoLvm), grantedPermissions("denolith-view"));
});

Deno.test("why explains a VolumeSnapshot also by the names of what was made for it", async () => {
  await using stage = new Stage();
  await setUp(stage);
  const plugin = pluginOver(stage.cluster.api, { role: "viewer" });
  const [content] = stage.cluster.api.objects(volumeSnapshotContents);
  const expected = await plugin(["why", "volumesnapshot/cut"]);
  assertMatch(expected.output, /volumesnapshot\/default\/cut is Ready/);
  for (const target of [`snapshot/${content!.status!.snapshotHandle}`, `vsc/${content!.metadata.name}`]) {
    const { output } = await plugin(["why", target, "-n", "elsewhere"]);
    assertEquals(output.replace("elsewhere", "default"), expected.output, target);
  }
  const { status, errors } = await plugin(["why", "dsnap/v1-none"]);
  assertEquals([status, errors], [1, "kubectl denolith: why: snapshot v1-none belongs to no VolumeSnapshot"]);
});

Deno.test("whoever may read little is told so, and which role allows more", async () => {
  await using stage = new Stage();
  await setUp(stage);
  const { forbidden } = stage.cluster.api.faults;
  const plugin = pluginOver(stage.cluster.api, { role: "viewer" });
  for (const kind of ["lvmvolumes", "nodes"]) forbidden.add(kind);
  const [status, volumes, why] = [await plugin(["status"]), await plugin(["volumes"]), await plugin(["why", "data"])];
  assertMatch(status.output, /Not read {4}lvmvolumes: Forbidden\n[^]*\nNothing is wrong in what you may read\.$/);
  assertMatch(volumes.output, /There are no volumes\.\n\nNot read: lvmvolumes: Forbidden\nNot read: nodes: Forbidden$/);
  assertMatch(why.output, /\nNothing is wrong in what you may read\.\n[^]*\nNot read: lvmvolumes: Forbidden$/);
  forbidden.add("lvmnodes");
  const refused = await plugin(["nodes"]);
  assertMatch(
    `${refused.status} ${refused.errors}`,
    /1 [^]*list lvmnodes: Forbidden: .*ClusterRole denolith-view allows it/,
  );
});

Deno.test("a list of which flags select nothing says what they select", async () => {
  await using stage = new Stage();
  await setUp(stage);
  const plugin = pluginOver(stage.cluster.api, { role: "viewer" });
  const last = async (...args: string[]) => (await plugin(args)).output.split("\n").at(-1);
  assertEquals(await last("volumes", "--node", "n9"), "There are no volumes on node n9, which does not exist.");
  assertEquals(await last("volumes", "-n", "shop"), "There are no volumes of claims of namespace shop.");
  assertEquals(
    await last("snapshots", "--node", "n1", "-n", "shop"),
    "There are no snapshots on node n1, of VolumeSnapshots of namespace shop.",
  );
});

/** Imports a volume, returns it, and imports it for good. */
async function importAndFinish(s: ImportCluster): Promise<void> {
  s.startImporter();
  const plugin = pluginOver(s.cluster.api, { role: "operator" });
  const flags = ["data", "-n", "shop"];
  await plugin(["import", ...flags, "--provisioner-stopped"]);
  await plugin(["import", ...flags, "--cancel"]);
  await plugin(["import", ...flags, "--provisioner-stopped"]);
  await plugin(["import", ...flags, "--finish"]);
}

/** Moves a claim whose pod is evicted, and back. */
async function moveWithEviction(s: MoveCluster): Promise<void> {
  s.cluster.api.put<Pod>(pods, {
    metadata: { name: "db-0", namespace: "shop" },
    spec: {
      containers: [],
      nodeName: "node-1",
      volumes: [{ name: "d", persistentVolumeClaim: { claimName: "data" } }],
    },
  });
  const plugin = pluginOver(s.cluster.api, { role: "operator" });
  for (const node of ["node-2", "node-1"]) {
    await plugin(["move", "data", "-n", "shop", "--to", node, "--evict", "--force"]);
  }
}

Deno.test("denolith-operate has the rights that changing subcommands use besides, and no other ones", async () => {
  await using stage = new Stage();
  await setUp(stage);
  const plugin = pluginOver(stage.cluster.api, { role: "operator" });
  const { client } = stage.cluster.agents;
  await plugin(["doctor", "n1"]);

  await stage.bindClaim({ name: "other" });
  const name = stage.volume("other")!.spec!.csi!.volumeHandle;
  await client.patch(lvmVolumes, { name }, { merge: { metadata: { finalizers: null } } as never });
  await client.delete(lvmVolumes, { name });
  await stage.report();
  await stage.agent.clock.advance(60_000);
  const uuid = await waitFor("the orphan", async () => {
    await stage.report();
    return /[\w]{6}(?:-[\w]{4}){5}-[\w]{6}/.exec((await plugin(["orphans"])).output)?.[0];
  });
  await plugin(["orphans", "--remove", uuid, "--yes"]);

  // what no PersistentVolume and no VolumeSnapshotContent names is deleted, and the rest is marked as lost
  const { volumes, snapshots } = stage.cluster.agents;
  const { id: source } = await volumes.create(request("unnamed"), ANYWHERE);
  await snapshots.create({ id: snapshotIdOf("unnamed"), name: "unnamed", source, cowSize: FULL_COW });
  await stage.cluster.agents.stopAgent("n1");
  const { output, errors } = await plugin(["forget-node", "n1", "--force", "it burnt", "--yes"]);
  assert(!errors.includes("kubectl denolith:"), errors);
  assertMatch(output, /its LVMNode is removed/);
  await using moving = await MoveCluster.start();
  moving.startMover();
  await moveWithEviction(moving);
  const view = grantedPermissions("denolith-view");
  await using importing = await ImportCluster.start();
  await importAndFinish(importing);
  const used = usedPermissions("operator", stage, moving, importing);
  const changing = used.filter((permission) => !view.includes(permission));
  assertEquals(changing, grantedPermissions("denolith-operate").filter((permission) => !view.includes(permission)));
});
