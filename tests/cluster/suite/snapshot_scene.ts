/**
 * A stage for lives of snapshots: a scene in a cluster with the kinds of snapshots, and the official snapshot-controller at work.
 *
 * @module
 */

import { isBegun, snapshotNameOf } from "../../../k8s/snapshotter/snapshot_content.ts";
import type { VolumeSnapshotContent } from "../../../k8s/api/snapshot_objects.ts";
import { snapshotIdOf } from "../../../lvm/ids.ts";
import { ensureSnapshotCrds } from "../../rig/kubernetes.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { until } from "../../rig/until.ts";
import { type Program, startSnapshotController } from "./host_programs.ts";
import { Scene } from "./scene.ts";
import { type OwnLv, ownLvs } from "./scene_lvs.ts";
import { DRIVER } from "./scene_objects.ts";
import { type VolumeSnapshot, WAIT_MS } from "./scene_watch.ts";

/** What is to become of a snapshot, and how large its store is. */
export interface SnapshotClassWish {
  readonly deletionPolicy?: "Delete" | "Retain";
  readonly parameters?: Readonly<Record<string, string>>;
}

/** What is known of a snapshot. */
export interface KnownSnapshot {
  readonly snapshot: VolumeSnapshot;
  readonly content: VolumeSnapshotContent;
  /** Its handle, which is the name of its LVMSnapshot. */
  readonly id: string;
}

/** The snapshot-controller of a scene. */
interface ControllerParts {
  readonly folder: string;
  readonly controller: Program;
}

/** A stage for lives of snapshots. */
export class SnapshotScene implements AsyncDisposable {
  readonly scene: Scene;
  readonly #stack: AsyncDisposableStack;
  /** Where the snapshot-controller writes what it has to say. */
  readonly #folder: string;
  #controller: Program;

  private constructor(scene: Scene, stack: AsyncDisposableStack, { folder, controller }: ControllerParts) {
    this.scene = scene;
    this.#stack = stack;
    this.#folder = folder;
    this.#controller = controller;
  }

  /**
   * Opens a scene, in whose cluster the kinds of snapshots are from then on.
   *
   * @param title a short word that its names begin with
   */
  static async open(title: string): Promise<SnapshotScene> {
    await using stack = new AsyncDisposableStack();
    const scene = stack.use(await Scene.open(title));
    const { controlPlane } = scene.cluster;
    const crds = await ensureSnapshotCrds((line) => console.error(line));
    await controlPlane.kubectl(["apply", "--filename", crds]);
    await controlPlane.kubectl(["wait", "--for=condition=Established", "--filename", crds, "--timeout=60s"]);
    const folder = stack.use(await TempFolder.create("/tmp", "denolith-"));
    await using controller = new AsyncDisposableStack();
    const program = controller.use(await startSnapshotController(controlPlane, folder.path));
    await Promise.all([
      scene.informer("VolumeSnapshot").synced,
      scene.informer("VolumeSnapshotContent").synced,
    ]);
    controller.move();
    const snapshots = new SnapshotScene(scene, stack.move(), { folder: folder.path, controller: program });
    snapshots.#stack.defer(() => snapshots.#controller[Symbol.asyncDispose]());
    snapshots.#stack.defer(() => removeSnapshots(scene));
    return snapshots;
  }

  /** Kills the snapshot-controller, and starts another. */
  async killController(): Promise<void> {
    await this.#controller.kill();
    this.#controller = await startSnapshotController(this.scene.cluster.controlPlane, this.#folder);
  }

  /** Makes a VolumeSnapshotClass of the driver; answers its full name. */
  async snapshotClass(name: string, { deletionPolicy = "Delete", parameters = {} }: SnapshotClassWish = {}) {
    const full = `${this.scene.namespace}-${name}`;
    const metadata = { name: full };
    await this.scene.apply({ ...kindOf("VolumeSnapshotClass"), metadata, driver: DRIVER, deletionPolicy, parameters });
    return full;
  }

  /** Makes a VolumeSnapshot of a claim, or of a VolumeSnapshotContent that is there. */
  async snapshot(name: string, source: { claim: string; class: string } | { content: string }): Promise<void> {
    const spec = "content" in source ? { source: { volumeSnapshotContentName: source.content } } : {
      volumeSnapshotClassName: source.class,
      source: { persistentVolumeClaimName: source.claim },
    };
    await this.scene.apply({ ...kindOf("VolumeSnapshot"), metadata: { name }, spec });
  }

