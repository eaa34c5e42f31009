/**
 * The objects without which no volume can be created for a claim: a VolumeSnapshot that is not ready yet, or a
 * VolumeAttributesClass that does not exist yet.
 *
 * @module
 */

import type { Controller } from "../runtime/controller.ts";
import { Informer } from "../runtime/informer.ts";
import { WaitingKeys } from "../runtime/wake_ups.ts";
import { type PersistentVolumeClaim, volumeAttributesClasses } from "../api/objects.ts";
import { type VolumeSnapshot, volumeSnapshots } from "../api/snapshot_objects.ts";
import { dataSourceOf } from "./claim.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";

/** Wakes claims when the objects that they wait for are there. */
export class AwaitedObjects {
  readonly #options: Pick<ProvisionerOptions, "client" | "clock" | "missingKindRetryMs">;
  readonly #waiting = new WaitingKeys();
  /** Begins to watch VolumeSnapshots; absent when that has begun. Most clusters restore none, or lack the kind. */
  #watchSnapshots: (() => void) | undefined;

  /** Creates it; nothing is watched before {@linkcode AwaitedObjects.run}. */
  constructor(options: Pick<ProvisionerOptions, "client" | "clock" | "missingKindRetryMs">) {
    this.#options = options;
  }

  /** Watches the objects until the signal is aborted, VolumeSnapshots once a claim waits for one; never fails. */
  async run(controller: Pick<Controller, "wake">, signal: AbortSignal): Promise<void> {
    const { client, clock, missingKindRetryMs = 60_000 } = this.#options;
    const snapshots = new Informer(client, volumeSnapshots, { missingKindRetryMs, clock, transform: keptOf });
    const classes = new Informer(client, volumeAttributesClasses, { missingKindRetryMs, clock });
    snapshots.subscribe((key, now, before) => {
      if (isReady(now) && !isReady(before)) this.#waiting.wake(snapshotOf(key), controller);
    });
    classes.subscribe((name, now, before) => {
      if (now !== undefined && before === undefined) this.#waiting.wake(classOf(name), controller);
    });
    const running = [classes.start(signal)];
    this.#watchSnapshots = () => void running.push(snapshots.start(signal));
    await running[0];
    this.#watchSnapshots = undefined;
    await Promise.all(running);
  }

  /** Notes that the source of a claim is going to be read, so that a change from then on wakes it. */
  addSource(claim: PersistentVolumeClaim, key: string): void {
    const source = dataSourceOf(claim);
    if (source.kind !== "snapshot") return;
    this.#waiting.add(snapshotOf(`${claim.metadata.namespace}/${source.name}`), key);
    this.#watchSnapshots?.();
    this.#watchSnapshots = undefined;
  }

  /** Notes that the VolumeAttributesClass of a claim is going to be read. */
  addClass({ spec }: PersistentVolumeClaim, key: string): void {
    if (spec?.volumeAttributesClassName) this.#waiting.add(classOf(spec.volumeAttributesClassName), key);
  }

  /** Notes that a claim waits for nothing any more. */
  delete(key: string): void {
    this.#waiting.delete(key);
  }
}

function snapshotOf(key: string): string {
  return `VolumeSnapshot ${key}`;
}

function classOf(name: string): string {
  return `VolumeAttributesClass ${name}`;
}

function isReady(snapshot: VolumeSnapshot | undefined): boolean {
  return snapshot?.status?.readyToUse === true;
}

/** Returns what is kept of a VolumeSnapshot: whether it is ready. A cluster may have very many. */
function keptOf({ metadata: { name, namespace, resourceVersion }, status }: VolumeSnapshot): VolumeSnapshot {
  const metadata = { name, namespace, resourceVersion } as VolumeSnapshot["metadata"];
  return { metadata, ...(status?.readyToUse === true && { status: { readyToUse: true } }) };
}
