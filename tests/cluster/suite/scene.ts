/**
 * A stage for one life in the cluster: a namespace of its own with what belongs to it, all of which goes at the end.
 *
 * @module
 */

import { parseAll } from "@std/yaml";
import type { KubeObject, PersistentVolume, PersistentVolumeClaim, Pod } from "../../../k8s/api/objects.ts";
import { volumeIdOf } from "../../../lvm/ids.ts";
import { Cluster } from "../../rig/cluster.ts";
import type { Node } from "../../rig/node.ts";
import { type OwnLv, ownLvs } from "./scene_lvs.ts";
import { claimObject, type ClaimWish, classObject, type ClassWish } from "./scene_objects.ts";
import { isRunning, podObject, type PodWish } from "./scene_objects.ts";
import { type Kind, WAIT_MS, Watcher } from "./scene_watch.ts";

/** The variable that names the folder of the cluster that the suite runs in. */
export const CLUSTER_VARIABLE = "DENOLITH_TEST_CLUSTER";

/** Whether the long lives are to run, too. */
export const FULL = Deno.env.get("FULL") === "1";

/** The kinds of what a scene makes beyond its namespace. */
const BEYOND = new Set([
  ...["StorageClass", "PersistentVolume", "VolumeAttributesClass"],
  ...["VolumeSnapshotClass", "VolumeSnapshotContent"],
  ...["LVMVolume", "LVMSnapshot", "LVMNode"],
  ...["ClusterRole", "ClusterRoleBinding"],
]);

/** A stage for one life. */
export class Scene extends Watcher implements AsyncDisposable {
  readonly cluster: Cluster;
  /** The first node of the cluster, mostly the only one. */
  readonly node: Node;
  /** The scene's namespace, which is also the start of its classes' names. */
  readonly namespace: string;
  /** Objects beyond the namespace that were applied here, the last first. */
  readonly #beyond: { kind: string; name: string }[] = [];
  /** The ids of all volumes that were ever asked for here. */
  readonly #volumes = new Set<string>();

  private constructor(cluster: Cluster, namespace: string) {
    super(cluster.controlPlane, namespace);
    this.cluster = cluster;
    this.namespace = namespace;
    const node = cluster.nodes[0];
    if (node === undefined) throw new Error(`open scene ${namespace}: the cluster has no node`);
    this.node = node;
  }

  /**
   * Opens a scene in the cluster that {@linkcode CLUSTER_VARIABLE} names.
   *
   * @param title a short word that its names begin with
   */
  static async open(title: string): Promise<Scene> {
    const path = Deno.env.get(CLUSTER_VARIABLE);
    if (!path) throw new Error(`open a scene: ${CLUSTER_VARIABLE} is not set; run: deno task test:cluster`);
    const scene = new Scene(await Cluster.open(path), `${title}-${crypto.randomUUID().slice(0, 5)}`);
    await scene.kubectl("create", "namespace", scene.namespace);
    scene.informer("PersistentVolumeClaim").subscribe((_key, claim) => {
      if (claim !== undefined) scene.#volumes.add(volumeIdOf(`pvc-${claim.metadata.uid}`));
    });
    await scene.informer("PersistentVolumeClaim").synced;
    // Pods that are made before it are refused.
    await scene.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s");
    return scene;
  }

  /** Runs kubectl in the scene's namespace. @throws {Error} with what it said */
  async kubectl(...args: string[]): Promise<string> {
    return await this.cluster.controlPlane.kubectl(["--namespace", this.namespace, ...args]);
  }

  /** Applies an object, or some as YAML; those beyond namespaces go at the end, too. */
  async apply(what: object | string): Promise<void> {
    const text = typeof what === "string" ? what : JSON.stringify(what);
    for (const object of parseAll(text) as (KubeObject | null)[]) {
      if (object === null || !BEYOND.has(object.kind!)) continue;
      this.#beyond.unshift({ kind: object.kind!, name: object.metadata.name });
      if (object.kind === "LVMVolume") this.#volumes.add(object.metadata.name);
    }
    const args = ["--namespace", this.namespace, "apply", "--filename", "-"];
    await this.cluster.controlPlane.kubectl(args, { stdin: text });
  }

  /** Makes a StorageClass of the driver; answers its full name. */
  async storageClass(name: string, wish: ClassWish = {}): Promise<string> {
    const full = `${this.namespace}-${name}`;
    await this.apply(classObject(full, wish));
    return full;
  }

  /** Makes a claim. */
  async claim(wish: ClaimWish): Promise<void> {
    await this.apply(claimObject(wish));
  }

  /** Makes a pod; {@linkcode Scene.running} waits for it. */
  async pod(wish: PodWish): Promise<void> {
    await this.apply(podObject(wish));
  }

  /** Waits until a pod runs. */
  async running(name: string): Promise<Pod> {
    return await this.wait("Pod", name, isRunning, "runs");
  }

  /** Waits until a claim is bound; answers it. */
  async bound(name: string): Promise<PersistentVolumeClaim> {
    return await this.wait("PersistentVolumeClaim", name, (claim) => claim?.status?.phase === "Bound", "is bound");
  }

  /** Waits until an object is gone. */
  async gone(kind: Kind, name: string): Promise<void> {
    await this.wait(kind, name, (object) => object === undefined, "is gone");
  }

  /** Deletes an object, and waits until it is gone. */
  async delete(kind: Kind, name: string): Promise<void> {
    await this.remove(kind, name);
    await this.gone(kind, name);
  }