  /** Makes a VolumeSnapshotContent of a snapshot that is there, for a VolumeSnapshot; answers its full name. */
  async content(name: string, { handle, snapshot }: { handle: string; snapshot: string }): Promise<string> {
    const full = `${this.scene.namespace}-${name}`;
    await this.scene.apply({
      ...kindOf("VolumeSnapshotContent"),
      metadata: { name: full },
      spec: {
        driver: DRIVER,
        deletionPolicy: "Delete",
        source: { snapshotHandle: handle },
        volumeSnapshotRef: { namespace: this.scene.namespace, name: snapshot },
      },
    });
    return full;
  }

  /** Waits until a VolumeSnapshot can be used. */
  async ready(name: string): Promise<KnownSnapshot> {
    const snapshot = await this.scene.wait(
      "VolumeSnapshot",
      name,
      (now) => now?.status?.readyToUse === true,
      "is ready",
    );
    const content = await this.scene.wait(
      "VolumeSnapshotContent",
      snapshot.status!.boundVolumeSnapshotContentName!,
      (now) => now?.status?.readyToUse === true && !isBegun(now),
      "is ready, and settled",
    );
    return { snapshot, content, id: content.status!.snapshotHandle! };
  }

  /** The handle of the snapshot that is, or was, taken for a VolumeSnapshot. */
  idFor({ metadata: { uid } }: VolumeSnapshot): string {
    return snapshotIdOf(snapshotNameOf(uid!));
  }

  /** The LV of a snapshot, unless there is none. */
  async lv(id: string): Promise<OwnLv | undefined> {
    return (await ownLvs(this.scene.node)).find(({ tags }) => tags.includes(`denolith.snapshot=${id}`));
  }

  /** The state of an LVMSnapshot; empty where there is none. */
  async state(id: string): Promise<string> {
    return await this.scene.kubectl(
      ...["get", "lvmsnapshots", id, "--ignore-not-found", "--output=jsonpath={.status.state}"],
    );
  }

  /** Waits until nothing is left of snapshots: no content, no LVMSnapshot, no LV. @throws {Error} when something stays */
  async nothingLeft(ids: readonly string[]): Promise<void> {
    const contents = this.scene.informer("VolumeSnapshotContent");
    let left: string[] = [];
    const look = async () => {
      const lvs = await ownLvs(this.scene.node);
      const objects = (await this.scene.kubectl("get", "lvmsnapshots", "--output=name")).split("\n");
      left = ids.flatMap((id) => [
        ...contents.list().filter(({ status }) => status?.snapshotHandle === id).map(({ metadata }) => metadata.name),
        ...objects.filter((name) => name.endsWith(`/${id}`)),
        ...lvs.filter(({ tags }) => tags.includes(`denolith.snapshot=${id}`)).map(({ name }) => `LV ${name}`),
      ]);
      return left.length === 0;
    };
    await until(look, { action: "wait for the end of snapshots", timeoutMs: WAIT_MS, everyMs: 1_000 }).catch(
      (error) => {
        throw new Error(`${error.message}: ${left.join(", ")}`);
      },
    );
  }

  /** Removes all that was made here, the snapshots before their volumes. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

function kindOf(kind: string): { apiVersion: string; kind: string } {
  return { apiVersion: "snapshot.storage.k8s.io/v1", kind };
}

/** Removes the snapshots of a scene, also those that should be kept: their volumes cannot go before them. */
async function removeSnapshots(scene: Scene): Promise<void> {
  const warn = (error: Error) => console.error(error.message);
  const timeout = `--timeout=${WAIT_MS / 1000}s`;
  const contents = scene.informer("VolumeSnapshotContent").list().filter(({ spec }) =>
    spec.volumeSnapshotRef.namespace === scene.namespace
  );
  const toDelete = { spec: { deletionPolicy: "Delete" } };
  for (const { metadata: { name } } of contents) {
    await scene.patch("VolumeSnapshotContent", name, toDelete).catch(warn);
  }
  await scene.kubectl("delete", "volumesnapshots", "--all", timeout).catch(warn);
  const names = contents.map(({ metadata }) => metadata.name);
  if (names.length === 0) return;
  await scene.kubectl("delete", "volumesnapshotcontents", ...names, "--ignore-not-found", timeout).catch(warn);
}
