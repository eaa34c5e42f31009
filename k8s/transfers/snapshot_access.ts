/**
 * Decides whether another agent may read a snapshot of this node, and finds its device.
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
import type { TransferRequest } from "../../lvm/transfers/protocol.ts";
import type { SourceDevice } from "../../lvm/transfers/sender.ts";
import { lvmNodes, type LvmSnapshot } from "../api/lvm_objects.ts";
import { grantsOf } from "../api/transfers.ts";
import { type ApiClient, orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { fingerprintOfPem } from "./fingerprint.ts";
import type { Peer } from "./listener.ts";

/** Options of {@linkcode openSnapshot}. */
export interface SnapshotAccessOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** The driver's name. */
  readonly driver: string;
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
  { fingerprint, validUntil }: Peer,
  options: SnapshotAccessOptions,
): Promise<void> {
  const refuse = (why: string) => {
    throw new StorageError("Unavailable", `reading snapshot ${snapshot} for volume ${volume}: ${why}`);
  };
  const now = () => options.clock.date().getTime();
  if (!(validUntil > now())) refuse("the certificate of the agent is no longer valid");
  if (driver !== options.driver) refuse("it is of another driver");
  const grantOf = (object: LvmSnapshot | undefined) => {
    if (object?.spec.driverName !== driver) return undefined;
    return grantsOf(object).find((grant) => grant.volume === volume && grant.node === node);
  };
  const isAllowed = (object: LvmSnapshot | undefined) => grantOf(object) !== undefined;
  const object = await options.snapshots.waitFor(snapshot, isAllowed, { timeoutMs: GRANT_WAIT_MS }).catch(() =>
    refuse(`there is no permission for node ${node} yet`)
  );
  if (grantOf(object!)!.until <= now()) refuse("the permission is over");
  // only now: who may read nothing causes no request
  const { status, spec } = await orAbsent(options.client.get(lvmNodes, { name: node })) ?? {};
  const expected = spec?.driverName === driver
    ? await fingerprintOfPem(status?.transfer?.certificate ?? "")
    : undefined;
  if (expected !== fingerprint) refuse(`the agent has not the certificate that LVMNode ${node} has`);
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
