/**
 * Many concurrent callers of the same few volumes and snapshots, in any order, with crashes of the driver in between.
 *
 * @module
 */

import fc from "fast-check";
import { groupSnapshotIdOf, memberSnapshotIdOf, snapshotIdOf, type VolumeId, volumeIdOf } from "../../base/ids.ts";
import { blockCapability, mountCapability } from "../contract/helpers/host.ts";
import { SNAPSHOT, VOLUME } from "../../lvm/model/tags.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";
import type { Csi } from "./orchestrator.ts";

/** A request of a caller, for a volume and perhaps a snapshot by their numbers. */
export type CallerRequest =
  | {
    readonly call: "create" | "delete" | "stage" | "unstage" | "publish" | "unpublish" | "expandFilesystem";
    readonly volume: number;
    /** The number of the secret, where volumes are encrypted. */
    readonly secret?: number | undefined;
  }
  | { readonly call: "expand"; readonly volume: number; readonly mib: number }
  | { readonly call: "snapshot" | "deleteSnapshot"; readonly volume: number; readonly snapshot: number }
  | { readonly call: "group" | "deleteGroup"; readonly volume: 0 }
  | { readonly call: "copy"; readonly volume: number; readonly from: CopySource; readonly thin: boolean };

/** The source of a copy: a volume or a snapshot, by its number. */
export interface CopySource {
  readonly kind: "volume" | "snapshot";
  readonly number: number;
}

/** A crash of the driver: the number of commands after which it happens, and the number of the command's moment. */
export interface CrashTime {
  readonly after: number;
  readonly moment: number;
}

/** Concurrent requests, and the crash of the driver while it works for them, if there is one. */
export interface Round {
  readonly requests: readonly CallerRequest[];
  readonly crash: CrashTime | undefined;
}

/** The volumes: a thick one, a thin one, a block device, and one that is copied from a source. */
export const VOLUMES = [
  { content: "ext4", thin: false, readOnly: false },
  { content: "ext4", thin: true, readOnly: false },
  { content: "raw", thin: false, readOnly: true },
  { content: "ext4", thin: false, readOnly: false },
] as const;

/** The number of the volume that is copied. */
const COPY = 3;

/** The volumes of the group snapshot: the thick one and the thin one. */
export const GROUP = [0, 1] as const;

/** The number of snapshots. A snapshot may be of either of the first two volumes. */
export const SNAPSHOTS = 2;

const anyVolume = fc.oneof(
  { weight: 3, arbitrary: fc.constant(0) },
  { weight: 3, arbitrary: fc.constant(1) },
  { weight: 1, arbitrary: fc.constant(2) },
  { weight: 2, arbitrary: fc.constant(COPY) },
);

/** Requests for volumes and snapshots with these numbers. A copy is of a volume or a snapshot with such a number. */
function requests(volume: fc.Arbitrary<number>, snapshot: fc.Arbitrary<number>): fc.Arbitrary<CallerRequest> {
  const from = fc.record({ kind: fc.constantFrom("volume", "snapshot"), number: snapshot });
  const [copy, thin] = [fc.constant(COPY), fc.constantFrom(true, true, false)];
  return fc.oneof(
    { weight: 5, arbitrary: fc.record({ call: fc.constantFrom("stage", "publish"), volume }) },
    { weight: 5, arbitrary: fc.record({ call: fc.constantFrom("unpublish", "unstage", "delete"), volume }) },
    { weight: 2, arbitrary: fc.record({ call: fc.constant("create"), volume: volume.map((number) => number % COPY) }) },
    { weight: 2, arbitrary: fc.record({ call: fc.constant("expand"), volume, mib: fc.constantFrom(48, 64, 80) }) },
    { weight: 1, arbitrary: fc.record({ call: fc.constant("expandFilesystem"), volume }) },
    {
      weight: 4,
      arbitrary: fc.record({
        call: fc.constantFrom("snapshot", "deleteSnapshot"),
        volume: volume.map((number) => number % SNAPSHOTS),
        snapshot,
      }),
    },
    { weight: 4, arbitrary: fc.record({ call: fc.constant("copy"), volume: copy, from, thin }) },
  );
}

/** Concurrent requests, most of them for one volume. */
const concurrentRequests = concurrently([]);

/** Concurrent requests, some of them for the group snapshot. */
const concurrentGroupRequests = concurrently([{
  weight: 2,
  arbitrary: fc.record({ call: fc.constantFrom("group", "group", "deleteGroup"), volume: fc.constant(0) }),
}]);

