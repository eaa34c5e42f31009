/**
 * The part of kube-controller-manager for claims and PersistentVolumes that name each other: it binds them, releases a
 * volume when its claim is gone, and removes its protection finalizer. A claim is Lost while the volume that it is bound to
 * does not exist.
 *
 * @module
 */

import type { ApiClient } from "../../../k8s/client/client.ts";
import { orAbsent, orAbsentOrChanged } from "../../../k8s/client/client.ts";
import { sleep, systemClock } from "../../../base/clock.ts";
import { Informer } from "../../../k8s/runtime/informer.ts";
import { Controller } from "../../../k8s/runtime/controller.ts";
import {
  type ObjectMeta,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
} from "../../../k8s/api/objects.ts";

/** The finalizer of a PersistentVolume while it is bound. */
const PROTECTION = "kubernetes.io/pv-protection";

/** Options of the binder. */
export interface BinderOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The claims. */
  readonly claims: Informer<PersistentVolumeClaim>;
  /** The PersistentVolumes. */
  readonly volumes: Informer<PersistentVolume>;
  /** The time after which it looks at all PersistentVolumes again, in milliseconds; never, when absent. */
  readonly resyncMs?: number | undefined;
}

/** Binds and releases by informers of its own until the signal is aborted. @returns these, and what ends with it */
export function startBinder(
  client: ApiClient,
  signal: AbortSignal,
  resyncMs?: number,
): Omit<BinderOptions, "client"> & { running: Promise<unknown> } {
  const claims = new Informer(client, persistentVolumeClaims);
  const volumes = new Informer(client, persistentVolumes);
  const running = [
    claims.start(signal),
    volumes.start(signal),
    bindVolumes({ client, claims, volumes, resyncMs }, signal),
  ];
  return { claims, volumes, running: Promise.all(running) };
}

/** Binds and releases until the signal is aborted. */
export async function bindVolumes(
  { client, claims, volumes, resyncMs }: BinderOptions,
  signal: AbortSignal,
): Promise<void> {
  const setClaimPhase = ({ namespace, name }: ObjectMeta, phase: string) =>
    client.patch(persistentVolumeClaims, { namespace, name }, { merge: { status: { phase } }, subresource: "status" });
  /** The uids of the claims that it has made Lost. */
  const lost = new Set<string | undefined>();
  const reconcile = async (name: string) => {
    const volume = volumes.get(name);
    // one that its watch has not brought yet comes by itself
    const isGone = volume === undefined && await orAbsent(client.get(persistentVolumes, { name })) === undefined;
    if (isGone) {
      for (const { metadata, status } of claims.list().filter(({ spec }) => spec?.volumeName === name)) {
        if (status?.phase !== "Bound") continue;
        lost.add(metadata.uid);
        await setClaimPhase(metadata, "Lost");
      }
    }
    const { finalizers = [], deletionTimestamp, resourceVersion } = volume?.metadata ?? {};
    if (deletionTimestamp !== undefined && finalizers.includes(PROTECTION) && volume?.status?.phase !== "Bound") {
      const merge = { metadata: { finalizers: finalizers.filter((one) => one !== PROTECTION) } };
      await client.patch(persistentVolumes, { name }, { merge, resourceVersion });
      return;
    }
    const reference = volume?.spec?.claimRef;
    if (volume === undefined || volume.metadata.deletionTimestamp !== undefined || reference === undefined) return;
    const at = { namespace: reference.namespace!, name: reference.name! };
    const cached = claims.get(`${at.namespace}/${at.name}`);
    // one that its watch has not brought yet is not gone (Kubernetes, pv_controller.go, `syncVolume`)
    const claim = cached?.metadata.uid === reference.uid
      ? cached
      : await orAbsent(client.get(persistentVolumeClaims, at));
    const setPhase = (phase: string) =>
      client.patch(persistentVolumes, { name }, { merge: { status: { phase } }, subresource: "status" });
    if (claim?.metadata.uid !== reference.uid) {
      if (volume.status?.phase !== "Released") await setPhase("Released");
      return;
    }
    if (volume.status?.phase !== "Bound") await setPhase("Bound");
    if (claim?.status?.phase === "Lost" && lost.has(claim.metadata.uid)) {
      await setClaimPhase(claim.metadata, "Bound");
    }
    if (claim?.spec?.volumeName === undefined) {
      await client.patch(persistentVolumeClaims, at, { merge: { spec: { volumeName: name } } });
    }
    if (claim?.spec?.volumeName === undefined || claim.status?.phase === "Pending") { // it may have died in between
      const { capacity, accessModes } = volume.spec ?? {};
      const status = { phase: "Bound", capacity, accessModes };
      await client.patch(persistentVolumeClaims, at, { merge: { status }, subresource: "status" });
    }
  };
  const controller = new Controller({
    name: "binder",
    reconcile: (name) => orAbsentOrChanged(reconcile(name)),
    backoff: { startMs: 5, capMs: 20 },
    drainMs: 100,
  });
  controller.watch(volumes).watch(
    claims,
    (claim) => [
      ...volumes.list().filter(({ spec }) => spec?.claimRef?.uid === claim.metadata.uid).map(({ metadata }) =>
        metadata.name
      ),
      ...[claim.spec?.volumeName ?? []].flat(),
    ],
  );
  const running = controller.run(signal);
  while (resyncMs !== undefined && !signal.aborted) {
    await sleep(systemClock, resyncMs, signal);
    for (const { metadata } of volumes.list()) controller.add(metadata.name);
  }
  await running;
}
