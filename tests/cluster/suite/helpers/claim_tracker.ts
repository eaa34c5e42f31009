/**
 * Creates dozens of claims in a test namespace, and tracks what was created for them.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { orAbsent } from "../../../../k8s/client/client.ts";
import { HttpClient } from "../../../../k8s/client/http_client.ts";
import { Informer } from "../../../../k8s/runtime/informer.ts";
import { lvmVolumes } from "../../../../k8s/api/lvm_objects.ts";
import { type KubeObject, persistentVolumeClaims, persistentVolumes } from "../../../../k8s/api/objects.ts";
import { volumeIdOf } from "../../../../base/ids.ts";
import type { ControlPlane } from "../../../rig/control_plane.ts";
import type { Node } from "../../../rig/node.ts";
import { pollUntil } from "../../../rig/poll_until.ts";
import { apiInconsistencies, type ApiState, lvmInconsistencies, type LvmState, volumeNameOf } from "./consistency.ts";
import type { TestNamespace } from "./test_namespace.ts";
import { WAIT_MS } from "./object_watcher.ts";
import { claimObject, DRIVER } from "./objects.ts";

/** The claims of a test namespace, and the objects and LVs that belong to them. */
export class ClaimTracker implements AsyncDisposable {
  /** The uids of all claims that ever existed. */
  readonly uids = new Set<string>();
  readonly #ns: TestNamespace;
  readonly #client: HttpClient;
  readonly #claims;
  readonly #volumes;
  readonly #objects;
  readonly #stop = new AbortController();
  #running: Promise<void>[] = [];

  private constructor(ns: TestNamespace) {
    this.#ns = ns;
    this.#client = adminClient(ns.cluster.controlPlane);
    this.#claims = new Informer(this.#client, persistentVolumeClaims, { namespace: ns.namespace });
    this.#volumes = new Informer(this.#client, persistentVolumes);
    this.#objects = new Informer(this.#client, lvmVolumes);
  }

