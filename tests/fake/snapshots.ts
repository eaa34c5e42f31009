/**
 * A small cluster with the kinds of snapshots, and someone who does with them what the official snapshot-controller does.
 *
 * @module
 */

import type { ApiClient } from "../../k8s/client/client.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import {
  BEING_DELETED,
  CONTENT_FINALIZER,
  type ContentPatch,
  handleOf,
  isBegun,
  isGuarded,
  snapshotNameOf,
} from "../../k8s/snapshotter/snapshot_content.ts";
import {
  volumeSnapshotClasses,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
} from "../../k8s/api/snapshot_objects.ts";
import { Snapshotter, type SnapshotterOptions } from "../../k8s/snapshotter/snapshotter.ts";
import { snapshotIdOf } from "../../lvm/ids.ts";
import { Cluster, DRIVER, PATIENCE_MS } from "./cluster.ts";
import type { FakeDriver } from "./driver.ts";

/** The VolumeSnapshot's uid of a content of that name. */
export const uidOf = (name: string) => `uid-of-${name}`;

/** The handle of the snapshot of a content of that name. */
export const idOf = (name: string) => snapshotIdOf(snapshotNameOf(uidOf(name)));

/** What a content is to be, over what it is otherwise. */
export interface ContentWish {
  /** Of its metadata. */
  readonly metadata?: Partial<VolumeSnapshotContent["metadata"]>;
  /** Of its spec. */
  readonly spec?: Partial<VolumeSnapshotContent["spec"]>;
  /** Its status. */
  readonly status?: VolumeSnapshotContent["status"];
}

/** A cluster with the kinds of snapshots, the class `snap`, and nothing running. */
export class SnapshotCluster implements AsyncDisposable {
  /** What it is made of. */
  readonly cluster: Cluster;
  /** The contents, as this test sees them: good to wait by. */
  readonly contents: Informer<VolumeSnapshotContent>;

  private constructor(cluster: Cluster) {
    this.cluster = cluster;
    this.contents = new Informer(cluster.client, volumeSnapshotContents, { absentMs: 5 });
    cluster.run((signal) => this.contents.start(signal));
  }

  /** Starts one; without the kinds, if that is wanted. */
  static async start({ defined = true } = {}): Promise<SnapshotCluster> {
    const snapshots = new SnapshotCluster(await Cluster.start({ binds: false }));
    if (!defined) return snapshots;
    snapshots.define();
    snapshots.addClass("snap", { snapSize: "20%" });
    await snapshots.contents.synced;
    return snapshots;
  }

  /** The driver. */
  get driver(): FakeDriver {
    return this.cluster.driver;
  }

  /** Ends it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.cluster[Symbol.asyncDispose]();
  }

  /** Brings the kinds into the cluster. */
  define(): void {
    this.cluster.api.define(volumeSnapshotClasses);
    this.cluster.api.define(volumeSnapshotContents);
  }

  /** What a snapshotter works with. */
  options(name = "loop", wrap?: (client: ApiClient) => ApiClient): SnapshotterOptions {
    const { claims: _, volumes: __, ...options } = this.cluster.loopOptions(name, wrap);
    return { ...options, absentMs: 5 };
  }

  /** Runs a snapshotter, until the answer is called. */
  run(options = this.options(), snapshotter = new Snapshotter(options)): () => Promise<void> {
    return this.cluster.run((signal) => snapshotter.run(signal));
  }

  /** A class. */
  addClass(name: string, parameters: Record<string, string>, driver = DRIVER): void {
    this.cluster.api.put(volumeSnapshotClasses, { metadata: { name }, driver, parameters });
  }

  /** A content of the class `snap` for volume `v1`, as the snapshot-controller leaves it to the driver. */
  add(name = "content", { metadata = {}, spec = {}, status }: ContentWish = {}): VolumeSnapshotContent {
    return this.cluster.api.put(volumeSnapshotContents, {
      metadata: { name, finalizers: [CONTENT_FINALIZER], ...metadata },
      spec: {
        driver: DRIVER,
        deletionPolicy: "Delete",
        volumeSnapshotClassName: "snap",
        source: { volumeHandle: "v1" },
        volumeSnapshotRef: { namespace: "default", name, uid: uidOf(name) },
        ...spec,
      },
      ...(status === undefined ? {} : { status }),
    });
  }

  /** What the snapshot-controller does to a content when its VolumeSnapshot is deleted. */
  async leave(name = "content"): Promise<void> {
    await this.patch(name, { metadata: { annotations: { [BEING_DELETED]: "yes" } } });
    if (this.kept(name)!.spec.deletionPolicy === "Delete") await this.remove(name);
  }

  /** Deletes a content. */
  async remove(name = "content"): Promise<void> {
    await this.cluster.remove(volumeSnapshotContents, { name });
  }

  /** Changes a content. */
  async patch(name: string, merge: ContentPatch): Promise<void> {
    await this.cluster.client.patch(volumeSnapshotContents, { name }, { merge });
  }

  /** The content as it is kept. */
  kept(name = "content"): VolumeSnapshotContent | undefined {
    return this.cluster.api.objects(volumeSnapshotContents).find(({ metadata }) => metadata.name === name);
  }

  /** Settles with the content when something holds of it. */
  async when(
    holds: (content: VolumeSnapshotContent | undefined) => boolean,
    name = "content",
  ): Promise<VolumeSnapshotContent | undefined> {
    return await this.contents.waitFor(name, holds, { timeoutMs: PATIENCE_MS });
  }

  /** Settles with the content when its snapshot can be used, and it is known that it was taken. */
  async ready(name = "content"): Promise<VolumeSnapshotContent> {
    return (await this.when((now) => now?.status?.readyToUse === true && !isBegun(now), name))!;
  }

  /** Settles when the content is gone. */
  async gone(name = "content"): Promise<void> {
    await this.when((now) => now === undefined, name);
  }

  /** What is true of a content in the end: whether it is there, guarded and begun, its handle, and the driver's snapshots. */
  state(name = "content") {
    const content = this.kept(name);
    return {
      content: content && { guarded: isGuarded(content), begun: isBegun(content), handle: handleOf(content) },
      snapshots: [...this.driver.snapshots.keys()],
    };
  }
}
