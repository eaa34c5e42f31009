/**
 * The disks of a cluster's nodes that rules name, as people see them, and what becomes of one that is accepted.
 *
 * @module
 */

import type { AcceptedDisk, AcceptedDiskStatus, LvmNode, NodeDisk } from "../../k8s/api/lvm_objects.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { defined } from "../../base/defined.ts";

/**
 * Where a disk stands: nobody uses it (`Proposed`), it failed a check (`Unsuitable`), it is accepted and the agent has
 * not looked yet (`Accepted`), or what the agent made of that.
 */
export type DiskState = "Proposed" | "Unsuitable" | "Accepted" | AcceptedDiskStatus["state"];

/** A disk. Its size is in bytes. */
export interface DiskView {
  /** Its node. */
  readonly node: string;
  /** Its name in /dev/disk/by-id. */
  readonly name: string;
  /** The path of its device; absent while it is not there. */
  readonly path?: string;
  /** Its size. */
  readonly size?: bigint;
  /** Whether it turns; absent where the kernel does not say. */
  readonly rotational?: boolean;
  /** The volume group that the rule names, or for which it is accepted. */
  readonly volumeGroup: string;
  /** Where it stands. */
  readonly state: DiskState;
  /** Why. */
  readonly reason?: string;
}

/** Returns the disks that agents report, and those that are accepted, in the order of their nodes and names. */
export function diskViews(lvmNodes: readonly LvmNode[]): DiskView[] {
  return lvmNodes.flatMap((node) => {
    const { spec: { acceptedDisks = [] }, status: { disks = [], acceptedDisks: outcomes = [] } = {} } = node;
    const names = new Set([...disks, ...acceptedDisks, ...outcomes].map(({ name }) => name));
    const named = <T extends { name: string }>(all: readonly T[], name: string) => all.find((one) => one.name === name);
    return [...names].map((name) =>
      diskView(node.metadata.name, name, {
        disk: named(disks, name),
        accepted: named(acceptedDisks, name),
        outcome: named(outcomes, name),
      })
    );
  }).sort((a, b) => a.node === b.node ? (a.name < b.name ? -1 : 1) : a.node < b.node ? -1 : 1);
}

function diskView(node: string, name: string, { disk, accepted, outcome }: {
  readonly disk: NodeDisk | undefined;
  readonly accepted: AcceptedDisk | undefined;
  readonly outcome: AcceptedDiskStatus | undefined;
}): DiskView {
  return {
    node,
    name,
    ...defined({ path: disk?.path, size: quantityToBytes(disk?.size), rotational: disk?.rotational }),
    volumeGroup: outcome?.volumeGroup ?? accepted?.volumeGroup ?? disk?.volumeGroup ?? "",
    state: outcome?.state ?? (accepted !== undefined ? "Accepted" : disk?.proposed ? "Proposed" : "Unsuitable"),
    // of a disk that is taken, its signature is no reason
    ...defined({ reason: outcome === undefined ? disk?.reason : outcome.message }),
  };
}

/** What is to be accepted, and what becomes of it; or why it cannot be. */
export type AcceptancePlan =
  | {
    readonly accepted: AcceptedDisk;
    /** The size of the disk, in bytes. */
    readonly size: bigint;
    /** The size of the group that it is added to, in bytes; absent if the group is created. */
    readonly groupSize?: bigint;
  }
  | { readonly refusal: string };

/** Plans the acceptance of a disk of a node. */
export function planAcceptance({ spec, status }: LvmNode, name: string): AcceptancePlan {
  const disk = status?.disks?.find((one) => one.name === name);
  const outcome = status?.acceptedDisks?.find((one) => one.name === name);
  if (outcome?.physicalVolumeUUID !== undefined && spec.acceptedDisks?.some((one) => one.name === name)) {
    return { refusal: `it is accepted already, and ${outcome.state}` };
  }
  if (disk === undefined) return { refusal: "its agent names no such disk: see kubectl denolith disks" };
  if (!disk.proposed) return { refusal: `it is not proposed: ${disk.reason ?? "it failed a check"}` };
  if (disk.identity === undefined) return { refusal: "its agent is of an older version, and cannot take disks" };
  const group = status?.volumeGroups?.find((one) => one.name === disk.volumeGroup);
  const { volumeGroup, identity } = disk;
  return defined({
    accepted: defined({ name, volumeGroup, identity, volumeGroupUUID: group?.uuid }),
    size: quantityToBytes(disk.size) ?? 0n,
    groupSize: quantityToBytes(group?.size),
  });
}
