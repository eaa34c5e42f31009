/**
 * A namespace for tests of snapshots, in a cluster with the snapshot CRDs and the official snapshot-controller.
 *
 * @module
 */

import { snapshotNameOf, snapshotRules } from "../../../../k8s/snapshotter/snapshot_content.ts";
import type { VolumeSnapshotContent } from "../../../../k8s/api/snapshot_objects.ts";
import { snapshotIdOf } from "../../../../base/ids.ts";
import { TempFolder } from "../../../rig/temp_folder.ts";
import { pollUntil } from "../../../rig/poll_until.ts";
import { applySnapshotCrds } from "../../snapshots.ts";
import { type HostProcess, startSnapshotController } from "./host_processes.ts";
import { TestNamespace } from "./test_namespace.ts";
import { type DriverLv, listDriverLvs } from "./driver_lvs.ts";
import { DRIVER } from "./objects.ts";
import { type VolumeGroupSnapshot, type VolumeSnapshot, WAIT_MS } from "./object_watcher.ts";

/** The options of a VolumeSnapshotClass: the deletion policy, and the size of the COW space. */
export interface SnapshotClassSpec {
  readonly deletionPolicy?: "Delete" | "Retain";
  readonly parameters?: Readonly<Record<string, string>>;
}

/** A ready snapshot. */
export interface ReadySnapshot {
  readonly snapshot: VolumeSnapshot;
  readonly content: VolumeSnapshotContent;
  /** Its handle, which is the name of its LVMSnapshot. */
  readonly id: string;
}

/** The snapshot-controller of a test namespace. */
interface ControllerParts {
  readonly folder: string;
  readonly controller: HostProcess;
}

/** A namespace for tests of snapshots. */
export class SnapshotTestNamespace implements AsyncDisposable {
  readonly ns: TestNamespace;
  readonly #cleanup: AsyncDisposableStack;
  /** The folder of the snapshot-controller's log. */
  readonly #folder: string;
  #controller: HostProcess;

  private constructor(ns: TestNamespace, cleanup: AsyncDisposableStack, { folder, controller }: ControllerParts) {
    this.ns = ns;
    this.#cleanup = cleanup;
    this.#folder = folder;
    this.#controller = controller;
  }

  /**
   * Opens a test namespace, and installs the snapshot CRDs in its cluster.
   *
   * @param title a short word that its names begin with
   */
  static async open(title: string): Promise<SnapshotTestNamespace> {
    await using cleanup = new AsyncDisposableStack();
    const ns = cleanup.use(await TestNamespace.open(title));
    const { controlPlane } = ns.cluster;
    await applySnapshotCrds(controlPlane, (line) => console.error(line));
    const folder = cleanup.use(await TempFolder.create("/tmp", "denolith-"));
    await using controller = new AsyncDisposableStack();
    const program = controller.use(await startSnapshotController(controlPlane, folder.path));
    await Promise.all([
      ns.informer("VolumeSnapshot").synced,
      ns.informer("VolumeSnapshotContent").synced,
    ]);
    controller.move();
    const snapshots = new SnapshotTestNamespace(ns, cleanup.move(), { folder: folder.path, controller: program });
    snapshots.#cleanup.defer(() => snapshots.#controller[Symbol.asyncDispose]());
    snapshots.#cleanup.defer(() => removeSnapshots(ns));
    return snapshots;
  }

  /** Kills the snapshot-controller, and starts another. */
  async restartSnapshotController(): Promise<void> {
    await this.#controller.kill();
    this.#controller = await startSnapshotController(this.ns.cluster.controlPlane, this.#folder);
  }

  /** Makes a VolumeSnapshotClass of the driver; answers its full name. */
  async createSnapshotClass(name: string, { deletionPolicy = "Delete", parameters = {} }: SnapshotClassSpec = {}) {
    const fullName = `${this.ns.namespace}-${name}`;
    const metadata = { name: fullName };
    await this.ns.apply({ ...kindOf("VolumeSnapshotClass"), metadata, driver: DRIVER, deletionPolicy, parameters });
    return fullName;
  }

  /** Makes a VolumeGroupSnapshotClass of the driver; answers its full name. */
  async createGroupSnapshotClass(name: string): Promise<string> {
    const fullName = `${this.ns.namespace}-${name}`;
    const metadata = { name: fullName };
    const spec = { driver: DRIVER, deletionPolicy: "Delete" };
    await this.ns.apply({ ...kindOf("VolumeGroupSnapshotClass"), metadata, ...spec });
    return fullName;
  }

  /** Makes a VolumeGroupSnapshot of the claims with a label `app`. */
  async createGroupSnapshot(name: string, { app, className }: { app: string; className: string }): Promise<void> {
    const spec = { volumeGroupSnapshotClassName: className, source: { selector: { matchLabels: { app } } } };
    await this.ns.apply({ ...kindOf("VolumeGroupSnapshot"), metadata: { name }, spec });
  }

  /** Waits until a VolumeGroupSnapshot can be used. @returns its VolumeSnapshots, by the names of their claims */
  async waitUntilGroupReady(name: string): Promise<Map<string, ReadySnapshot>> {
    const isReady = (now?: VolumeGroupSnapshot) => now?.status?.readyToUse === true;
    const { status } = await this.ns.waitFor("VolumeGroupSnapshot", name, isReady, "is ready");
    const contentName = status!.boundVolumeGroupSnapshotContentName!;
    const content = await this.ns.waitFor("VolumeGroupSnapshotContent", contentName, (now) => !!now, "is there");
    const isMember = ({ metadata: { ownerReferences = [] } }: VolumeSnapshot) =>
      ownerReferences.some((owner) => owner.kind === "VolumeGroupSnapshot" && owner.name === name);
    const members = () => this.ns.informer("VolumeSnapshot").list().filter(isMember);
    const hasAll = () => Promise.resolve(members().length === content.status!.volumeSnapshotInfoList!.length);
    await pollUntil(hasAll, { action: `wait for the VolumeSnapshots of ${name}`, timeoutMs: WAIT_MS });
    const ready = new Map<string, ReadySnapshot>();
    for (const { metadata, spec } of members()) {
      ready.set(spec!.source!.persistentVolumeClaimName!, await this.waitUntilReady(metadata.name));
    }
    return ready;
  }

