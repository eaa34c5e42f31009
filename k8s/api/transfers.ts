/**
 * What objects say of transfers: which snapshot may be read for which volume, who may ask for its changed blocks, and where
 * agents are reached.
 *
 * The controller allows both by annotations of the LVMSnapshot. Only the controller and the agent of the node of the snapshot
 * may write it (docs/adr/0012-isolation.md), so the agent that wants to read cannot allow it itself.
 *
 * @module
 */

import { parseVolumeId, type VolumeId } from "../../base/ids.ts";
import { LVM_GROUP, type LvmNode, type LvmSnapshot } from "./lvm_objects.ts";

/** The prefix of the annotations of an LVMSnapshot; the id of the volume follows. */
const GRANT_PREFIX = `transfer.${LVM_GROUP}/`;

/** The prefix of the annotations of an LVMSnapshot that allow a controller to ask for changed blocks; a name follows. */
const LIST_GRANT_PREFIX = `changed-blocks.${LVM_GROUP}/`;

/** The length of a name of such an annotation, in characters of the fingerprint. */
const LIST_GRANT_NAME_LENGTH = 32;

/** The permission to read a snapshot. */
export interface TransferGrant {
  /** The volume that is filled. */
  readonly volume: VolumeId;
  /** Its node, whose agent may read. */
  readonly node: string;
  /** The time until which it may, in milliseconds since 1970. */
  readonly until: number;
}

/** Where the agent of a node is reached, and how it is recognized. */
export interface TransferEndpoint {
  /** The IP address and the port. */
  address: string;
  /** Its certificate, as PEM. */
  certificate: string;
  /** The time until which the certificate is valid (RFC 3339). */
  validUntil: string;
}

/** Returns the name of the annotation that allows a volume to be filled from a snapshot. */
export function grantAnnotation(volume: VolumeId): string {
  return GRANT_PREFIX + volume;
}

/** Returns the value of the annotation of a grant. */
export function formatGrant({ node, until }: Pick<TransferGrant, "node" | "until">): string {
  return `${node} ${new Date(until).toISOString()}`;
}

/** Returns the grants of a snapshot. What cannot be read allows nothing. */
export function grantsOf({ metadata: { annotations = {} } }: LvmSnapshot): TransferGrant[] {
  return Object.entries(annotations).flatMap(([name, value]) => {
    if (!name.startsWith(GRANT_PREFIX)) return [];
    const volume = parseVolumeId(name.slice(GRANT_PREFIX.length));
    const [, node, time] = /^([a-z0-9.-]{1,253}) (\S+)$/.exec(value ?? "") ?? [];
    const until = Date.parse(time ?? "");
    return volume === undefined || node === undefined || Number.isNaN(until) ? [] : [{ volume, node, until }];
  });
}

/** The permission of one connection of a controller to ask which blocks of a snapshot changed. */
export interface ListGrant {
  /** The fingerprint of the certificate of the connection. */
  readonly fingerprint: string;
  /** The time until which the connection may begin, in milliseconds since 1970. */
  readonly until: number;
}

/** Returns the name of the annotation of a connection. */
export function listGrantAnnotation({ fingerprint }: Pick<ListGrant, "fingerprint">): string {
  return LIST_GRANT_PREFIX + fingerprint.slice(0, LIST_GRANT_NAME_LENGTH);
}

/** Returns the value of the annotation of a connection. */
export function formatListGrant({ fingerprint, until }: ListGrant): string {
  return `${fingerprint} ${new Date(until).toISOString()}`;
}

/** Returns the connections that are allowed to ask for the changed blocks of a snapshot, by annotation. */
export function listGrantsOf({ metadata: { annotations = {} } }: LvmSnapshot): Map<string, ListGrant> {
  const grants = new Map<string, ListGrant>();
  for (const [name, value] of Object.entries(annotations)) {
    const [, fingerprint, time] = /^([0-9a-f]{64}) (\S+)$/.exec(value ?? "") ?? [];
    const until = Date.parse(time ?? "");
    if (fingerprint === undefined || name !== listGrantAnnotation({ fingerprint })) continue;
    if (!Number.isNaN(until)) grants.set(name, { fingerprint, until });
  }
  return grants;
}

/** Returns the volume that is filled from a temporary snapshot; `undefined` for any other snapshot. */
export function transferredVolumeOf(object: TemporarySnapshot): VolumeId | undefined {
  return temporaryOf(object)?.volume;
}

/** Returns the number of a temporary snapshot, of several from which a volume is filled; `undefined` for any other one. */
export function transferRoundOf(object: TemporarySnapshot): number | undefined {
  return temporaryOf(object)?.round;
}

/** A snapshot, as far as it shows whether it is a temporary one. */
interface TemporarySnapshot {
  readonly spec: Pick<LvmSnapshot["spec"], "requestName">;
}

function temporaryOf({ spec: { requestName } }: TemporarySnapshot) {
  const [, id = "", round] = /^denolith-transfer-(v1-[0-9a-f]+)(?:-(\d{1,9})(?:-\d+)?)?$/.exec(requestName) ?? [];
  const volume = parseVolumeId(id);
  return volume && { volume, ...(round === undefined ? {} : { round: Number(round) }) };
}

/** Reports whether the agent of a node takes part in transfers. @param now the time, in milliseconds since 1970 */
export function canTransfer(node: LvmNode | undefined, now: number): boolean {
  return Date.parse(node?.status?.transfer?.validUntil ?? "") > now;
}
