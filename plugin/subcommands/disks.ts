/**
 * `kubectl denolith disks`: lists the disks that rules name, accepts one, and withdraws an acceptance.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { formatBytes } from "../../base/size.ts";
import { type Column, formatTable } from "../../base/text_table.ts";
import { type AcceptedDisk, type LvmNode, lvmNodes } from "../../k8s/api/lvm_objects.ts";
import { type PersistentVolume, persistentVolumes } from "../../k8s/api/objects.ts";
import { patchWithRetry } from "../../k8s/client/patches.ts";
import { type DiskView, diskViews, planAcceptance } from "../diagnosis/disk_views.ts";
import { EXIT } from "../../cli/command_line.ts";
import type { Answer } from "../output.ts";
import type { Session } from "../session.ts";

const COLUMNS: readonly Column[] = [
  ["NODE", "left"],
  ["DISK", "left"],
  ["SIZE", "right"],
  ["PATH", "left"],
  ["GROUP", "left"],
  ["STATE", "left"],
];

/** Shows the disks, or accepts or withdraws one. @returns the exit status */
export function disks(session: Session): Promise<number> {
  const { accept, withdraw } = session.flags;
  if (accept !== undefined) return acceptDisk(session, accept);
  if (withdraw !== undefined) return withdrawDisk(session, withdraw);
  return session.show([{ resource: lvmNodes }], async () => {
    return disksAnswer(diskViews(await readNodes(session)), session);
  });
}

/** Reads the LVMNodes of the driver that `--node` selects. */
async function readNodes({ client, driver, flags }: Session): Promise<LvmNode[]> {
  const { items } = await client.list(lvmNodes);
  return items.filter(({ metadata, spec }) =>
    spec.driverName === driver && (flags.node === undefined || metadata.name === flags.node)
  );
}

function disksAnswer(disks: readonly DiskView[], { flags: { node } }: Session): Answer {
  const rows = disks.map(({ node, name, size, path = "", volumeGroup, state, reason }) => ({
    cells: [node, name, size === undefined ? "" : formatBytes(size), path, volumeGroup, state],
    notes: reason === undefined ? [] : [reason],
  }));
  const where = node === undefined ? "" : ` on node ${node}`;
  return {
    data: { disks },
    text: () =>
      disks.length === 0
        ? `No rule names a disk${where}. The value diskRules of the chart has the rules.`
        : formatTable(COLUMNS, rows).join("\n"),
  };
}

/**
 * Accepts a disk: the agent makes a physical volume of it.
 *
 * @returns 0; 1 if the answer is no
 * @throws {StorageError} `NotFound`, `FailedPrecondition` when it cannot be accepted
 */
async function acceptDisk(session: Session, name: string): Promise<number> {
  const node = await findNode(session, name);
  const plan = planAcceptance(node, name);
  const nodeName = node.metadata.name;
  if ("refusal" in plan) {
    throw new StorageError("FailedPrecondition", `disks: accepting ${name} of node ${nodeName}: ${plan.refusal}`);
  }
  const { accepted, size, groupSize } = plan;
  await requireNoLocalVolume(session, node, name);
  const group = accepted.volumeGroup;
  const becomes = groupSize === undefined
    ? `Volume group ${group} is created of it.`
    : `It is added to volume group ${group}, which has ${formatBytes(groupSize)}.`;
  const data = { node: nodeName, accepted, size, creates: groupSize === undefined };
  const text = [
    `Disk ${name} of node ${nodeName}, ${formatBytes(size)}, becomes a physical volume. ${becomes}`,
    "Data on it that has no signature is overwritten: make sure that it is empty.",
  ].join("\n");
  const isDryRun = session.flags["dry-run"] !== undefined;
  if (isDryRun || session.flags.yes === undefined) session.print({ data, text: () => text });
  if (isDryRun) return EXIT.success;
  const question = `Let the agent of node ${nodeName} of context ${session.subject.context} take disk ${name}?`;
  if (!session.confirm(question)) return EXIT.failure;
  await writeAccepted(session, node, (now) => [...others(now, name), accepted]);
  const said =
    `Disk ${name} of node ${nodeName} is accepted. See what becomes of it: kubectl denolith disks --node ${nodeName}`;
  session.print({ data, text: () => said });
  return EXIT.success;
}

