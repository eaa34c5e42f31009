/**
 * What a large cluster costs the controller, by counts: no time, which depends on the machine.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { runController } from "../../cli/controller.ts";
import { lvmNodes, lvmSnapshots, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { lvmImports } from "../../k8s/handover/imports.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import {
  csiNodes,
  type KubeObject,
  leases,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
} from "../../k8s/api/objects.ts";
import { volumeSnapshotClasses, volumeSnapshotContents, volumeSnapshots } from "../../k8s/api/snapshot_objects.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { CachedObjects } from "../../k8s/service/cached_objects.ts";
import {
  agentLeaseObject,
  claimObject,
  csiNodeObject,
  lvmNodeObject,
  lvmVolumeObject,
  nodeName,
  nodeObject,
  volumeObject,
} from "../bench/scale/objects.ts";
import { controllerV8Flags } from "../bench/scale/v8_flags.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { DRIVER, FakeCluster, NAMESPACE } from "../fake/cluster/node_cluster.ts";
import { flagsOf, RunningSubcommand, SubcommandFolder } from "../fake/subcommand.ts";
import { machineWith, MiB, request } from "../fake/cluster/volume_cluster.ts";

/** V8's heap of a controller of 5,000 nodes with 100,000 volumes, in MiB, as `task bench:scale` measures it. */
const HEAP_MIB = 246;

Deno.test("the controller keeps a few hundred bytes of each object", () => {
  const cached = new CachedObjects();
  const node = nodeName(0);
  const claim = claimObject(persistentVolumeClaims, 0, node);
  const volume = lvmVolumeObject(0, claim, node);
  const names = Array.from({ length: 20 }, (_, index) => `${volume.metadata.name}-${index}`);
  const lvmNode = lvmNodeObject(0, names);
  const bytes = (object: KubeObject) => JSON.stringify(object).length;
  const kept = {
    claim: bytes(cached.claim(claim)),
    persistentVolume: bytes(cached.volume(volumeObject(persistentVolumes, 0, claim, node))),
    lvmVolume: bytes(cached.lvmVolume(volume)),
    lvmNode: bytes(cached.lvmNode(lvmNode)),
    node: bytes(cached.node(nodeObject(0))),
    csiNode: bytes(cached.csiNode(csiNodeObject(csiNodes, 0))),
    agentLease: bytes(cached.agentLease(agentLeaseObject(leases, lvmNode))),
  };
  const limits = {
    ...{ claim: 500, persistentVolume: 950, lvmVolume: 700, lvmNode: 2_200, node: 500, csiNode: 300, agentLease: 300 },
  };
  const tooLarge = Object.entries(limits).filter(([name, limit]) => kept[name as keyof typeof kept] > limit);
  assertEquals(tooLarge, [], JSON.stringify(kept));
});

Deno.test("a claim without a volume, and an LVMVolume without an LV, are kept whole", () => {
  const cached = new CachedObjects();
  const claim = claimObject(persistentVolumeClaims, 0, "n");
  const { volumeName: _, ...spec } = claim.spec!;
  const pending = { ...claim, spec };
  assertEquals(cached.claim(pending), pending);
  const { status: __, ...requested } = lvmVolumeObject(0, claim, "n");
  assertEquals(cached.lvmVolume(requested), requested);
});

Deno.test("values that objects have in common are in memory once", () => {
  const cached = new CachedObjects();
  const [a, b] = [0, 1].map((index) => cached.claim(claimObject(persistentVolumeClaims, index, "n")));
  assert(a!.spec!.resources === b!.spec!.resources && a!.status!.capacity === b!.status!.capacity);
  assert(a!.metadata.finalizers === b!.metadata.finalizers);
});

/** Counts the objects that are gone through until it is disposed of. */
class VisitCount implements Disposable {
  readonly #list = Informer.prototype.list;
  count = 0;

  constructor() {
    // deno-lint-ignore no-this-alias
    const visits = this;
    Informer.prototype.list = function <T extends KubeObject>(this: Informer<T>): T[] {
      const all = visits.#list.call(this) as T[];
      visits.count += all.length;
      return all;
    };
  }

  [Symbol.dispose](): void {
    Informer.prototype.list = this.#list;
  }
}

Deno.test("to create, expand and delete a volume of a chosen node, the controller goes through no list", async () => {
  await using cluster = await FakeCluster.start({ n: machineWith({ data: 1024n * MiB }) });
  for (let index = 0; index < 50; index++) {
    const object: LvmVolume = lvmVolumeObject(index, claimObject(persistentVolumeClaims, index, "gone"), "gone");
    cluster.api.restore(lvmVolumes, object);
  }
  await waitUntil(() => cluster.objects.list().length === 50, "the volumes in the cache");
  using visits = new VisitCount();
  const wanted = request("a");
  const { id } = await cluster.volumes.create(wanted, { allowed: ["n"], preferred: ["n"] });
  await cluster.volumes.expand(id, { required: 64n * MiB });
  await cluster.volumes.delete(id);
  assert(visits.count < 50, `${visits.count} objects; those of the agent alone are some`);
});

Deno.test("the controller lists each kind once, in pages, and only the metadata of Nodes", async () => {
  const snapshotKinds = [volumeSnapshotClasses, volumeSnapshotContents, volumeSnapshots];
  await using api = FakeApiServer.start({
    resources: [lvmVolumes, lvmSnapshots, lvmNodes, lvmMoves, lvmImports, ...snapshotKinds],
  });
  for (let index = 0; index < 1_001; index++) api.restore(nodes, nodeObject(index));
  await using folder = await SubcommandFolder.create(api.url);
  const flags = flagsOf(
    ...[
      "controller",
      `--kubeconfig=${folder.kubeconfig}`,
      `--endpoint=unix://${folder.path}/s.sock`,
      "--http-address=off",
    ],
    ...[`--namespace=${NAMESPACE}`, `--driver-name=${DRIVER}`, "--identity=test"],
  );
  const leads = () => api.objects(leases).filter(({ spec }) => spec?.holderIdentity?.startsWith("test-")).length === 5;
  await using _running = await RunningSubcommand.start((end) => runController(flags, end), leads);
  const lists = api.requests.filter(({ method, query }) => method === "GET" && query.has("limit"));
  const counts = Map.groupBy(lists, ({ path }) => path.split("/").at(-1)!);
  assertEquals(counts.get("nodes")?.length, 3);
  for (const [kind, requests] of counts) {
    if (kind === "nodes") continue;
    const asked = api.requests.filter(({ path }) => path.endsWith(`/${kind}`)).map(({ query }) => `${query}`);
    assertEquals([kind, requests.length], [kind, 1], asked.join("; "));
  }
  const accepts = counts.get("nodes")!.map(({ headers }) => headers.get("accept"));
  assert(accepts.every((accept) => accept?.endsWith(";as=PartialObjectMetadataList")), `${accepts}`);
});

Deno.test("the bound of V8's heap is at least twice what 5,000 nodes with 100,000 volumes need", async () => {
  const bound = Number(/--max-old-space-size=(\d+)/.exec(await controllerV8Flags())?.[1]);
  assert(bound >= 2 * HEAP_MIB, `${bound} MiB for a heap of ${HEAP_MIB} MiB`);
});
