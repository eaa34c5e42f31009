/**
 * A small cluster with the kinds of snapshots, and someone who does with them what the official snapshot-controller does.
 *
 * @module
 */

import type { ApiClient } from "../../../k8s/client/client.ts";
import { Informer } from "../../../k8s/runtime/informer.ts";
import {
  BEING_DELETED_ANNOTATION,
  CONTENT_FINALIZER,
  type ContentPatch,
  snapshotNameOf,
  snapshotRules,
} from "../../../k8s/snapshotter/snapshot_content.ts";
import {
  snapshotHandleOf,
  volumeSnapshotClasses,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
} from "../../../k8s/api/snapshot_objects.ts";
import { Snapshotter, type SnapshotterOptions } from "../../../k8s/snapshotter/snapshotter.ts";
import { snapshotIdOf } from "../../../base/ids.ts";
import { DRIVER, FakeControlPlane, WAIT_TIMEOUT_MS } from "./control_plane.ts";
import type { FakeDriver } from "./driver.ts";

/** Returns the uid of the VolumeSnapshot of a content. */
export const snapshotUid = (name: string) => `uid-of-${name}`;

/** Returns the handle of the snapshot of a content. */
export const snapshotHandle = (name: string) => snapshotIdOf(snapshotNameOf(snapshotUid(name)));

/** The fields of a content that differ from the usual ones. */
export interface ContentOverrides {
  /** Of its metadata. */
  readonly metadata?: Partial<VolumeSnapshotContent["metadata"]>;
  /** Of its spec. */
  readonly spec?: Partial<VolumeSnapshotContent["spec"]>;
  /** Its status. */
  readonly status?: VolumeSnapshotContent["status"];
}

/** A cluster with the kinds of snapshots, the class `snap`, and nothing running. */
export class SnapshotControlPlane implements AsyncDisposable {
  /** The control plane that it runs on. */
  readonly controlPlane: FakeControlPlane;
  /** The contents that the test observes, to wait for changes. */
  readonly contents: Informer<VolumeSnapshotContent>;

  private constructor(controlPlane: FakeControlPlane) {
    this.controlPlane = controlPlane;
    this.contents = new Informer(controlPlane.client, volumeSnapshotContents, { missingKindRetryMs: 5 });
    controlPlane.run((signal) => this.contents.start(signal));
  }

  /** Starts a cluster, with or without the kinds of snapshots. */
  static async start({ withKinds = true } = {}): Promise<SnapshotControlPlane> {
    const snapshots = new SnapshotControlPlane(await FakeControlPlane.start({ withBinder: false }));
    if (!withKinds) return snapshots;
    snapshots.addKinds();
    snapshots.addSnapshotClass("snap", { snapSize: "20%" });
    await snapshots.contents.synced;
    return snapshots;
  }

  /** The driver. */
  get driver(): FakeDriver {
    return this.controlPlane.driver;
  }

  /** Ends it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.controlPlane[Symbol.asyncDispose]();
  }

  /** Brings the kinds into the cluster. */
  addKinds(): void {
    this.controlPlane.api.addResource(volumeSnapshotClasses);
    this.controlPlane.api.addResource(volumeSnapshotContents);
  }

  /** Returns the options of a snapshotter. */
  options(name = "loop", wrap?: (client: ApiClient) => ApiClient): SnapshotterOptions {
    const { claims: _, volumes: __, ...options } = this.controlPlane.controllerOptions(name, wrap);
    return { ...options, missingKindRetryMs: 5 };
  }

  /** Runs a snapshotter, until the answer is called. */
  run(options = this.options()): () => Promise<void> {
    return this.controlPlane.run((signal) => new Snapshotter(options).run(signal));
  }

  /** Adds a VolumeSnapshotClass. */
  addSnapshotClass(name: string, parameters: Record<string, string>, driver = DRIVER): void {
    this.controlPlane.api.put(volumeSnapshotClasses, { metadata: { name }, driver, parameters });
  }

  /** Adds a content of the class `snap` for volume `v1`, as the snapshot-controller leaves it to the driver. */
  addContent(name = "content", { metadata = {}, spec = {}, status }: ContentOverrides = {}): VolumeSnapshotContent {
    return this.controlPlane.api.put(volumeSnapshotContents, {
      metadata: { name, finalizers: [CONTENT_FINALIZER], ...metadata },
      spec: {
        driver: DRIVER,
        deletionPolicy: "Delete",
        volumeSnapshotClassName: "snap",
        source: { volumeHandle: "v1" },
        volumeSnapshotRef: { namespace: "default", name, uid: snapshotUid(name) },
        ...spec,
      },
      ...(status === undefined ? {} : { status }),
    });
  }

  /** Changes a content as the snapshot-controller does when its VolumeSnapshot is deleted. */
  async releaseContent(name = "content"): Promise<void> {
    await this.patch(name, { metadata: { annotations: { [BEING_DELETED_ANNOTATION]: "yes" } } });
    if (this.storedContent(name)!.spec.deletionPolicy === "Delete") await this.remove(name);
  }

  /** Deletes a content. */
  async remove(name = "content"): Promise<void> {
    await this.controlPlane.remove(volumeSnapshotContents, { name });
  }

  /** Changes a content. */
  async patch(name: string, merge: ContentPatch): Promise<void> {
    await this.controlPlane.client.patch(volumeSnapshotContents, { name }, { merge });
  }

  /** Returns the content as it is kept. */
  storedContent(name = "content"): VolumeSnapshotContent | undefined {
    return this.controlPlane.api.objects(volumeSnapshotContents).find(({ metadata }) => metadata.name === name);
  }

  /** Waits until a predicate holds for the content. @returns the content */
  async waitFor(
    predicate: (content: VolumeSnapshotContent | undefined) => boolean,
    name = "content",
  ): Promise<VolumeSnapshotContent | undefined> {
    return await this.contents.waitFor(name, predicate, { timeoutMs: WAIT_TIMEOUT_MS });
  }

  /** Waits until the content's snapshot is ready, and its creation is recorded. @returns the content */
  async waitUntilReady(name = "content"): Promise<VolumeSnapshotContent> {
    return (await this.waitFor((now) => now?.status?.readyToUse === true && !snapshotRules.isBeingCreated(now), name))!;
  }

  /** Waits until the content is gone. */
  async waitUntilDeleted(name = "content"): Promise<void> {
    await this.waitFor((now) => now === undefined, name);
  }

  /**
   * Returns the final state of a content: whether it exists, its finalizer, its annotation, its handle, and the
   * driver's snapshots.
   */
  state(name = "content") {
    const content = this.storedContent(name);
    return {
      content: content &&
        {
          guarded: snapshotRules.hasFinalizer(content),
          begun: snapshotRules.isBeingCreated(content),
          handle: snapshotHandleOf(content),
        },
      snapshots: [...this.driver.snapshots.keys()],
    };
  }
}
