/**
 * A namespace for a test in the cluster, with everything that belongs to it. All of it is removed at the end.
 *
 * @module
 */

import { parseAll } from "@std/yaml";
import {
  apiVersionOf,
  type KubeObject,
  type PersistentVolume,
  type PersistentVolumeClaim,
  type Pod,
  type Resource,
} from "../../../../k8s/api/objects.ts";
import { volumeIdOf } from "../../../../base/ids.ts";
import { Cluster } from "../../../rig/cluster.ts";
import type { Node } from "../../../rig/node.ts";
import { type DriverLv, listDriverLvs } from "./driver_lvs.ts";
import { claimObject, type ClaimSpec, classObject, type StorageClassSpec } from "./objects.ts";
import { isRunning, podObject, type PodSpec } from "./objects.ts";
import { type Kind, ObjectWatcher, WAIT_MS } from "./object_watcher.ts";

/** The environment variable with the folder of the cluster that the suite runs in. */
export const CLUSTER_VARIABLE = "DENOLITH_TEST_CLUSTER";

/** True if the long tests run, too. */
export const FULL = Deno.env.get("FULL") === "1";

/** The kinds of cluster-scoped objects that a test creates. */
const CLUSTER_SCOPED_KINDS = new Set([
  ...["StorageClass", "PersistentVolume", "VolumeAttributesClass"],
  ...["VolumeSnapshotClass", "VolumeSnapshotContent", "VolumeGroupSnapshotClass"],
  ...["LVMVolume", "LVMSnapshot", "LVMNode"],
  ...["ClusterRole", "ClusterRoleBinding"],
]);

/** A namespace for a test. */
export class TestNamespace extends ObjectWatcher implements AsyncDisposable {
  readonly cluster: Cluster;
  /** The first node of the cluster, mostly the only one. */
  readonly node: Node;
  /** The name of the namespace, which is also the prefix of its classes' names. */
  readonly namespace: string;
  /** Objects beyond the namespace that were applied here, the last first. */
  readonly #clusterScoped: { kind: string; name: string }[] = [];
  /** The ids of all volumes that were ever requested here. */
  readonly #volumeIds = new Set<string>();

  private constructor(cluster: Cluster, namespace: string) {
    super(cluster.controlPlane, namespace);
    this.cluster = cluster;
    this.namespace = namespace;
    const node = cluster.nodes[0];
    if (node === undefined) throw new Error(`open test namespace ${namespace}: the cluster has no node`);
    this.node = node;
  }

  /**
   * Opens a test namespace in the cluster that {@linkcode CLUSTER_VARIABLE} names.
   *
   * @param title a short word that its names begin with
   */
  static async open(title: string): Promise<TestNamespace> {
    const path = Deno.env.get(CLUSTER_VARIABLE);
    if (!path) throw new Error(`open a test namespace: ${CLUSTER_VARIABLE} is not set; run: deno task test:cluster`);
    const ns = new TestNamespace(await Cluster.open(path), `${title}-${crypto.randomUUID().slice(0, 5)}`);
    await ns.kubectl("create", "namespace", ns.namespace);
    ns.informer("PersistentVolumeClaim").subscribe((_key, claim) => {
      if (claim !== undefined) ns.#volumeIds.add(volumeIdOf(`pvc-${claim.metadata.uid}`));
    });
    await ns.informer("PersistentVolumeClaim").synced;
    // Pods that are created before it are refused.
    await ns.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s");
    return ns;
  }

  /** Runs kubectl in the namespace. @throws {Error} with its error output */
  async kubectl(...args: string[]): Promise<string> {
    return await this.cluster.controlPlane.kubectl(["--namespace", this.namespace, ...args]);
  }