  /** Makes a VolumeSnapshot of a claim, or of a VolumeSnapshotContent that is there. */
  async createSnapshot(name: string, source: { claim: string; class: string } | { content: string }): Promise<void> {
    const spec = "content" in source ? { source: { volumeSnapshotContentName: source.content } } : {
      volumeSnapshotClassName: source.class,
      source: { persistentVolumeClaimName: source.claim },
    };
    await this.ns.apply({ ...kindOf("VolumeSnapshot"), metadata: { name }, spec });
  }

  /** Makes a VolumeSnapshotContent of a snapshot that is there, for a VolumeSnapshot; answers its full name. */
  async createContent(name: string, { handle, snapshot }: { handle: string; snapshot: string }): Promise<string> {
    const fullName = `${this.ns.namespace}-${name}`;
    await this.ns.apply({
      ...kindOf("VolumeSnapshotContent"),
      metadata: { name: fullName },
      spec: {
        driver: DRIVER,
        deletionPolicy: "Delete",
        source: { snapshotHandle: handle },
        volumeSnapshotRef: { namespace: this.ns.namespace, name: snapshot },
      },
    });
    return fullName;
  }

  /** Waits until a VolumeSnapshot can be used. */
  async waitUntilReady(name: string): Promise<ReadySnapshot> {
    const snapshot = await this.ns.waitFor(
      "VolumeSnapshot",
      name,
      (now) => now?.status?.readyToUse === true,
      "is ready",
    );
    const content = await this.ns.waitFor(
      "VolumeSnapshotContent",
      snapshot.status!.boundVolumeSnapshotContentName!,
      (now) => now?.status?.readyToUse === true && !snapshotRules.isBeingCreated(now),
      "is ready, and no longer being created",
    );
    return { snapshot, content, id: content.status!.snapshotHandle! };
  }

  /** Returns the handle of the snapshot that is, or was, taken for a VolumeSnapshot. */
  handleFor({ metadata: { uid } }: VolumeSnapshot): string {
    return snapshotIdOf(snapshotNameOf(uid!));
  }

  /** Returns the LV of a snapshot, or undefined. */
  async findLv(id: string): Promise<DriverLv | undefined> {
    return (await listDriverLvs(this.ns.node)).find(({ tags }) => tags.includes(`denolith.snapshot=${id}`));
  }

  /** Returns the state of an LVMSnapshot; empty when there is none. */
  async snapshotState(id: string): Promise<string> {
    return await this.ns.kubectl(
      ...["get", "lvmsnapshots", id, "--ignore-not-found", "--output=jsonpath={.status.state}"],
    );
  }

  /** Waits until no content, LVMSnapshot or LV of a snapshot is left. @throws {Error} when one stays */
  async waitUntilDeleted(ids: readonly string[]): Promise<void> {
    const contents = this.ns.informer("VolumeSnapshotContent");
    let remaining: string[] = [];
    const check = async () => {
      const lvs = await listDriverLvs(this.ns.node);
      const objects = (await this.ns.kubectl("get", "lvmsnapshots", "--output=name")).split("\n");
      remaining = ids.flatMap((id) => [
        ...contents.list().filter(({ status }) => status?.snapshotHandle === id).map(({ metadata }) => metadata.name),
        ...objects.filter((name) => name.endsWith(`/${id}`)),
        ...lvs.filter(({ tags }) => tags.includes(`denolith.snapshot=${id}`)).map(({ name }) => `LV ${name}`),
      ]);
      return remaining.length === 0;
    };
    await pollUntil(check, { action: "wait for the end of snapshots", timeoutMs: WAIT_MS, intervalMs: 1_000 }).catch(
      (error) => {
        throw new Error(`${error.message}: ${remaining.join(", ")}`);
      },
    );
  }

  /** Removes all that was made here, the snapshots before their volumes. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#cleanup.disposeAsync();
  }
}

function kindOf(kind: string): { apiVersion: string; kind: string } {
  const group = kind.startsWith("VolumeGroup") ? "groupsnapshot" : "snapshot";
  return { apiVersion: `${group}.storage.k8s.io/v1`, kind };
}

/** Removes the snapshots of a test namespace, also those with the policy Retain: their volumes cannot be removed before them. */
async function removeSnapshots(ns: TestNamespace): Promise<void> {
  const warn = (error: Error) => console.error(error.message);
  const timeout = `--timeout=${WAIT_MS / 1000}s`;
  const contents = ns.informer("VolumeSnapshotContent").list().filter(({ spec }) =>
    spec.volumeSnapshotRef.namespace === ns.namespace
  );
  const toDelete = { spec: { deletionPolicy: "Delete" } };
  for (const { metadata: { name } } of contents) {
    await ns.patch("VolumeSnapshotContent", name, toDelete).catch(warn);
  }
  await ns.kubectl("delete", "volumegroupsnapshots", "--all", timeout).catch(warn);
  await ns.kubectl("delete", "volumesnapshots", "--all", timeout).catch(warn);
  const names = contents.map(({ metadata }) => metadata.name);
  if (names.length === 0) return;
  await ns.kubectl("delete", "volumesnapshotcontents", ...names, "--ignore-not-found", timeout).catch(warn);
}
