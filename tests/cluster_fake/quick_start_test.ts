/**
 * The commands of docs/quick-start.md, run in a whole cluster in this process. The test does what kubectl, the scheduler
 * and kubelet do.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { parseAll } from "@std/yaml";
import {
  type KubeObject,
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  type Resource,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { SELECTED_NODE_ANNOTATION } from "../../k8s/provisioner/claim.ts";
import { PROVISIONER_ANNOTATION, waitUntil } from "../fake/cluster/control_plane.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import { flagsOf } from "../fake/subcommand.ts";
import { machineWith } from "../fake/cluster/volume_cluster.ts";
import { WholeCluster } from "../fake/cluster/whole_cluster.ts";
import { chapter, shellBlocks } from "../meta/markdown.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

/** An object of a manifest; of those of pods, only the part that is used here. */
interface Manifest extends KubeObject {
  readonly spec?: { readonly template?: { readonly spec: { readonly containers: readonly { args?: string[] }[] } } };
}

/** Returns the commands of the chapter with the three commands. */
async function threeCommands(): Promise<string[]> {
  const page = await Deno.readTextFile(`${ROOT}docs/quick-start.md`);
  return shellBlocks(chapter(page, "Three commands")).flatMap((block) => block.trim().split("\n"));
}

/** Returns the objects that `kubectl apply` would create, in its order: by argument, and by the names of files. */
function objectsOf(command: string): Manifest[] {
  const [, ...folders] = /^kubectl apply((?: -f \S+)+)$/.exec(command)![1]!.split(" -f ");
  return folders.flatMap((folder) =>
    [...Deno.readDirSync(ROOT + folder)].map(({ name }) => name).filter((name) => name.endsWith(".yaml")).sort()
      .flatMap((name) => parseAll(Deno.readTextFileSync(`${ROOT}${folder}/${name}`)) as Manifest[])
  );
}

/** Returns the object of a kind. @throws {Error} when there is none, or more than one */
function onlyOf(objects: readonly Manifest[], kind: string): Manifest {
  const [found, ...more] = objects.filter((object) => object.kind === kind);
  assert(found !== undefined && more.length === 0, `one ${kind}`);
  return found;
}

Deno.test("the quick start has three commands, and they end with a volume on a node", async () => {
  const [install, example, wait, ...more] = await threeCommands();
  assertEquals(more, []);
  const driver = objectsOf(install!);
  const [claim, pod] = ["PersistentVolumeClaim", "Pod"].map((kind) => onlyOf(objectsOf(example!), kind));
  assertEquals(wait, `kubectl wait --for=condition=Ready pod/${pod!.metadata.name} --timeout=10m`);

  const node = { name: "node-1", machine: machineWith({ data: 4n << 30n }) };
  await using cluster = await WholeCluster.start({ [node.name]: node.machine });
  const put = <T extends KubeObject>(resource: Resource<T>, { apiVersion: _, kind: __, ...object }: Manifest) =>
    cluster.api.put(resource, object as unknown as T);
  put(storageClasses, onlyOf(driver, "StorageClass"));
  const at = { namespace: "default", name: claim!.metadata.name };
  const annotations = { [PROVISIONER_ANNOTATION]: DRIVER, [SELECTED_NODE_ANNOTATION]: node.name };
  put(persistentVolumeClaims, {
    ...{ ...claim!, status: { phase: "Pending" } },
    metadata: { ...at, annotations },
  } as Manifest);
  put(pods, { ...pod!, metadata: { ...pod!.metadata, namespace: "default" } });

  const claimNow = () => cluster.api.objects(persistentVolumeClaims).find(({ metadata }) => metadata.name === at.name);
  await waitUntil(() => claimNow()?.status?.phase === "Bound", "the claim of the example");
  const [volume] = cluster.api.objects(lvmVolumes);
  assertEquals([volume!.spec.nodeName, volume!.status?.state, volume!.status?.size], [node.name, "Ready", "1Gi"]);
  assertEquals(cluster.api.objects(persistentVolumes)[0]!.spec?.csi?.fsType, "ext4");
  assertEquals(node.machine.allLvs().map(({ group, lv }) => [group.name, lv.size]), [["data", 1n << 30n]]);
});

Deno.test("the manifests that the quick start applies: namespace first, kinds before what uses them, flags that are known", async () => {
  const objects = objectsOf((await threeCommands())[0]!);
  const kinds = objects.map(({ kind }) => kind);
  assertEquals(kinds.slice(0, 6), [...Array(5).fill("CustomResourceDefinition"), "Namespace"]);
  for (const kind of ["DaemonSet", "Deployment"]) {
    const [{ args = [] } = {}] = onlyOf(objects, kind).spec!.template!.spec.containers;
    flagsOf(...args.map((arg) => arg.replace(/\$\([A-Z_]+\)/, "x")));
  }
});