  /** Applies an object, or some as YAML; those beyond namespaces go at the end, too. */
  async apply(what: object | string): Promise<void> {
    const text = typeof what === "string" ? what : JSON.stringify(what);
    for (const object of parseAll(text) as (KubeObject | null)[]) {
      if (object === null || !CLUSTER_SCOPED_KINDS.has(object.kind!)) continue;
      this.#clusterScoped.unshift({ kind: object.kind!, name: object.metadata.name });
      if (object.kind === "LVMVolume") this.#volumeIds.add(object.metadata.name);
    }
    const args = ["--namespace", this.namespace, "apply", "--filename", "-"];
    await this.cluster.controlPlane.kubectl(args, { stdin: text });
  }

  /** Applies an object of a kind, which it does not name. */
  applyAs(resource: Resource, object: KubeObject): Promise<void> {
    return this.apply({ ...object, apiVersion: apiVersionOf(resource), kind: resource.kind });
  }

  /** Makes a StorageClass of the driver; answers its full name. */
  async createStorageClass(name: string, spec: StorageClassSpec = {}): Promise<string> {
    const fullName = `${this.namespace}-${name}`;
    await this.apply(classObject(fullName, spec));
    return fullName;
  }

  /** Makes a claim. */
  async createClaim(spec: ClaimSpec): Promise<void> {
    await this.apply(claimObject(spec));
  }

  /** Makes a pod; {@linkcode TestNamespace.waitForRunning} waits for it. */
  async createPod(spec: PodSpec): Promise<void> {
    await this.apply(podObject(spec));
  }

  /** Waits until a pod runs. */
  async waitForRunning(name: string): Promise<Pod> {
    return await this.waitFor("Pod", name, isRunning, "runs");
  }

  /** Waits until a claim is bound; answers it. */
  async waitForBound(name: string): Promise<PersistentVolumeClaim> {
    return await this.waitFor("PersistentVolumeClaim", name, (claim) => claim?.status?.phase === "Bound", "is bound");
  }

  /** Waits until an object is gone. */
  async waitForDeletion(kind: Kind, name: string): Promise<void> {
    await this.waitFor(kind, name, (object) => object === undefined, "is gone");
  }

  /** Deletes an object, and waits until it is gone. */
  async deleteAndWait(kind: Kind, name: string): Promise<void> {
    await this.requestDeletion(kind, name);
    await this.waitForDeletion(kind, name);
  }

  /** Asks for the deletion of an object, which need not be there. */
  async requestDeletion(kind: string, name: string): Promise<void> {
    await this.kubectl("delete", kind, name, "--wait=false", "--ignore-not-found");
  }

  /** Merges a patch into an object. */
  async patch(kind: Kind, name: string, merge: object): Promise<void> {
    await this.kubectl("patch", kind, name, "--type=merge", "--patch", JSON.stringify(merge));
  }

  /** Runs shell lines in a pod. @returns their output @throws {Error} when they fail */
  async exec(pod: string, command: string): Promise<string> {
    return await this.kubectl("exec", pod, "--", "sh", "-c", command);
  }

  /** Runs shell lines on a node as root, the first by default. @returns their output @throws {Error} when they fail */
  async runOnNode(command: string, node: Node = this.node): Promise<string> {
    const { code, stdout, stderr } = await node.exec(command, { timeoutMs: WAIT_MS });
    if (code !== 0) throw new Error(`run on ${node.name}: ${command}: exit status ${code}: ${stderr.trim()}`);
    return stdout;
  }

  /** Returns the PV of a bound claim. */
  async volumeOf(claim: string): Promise<PersistentVolume> {
    const { spec } = await this.waitForBound(claim);
    return await this.waitFor("PersistentVolume", spec!.volumeName!, (pv) => pv !== undefined, "is there");
  }