  /** Asks for the deletion of an object, which need not be there. */
  async remove(kind: string, name: string): Promise<void> {
    await this.kubectl("delete", kind, name, "--wait=false", "--ignore-not-found");
  }

  /** Merges a patch into an object. */
  async patch(kind: Kind, name: string, merge: object): Promise<void> {
    await this.kubectl("patch", kind, name, "--type=merge", "--patch", JSON.stringify(merge));
  }

  /** Runs shell lines in a pod; answers what they printed. @throws {Error} when they fail */
  async exec(pod: string, command: string): Promise<string> {
    return await this.kubectl("exec", pod, "--", "sh", "-c", command);
  }

  /** Runs shell lines on a node as root, the first by default; answers what they printed. @throws {Error} when they fail */
  async onNode(command: string, node: Node = this.node): Promise<string> {
    const { code, stdout, stderr } = await node.exec(command, { timeoutMs: WAIT_MS });
    if (code !== 0) throw new Error(`run on ${node.name}: ${command}: exit status ${code}: ${stderr.trim()}`);
    return stdout;
  }

  /** The PV of a bound claim. */
  async volumeOf(claim: string): Promise<PersistentVolume> {
    const { spec } = await this.bound(claim);
    return await this.wait("PersistentVolume", spec!.volumeName!, (pv) => pv !== undefined, "is there");
  }

  /** The LVs of volumes of this scene; those that are being erased have no volume any more, and are left out. */
  async lvs(): Promise<OwnLv[]> {
    const all = (await Promise.all(this.cluster.nodes.map(ownLvs))).flat();
    return all.filter(({ volume }) => volume !== undefined && this.#volumes.has(volume));
  }

  /** The LV of a bound claim. @throws {Error} when there is none */
  async lvOf(claim: string): Promise<OwnLv> {
    const id = (await this.volumeOf(claim)).spec!.csi!.volumeHandle;
    const found = (await this.lvs()).find(({ volume }) => volume === id);
    if (found === undefined) throw new Error(`find the LV of claim ${claim}: no LV carries the tag of ${id}`);
    return found;
  }

  /**
   * Waits until nothing is left of the scene's volumes: no PV, no LVMVolume, and no LV but those that are being erased.
   *
   * @throws {Error} when something stays
   */
  async settled(): Promise<void> {
    for (let left = await this.#left(); left.length > 0; left = await this.#left()) {
      await Promise.all(left.map(({ kind, name }) => this.gone(kind, name)));
    }
    const lvs = await this.lvs();
    if (lvs.length > 0) throw new Error(`settle ${this.namespace}: LVs are left: ${JSON.stringify(lvs)}`);
  }

  /** Removes all that was made here; by force what does not go. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.#clear();
    } finally {
      await this.close();
    }
  }

  async #clear(): Promise<void> {
    // While a pod is there, kubelet may have the volume mounted, and taking that from under it helps nobody.
    await this.kubectl("delete", "statefulsets,pods,persistentvolumeclaims", "--all", `--timeout=${WAIT_MS / 1000}s`)
      .catch(warn);
    await this.informer("PersistentVolume").synced;
    await Promise.all(
      this.#volumesHere().filter(({ spec }) => spec?.persistentVolumeReclaimPolicy === "Retain").map((
        { metadata: { name } },
      ) => this.patch("PersistentVolume", name, { spec: { persistentVolumeReclaimPolicy: "Delete" } }).catch(warn)),
    );
    for (const { kind, name } of this.#beyond) await this.remove(kind, name);
    await this.kubectl("delete", "namespace", this.namespace, "--wait=false");
    const left = (await this.#left()).map(({ kind, name }) => `${kind}/${name}`);
    if (left.length === 0) return;
    await this.kubectl("wait", "--for=delete", ...left, `--timeout=${WAIT_MS / 1000}s`).catch((error) =>
      this.#force(left, error)
    );
  }

  /** Removes what the driver does not, so that the next life finds room. */
  async #force(objects: readonly string[], why: Error): Promise<void> {
    console.error(`scene ${this.namespace}: removing by force what is left: ${why.message}`);
    const freed = JSON.stringify({ metadata: { finalizers: null } });
    for (const object of objects) {
      await this.kubectl("patch", object, "--type=merge", "--patch", freed).catch(warn);
      await this.kubectl("delete", object, "--wait=false", "--ignore-not-found").catch(warn);
    }
    for (const { node, group, name } of await this.lvs()) {
      await this.onNode(`lvremove -qq -f ${group}/${name}`, this.cluster.node(node)).catch(warn);
    }
  }

  /** The objects of the scene's volumes that are there. */
  async #left(): Promise<{ kind: Kind; name: string }[]> {
    const volumes = this.informer("LVMVolume");
    await Promise.all([volumes.synced, this.informer("PersistentVolume").synced]);
    return [
      ...this.#volumesHere().map(({ metadata: { name } }) => ({ kind: "PersistentVolume" as const, name })),
      ...[...this.#volumes].filter((id) => volumes.get(id)).map((name) => ({ kind: "LVMVolume" as const, name })),
    ];
  }

  /** The PVs of the scene. */
  #volumesHere(): PersistentVolume[] {
    return this.informer("PersistentVolume").list().filter(({ spec }) =>
      spec?.claimRef?.namespace === this.namespace || this.#volumes.has(spec?.csi?.volumeHandle ?? "")
    );
  }
}

/** Says what went wrong while a test cleaned up; what the test found matters more. */
export function warn(error: Error): void {
  console.error(error.message);
}