function concurrently(more: readonly fc.WeightedArbitrary<CallerRequest>[]): fc.Arbitrary<CallerRequest[]> {
  return anyVolume.chain((volume) => {
    const ofVolume = requests(fc.constant(volume), fc.constant(volume % SNAPSHOTS));
    const any = requests(anyVolume, fc.nat(SNAPSHOTS - 1));
    const request = fc.oneof({ weight: 3, arbitrary: ofVolume }, { weight: 1, arbitrary: any }, ...more);
    return fc.array(request, { minLength: 2, maxLength: 4 });
  });
}

/** The state in which a run starts, and its rounds of requests. */
export interface Run {
  /** The number of requests of {@linkcode PREPARATION} that were made before, one after the other. */
  readonly prepared: number;
  readonly rounds: readonly Round[];
}

/** Requests by which the volumes come into use. */
export const PREPARATION: readonly CallerRequest[] = [
  ...(["create", "stage", "publish"] as const).flatMap((call) => [0, 1, 2].map((volume) => ({ call, volume }))),
  { call: "snapshot", volume: 0, snapshot: 0 },
  { call: "snapshot", volume: 1, snapshot: 1 },
  { call: "copy", volume: COPY, from: { kind: "snapshot", number: 0 }, thin: false },
];

/** Runs. */
export const runs: fc.Arbitrary<Run> = runsOf(concurrentRequests, { prepared: [0, 3, 6, 9, 11, 12], commands: 10 });

/** Runs with group snapshots, whose volumes exist at the start. A group snapshot takes some forty commands. */
export const groupRuns: fc.Arbitrary<Run> = runsOf(concurrentGroupRequests, { prepared: [3, 6, 9, 11], commands: 45 });

/** Requests of which each has one of the two secrets. */
const encryptedRequests: fc.Arbitrary<CallerRequest[]> = fc.tuple(
  concurrentGroupRequests,
  fc.array(fc.nat(1), { minLength: 4, maxLength: 4 }),
).map(([requests, secrets]) =>
  requests.map((request, index) =>
    request.call === "stage" || request.call === "publish" ? { ...request, secret: secrets[index] } : request
  )
);

/** Runs with encrypted volumes, whose passphrases change to and fro. */
export const encryptedRuns: fc.Arbitrary<Run> = runsOf(encryptedRequests, {
  prepared: [0, 3, 6, 9, 11, 12],
  commands: 30,
});

/** The secrets of encrypted volumes: each replaces the passphrase of the other one. */
const SECRETS = [["first", "second"], ["second", "first"]].map(([passphrase, previousPassphrase]) => ({
  passphrase: passphrase!,
  previousPassphrase: previousPassphrase!,
}));

/** @param commands the number of commands after which a driver may crash, at most */
function runsOf(
  requests: fc.Arbitrary<CallerRequest[]>,
  { prepared, commands }: { prepared: readonly number[]; commands: number },
): fc.Arbitrary<Run> {
  return fc.record({
    prepared: fc.constantFrom(...prepared),
    rounds: fc.array(
      fc.record({
        requests,
        crash: fc.option(fc.record({ after: fc.nat(commands), moment: fc.nat(8) }), { nil: undefined, freq: 3 }),
      }),
      { minLength: 1, maxLength: 4 },
    ),
  });
}

/** Returns the id of a volume. */
export function volumeId(volume: number): string {
  return volumeIdOf(`volume ${volume}`);
}

/** Returns the id of a snapshot. */
export function snapshotId(snapshot: number): string {
  return snapshotIdOf(`cut ${snapshot}`);
}

/** Returns the id of the snapshot of a volume that belongs to the group snapshot. */
export function memberId(volume: number): string {
  return memberSnapshotIdOf(groupSnapshotIdOf("group"), volumeId(volume) as VolumeId);
}

/** Returns the path at which a volume is staged. */
export function stagingPath(folder: string, volume: number): string {
  return `${folder}/staging-${volume}`;
}

/** Returns the target of a volume. */
export function targetPath(folder: string, volume: number): string {
  return `${folder}/pod-${volume}`;
}

