/**
 * What the official snapshot-controller does: it makes a content for each VolumeSnapshot, shows its state, and has it deleted.
 *
 * @module
 */

import { persistentVolumeClaims, persistentVolumes } from "../../k8s/api/objects.ts";
import {
  type VolumeSnapshot,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
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
      if (claim?.status?.phase !== "Bound" || volume === undefined) return;
      const contentName = `snapcontent-${uid}`;
      api.put(volumeSnapshotContents, {
        apiVersion: "snapshot.storage.k8s.io/v1",
        metadata: { name: contentName, finalizers: [CONTENT_FINALIZER] },
        spec: {
          driver: DRIVER,
          deletionPolicy: "Delete",
          source: { volumeHandle: volume.spec!.csi!.volumeHandle },
          volumeSnapshotClassName: snapshot.spec.volumeSnapshotClassName,
          volumeSnapshotRef: { namespace: namespace!, name, uid: uid! },
          sourceVolumeMode: volume.spec!.volumeMode as "Block",
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
