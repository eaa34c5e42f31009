/**
 * A life of volumes and snapshots as a list of steps, and the state of the world that its acknowledged steps promise.
 *
 * @module
 */

import { groupSnapshotIdOf, volumeIdOf } from "../../base/ids.ts";

/** A step of an orchestrator or a pod. */
export type Step =
  | {
    readonly do: "create";
    readonly volume: string;
    readonly mib: number;
    readonly type?: "ext4" | "block";
    readonly from?: { readonly snapshot: string } | { readonly volume: string };
    readonly parameters?: Readonly<Record<string, string>>;
  }
  | { readonly do: "stage" | "publish" | "unpublish" | "unstage" | "grow" | "delete"; readonly volume: string }
  | { readonly do: "write"; readonly volume: string; readonly file: string }
  /** The secret of an encrypted volume is from now on this one, for the calls that follow. */
  | { readonly do: "setSecrets"; readonly volume: string; readonly secrets: Readonly<Record<string, string>> }
  | { readonly do: "expand"; readonly volume: string; readonly mib: number }
  | { readonly do: "snapshot"; readonly snapshot: string; readonly volume: string }
  | { readonly do: "deleteSnapshot"; readonly snapshot: string }
  | { readonly do: "snapshotGroup"; readonly group: string; readonly volumes: readonly string[] }
  | { readonly do: "deleteGroup"; readonly group: string }
  /** The driver has erased and removed what was deleted. */
  | { readonly do: "settle" };

/** A volume that was created and not deleted. */
export interface VolumeState {
  readonly type: "ext4" | "block";
  readonly mib: number;
  readonly mounted: "no" | "staged" | "published";
  /** The files that were written and synced. */
  readonly files: readonly string[];
  /** The secret of an encrypted volume. */
  readonly secrets?: Readonly<Record<string, string>>;
  /** The passphrases that must not open it any more. */
  readonly former?: readonly string[];
}

/** A snapshot that was created and not deleted. */
export interface SnapshotState extends VolumeState {
  /** The group snapshot that it is part of. */
  readonly group?: string;
}

/** What exists. */
export interface World {
  readonly volumes: ReadonlyMap<string, VolumeState>;
  /** The snapshots, with the files that they have. */
  readonly snapshots: ReadonlyMap<string, SnapshotState>;
}

const MOUNTED = { stage: "staged", publish: "published", unpublish: "staged", unstage: "no" } as const;

/** Returns what exists after steps. */
export function worldAfter(steps: readonly Step[]): World {
  const volumes = new Map<string, VolumeState>();
  const snapshots = new Map<string, SnapshotState>();
  for (const step of steps) {
    switch (step.do) {
      case "create": {
        const source = step.from === undefined
          ? undefined
          : "snapshot" in step.from
          ? snapshots.get(step.from.snapshot)
          : volumes.get(step.from.volume);
        volumes.set(step.volume, {
          type: step.type ?? "ext4",
          mib: step.mib,
          mounted: "no",
          files: source?.files ?? [],
        });
        break;
      }
      case "stage":
      case "publish":
      case "unpublish":
      case "unstage":
        change(volumes, step.volume, () => ({ mounted: MOUNTED[step.do as keyof typeof MOUNTED] }));
        break;
      case "write":
        change(volumes, step.volume, ({ files }) => ({ files: [...files, step.file] }));
        break;
      case "setSecrets":
        change(volumes, step.volume, ({ secrets, former = [] }) => ({
          secrets: step.secrets,
          // the change was made, or the secret would still have the previous one
          former: [...former, ...(secrets?.previousPassphrase === undefined ? [] : [secrets.previousPassphrase])],
        }));
        break;
      case "expand":
        change(volumes, step.volume, () => ({ mib: step.mib }));
        break;
      case "snapshot":
        snapshots.set(step.snapshot, volumes.get(step.volume)!);
        break;
      case "snapshotGroup":
        for (const volume of step.volumes) {
          snapshots.set(memberName(step.group, volume), { ...volumes.get(volume)!, group: step.group });
        }
        break;
      case "deleteGroup":
        for (const [name, { group }] of [...snapshots]) if (group === step.group) snapshots.delete(name);
        break;
      case "delete":
        volumes.delete(step.volume);
        break;
      case "deleteSnapshot":
        snapshots.delete(step.snapshot);
        break;
    }
  }
  return { volumes, snapshots };
}

