/**
 * `kubectl denolith why`: explains a claim, a VolumeSnapshot or a VolumeGroupSnapshot in one answer.
 *
 * @module
 */

import { StorageError } from "../../lvm/error.ts";
import { wrapText } from "../../lvm/text_table.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumeClaims, pods } from "../../k8s/api/objects.ts";
import { volumeGroupSnapshots, volumeSnapshots } from "../../k8s/api/snapshot_objects.ts";
import { readClaimState } from "../../k8s/diagnosis/claim_state.ts";
import { explainClaim, type WhyAnswer } from "../../k8s/diagnosis/why.ts";
import { explainGroupSnapshot, readGroupSnapshotEvidence } from "../../k8s/diagnosis/why_group_snapshot.ts";
import { explainSnapshot, readSnapshotState } from "../../k8s/diagnosis/why_snapshot.ts";
import { requireTarget } from "./commands.ts";
import type { Colours } from "./output.ts";
import type { Session } from "./session.ts";
import { nothingWrongText, problemsText } from "./tables.ts";

/** Explains what the argument names. @returns 0 @throws {StorageError} `NotFound` when nothing is left of it */
export function explain(session: Session): Promise<number> {
  const { kind, name } = requireTarget(session.flags["CLAIM"]!, "CLAIM");
  const { client, driver, subject: { namespace } } = session;
  const watched = kind === "claim"
    ? [{ resource: persistentVolumeClaims, selection: { namespace } }, { resource: pods, selection: { namespace } }, {
      resource: lvmVolumes,
    }]
    : kind === "volumesnapshot"
    ? [{ resource: volumeSnapshots, selection: { namespace } }]
    : [{ resource: volumeGroupSnapshots, selection: { namespace } }];
  return session.show(watched, async (now) => {
    const at = { driver, namespace, name, now };
    const answer = kind === "claim"
      ? explainClaim(await readClaimState(client, at))
      : kind === "volumesnapshot"
      ? explainSnapshot(await readSnapshotState(client, at))
      : explainGroupSnapshot(await readGroupSnapshotEvidence(client, at));
    requireSomething(answer, { kind, namespace, name });
    return { data: answer, text: ({ colours }) => answerText(answer, { colours, now }) };
  });
}

/** Refuses to explain what never was, or has gone without a trace. */
function requireSomething(
  { state, facts, unread }: WhyAnswer,
  { kind, namespace, name }: { kind: string; namespace: string; name: string },
): void {
  if (
    state !== "Deleted" ||
    facts.some(([label]) => /^(?:PersistentVolume|Volume|Volume(?:Group)?SnapshotContent)$/.test(label))
  ) {
    return;
  }
  const unreadText = unread.length === 0 ? "" : ` that you may read (${unread.join(", ")})`;
  throw new StorageError(
    "NotFound",
    `why: there is no ${kind} ${name} in namespace ${namespace}${unreadText}, and nothing is left of one`,
  );
}

/** Formats an answer: what is wrong with what to do, and what the answer rests on. */
export function answerText(
  { object, state, problems, facts, unread }: WhyAnswer,
  { colours, now }: { readonly colours: Colours; readonly now: Date },
): string {
  const width = Math.max(0, ...facts.map(([label]) => label.length)) + 2;
  return [
    `${colours.bold(object)} is ${colours.state(state)}`,
    "",
    ...(problems.length === 0 ? [nothingWrongText(unread)] : problemsText(problems, { wide: true, colours, now })),
    "",
    ...facts.flatMap(([label, text]) => wrapText(label.padEnd(width), text.replace(/\s+/g, " "))),
    ...unread.map((what) => `Not read: ${what}`),
  ].join("\n");
}