  /** Starts to track the claims of a test namespace. */
  static async open(ns: TestNamespace): Promise<ClaimTracker> {
    const tracker = new ClaimTracker(ns);
    tracker.#claims.subscribe((_key, now) => now && tracker.uids.add(now.metadata.uid!));
    tracker.#running = tracker.#informers.map((informer) => informer.start(tracker.#stop.signal));
    await Promise.all(tracker.#informers.map(({ synced }) => synced));
    return tracker;
  }

  get #informers(): Informer<KubeObject>[] {
    return [this.#claims, this.#volumes, this.#objects] as unknown as Informer<KubeObject>[];
  }

  /** Returns the latest known state of the API server. */
  get #apiState(): ApiState {
    return { claims: this.#claims.list(), volumes: this.#volumes.list(), objects: this.#objects.list() };
  }

  /** Creates a claim and records its uid, even if the claim is deleted at once. */
  async createClaim(name: string, className: string): Promise<void> {
    const { metadata, ...rest } = claimObject({ name, class: className });
    const { namespace } = this.#ns;
    const made = await this.#client.create(persistentVolumeClaims, {
      ...rest,
      metadata: { ...metadata, namespace },
    });
    this.uids.add(made.metadata.uid!);
  }

  /** Requests the deletion of a claim. */
  async deleteClaim(name: string): Promise<void> {
    await orAbsent(this.#client.delete(persistentVolumeClaims, { namespace: this.#ns.namespace, name }));
  }

  /** Returns the names of the claims that were not deleted. */
  claimNames(): string[] {
    return this.#claims.list().filter(({ metadata }) => metadata.deletionTimestamp === undefined).map(({ metadata }) =>
      metadata.name
    );
  }

  /** The number of volumes that were created, or are being created, for claims of the namespace. */
  get startedCount(): number {
    const ids = new Set<string>([...this.uids].map((uid) => volumeIdOf(volumeNameOf(uid))));
    return this.#objects.list().filter(({ metadata: { name } }) => ids.has(name)).length;
  }

  /** Waits until a predicate holds, checked at every change. @throws {Error} after the time limit, with the inconsistencies */
  async waitUntil(description: string, predicate: () => boolean, { timeoutMs = WAIT_MS } = {}): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const check = () => predicate() && resolve(true);
    const unsubscribes = this.#informers.map((informer) => informer.subscribe(check));
    const timer = setTimeout(() => resolve(false), timeoutMs);
    check();
    const done = await promise;
    clearTimeout(timer);
    for (const unsubscribe of unsubscribes) unsubscribe();
    if (!done) {
      throw new Error(
        `wait until ${description}: not within ${timeoutMs / 1000} s: ${this.#inconsistencies().join("; ")}`,
      );
    }
  }

  /** Waits until all these claims are bound. */
  async waitForBound(claimNames: readonly string[]): Promise<void> {
    const isBound = (name: string) => this.#claims.get(`${this.#ns.namespace}/${name}`)?.status?.phase === "Bound";
    await this.waitUntil("claims are bound", () => claimNames.every(isBound));
  }

  /** Waits until the namespace has no claim, and the API server has no object of one. */
  async waitUntilEmpty(): Promise<void> {
    await this.waitUntil(
      "nothing is left",
      () => this.#claims.list().length === 0 && this.#inconsistencies().length === 0,
    );
  }

  #inconsistencies(): string[] {
    return apiInconsistencies(this.#apiState, this.uids);
  }

  /**
   * Waits until claims, objects and LVs are consistent: each claim is bound and has one PersistentVolume, one LVMVolume and one
   * LV, and there are no others.
   *
   * @throws {Error} after the time limit, with the inconsistencies
   */
  async waitForConsistency(options: { timeoutMs?: number } = {}): Promise<void> {
    await this.waitUntil("the API's objects are consistent", () => this.#inconsistencies().length === 0, options);
    let inconsistencies: string[] = [];
    const check = async () => {
      inconsistencies = lvmInconsistencies(this.#apiState, await readLvmState(this.#ns.node), this.uids);
      return inconsistencies.length === 0;
    };
    // Deleted volumes are erased first, which takes a while.
    await pollUntil(check, { action: "wait until LVM's LVs are consistent", timeoutMs: WAIT_MS, intervalMs: 1_000 })
      .catch((error) => {
        throw new Error(`${error.message}: ${inconsistencies.join("; ")}`);
      });
    assertEquals(this.#inconsistencies(), []);
  }

  /** Stops tracking. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new Error("the tracker is closed"));
    await Promise.all(this.#running);
    this.#client[Symbol.dispose]();
  }
}

/** Creates a client with all permissions. */
export function adminClient({ server, token, ca }: ControlPlane): HttpClient {
  return new HttpClient({ url: server, token: { text: token }, ca: { text: ca } }, { userAgent: "denolith-test" });
}

/** Reads the driver's LVs on a node. @throws {Error} when LVM does not answer */
async function readLvmState(node: Node): Promise<LvmState> {
  const json = "--reportformat json";
  const command = `lvs ${json} -o vg_name,lv_name,lv_uuid,lv_tags @denolith=${DRIVER} && vgs ${json} -o vg_tags`;
  const { code, stdout, stderr } = await node.exec(command, { timeoutMs: WAIT_MS });
  if (code !== 0) throw new Error(`read LVM's state on ${node.name}: exit status ${code}: ${stderr.trim()}`);
  const [lvs, vgs] = stdout.trim().split(/\n(?=\s*\{\s*\n\s*"report")/).map((text) =>
    (JSON.parse(text) as { report: [Record<string, Record<string, string>[]>] }).report[0]
  );
  return {
    lvs: (lvs?.lv ?? []).map((lv) => ({
      group: lv.vg_name ?? "",
      name: lv.lv_name ?? "",
      uuid: lv.lv_uuid ?? "",
      tags: (lv.lv_tags ?? "").split(","),
    })),
    groupTags: (vgs?.vg ?? []).flatMap(({ vg_tags = "" }) => vg_tags.split(",")),
  };
}
