/**
 * What objects say of transfers: which snapshot may be read for which volume, and where agents are reached.
 *
 * The controller allows a transfer by an annotation of the LVMSnapshot. Only the controller and the agent of the node of the
 * snapshot may write it (docs/adr/0012-isolation.md), so the agent that wants to read cannot allow it itself.
 *
 * @module
 */

import { parseVolumeId, type VolumeId } from "../../lvm/ids.ts";
import { LVM_GROUP, type LvmNode, type LvmSnapshot } from "./lvm_objects.ts";

/** The prefix of the annotations of an LVMSnapshot; the id of the volume follows. */
const GRANT_PREFIX = `transfer.${LVM_GROUP}/`;

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

/** Returns the volume that is filled from a temporary snapshot; `undefined` for any other snapshot. */
export function transferredVolumeOf({ spec: { requestName } }: LvmSnapshot): VolumeId | undefined {
  const [, id] = /^denolith-transfer-(\S+)$/.exec(requestName) ?? [];
  return id === undefined ? undefined : parseVolumeId(id);
}

/** Reports whether the agent of a node takes part in transfers. @param now the time, in milliseconds since 1970 */
export function canTransfer(node: LvmNode | undefined, now: number): boolean {
  return Date.parse(node?.status?.transfer?.validUntil ?? "") > now;
}
