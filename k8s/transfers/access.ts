/**
 * Decides whether another agent may read a snapshot of this node, and finds its device, and whether the controller may ask for
 * a list of its changed blocks.
 *
 * @module
 */

import type { Exec } from "../../lvm/exec.ts";
import type { Clock } from "../../base/clock.ts";
import { sourceBytes } from "../../lvm/copies/plan.ts";
import type { Differences, ExtentList } from "../../lvm/differences/differences.ts";
import { StorageError } from "../../base/error.ts";
import type { Lvm } from "../../lvm/client/client.ts";
import { verifyDevice } from "../../lvm/host/device.ts";
import type { LocatedSnapshot, SnapshotFinder } from "../../lvm/inventory/snapshot_finder.ts";
import { activationArguments } from "../../lvm/pools/activation.ts";
import type { RemoteListRequest } from "../../lvm/differences/list_protocol.ts";
import type { TransferRequest } from "../../lvm/transfers/protocol.ts";
import type { SourceDevice } from "../../lvm/transfers/sender.ts";
import { lvmNodes, type LvmSnapshot } from "../api/lvm_objects.ts";
import { grantsOf, listGrantAnnotation, listGrantsOf } from "../api/transfers.ts";
import { type DriverClient, orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { fingerprintOfPem } from "./proof.ts";
import type { Peer } from "./listener.ts";

/** Options of {@linkcode openSnapshot}. */
export interface SnapshotAccessOptions extends DriverClient {
  /** The LVMSnapshots of this node. */
  readonly snapshots: Pick<Informer<LvmSnapshot>, "waitFor">;
  /** Runs commands. */
  readonly exec: Exec;
  /** LVM on this machine. */
  readonly lvm: Lvm;
  /** Finds snapshots. */
  readonly snapshotFinder: SnapshotFinder;
  /** Lists what differs between snapshots. */
  readonly differences: Pick<Differences, "list">;
  /** Time. */
  readonly clock: Clock;
}

/**
 * The time for which a permission is waited for, in milliseconds. The controller writes it right before the other agent asks, so
 * the watch of this one may not have shown it yet: a refusal would cost a second while nobody can use a volume that moves.
 */
const GRANT_WAIT_MS = 3_000;

/** The most ranges that differ in one group. */
const GROUP_SIZE = 4096;

/**
 * Returns the device of the snapshot that an agent wants to read.
 *
 * @throws {StorageError} `Unavailable` when it may not, or not yet; `NotFound`, `Lost` or `FailedPrecondition` when the
 * snapshot has no content any more
 */
export async function openSnapshot(
  request: TransferRequest,
  peer: Peer,
  options: SnapshotAccessOptions,
): Promise<SourceDevice> {
  await requireAllowed(request, peer, options);
  const { lvm, exec, snapshotFinder } = options;
  const { snapshot } = request;
  let found = requireUsable(request, snapshotFinder.locate(await lvm.report(), snapshot), snapshotFinder);
  if (!found.lv.active) {
    await lvm.change(found.group, activationArguments(options.driver, found.group, found.lv));
    found = requireUsable(request, snapshotFinder.locate(await lvm.report(), snapshot), snapshotFinder);
  }
  const size = sourceBytes(found.lv);
  await verifyDevice(exec, { ...found.lv, size });
  const device = { path: found.lv.devicePath, size, uuid: found.lv.uuid };
  return request.base === undefined ? device : { ...device, changed: await listChanged(request, options) };
}

/** Lists what differs from the base of a request. @throws {StorageError} when it is gone, or is another one of its id */
async function listChanged(
  { snapshot, base, offset }: TransferRequest,
  { lvm, snapshotFinder, differences }: SnapshotAccessOptions,
): Promise<ExtentList["extents"]> {
  const { id, uuid } = base!;
  const found = snapshotFinder.locate(await lvm.report(), id);
  if (found?.lv.uuid !== uuid) {
    const other = found === undefined ? "it does not exist any more" : "it is another one than before";
    throw new StorageError("FailedPrecondition", `comparing snapshot ${snapshot} with ${id}: ${other}`);
  }
  return (await differences.list({ base: id, target: snapshot, from: offset, groupSize: GROUP_SIZE })).extents;
}

/** Requires that the controller allows it, and that the other end is the agent of the node that it allows it for. */
async function requireAllowed(
  { driver, node, snapshot, volume }: TransferRequest,
  peer: Peer,
  options: SnapshotAccessOptions,
): Promise<void> {
  const what = `reading snapshot ${snapshot} for volume ${volume}`;
  await requireGrant(
    {
      driver,
      snapshot,
      what,
      who: "agent",
      permission: `permission for node ${node}`,
      grantOf: (object) => grantsOf(object).find((grant) => grant.volume === volume && grant.node === node),
      timeoutMs: GRANT_WAIT_MS,
    },
    peer,
    options,
  );
  // only now: an agent that may read nothing causes no request
  const { status, spec } = await orAbsent(options.client.get(lvmNodes, { name: node })) ?? {};
  const expected = spec?.driverName === driver
    ? await fingerprintOfPem(status?.transfer?.certificate ?? "")
    : undefined;
  if (expected === peer.fingerprint) return;
  throw new StorageError("Unavailable", `${what}: the agent has not the certificate that LVMNode ${node} has`);
}

/** Options of {@linkcode requireListAllowed}. */
export type ListAccessOptions = Pick<SnapshotAccessOptions, "driver" | "snapshots" | "clock">;

/** The time after which a permission that the controller just wrote for itself must be seen here, in milliseconds. */
const LIST_GRANT_WAIT_MS = 10_000;

/**
 * Requires that the controller allows the connection to ask for the changed blocks of a snapshot. The permission was written
 * right before, so this waits for it.
 *
 * @throws {StorageError} `Unavailable` when it does not
 */
export async function requireListAllowed(
  { driver, target }: Pick<RemoteListRequest, "driver" | "target">,
  peer: Peer,
  options: ListAccessOptions,
): Promise<void> {
  const { fingerprint } = peer;
  await requireGrant(
    {
      driver,
      snapshot: target,
      what: `listing changed blocks of snapshot ${target}`,
      who: "controller",
      permission: "permission for its connection",
      grantOf: (object) => {
        const grant = listGrantsOf(object).get(listGrantAnnotation({ fingerprint }));
        return grant?.fingerprint === fingerprint ? grant : undefined;
      },
      timeoutMs: LIST_GRANT_WAIT_MS,
    },
    peer,
    options,
  );
}

/** What the other end of a connection asks for. */
interface Asked {
  /** The driver that it is of. */
  readonly driver: string;
  /** The snapshot. */
  readonly snapshot: string;
  /** What is asked for, and by whom, and the permission for that: words of errors. */
  readonly what: string;
  readonly who: "agent" | "controller";
  readonly permission: string;
  /** Returns the permission. */
  readonly grantOf: (object: LvmSnapshot) => { readonly until: number } | undefined;
  /** The time for which the permission is waited for. */
  readonly timeoutMs: number;
}

/** Waits for a permission, and requires that it and the certificate of the other end are valid. */
async function requireGrant(asked: Asked, { validUntil }: Peer, options: ListAccessOptions): Promise<void> {
  const { snapshot, what, who, permission, timeoutMs } = asked;
  const refuse = (why: string) => {
    throw new StorageError("Unavailable", `${what}: ${why}`);
  };
  const now = () => options.clock.date().getTime();
  if (!(validUntil > now())) refuse(`the certificate of the ${who} is no longer valid`);
  if (asked.driver !== options.driver) refuse("it is of another driver");
  const grantOf = (object: LvmSnapshot | undefined) =>
    object?.spec.driverName === options.driver ? asked.grantOf(object) : undefined;
  const isAllowed = (object: LvmSnapshot | undefined) => grantOf(object) !== undefined;
  const object = await options.snapshots.waitFor(snapshot, isAllowed, { timeoutMs }).catch(() =>
    refuse(`there is no ${permission} yet`)
  );
  if (grantOf(object!)!.until <= now()) refuse("the permission is over");
}

/** Requires that a snapshot can be read. */
function requireUsable(
  { snapshot }: TransferRequest,
  found: LocatedSnapshot | undefined,
  finder: SnapshotFinder,
): LocatedSnapshot {
  const reading = `reading snapshot ${snapshot}`;
  if (found === undefined || found.incomplete) throw new StorageError("NotFound", `${reading}: it does not exist`);
  finder.requireRecorded(found);
  if (found.lv.invalidSnapshot) {
    throw new StorageError("FailedPrecondition", `${reading}: its COW space overflowed, and its content is lost`);
  }
  if (found.lv.suspended) throw new StorageError("Unavailable", `${reading}: its device is suspended`);
  return found;
}
