/**
 * Agents that write what those of nodes write, and take the time of LVM, without LVM.
 *
 * @module
 */

import { agentLeaseName } from "../../../k8s/api/agent_leases.ts";
import { lvmNodes, type LvmVolume, lvmVolumes, REMOVE_ANNOTATION } from "../../../k8s/api/lvm_objects.ts";
import { type KubeObject, leases, type Resource } from "../../../k8s/api/objects.ts";
import { type ClusterSize, groupOf, NAMESPACE, nodeName, readyStatus } from "./objects.ts";

/** The time that an agent takes for an LV, and for the report that lists it, in milliseconds. */
const [CREATE_MS, REPORT_MS] = [50, 1_000];
/** The interval at which an agent renews its Lease, in milliseconds. */
const RENEW_MS = 120_000;

/** Changes an object, unless it is gone. */
export type ChangeObject = (
  resource: Resource,
  at: KubeObject["metadata"],
  patch: object,
  subresource?: "status",
) => void | Promise<void>;

/** The agents of a cluster. */
export class ThinAgents {
  readonly #size: ClusterSize;
  readonly #change: ChangeObject;
  readonly #indexes: ReadonlyMap<string, number>;
  /** The names of the volumes of each node. */
  readonly #volumesOf: ReadonlyMap<string, Set<string>>;
  /** The nodes whose agents are silent, and what they do when they are back. */
  readonly #silent = new Map<string, (() => unknown)[]>();
  readonly #reporting = new Set<string>();

  /** Makes the agents of a cluster, in which the volumes are spread over the nodes. */
  constructor(size: ClusterSize, volumeNames: readonly string[], change: ChangeObject) {
    this.#size = size;
    this.#change = change;
    const names = Array.from({ length: size.nodes }, (_, index) => nodeName(index));
    this.#indexes = new Map(names.map((name, index) => [name, index]));
    this.#volumesOf = new Map(names.map((name) => [name, new Set<string>()]));
    volumeNames.forEach((name, index) => this.#volumesOf.get(nodeName(index % size.nodes))!.add(name));
  }

  /** Returns the names of the volumes of a node. */
  volumesOf(name: string): string[] {
    return [...this.#volumesOf.get(name)!];
  }

  /** Carries out what a change of an LVMVolume asks for, with the two writes of an agent. */
  handle(before: LvmVolume | undefined, after: LvmVolume): void {
    const { metadata, spec } = after;
    const name = spec.nodeName;
    if (before === undefined) {
      this.#act(name, 0, async () => {
        await this.#change(lvmVolumes, metadata, { status: { state: "Pending", volumeGroup: "data" } }, "status");
        this.#act(name, CREATE_MS, () => {
          this.#volumesOf.get(name)!.add(metadata.name);
          this.#report(name);
          return this.#change(lvmVolumes, metadata, { status: readyStatus(after, this.#indexes.get(name)!) }, "status");
        });
      });
    } else if (
      metadata.deletionTimestamp !== undefined && before.metadata.deletionTimestamp === undefined &&
      metadata.annotations?.[REMOVE_ANNOTATION] !== undefined
    ) {
      this.#act(name, CREATE_MS, () => {
        this.#volumesOf.get(name)!.delete(metadata.name);
        this.#report(name);
        return this.#change(lvmVolumes, metadata, { metadata: { finalizers: [] } });
      });
    }
  }

  /** Renews the Leases of all agents from now on, each every two minutes. */
  renewLeases(): void {
    let next = 0;
    const tickMs = 250;
    setInterval(() => {
      for (const end = next + this.#size.nodes * tickMs / RENEW_MS; next < end; next++) {
        this.#renew(nodeName(Math.floor(next) % this.#size.nodes));
      }
    }, tickMs);
  }

  /** Makes the agents of nodes silent, as a reboot does. */
  silence({ first, count }: { first: number; count: number }): void {
    for (let index = first; index < first + count; index++) this.#silent.set(nodeName(index), []);
  }

  /** Lets all silent agents report at once. */
  wake(): void {
    const woken = [...this.#silent];
    this.#silent.clear();
    for (const [name, actions] of woken) {
      this.#renew(name);
      this.#report(name);
      for (const action of actions) action();
    }
  }

  /** Has the agent of a node do something, when it is not silent. */
  #act(name: string, ms: number, action: () => unknown): void {
    setTimeout(() => {
      const later = this.#silent.get(name);
      if (later === undefined) action();
      else later.push(action);
    }, ms);
  }

  /** Has an agent report its volumes, once for all changes of a second. */
  #report(name: string): void {
    if (this.#reporting.has(name)) return;
    this.#reporting.add(name);
    this.#act(name, REPORT_MS, () => {
      this.#reporting.delete(name);
      const group = groupOf(this.#indexes.get(name)!, this.volumesOf(name).map((name) => ({ name, size: "1Gi" })));
      const total = { volumeGroups: 1, size: group.size, free: group.free };
      const lastUpdateTime = new Date().toISOString();
      return this.#change(lvmNodes, { name }, { status: { total, volumeGroups: [group], lastUpdateTime } }, "status");
    });
  }

  #renew(name: string): void {
    if (this.#silent.has(name)) return;
    const renewTime = new Date().toISOString().replace("Z", "000Z"); // in microseconds
    this.#change(leases, { name: agentLeaseName(name), namespace: NAMESPACE }, { spec: { renewTime } });
  }
}