/** Refuses a disk that a PersistentVolume of the type local names: nothing is on it before its first pod. */
async function requireNoLocalVolume({ client }: Session, node: LvmNode, name: string): Promise<void> {
  const path = node.status?.disks?.find((disk) => disk.name === name)?.path;
  const { items } = await client.list(persistentVolumes);
  const volume = items.find(({ spec }) => {
    const local = spec?.local?.path;
    return local !== undefined && (local === path || local === `/dev/disk/by-id/${name}`) && mayBeOn(spec!, node);
  });
  if (volume === undefined) return;
  const message = `PersistentVolume ${volume.metadata.name} names it (${volume.spec!.local!.path})`;
  throw new StorageError("FailedPrecondition", `disks: accepting ${name} of node ${node.metadata.name}: ${message}`);
}

/** Reports whether a local volume may be on a node, as far as its affinity names nodes. */
function mayBeOn({ nodeAffinity }: NonNullable<PersistentVolume["spec"]>, { metadata }: LvmNode): boolean {
  const terms = nodeAffinity?.required?.nodeSelectorTerms ?? [];
  const hosts = terms.flatMap(({ matchExpressions = [] }) =>
    matchExpressions.filter(({ key, operator }) => key === "kubernetes.io/hostname" && operator === "In")
  );
  return hosts.length === 0 || hosts.some(({ values = [] }) => values.includes(metadata.name));
}

/** Withdraws the acceptance of a disk. What is in a volume group stays there. @returns 0; 1 if the answer is no */
async function withdrawDisk(session: Session, name: string): Promise<number> {
  const node = await findNode(session, name);
  const nodeName = node.metadata.name;
  if (node.spec.acceptedDisks?.some((one) => one.name === name) !== true) {
    throw new StorageError("FailedPrecondition", `disks: withdrawing ${name} of node ${nodeName}: it is not accepted`);
  }
  const { state, volumeGroup } = node.status?.acceptedDisks?.find((one) => one.name === name) ?? {};
  const text = state === "Taken"
    ? `Disk ${name} of node ${nodeName} stays in volume group ${volumeGroup}. To take it out: vgreduce(8) on the node.`
    : `The agent of node ${nodeName} does not take disk ${name}. A physical volume without a group that it made of it is removed.`;
  const answer = { data: { node: nodeName, withdrawn: name }, text: () => text };
  if (session.flags["dry-run"] !== undefined) {
    session.print(answer);
    return EXIT.success;
  }
  const question = `Withdraw the acceptance of disk ${name} of node ${nodeName} of context ${session.subject.context}?`;
  if (!session.confirm(question)) return EXIT.failure;
  await writeAccepted(session, node, (now) => others(now, name));
  session.print(answer);
  return EXIT.success;
}

/** Returns the one node that has a disk, or for which it is accepted. @throws {StorageError} */
async function findNode(session: Session, name: string): Promise<LvmNode> {
  const nodes = (await readNodes(session)).filter((node) => diskViews([node]).some((disk) => disk.name === name));
  const [node, ...more] = nodes;
  if (node === undefined) throw new StorageError("NotFound", `disks: no agent names a disk ${name}`);
  if (more.length === 0) return node;
  const names = nodes.map(({ metadata }) => metadata.name).join(", ");
  throw new StorageError("FailedPrecondition", `disks: the nodes ${names} have a disk ${name}; name one with --node`);
}

function others({ spec }: LvmNode, name: string): AcceptedDisk[] {
  return (spec.acceptedDisks ?? []).filter((one) => one.name !== name);
}

/** Writes the list, by the LVMNode as it is then: its agent may have reported while somebody read the question. */
async function writeAccepted(
  { client, signal }: Session,
  node: LvmNode,
  listOf: (now: LvmNode) => AcceptedDisk[],
): Promise<void> {
  await patchWithRetry(client, lvmNodes, node, (now) => ({ spec: { acceptedDisks: listOf(now) } }), { signal });
}