  /** Returns the LVs of the namespace's volumes, without those that are being erased. */
  async lvs(): Promise<DriverLv[]> {
    const all = (await Promise.all(this.cluster.nodes.map(listDriverLvs))).flat();
    return all.filter(({ volume }) => volume !== undefined && this.#volumeIds.has(volume));
  }

  /** Returns the LV of a bound claim. @throws {Error} when there is none */
  async lvOf(claim: string): Promise<DriverLv> {
    const id = (await this.volumeOf(claim)).spec!.csi!.volumeHandle;
    const found = (await this.lvs()).find(({ volume }) => volume === id);
    if (found === undefined) throw new Error(`find the LV of claim ${claim}: no LV carries the tag of ${id}`);
    return found;
  }

  /**
   * Waits until the namespace's volumes have no PV, no LVMVolume, and no LV other than those that are being erased.
   *
   * @throws {Error} when something stays
   */
  async waitForCleanup(): Promise<void> {
    for (
      let remaining = await this.#remainingObjects();
      remaining.length > 0;
      remaining = await this.#remainingObjects()
    ) {
      await Promise.all(remaining.map(({ kind, name }) => this.waitForDeletion(kind, name)));
    }
    const lvs = await this.lvs();
    if (lvs.length > 0) throw new Error(`clean up ${this.namespace}: LVs are left: ${JSON.stringify(lvs)}`);
  }

  /** Removes all that was made here; by force what does not go. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.#cleanUp();
    } finally {
      await this.close();
    }
  }

  async #cleanUp(): Promise<void> {
    // While a pod is there, kubelet may have the volume mounted, and taking that from under it helps nobody.
    await this.kubectl("delete", "statefulsets,pods,persistentvolumeclaims", "--all", `--timeout=${WAIT_MS / 1000}s`)
      .catch(warn);
    await this.informer("PersistentVolume").synced;
    await Promise.all(
      this.#ownVolumes().filter(({ spec }) => spec?.persistentVolumeReclaimPolicy === "Retain").map((
        { metadata: { name } },
      ) => this.patch("PersistentVolume", name, { spec: { persistentVolumeReclaimPolicy: "Delete" } }).catch(warn)),
    );
    for (const { kind, name } of this.#clusterScoped) await this.requestDeletion(kind, name);
    await this.kubectl("delete", "namespace", this.namespace, "--wait=false");
    const remaining = (await this.#remainingObjects()).map(({ kind, name }) => `${kind}/${name}`);
    if (remaining.length === 0) return;
    await this.kubectl("wait", "--for=delete", ...remaining, `--timeout=${WAIT_MS / 1000}s`).catch((error) =>
      this.#forceRemove(remaining, error)
    );
  }

  /** Removes what the driver has not removed, so that the next test finds free space. */
  async #forceRemove(objects: readonly string[], why: Error): Promise<void> {
    console.error(`test namespace ${this.namespace}: removing the rest by force: ${why.message}`);
    const noFinalizers = JSON.stringify({ metadata: { finalizers: null } });
    for (const object of objects) {
      await this.kubectl("patch", object, "--type=merge", "--patch", noFinalizers).catch(warn);
      await this.kubectl("delete", object, "--wait=false", "--ignore-not-found").catch(warn);
    }
    for (const { node, group, name } of await this.lvs()) {
      await this.runOnNode(`lvremove -qq -f ${group}/${name}`, this.cluster.node(node)).catch(warn);
    }
  }

  /** Returns the objects of the namespace's volumes that exist. */
  async #remainingObjects(): Promise<{ kind: Kind; name: string }[]> {
    const volumes = this.informer("LVMVolume");
    await Promise.all([volumes.synced, this.informer("PersistentVolume").synced]);
    return [
      ...this.#ownVolumes().map(({ metadata: { name } }) => ({ kind: "PersistentVolume" as const, name })),
      ...[...this.#volumeIds].filter((id) => volumes.get(id)).map((name) => ({ kind: "LVMVolume" as const, name })),
    ];
  }

  /** Returns the PersistentVolumes of the namespace. */
  #ownVolumes(): PersistentVolume[] {
    return this.informer("PersistentVolume").list().filter(({ spec }) =>
      spec?.claimRef?.namespace === this.namespace || this.#volumeIds.has(spec?.csi?.volumeHandle ?? "")
    );
  }
}

/** Says what went wrong while a test cleaned up; what the test found matters more. */
export function warn(error: Error): void {
  console.error(error.message);
}
