/**
 * The contents of snapshots and of group snapshots: what has to be done to one next. Names and meanings are those of the
 * official csi-snapshotter 8.7.0, so that either goes on with the other's work.
 *
 * @module
 */

import { timestamp } from "../../base/clock.ts";
import type { KubeObject } from "../api/objects.ts";
import type { MergePatch } from "../client/client.ts";
import { secretAt } from "../sidecars/volume_secrets.ts";
import type { SecretReference } from "../sidecars/class_parameters.ts";

/** A VolumeSnapshotContent, or a VolumeGroupSnapshotContent. */
export interface Content extends KubeObject {
  /** The desired state. */
  spec: {
    /** The driver that has the snapshot. */
    driver: string;
    /** `Delete` if the snapshot is deleted with its VolumeSnapshot. */
    deletionPolicy: "Delete" | "Retain";
  };
  /** The actual state. */
  status?: {
    /** True if a volume can be created from it. */
    readyToUse?: boolean;
    /** The last failure. */
    error?: { time?: string; message?: string };
  };
}

/** What the rules for contents need to know of one of the kinds. */
export interface ContentTraits<C extends Content> {
  /** The finalizer of a content until its snapshot is deleted or given up. The snapshot-controller adds it. */
  readonly finalizer: string;
  /** The annotation of a content whose snapshot was requested, until the outcome is known. */
  readonly beingCreated: string;
  /** The annotation by which the snapshot-controller says that the VolumeSnapshot is being deleted. */
  readonly beingDeleted: string;
  /** The beginning of the annotations that name the secret for taking and deleting a snapshot. */
  readonly deletionSecret: string;
  /** Returns the handle of the snapshot, or `undefined` before it was taken. */
  readonly handleOf: (content: C) => string | undefined;
  /** Reports whether the snapshot was there before, and no VolumeSnapshot has taken the content. */
  readonly isUnbound: (content: C) => boolean;
  /** Reports whether the snapshot is taken and deleted with a group snapshot. */
  readonly isGroupMember: (content: C) => boolean;
  /** Returns what the snapshot-controller writes into the status. */
  readonly statusOfOthers: (content: C) => unknown;
}

/** The next step for a content. */
export type ContentStep =
  | "nothing"
  /** Take the snapshot, or find out the outcome of an earlier request. */
  | "create"
  /** Remove the annotation, since the outcome is known. */
  | "clear being-created"
  /** Check whether the snapshot exists and is ready. */
  | "check"
  /** Delete the snapshot, and remove the finalizer. */
  | "delete snapshot"
  /** Remove the finalizer. */
  | "remove finalizer";

/** The rules for contents of one kind. */
export class ContentRules<C extends Content> {
  /** Creates the rules for a kind. */
  constructor(readonly traits: ContentTraits<C>) {}

  /** Returns the secret for taking and deleting a snapshot, or `undefined` when none is named. */
  secretOf({ metadata }: C): SecretReference | undefined {
    return secretAt(metadata, this.traits.deletionSecret);
  }

  /** Reports whether a snapshot was requested and the outcome is unknown. */
  isBeingCreated({ metadata }: C): boolean {
    return metadata.annotations?.[this.traits.beingCreated] !== undefined;
  }

  /** Reports whether a content has the finalizer. */
  hasFinalizer({ metadata }: C): boolean {
    return metadata.finalizers?.includes(this.traits.finalizer) ?? false;
  }

  /**
   * Reports whether a content and its snapshot are to be deleted. A content that is being deleted stays until its
   * VolumeSnapshot is deleted, too; one without a VolumeSnapshot need not wait.
   */
  shouldDelete(content: C): boolean {
    if (content.metadata.deletionTimestamp === undefined) return false;
    return this.traits.isUnbound(content) || this.#isOwnerBeingDeleted(content);
  }

  /** Reports whether the VolumeSnapshot is being deleted, or was deleted. */
  #isOwnerBeingDeleted({ metadata }: C): boolean {
    return metadata.annotations?.[this.traits.beingDeleted] !== undefined;
  }

  /**
   * Returns the next step for a content. A snapshot that was requested is followed until the outcome is known, even when it
   * is no longer needed: otherwise an unknown snapshot would be left. No snapshot is requested before the finalizer is
   * set: until then the object may be removed at any time. Without the finalizer a deletion is complete. The snapshot of
   * a group is neither taken nor deleted here.
   */
  nextStep(content: C): ContentStep {
    const { handleOf, isGroupMember } = this.traits;
    const deleting = this.shouldDelete(content);
    if (deleting && !this.hasFinalizer(content)) return "nothing";
    const isMember = isGroupMember(content);
    if (deleting && (isMember || content.spec.deletionPolicy !== "Delete")) return "remove finalizer";
    if (handleOf(content) === undefined) {
      if (isMember) return "nothing";
      if (this.isBeingCreated(content)) return "create";
      if (deleting) return "remove finalizer";
      return this.hasFinalizer(content) && !this.#isOwnerBeingDeleted(content) ? "create" : "nothing";
    }
    if (deleting) return "delete snapshot";
    if (this.isBeingCreated(content)) return "clear being-created";
    return content.status?.readyToUse ? "nothing" : "check";
  }

  /**
   * Returns the fields that others write and that decide about a content. Other changes are no reason to reconcile it:
   * the snapshotter's own writes are not, or a failure would be retried at once.
   */
  reconcileInputs(content: C): string {
    const { metadata: { uid }, spec } = content;
    return JSON.stringify([
      uid,
      spec,
      this.traits.statusOfOthers(content),
      this.shouldDelete(content),
      this.#isOwnerBeingDeleted(content),
      this.hasFinalizer(content),
      this.secretOf(content),
    ]);
  }

  /**
   * Returns the patch that adds the annotation of a requested snapshot, or `undefined` when it is set, or no snapshot is
   * to be requested.
   */
  setBeingCreatedPatch(content: C): MergePatch<Content> | undefined {
    if (this.nextStep(content) !== "create" || this.isBeingCreated(content)) return undefined;
    return { metadata: { annotations: { [this.traits.beingCreated]: "yes" } } };
  }

  /** Returns the patch that removes the annotation of a requested snapshot, or `undefined` when it is not set. */
  clearBeingCreatedPatch(content: C): MergePatch<Content> | undefined {
    if (!this.isBeingCreated(content)) return undefined;
    return { metadata: { annotations: { [this.traits.beingCreated]: null } } };
  }

  /** Returns the patch that removes the finalizer, or `undefined` when it is not set. */
  removeFinalizerPatch(content: C): MergePatch<Content> | undefined {
    if (!this.hasFinalizer(content)) return undefined;
    return { metadata: { finalizers: content.metadata.finalizers!.filter((name) => name !== this.traits.finalizer) } };
  }
}

/** Returns the patch of the status for a snapshot that lost its content, or `undefined` when nothing changes. */
export function unusablePatch({ status }: Content, message: string, now: Date): MergePatch<Content> | undefined {
  if (status?.readyToUse === false && status.error?.message === message) return undefined;
  return { status: { readyToUse: false, error: { message, time: timestamp(now) } } };
}

/**
 * Returns the patch of the status for a failure, or `undefined` when nothing changes, or when the snapshot is ready:
 * then another snapshotter was at work, too.
 */
export function failedPatch({ status }: Content, message: string, now: Date): MergePatch<Content> | undefined {
  if (status?.readyToUse || status?.error?.message === message) return undefined;
  return { status: { readyToUse: false, error: { message, time: timestamp(now) } } };
}
