import type { Operation } from "./result.ts";

/** One side's part in an operation. */
export interface Side {
  /** What it needs first, and is not measured. */
  prepare?(): Promise<unknown>;
  /** What is measured. */
  run(): Promise<unknown>;
}

/** One side's part in each of some operations. */
export type Sides<O extends Operation> = Readonly<Record<O, Side>>;

/**
 * The life of a volume. The operations within brackets follow each other at once: the second goes on where the first has
 * answered, and what it costs is counted from the start of the first.
 */
export const LIFECYCLE = [
  ["createVolume"],
  ["deleteUnusedVolume"],
  ["stageFirst"],
  ["publish"],
  ["stats"],
  ["expandVolume"],
  ["expandFilesystem"],
  ["createSnapshot"],
  ["deleteSnapshot", "removeSnapshot"],
  ["unpublish"],
  ["unstage"],
  ["stageAgain"],
  ["deleteUsedVolume", "removeUsedVolume"],
] as const satisfies readonly (readonly Operation[])[];

/** How volumes are made that are not empty, or not thick. What an earlier run made is removed first. */
export const CREATION = [
  ["clone"],
  ["createThin"],
  ["cloneThin"],
] as const satisfies readonly (readonly Operation[])[];

/** An operation by which such a volume is made. */
export type CreationOperation = typeof CREATION[number][number];

/** An operation of the life of a volume. */
export type LifecycleOperation = typeof LIFECYCLE[number][number];

/** The sizes in MiB: of a volume, of the same grown, of the room for a snapshot's changes, of a thin pool. */
export const SIZES_MIB = { volume: 128, grown: 192, snapshot: 32, pool: 512 } as const;
