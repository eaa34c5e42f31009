/**
 * `kubectl denolith status`: the whole cluster on one screen.
 *
 * @module
 */

import { readClusterState } from "../diagnosis/cluster_state.ts";
import { type Counts, type Overview, overviewOf } from "../diagnosis/overview.ts";
import { LISTED, type Session } from "../session.ts";
import { nothingWrongText, problemsText, sizeText, type TableOptions } from "../tables.ts";
import { nodesTable } from "./list.ts";

/** Shows the whole cluster. */
export function showStatus(session: Session): Promise<number> {
  return session.show(LISTED, async (now) => {
    const { client, driver } = session;
    const { definitions } = client;
    const overview = overviewOf(await readClusterState(client, driver, now, { withClaims: true, definitions }));
    return { data: overview, text: (options) => overviewText(overview, { ...options, now }) };
  });
}

/** Formats the overview of a cluster. */
function overviewText(overview: Overview, options: TableOptions): string {
  const { nodes, size, free, erasing, usedPercent, volumes, snapshots, orphans, problems, unread, driver } = overview;
  const { colours } = options;
  const silent = nodes.filter(({ agent }) => agent === "Silent" || agent === "NotReported").length;
  return [
    `${colours.bold("Driver")}      ${driver}`,
    `${colours.bold("Nodes")}       ${nodes.length}${silent === 0 ? "" : `, ${silent} without a living agent`}`,
    `${colours.bold("Space")}       ${sizeText(free)} of ${sizeText(size)} free, ${usedPercent}% used` +
    (erasing === 0n ? "" : `, ${sizeText(erasing)} of it being erased`),
    `${colours.bold("Volumes")}     ${countsText(volumes)}`,
    `${colours.bold("Snapshots")}   ${countsText(snapshots)}`,
    `${colours.bold("Orphans")}     ${orphans}`,
    ...unread.map((what) => `${colours.bold("Not read")}    ${what}`),
    "",
    nodesTable(nodes, options),
    "",
    ...(problems.length === 0 ? [nothingWrongText(unread)] : problemsText(problems, options)),
  ].join("\n");
}

function countsText(counts: Counts): string {
  const entries = Object.entries(counts);
  const total = entries.reduce((sum, [, count]) => sum + count, 0);
  return total === 0 ? "0" : `${total} (${entries.map(([state, count]) => `${count} ${state}`).join(", ")})`;
}