/** Sends a request, with paths in a folder. @param isEncrypted true if all volumes are encrypted */
export function send(
  { controller, group, node }: Csi,
  folder: string,
  request: CallerRequest,
  isEncrypted = false,
): Promise<unknown> {
  const encryption: Record<string, string> = isEncrypted ? { encryption: "luks2" } : {};
  const secrets = isEncrypted ? SECRETS["secret" in request ? request.secret ?? 0 : 0]! : {};
  const { content, thin, readOnly } = VOLUMES[request.volume]!;
  const id = volumeId(request.volume);
  const volumeCapability = content === "raw" ? blockCapability() : mountCapability(content);
  const [stagingTargetPath, target] = [stagingPath(folder, request.volume), targetPath(folder, request.volume)];
  const creation = {
    name: `volume ${request.volume}`,
    capacityRange: { requiredBytes: 32n << 20n },
    volumeCapabilities: [volumeCapability],
  };
  const thinParameters = { thinProvision: "yes", thinPoolSize: "96Mi" };
  switch (request.call) {
    case "create":
      return controller.createVolume({ ...creation, parameters: { ...encryption, ...(thin ? thinParameters : {}) } });
    case "copy": {
      const { kind, number } = request.from;
      const type = kind === "snapshot"
        ? { case: kind, value: { snapshotId: snapshotId(number) } } as const
        : { case: kind, value: { volumeId: volumeId(number) } } as const;
      return controller.createVolume({
        ...creation,
        capacityRange: { requiredBytes: 64n << 20n },
        parameters: { ...encryption, ...(request.thin ? thinParameters : {}) },
        volumeContentSource: { type },
      });
    }
    case "delete":
      return controller.deleteVolume({ volumeId: id });
    case "stage":
      return node.nodeStageVolume({ volumeId: id, stagingTargetPath, volumeCapability, secrets });
    case "unstage":
      return node.nodeUnstageVolume({ volumeId: id, stagingTargetPath });
    case "publish":
      return node.nodePublishVolume({
        volumeId: id,
        stagingTargetPath,
        targetPath: target,
        readonly: readOnly,
        volumeCapability,
        secrets,
      });
    case "unpublish":
      return node.nodeUnpublishVolume({ volumeId: id, targetPath: target });
    case "expand":
      return controller.controllerExpandVolume({
        volumeId: id,
        capacityRange: { requiredBytes: BigInt(request.mib) << 20n },
      });
    case "expandFilesystem":
      return node.nodeExpandVolume({ volumeId: id, volumePath: target });
    case "snapshot":
      return controller.createSnapshot({
        name: `cut ${request.snapshot}`,
        sourceVolumeId: id,
        parameters: { snapSize: "8Mi" },
      });
    case "deleteSnapshot":
      return controller.deleteSnapshot({ snapshotId: snapshotId(request.snapshot) });
    case "group": {
      const sourceVolumeIds = GROUP.map(volumeId);
      return group.createVolumeGroupSnapshot({ name: "group", sourceVolumeIds, parameters: { snapSize: "8Mi" } });
    }
    case "deleteGroup":
      return group.deleteVolumeGroupSnapshot({ groupSnapshotId: groupSnapshotIdOf("group") });
  }
}

/** Returns the requests that remove everything on a machine, in the order in which the callers make them. */
export function cleanupRequests({ mounts, groups }: FakeMachine): CallerRequest[] {
  const all = <T>(count: number, one: (number: number) => T) =>
    Array.from({ length: count }, (_, number) => one(number));
  const tags = new Set(groups.flatMap(({ lvs }) => lvs.flatMap(({ tags }) => [...tags])));
  const requests = [
    ...all(VOLUMES.length, (volume): CallerRequest => ({ call: "unpublish", volume })),
    ...all(VOLUMES.length, (volume): CallerRequest => ({ call: "unstage", volume })),
    { call: "delete", volume: COPY } as const,
    ...all(SNAPSHOTS, (snapshot): CallerRequest => ({ call: "deleteSnapshot", volume: 0, snapshot })),
    { call: "deleteGroup", volume: 0 } as const,
    ...all(COPY, (volume): CallerRequest => ({ call: "delete", volume })),
  ];
  const isMounted = (name: string) => mounts.some(({ target }) => target.endsWith(name));
  return requests.filter((request) => {
    switch (request.call) {
      case "unstage":
        return isMounted(`/staging-${request.volume}`);
      case "delete":
        return tags.has(VOLUME + volumeId(request.volume));
      case "deleteSnapshot":
        return tags.has(SNAPSHOT + snapshotId(request.snapshot));
      case "deleteGroup":
        return GROUP.some((volume) => tags.has(SNAPSHOT + memberId(volume)));
      default: // the target of a pod may exist also when nothing is mounted there
        return true;
    }
  });
}
