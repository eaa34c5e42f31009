/**
 * What the controller of contents needs to know of a kind: snapshots, or group snapshots.
 *
 * @module
 */

import type { ControllerName } from "../runtime/backoffs.ts";
import type { Resource } from "../api/objects.ts";
import type { VolumeSnapshotClass } from "../api/snapshot_objects.ts";
import type { EventReason } from "../api/event_reasons.ts";
import type { MergePatch } from "../client/client.ts";
import type { EventRecorder } from "../runtime/events.ts";
import type { SnapshotOwnerKind } from "../sidecars/class_parameters.ts";
import type { CallOptions, CreateGroupSnapshotRequest } from "../sidecars/csi_client.ts";
import type { SidecarOptions } from "../sidecars/sidecar_controller.ts";
import type { WakeUps } from "../runtime/wake_ups.ts";
import type { Content, ContentRules } from "./content.ts";

/** Options of the controller of contents. */
export interface ContentControllerOptions extends SidecarOptions {
  /** The recorder of events. */
  readonly events: EventRecorder;
  /** Wakes what waits. */
  readonly wakeUps: WakeUps;
  /** Reports whether a snapshot that was ready may not be so any more, by its handle; never by default. */
  readonly needsRecheck?: (handle: string) => boolean;
  /**
   * Returns the node of a volume, by its handle; `undefined` when it is not known: then a snapshot that waits for
   * space is retried when any node has more.
   */
  readonly nodeOfVolume: (volumeHandle: string) => string | undefined;
  /** The interval at which missing kinds are looked for, in milliseconds; a minute. */
  readonly missingKindRetryMs?: number | undefined;
}

/** The values of a secret. Never to be logged. */
export type Secrets = Readonly<Record<string, string>>;

/** A kind of contents, with the calls of the driver about what they ask for. */
export interface ContentKind<C extends Content, Created extends { readonly readyToUse: boolean }> {
  /** The name of its controller. */
  readonly name: ControllerName;
  /** The kind of those for whom a content exists. */
  readonly ownerKind: SnapshotOwnerKind;
  /** The contents. */
  readonly contents: Resource<C>;
  /** Their classes. */
  readonly classes: Resource<VolumeSnapshotClass>;
  /** The rules for them. */
  readonly rules: ContentRules<C>;
  /** The reasons of events about what failed. */
  readonly reasons: Readonly<Record<"create" | "check" | "delete", EventReason>>;
  /** Returns the name of the class of a content; `undefined` when it names none. */
  classNameOf(content: C): string | undefined;
  /** Returns the name of the request for a content; `undefined` when it does not say whose it is. */
  requestNameOf(content: C): string | undefined;
  /** Returns the handles of the volumes to take snapshots of. */
  volumesOf(content: C): readonly string[];
  /** Returns the handles of the snapshots of a content, as far as they are known. */
  snapshotsOf(content: C): readonly string[];
  /** Takes what a content asks for, or continues to take it. */
  create(request: CreateGroupSnapshotRequest, options: CallOptions): Promise<Created>;
  /** Finds what was taken for a content. Fails when it does not exist. */
  find(content: C, secrets: Secrets, options: CallOptions): Promise<Created>;
  /** Deletes what was taken for a content; nothing is no failure. */
  delete(content: C, secrets: Secrets, options: CallOptions): Promise<void>;
  /** Returns the patch of the status for what was taken, or `undefined` when nothing changes. */
  observedPatch(content: C, created: Created, now: Date): MergePatch<C> | undefined;
  /** Returns what the status says when some of the snapshots lost their content. */
  lostMessage(content: C, lost: readonly string[]): string;
}
