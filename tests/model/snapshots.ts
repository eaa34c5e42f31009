/**
 * What the official snapshot-controller does: it makes a content for each VolumeSnapshot, shows its state, and has it deleted.
 *
 * @module
 */

import { persistentVolumeClaims, persistentVolumes } from "../../k8s/api/objects.ts";
import {
  type VolumeGroupSnapshot,
  type VolumeGroupSnapshotContent,
  volumeGroupSnapshotContents,
  volumeGroupSnapshots,
  type VolumeSnapshot,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { GROUP_BEING_DELETED_ANNOTATION, GROUP_CONTENT_FINALIZER } from "../../k8s/snapshotter/group_content.ts";
import { BEING_DELETED_ANNOTATION, CONTENT_FINALIZER } from "../../k8s/snapshotter/snapshot_content.ts";
import { DRIVER } from "../fake/cluster/node_cluster.ts";
import type { ModelCluster } from "./cluster.ts";

/** The finalizer of a VolumeSnapshot until its content is gone. */
export const SNAPSHOT_FINALIZER = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";

/** A VolumeSnapshot with its spec, which the driver does not read. */
export interface FullSnapshot extends VolumeSnapshot {
  readonly spec: {
    readonly volumeSnapshotClassName: string;
    readonly source: { readonly persistentVolumeClaimName: string };
  };
}

/** A VolumeGroupSnapshot, with the claims that it is of. */
export interface FullGroupSnapshot extends VolumeGroupSnapshot {
  readonly spec: { readonly claims: readonly string[] };
}

/** The label of a VolumeSnapshot with the group snapshot that it belongs to. */
export const GROUP_LABEL = "group";

/** Looks at each VolumeGroupSnapshot, and does the next thing for it. */
export function controlGroups({ api, onGroupReady }: ModelCluster): void {
  const contents = api.objects(volumeGroupSnapshotContents);
  const claims = api.objects(persistentVolumeClaims);
  const volumes = api.objects(persistentVolumes);
  for (const group of api.objects(volumeGroupSnapshots) as FullGroupSnapshot[]) {
    const { namespace, name, uid, deletionTimestamp } = group.metadata;
    const content = contents.find(({ spec }) => spec.volumeGroupSnapshotRef.uid === uid);
    const members = api.objects(volumeSnapshots).filter(({ metadata }) => metadata.labels?.[GROUP_LABEL] === name);
    if (deletionTimestamp !== undefined) endGroup(group, content, members);
    else if (content !== undefined) addMembers(group, content, members);
    else {
      const ofClaims = group.spec.claims.map((claim) => {
        const volumeName = claims.find(({ metadata, status }) => {
          return metadata.name === claim && status?.phase === "Bound";
        })?.spec?.volumeName;
        return volumes.find(({ metadata }) => metadata.name === volumeName)?.spec?.csi?.volumeHandle;
      });
      if (ofClaims.some((handle) => handle === undefined)) continue;
      api.put(volumeGroupSnapshotContents, {
        metadata: { name: `groupcontent-${uid}`, finalizers: [GROUP_CONTENT_FINALIZER] },
        spec: {
          driver: DRIVER,
          deletionPolicy: "Delete",
          source: { volumeHandles: ofClaims as string[] },
          volumeGroupSnapshotClassName: "group",
          volumeGroupSnapshotRef: { namespace: namespace!, name, uid: uid! },
        },
      });
    }
  }

  /** Adds a VolumeSnapshot with its content for each snapshot that was taken. */
  function addMembers(
    group: FullGroupSnapshot,
    { status }: VolumeGroupSnapshotContent,
    members: readonly VolumeSnapshot[],
  ): void {
    const { namespace, name, uid } = group.metadata;
    const groupHandle = status?.volumeGroupSnapshotHandle;
    if (!status?.readyToUse || groupHandle === undefined || members.length > 0) return;
    for (const { volumeHandle, snapshotHandle } of status.volumeSnapshotInfoList ?? []) {
      const volume = volumes.find(({ spec }) => spec?.csi?.volumeHandle === volumeHandle);
      if (volume === undefined) continue;
      const claim = volume.spec!.claimRef!.name!;
      const contentName = `snapcontent-${name}-${claim}`;
      const snapshot = api.put(volumeSnapshots, {
        metadata: {
          name: `${name}-${claim}`,
          namespace: "default",
          labels: { [GROUP_LABEL]: name },
          finalizers: [SNAPSHOT_FINALIZER],
        },
        spec: { volumeSnapshotClassName: "whole", source: { persistentVolumeClaimName: claim } },
        status: { boundVolumeSnapshotContentName: contentName, readyToUse: false },
      } as FullSnapshot);
      api.put(volumeSnapshotContents, {
        metadata: {
          name: contentName,
          finalizers: [CONTENT_FINALIZER],
          annotations: { "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle": groupHandle },
        },
        spec: {
          driver: DRIVER,
          deletionPolicy: "Delete",
          source: { snapshotHandle: snapshotHandle! },
          volumeSnapshotRef: { namespace: namespace!, name: snapshot.metadata.name, uid: snapshot.metadata.uid! },
          sourceVolumeMode: volume.spec!.volumeMode as "Block",
        },
      });
      onGroupReady(uid!, volume.spec!.claimRef!.uid!, snapshot.metadata.uid!);
    }
    api.collection(volumeGroupSnapshots).patch({ status: { readyToUse: true } }, { namespace, name }, "status");
  }

  /** Deletes the members, then the content, then the group. */
  function endGroup(
    { metadata: { namespace, name } }: FullGroupSnapshot,
    content: VolumeGroupSnapshotContent | undefined,
    members: readonly VolumeSnapshot[],
  ): void {
    const remaining = members.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
    for (const { metadata } of remaining) {
      api.collection(volumeSnapshots).delete({ namespace: metadata.namespace, name: metadata.name });
    }
    if (members.length > 0) return;
    if (content === undefined) {
      return void api.collection(volumeGroupSnapshots).patch({ metadata: { finalizers: [] } }, { namespace, name });
    }
    if (content.metadata.deletionTimestamp !== undefined) return;
    const at = { name: content.metadata.name, namespace: undefined };
    const annotations = { [GROUP_BEING_DELETED_ANNOTATION]: "yes" };
    api.collection(volumeGroupSnapshotContents).patch({ metadata: { annotations } }, at);
    api.collection(volumeGroupSnapshotContents).delete(at);
  }
}

/** Looks at each VolumeSnapshot, and does the next thing for it. */
export function controlSnapshots({ api, onReady }: ModelCluster): void {
  const contents = api.objects(volumeSnapshotContents);
  for (const snapshot of api.objects(volumeSnapshots) as FullSnapshot[]) {
    const content = contents.find(({ spec }) => spec.volumeSnapshotRef.uid === snapshot.metadata.uid);
    if (snapshot.metadata.deletionTimestamp === undefined) keepSnapshot(snapshot, content);
    else endSnapshot(snapshot, content);
  }

  function keepSnapshot(snapshot: FullSnapshot, content: VolumeSnapshotContent | undefined): void {
    const { namespace, name, uid } = snapshot.metadata;
    const at = { namespace, name };
    if (content === undefined) {
      if (snapshot.status?.boundVolumeSnapshotContentName !== undefined) return; // its content is lost
      const claim = api.objects(persistentVolumeClaims).find(({ metadata }) => {
        return metadata.name === snapshot.spec.source.persistentVolumeClaimName;
      });
      const volume = api.objects(persistentVolumes).find(({ metadata }) => metadata.name === claim?.spec?.volumeName);
      if (claim?.status?.phase !== "Bound" || volume?.spec?.csi === undefined) return;
      const contentName = `snapcontent-${uid}`;
      api.put(volumeSnapshotContents, {
        apiVersion: "snapshot.storage.k8s.io/v1",
        metadata: { name: contentName, finalizers: [CONTENT_FINALIZER] },
        spec: {
          driver: DRIVER,
          deletionPolicy: "Delete",
          source: { volumeHandle: volume.spec.csi.volumeHandle },
          volumeSnapshotClassName: snapshot.spec.volumeSnapshotClassName,
          volumeSnapshotRef: { namespace: namespace!, name, uid: uid! },
          sourceVolumeMode: volume.spec.volumeMode as "Block",
        },
      });
      return void api.collection(volumeSnapshots).patch(
        { status: { boundVolumeSnapshotContentName: contentName, readyToUse: false } },
        at,
        "status",
      );
    }
    const readyToUse = content.status?.readyToUse ?? false;
    if (readyToUse) onReady(uid!);
    if (snapshot.status?.readyToUse === readyToUse) return;
    api.collection(volumeSnapshots).patch({ status: { readyToUse } }, at, "status");
  }

  function endSnapshot({ metadata }: FullSnapshot, content: VolumeSnapshotContent | undefined): void {
    const { namespace, name } = metadata;
    if (content === undefined) {
      return void api.collection(volumeSnapshots).patch({ metadata: { finalizers: [] } }, { namespace, name });
    }
    if (content.metadata.deletionTimestamp !== undefined) return;
    const at = { name: content.metadata.name, namespace: undefined };
    api.collection(volumeSnapshotContents).patch(
      { metadata: { annotations: { [BEING_DELETED_ANNOTATION]: "yes" } } },
      at,
    );
    api.collection(volumeSnapshotContents).delete(at);
  }
}

/** Reports whether a claim is kept because a snapshot of it is not taken yet. */
export function isBeingSnapshotted({ api }: ModelCluster, claim: string): boolean {
  return (api.objects(volumeSnapshots) as FullSnapshot[]).some(({ metadata, spec, status }) => {
    const isWanted = metadata.deletionTimestamp === undefined && status?.readyToUse !== true;
    return isWanted && spec.source.persistentVolumeClaimName === claim;
  });
}
