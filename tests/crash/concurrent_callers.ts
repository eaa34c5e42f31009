/**
 * Many concurrent callers of the same few volumes and snapshots, in any order, with crashes of the driver in between.
 *
 * @module
 */

import fc from "fast-check";
import type { Csi } from "./orchestrator.ts";

/** A request of a caller. */
export type CallerRequest =
  | { readonly call: "create" | "delete" | "stage" | "unstage" | "publish" | "unpublish"; readonly volume: number }
  | { readonly call: "expand"; readonly volume: number; readonly mib: number }
  | { readonly call: "snapshot" | "deleteSnapshot"; readonly volume: number; readonly snapshot: number };

/** Concurrent requests, and the number of commands after which the driver crashes, if it does. */
export interface Round {
  readonly requests: readonly CallerRequest[];
  readonly crashAfter: number | undefined;
}

const VOLUMES = 2;
const SNAPSHOTS = 2;

const volume = fc.nat(VOLUMES - 1);

const request: fc.Arbitrary<CallerRequest> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ call: fc.constantFrom("create", "stage", "publish"), volume }) },
  { weight: 4, arbitrary: fc.record({ call: fc.constantFrom("unpublish", "unstage", "delete"), volume }) },
  { weight: 1, arbitrary: fc.record({ call: fc.constant("expand"), volume, mib: fc.constantFrom(32, 48, 64) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      call: fc.constantFrom("snapshot", "deleteSnapshot"),
      volume,
      snapshot: fc.nat(SNAPSHOTS - 1),
    }),
  },
);

/** Rounds of requests. */
export const rounds: fc.Arbitrary<readonly Round[]> = fc.array(
  fc.record({
    requests: fc.array(request, { minLength: 1, maxLength: 5 }),
    crashAfter: fc.option(fc.nat(6), { nil: undefined, freq: 3 }),
  }),
  { minLength: 1, maxLength: 8 },
);

/** The callers, with the paths and names that they use in a folder. */
export class ConcurrentCallers {
  readonly #folder: string;
  readonly #ids: ReadonlyMap<number, string>;
  readonly #snapshotIds: ReadonlyMap<number, string>;

  /** Callers that know the ids of their volumes and snapshots, since these follow from the names. */
  constructor(folder: string, volumeId: (name: string) => string, snapshotId: (name: string) => string) {
    this.#folder = folder;
    this.#ids = new Map(Array.from({ length: VOLUMES }, (_, index) => [index, volumeId(`volume ${index}`)]));
    this.#snapshotIds = new Map(Array.from({ length: SNAPSHOTS }, (_, index) => [index, snapshotId(`cut ${index}`)]));
  }

  /** Asks for it. */
  send({ controller, node }: Csi, request: CallerRequest): Promise<unknown> {
    const volumeId = this.#ids.get(request.volume)!;
    const stagingTargetPath = `${this.#folder}/staging-${request.volume}`;
    const targetPath = `${this.#folder}/pod-${request.volume}`;
    switch (request.call) {
      case "create":
        return controller.createVolume({
          name: `volume ${request.volume}`,
          capacityRange: { requiredBytes: 32n << 20n },
          volumeCapabilities: [CAPABILITY],
        });
      case "delete":
        return controller.deleteVolume({ volumeId });
      case "stage":
        return node.nodeStageVolume({ volumeId, stagingTargetPath, volumeCapability: CAPABILITY });
      case "unstage":
        return node.nodeUnstageVolume({ volumeId, stagingTargetPath });
      case "publish":
        return node.nodePublishVolume({ volumeId, stagingTargetPath, targetPath, volumeCapability: CAPABILITY });
      case "unpublish":
        return node.nodeUnpublishVolume({ volumeId, targetPath });
      case "expand":
        return controller.controllerExpandVolume({
          volumeId,
          capacityRange: { requiredBytes: BigInt(request.mib) << 20n },
        });
      case "snapshot":
        return controller.createSnapshot({
          name: `cut ${request.snapshot}`,
          sourceVolumeId: volumeId,
          parameters: { snapSize: "4Mi" },
        });
      case "deleteSnapshot":
        return controller.deleteSnapshot({ snapshotId: this.#snapshotIds.get(request.snapshot)! });
    }
  }

  /** Returns the requests that remove everything, in the order in which the callers make them. */
  cleanupRequests(): CallerRequest[] {
    const volumes = [...this.#ids.keys()];
    return [
      ...volumes.map((volume): CallerRequest => ({ call: "unpublish", volume })),
      ...volumes.map((volume): CallerRequest => ({ call: "unstage", volume })),
      ...[...this.#snapshotIds.keys()].map((snapshot): CallerRequest => ({
        call: "deleteSnapshot",
        volume: 0,
        snapshot,
      })),
      ...volumes.map((volume): CallerRequest => ({ call: "delete", volume })),
    ];
  }
}

const CAPABILITY = {
  accessMode: { mode: 7 }, // SINGLE_NODE_MULTI_WRITER
  accessType: { case: "mount", value: { fsType: "ext4" } },
} as const;
