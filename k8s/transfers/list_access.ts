/**
 * Decides whether somebody may ask for a list of changed blocks of a snapshot of this node: the controller, as far as it
 * allowed that itself.
 *
 * @module
 */

import type { Clock } from "../../base/clock.ts";
import type { RemoteListRequest } from "../../lvm/differences/list_protocol.ts";
import { StorageError } from "../../base/error.ts";
import type { LvmSnapshot } from "../api/lvm_objects.ts";
import { listGrantAnnotation, listGrantsOf } from "../api/transfers.ts";
import type { Informer } from "../runtime/informer.ts";
import type { Peer } from "./listener.ts";

/** Options of {@linkcode requireListAllowed}. */
export interface ListAccessOptions {
  /** The driver's name. */
  readonly driver: string;
  /** The LVMSnapshots of this node. */
  readonly snapshots: Pick<Informer<LvmSnapshot>, "waitFor">;
  /** Time. */
  readonly clock: Clock;
}

/** The time after which a permission that was just written must be seen here, in milliseconds. */
const GRANT_WAIT_MS = 10_000;

/**
 * Requires that the controller allows the connection to ask for the changed blocks of a snapshot. The permission was written
 * right before, so this waits for it.
 *
 * @throws {StorageError} `Unavailable` when it does not
 */
export async function requireListAllowed(
  { driver, target }: Pick<RemoteListRequest, "driver" | "target">,
  { fingerprint, validUntil }: Peer,
  options: ListAccessOptions,
): Promise<void> {
  const refuse = (why: string) => {
    throw new StorageError("Unavailable", `listing changed blocks of snapshot ${target}: ${why}`);
  };
  const now = options.clock.date().getTime();
  if (!(validUntil > now)) refuse("the certificate of the controller is no longer valid");
  if (driver !== options.driver) refuse("it is of another driver");
  const grantOf = (object: LvmSnapshot | undefined) => {
    if (object?.spec.driverName !== driver) return undefined;
    const grant = listGrantsOf(object).get(listGrantAnnotation({ fingerprint }));
    return grant?.fingerprint === fingerprint ? grant : undefined;
  };
  const isAllowed = (object: LvmSnapshot | undefined) => grantOf(object) !== undefined;
  const object = await options.snapshots.waitFor(target, isAllowed, { timeoutMs: GRANT_WAIT_MS }).catch(() =>
    refuse("there is no permission for its connection yet")
  );
  if (grantOf(object!)!.until <= now) refuse("the permission is over");
}
