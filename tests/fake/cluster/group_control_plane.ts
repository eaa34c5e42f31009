/**
 * A small cluster with the kinds of group snapshots, a driver that has them, and someone who does with the contents what the
 * official snapshot-controller does.
 *
 * @module
 */

import {
  volumeGroupSnapshotClasses,
  type VolumeGroupSnapshotContent,
  volumeGroupSnapshotContents,
} from "../../../k8s/api/snapshot_objects.ts";
import type { ApiClient } from "../../../k8s/client/client.ts";
import type {
  CreatedGroupSnapshot,
  CreateGroupSnapshotRequest,
  ExistingGroupSnapshotRequest,
  GroupSnapshotClient,
} from "../../../k8s/sidecars/csi_client.ts";
import { CallError, Code } from "../../../k8s/sidecars/csi_client.ts";
import {
  GROUP_BEING_DELETED_ANNOTATION,
  GROUP_CONTENT_FINALIZER,
  groupSnapshotRules,
} from "../../../k8s/snapshotter/group_content.ts";
import { GroupSnapshotter, type GroupSnapshotterOptions } from "../../../k8s/snapshotter/group_snapshotter.ts";
import { DRIVER, FakeControlPlane, waitUntil } from "./control_plane.ts";
import { TAKEN_AT } from "./driver.ts";

/** A driver that has group snapshots, and nothing else. */
class FakeGroupDriver implements GroupSnapshotClient {
  /** The group snapshots, by handle. */
  readonly groups = new Map<string, CreateGroupSnapshotRequest>();
  /** All calls, in order. */
  readonly calls: { call: keyof GroupSnapshotClient; request: unknown }[] = [];
  /** The failures of the next calls; a call with `done` does its work in spite of it. */
  readonly failures: { error: Error; done?: boolean }[] = [];
  /** True if volumes can be created from a group snapshot as soon as it is taken. */
  ready = true;

  createGroupSnapshot(request: CreateGroupSnapshotRequest): Promise<CreatedGroupSnapshot> {
    return this.#call("createGroupSnapshot", request, () => {
      this.groups.set(`handle-of-${request.name}`, request);
      return this.#group(`handle-of-${request.name}`);
    });
  }

  deleteGroupSnapshot(request: ExistingGroupSnapshotRequest): Promise<void> {
    return this.#call("deleteGroupSnapshot", request, () => void this.groups.delete(request.groupSnapshotId));
  }

  getGroupSnapshot(request: ExistingGroupSnapshotRequest): Promise<CreatedGroupSnapshot> {
    return this.#call("getGroupSnapshot", request, () => this.#group(request.groupSnapshotId));
  }

  #group(groupSnapshotId: string): CreatedGroupSnapshot {
    const request = this.groups.get(groupSnapshotId);
    if (request === undefined) throw new CallError(Code.NotFound, `no group snapshot ${groupSnapshotId}`);
    const state = { creationTimeNs: TAKEN_AT, readyToUse: this.ready };
    const snapshots = request.volumeIds.map((volumeId) => ({
      ...{ volumeId, snapshotId: `snapshot-of-${volumeId}`, sizeBytes: 1n << 30n, groupSnapshotId, ...state },
    }));
    return { groupSnapshotId, snapshots, ...state };
  }

  // deno-lint-ignore require-await -- so that it fails as a promise
  async #call<T>(call: keyof GroupSnapshotClient, request: unknown, work: () => T): Promise<T> {
    this.calls.push({ call, request });
    const failure = this.failures.shift();
    if (failure === undefined) return work();
    if (failure.done) work();
    throw failure.error;
  }
}

/** A cluster with the kinds of group snapshots and the class `groups`, and nothing running. */
export class GroupControlPlane implements AsyncDisposable {
  /** The driver. */
  readonly driver = new FakeGroupDriver();

  private constructor(readonly controlPlane: FakeControlPlane) {}