/** Returns the name under which the snapshot of a volume in a group snapshot would have the id that it has. */
export function memberName(group: string, volume: string): string {
  return `${groupSnapshotIdOf(group)}\0${volumeIdOf(volume)}`;
}

/**
 * Returns the files that a volume must not have: those that steps write to other volumes, but for what it has of its
 * source. A restored volume, or a clone, has no file that its source got later.
 *
 * @param found the names of the files that it has
 * @param steps all steps, those after the present one included: the last one before a power cut may have had its effect
 */
export function foreignFiles(
  found: readonly string[],
  name: string,
  steps: readonly Step[],
  volume: VolumeState,
): string[] {
  const own = steps.flatMap((step) => step.do === "write" && step.volume === name ? [step.file] : []);
  return found.filter((file) => !volume.files.includes(file) && !own.includes(file));
}

function change(
  volumes: Map<string, VolumeState>,
  name: string,
  changes: (volume: VolumeState) => Partial<VolumeState>,
): void {
  const volume = volumes.get(name)!;
  volumes.set(name, { ...volume, ...changes(volume) });
}

/** Describes a step, as the mark of its acknowledgement. A mark cannot have blanks. */
export function describeStep(step: Step, index: number): string {
  const names = [
    "snapshot" in step ? step.snapshot : undefined,
    "group" in step ? step.group : undefined,
    "volume" in step ? step.volume : undefined,
  ];
  return [index, step.do, ...names.filter((name) => name !== undefined).slice(0, 1)].join("-");
}

/**
 * Returns the steps with which an orchestrator continues after a power cut. Nothing is mounted any more, so it mounts
 * again what was in use, and then repeats the step that was not acknowledged.
 *
 * @param acknowledged the number of the steps that were acknowledged
 */
export function stepsToContinue(steps: readonly Step[], acknowledged: number): Step[] {
  const { volumes } = worldAfter(steps.slice(0, acknowledged));
  const mounts = [...volumes].flatMap(([volume, { mounted }]): Step[] => {
    if (mounted === "no") return [];
    return [{ do: "stage", volume }, ...mounted === "published" ? [{ do: "publish", volume } as const] : []];
  });
  return [...mounts, ...steps.slice(acknowledged)];
}

/**
 * Returns the steps with which an orchestrator deletes everything after a power cut. A creation whose outcome it does not
 * know is repeated first.
 *
 * @param acknowledged the number of the steps that were acknowledged
 */
export function stepsToGiveUp(steps: readonly Step[], acknowledged: number): Step[] {
  const unknown = steps.slice(acknowledged, acknowledged + 1);
  const creation = unknown.filter((step) => ["create", "snapshot", "snapshotGroup"].includes(step.do));
  const { volumes, snapshots } = worldAfter([...steps.slice(0, acknowledged), ...creation]);
  return [
    ...creation,
    ...[...volumes.keys()].flatMap((volume): Step[] => [{ do: "unpublish", volume }, { do: "unstage", volume }]),
    ...[...snapshots].flatMap(([snapshot, { group }]): Step[] =>
      group === undefined ? [{ do: "deleteSnapshot", snapshot }] : []
    ),
    ...new Set([...snapshots.values()].flatMap(({ group }) => group ?? [])).values().map((group): Step => ({
      do: "deleteGroup",
      group,
    })),
    ...[...volumes.keys()].map((volume): Step => ({ do: "delete", volume })),
    ...unknown.filter((step) => ["delete", "deleteSnapshot", "deleteGroup"].includes(step.do)),
    { do: "settle" },
  ];
}

/** The parameters of a thin volume. Its pool is overwritten in the end, so it is no larger than it has to be. */
const THIN = { thinProvision: "yes", thinPoolSize: "48Mi" };

/** The parameters of an encrypted volume. */
const ENCRYPTED = { encryption: "luks2" };

/** The secrets of an encrypted volume, in turn: the last one requests another volume key, too. */
const SECRETS = [
  { passphrase: "first passphrase" },
  { passphrase: "second passphrase", previousPassphrase: "first passphrase" },
  { passphrase: "second passphrase" },
  { passphrase: "third passphrase", previousPassphrase: "second passphrase", volumeKey: "next" },
  { passphrase: "third passphrase", volumeKey: "next" },
].map((secrets) => ({ do: "setSecrets", volume: "one", secrets } as const));

