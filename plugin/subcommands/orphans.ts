/**
 * `kubectl denolith orphans`: lists the logical volumes that no object stands for, and asks for the removal of one.
 *
 * @module
 */

import { StorageError } from "../../base/error.ts";
import { formatTable } from "../../base/text_table.ts";
import { NONE_KNOWN, REMOVE_ORPHANS_ANNOTATION } from "../../k8s/agent/orphans.ts";
import { lvmNodes } from "../../k8s/api/lvm_objects.ts";
import { type OrphanView, orphanViews } from "../diagnosis/nodes.ts";
import { EXIT } from "../../cli/command_line.ts";
import type { Answer } from "../output.ts";
import type { Session } from "../session.ts";
import { formatAge } from "../tables.ts";

/** Shows the orphans. @returns 0 */
export function showOrphans(session: Session): Promise<number> {
  return session.show([{ resource: lvmNodes }], async (now) => orphansAnswer(await readOrphans(session), now));
}

async function readOrphans({ client, driver }: Session): Promise<OrphanView[]> {
  const { items } = await client.list(lvmNodes);
  return orphanViews({ lvmNodes: items.filter(({ spec }) => spec.driverName === driver) });
}

function orphansAnswer(orphans: readonly OrphanView[], now: Date): Answer {
  const rows = orphans.map(({ node, logicalVolume, size, uuid, since }) => ({
    cells: [node, logicalVolume, size, uuid, formatAge(since, now)],
    notes: [],
  }));
  return {
    data: { orphans },
    text: () =>
      orphans.length === 0 ? "There are no orphans: each logical volume of the driver has its object." : [
        ...formatTable([["NODE", "left"], ["LOGICALVOLUME", "left"], ["SIZE", "right"], ["UUID", "left"], [
          "FOR",
          "left",
        ]], rows),
        "",
        "Nothing is done to them. To remove one with its data: kubectl denolith orphans --remove UUID",
      ].join("\n"),
  };
}

/**
 * Asks the agent of an orphan's node to remove it, by an annotation of the LVMNode. The agent checks it, and its event
 * tells the outcome.
 *
 * @returns 0; 1 if the answer is no
 * @throws {StorageError} `NotFound` when no agent names such an orphan
 */
export async function removeOrphan(session: Session): Promise<number> {
  const uuid = session.flags.remove!;
  const orphan = (await readOrphans(session)).find((one) => one.uuid === uuid);
  if (orphan === undefined) {
    throw new StorageError("NotFound", `orphans: no agent names an orphan with the UUID ${uuid}`);
  }
  const { node, logicalVolume, size } = orphan;
  const { context } = session.subject;
  const question = `Remove ${logicalVolume} (${size}) on node ${node} of context ${context}, and its data?`;
  if (!session.confirm(question)) return EXIT.failure;
  const words = session.flags["allow-empty"] === undefined ? uuid : `${NONE_KNOWN},${uuid}`;
  const merge = { metadata: { annotations: { [REMOVE_ORPHANS_ANNOTATION]: words } } };
  await session.client.patch(lvmNodes, { name: node }, { merge });
  const text = `The agent of node ${node} is asked to remove ${logicalVolume}. Its event tells the outcome: ` +
    `kubectl get events --field-selector involvedObject.name=${node}`;
  session.print({ data: { requested: orphan }, text: () => text });
  return EXIT.success;
}