  /** Starts a cluster, with or without the kinds. */
  static async start({ withKinds = true } = {}): Promise<GroupControlPlane> {
    const cluster = new GroupControlPlane(await FakeControlPlane.start({ withBinder: false }));
    if (withKinds) cluster.addKinds();
    return cluster;
  }

  /** Brings the kinds and a class into the cluster. */
  addKinds(): void {
    const { api } = this.controlPlane;
    api.addResource(volumeGroupSnapshotClasses);
    api.addResource(volumeGroupSnapshotContents);
    this.addClass("groups", { snapSize: "20%" });
  }

  /** Adds a VolumeGroupSnapshotClass. */
  addClass(name: string, parameters: Record<string, string>): void {
    this.controlPlane.api.put(volumeGroupSnapshotClasses, { metadata: { name }, driver: DRIVER, parameters });
  }

  /** Returns the options of a group snapshotter. */
  options(name = "loop", wrap?: (client: ApiClient) => ApiClient): GroupSnapshotterOptions {
    const { claims: _, volumes: __, ...options } = this.controlPlane.controllerOptions(name, wrap);
    return { ...options, csi: this.driver, missingKindRetryMs: 5 };
  }

  /** Runs a group snapshotter, until the answer is called. */
  run(options = this.options()): () => Promise<void> {
    return this.controlPlane.run((signal) => new GroupSnapshotter(options).run(signal));
  }

  /** Adds a content for the volumes `a` and `b`, as the snapshot-controller leaves it to the driver. */
  addContent(
    spec: Partial<VolumeGroupSnapshotContent["spec"]> = {},
    finalizers = [GROUP_CONTENT_FINALIZER],
    annotations: Record<string, string> = {},
  ): void {
    this.controlPlane.api.put(volumeGroupSnapshotContents, {
      metadata: { name: "content", finalizers, annotations },
      spec: {
        driver: DRIVER,
        deletionPolicy: "Delete",
        volumeGroupSnapshotClassName: "groups",
        source: { volumeHandles: ["a", "b"] },
        volumeGroupSnapshotRef: { namespace: "default", name: "group", uid: "uid" },
        ...spec,
      },
    });
  }

  /** Changes the content as the snapshot-controller does when its VolumeGroupSnapshot is deleted. */
  async release(): Promise<void> {
    const merge = { metadata: { annotations: { [GROUP_BEING_DELETED_ANNOTATION]: "yes" } } };
    await this.controlPlane.client.patch(volumeGroupSnapshotContents, { name: "content" }, { merge });
    if (this.content?.spec.deletionPolicy === "Delete") await this.remove();
  }

  /** Changes the status of the content. */
  async patchStatus(status: VolumeGroupSnapshotContent["status"]): Promise<void> {
    const options = { merge: { status }, subresource: "status" } as const;
    await this.controlPlane.client.patch(volumeGroupSnapshotContents, { name: "content" }, options);
  }

  /** Returns how often a call came. */
  callCount(call: keyof GroupSnapshotClient): number {
    return this.driver.calls.filter((one) => one.call === call).length;
  }

  /** Deletes the content. */
  async remove(): Promise<void> {
    await this.controlPlane.remove(volumeGroupSnapshotContents, { name: "content" });
  }

  /** The content as it is kept. */
  get content(): VolumeGroupSnapshotContent | undefined {
    return this.controlPlane.api.objects(volumeGroupSnapshotContents)[0];
  }

  /** Waits until the content's group snapshot is ready, and its creation is recorded. */
  async waitUntilReady(): Promise<VolumeGroupSnapshotContent> {
    await waitUntil(
      () => this.content?.status?.readyToUse === true && !groupSnapshotRules.isBeingCreated(this.content),
      "ready",
    );
    return this.content!;
  }

  /** Waits until the content is gone. */
  async waitUntilDeleted(): Promise<void> {
    await waitUntil(() => this.content === undefined, "deleted");
  }

  /** Ends it. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.controlPlane[Symbol.asyncDispose]();
  }
}