/** The lives that are recorded. */
export const LIVES: Readonly<Record<string, readonly Step[]>> = {
  "a volume": [
    { do: "create", volume: "one", mib: 16 },
    ...use("one", "first"),
    { do: "expand", volume: "one", mib: 24 },
    { do: "grow", volume: "one" },
    { do: "write", volume: "one", file: "second" },
    ...release("one"),
    { do: "delete", volume: "one" },
    { do: "settle" },
  ],
  "a snapshot": [
    { do: "create", volume: "one", mib: 16 },
    ...use("one", "first"),
    { do: "snapshot", snapshot: "cut", volume: "one" },
    { do: "write", volume: "one", file: "second" },
    { do: "create", volume: "restored", mib: 16, from: { snapshot: "cut" } },
    { do: "stage", volume: "restored" },
    { do: "publish", volume: "restored" },
    ...release("restored"),
    { do: "delete", volume: "restored" },
    { do: "deleteSnapshot", snapshot: "cut" },
    ...release("one"),
    { do: "delete", volume: "one" },
    { do: "settle" },
  ],
  "a thin volume": [
    { do: "create", volume: "one", mib: 16, parameters: THIN },
    ...use("one", "first"),
    { do: "snapshot", snapshot: "cut", volume: "one" },
    { do: "write", volume: "one", file: "second" },
    ...release("one"),
    { do: "delete", volume: "one" },
    { do: "create", volume: "restored", mib: 16, from: { snapshot: "cut" }, parameters: THIN },
    { do: "stage", volume: "restored" },
    { do: "publish", volume: "restored" },
    ...release("restored"),
    { do: "delete", volume: "restored" },
    { do: "deleteSnapshot", snapshot: "cut" },
    { do: "settle" },
  ],
  "a group snapshot": [
    { do: "create", volume: "thick", mib: 16 },
    { do: "create", volume: "thin", mib: 16, parameters: THIN },
    ...use("thick", "first"),
    ...use("thin", "second"),
    { do: "snapshotGroup", group: "both", volumes: ["thick", "thin"] },
    { do: "write", volume: "thick", file: "third" },
    { do: "write", volume: "thin", file: "fourth" },
    { do: "create", volume: "restored", mib: 16, from: { snapshot: memberName("both", "thin") }, parameters: THIN },
    { do: "stage", volume: "restored" },
    { do: "publish", volume: "restored" },
    ...release("restored"),
    { do: "delete", volume: "restored" },
    { do: "deleteGroup", group: "both" },
    ...release("thick"),
    ...release("thin"),
    { do: "delete", volume: "thick" },
    { do: "delete", volume: "thin" },
    { do: "settle" },
  ],
  "an erased block volume": [
    { do: "create", volume: "one", mib: 32, type: "block" },
    ...use("one", "first"),
    { do: "write", volume: "one", file: "second" },
    ...release("one"),
    { do: "delete", volume: "one" },
    { do: "settle" },
    { do: "create", volume: "next", mib: 64, type: "block" },
    { do: "delete", volume: "next" },
    { do: "settle" },
  ],
  "an encrypted volume": [
    { do: "create", volume: "one", mib: 32, parameters: ENCRYPTED },
    SECRETS[0]!,
    ...use("one", "first"),
    SECRETS[1]!,
    { do: "publish", volume: "one" },
    SECRETS[2]!,
    { do: "expand", volume: "one", mib: 40 },
    { do: "grow", volume: "one" },
    ...release("one"),
    SECRETS[3]!,
    ...use("one", "second"),
    SECRETS[4]!,
    ...release("one"),
    { do: "delete", volume: "one" },
    { do: "settle" },
  ],
  "a clone": [
    { do: "create", volume: "one", mib: 16 },
    ...use("one", "first"),
    { do: "create", volume: "copy", mib: 20, from: { volume: "one" } },
    { do: "write", volume: "one", file: "later" },
    ...use("copy", "second"),
    ...release("copy"),
    ...release("one"),
    { do: "delete", volume: "one" },
    { do: "delete", volume: "copy" },
    { do: "settle" },
  ],
};

function use(volume: string, file: string): Step[] {
  return [{ do: "stage", volume }, { do: "publish", volume }, { do: "write", volume, file }];
}

function release(volume: string): Step[] {
  return [{ do: "unpublish", volume }, { do: "unstage", volume }];
}
