/**
 * What a process with a large cluster can be asked for.
 *
 * @module
 */

/** Claims to create: so many, at once or so many in a second. */
export interface ClaimRequest {
  readonly count: number;
  readonly perSecond?: number;
  /** Whether the driver chooses the node. */
  readonly isImmediate?: boolean;
  /** The first node, and their number. */
  readonly on?: { readonly first: number; readonly count: number };
}

/** The commands of a process with a cluster, over the fake API server or a real one. */
export type ClusterCommands = {
  /** Fills the server. @returns a kubeconfig */
  start(): string | Promise<string>;
  /** Returns the bytes that were sent to controllers so far: of objects, or over a real connection. */
  sentBytes(): number;
  /** Returns how many Leases of leaders a process holds. @param identity the beginning of its identity */
  leasesOf(identity: string): number | Promise<number>;
  /** Creates claims. @returns their names */
  createClaims(request: ClaimRequest): Promise<string[]>;
  /** Returns how long each of the claims took until it was Bound, in milliseconds; absent for one that is not. */
  boundMs(names: string[]): number[];
  /** Deletes claims. */
  deleteClaims(names: string[]): void | Promise<void>;
  /** Returns the number of PersistentVolumes. */
  persistentVolumeCount(): number;
  /** Makes the agents of nodes silent, as a reboot does. */
  silence(pool: { first: number; count: number }): void;
  /** Lets all silent agents report at once. */
  wake(): void;
};
