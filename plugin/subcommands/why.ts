/**
 * `kubectl denolith why`: explains a claim, the claims of a pod or of a volume, a node, a VolumeSnapshot or a
 * VolumeGroupSnapshot in one answer.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { StorageError } from "../../base/error.ts";
import { wrapText } from "../../base/text_table.ts";
import { CLAIM_ANNOTATION, type LvmVolume, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { persistentVolumeClaims, persistentVolumes, pods } from "../../k8s/api/objects.ts";
import {
  snapshotHandleOf,
  volumeGroupSnapshots,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { claimNamesOf } from "../../k8s/api/pods.ts";
import { readClaimState } from "../diagnosis/claim_state.ts";
import { readClusterState } from "../diagnosis/cluster_state.ts";
import { explainNode } from "../diagnosis/overview.ts";
import { explainClaim, type WhyAnswer } from "../diagnosis/why.ts";
import { GROUP_SNAPSHOTS } from "../diagnosis/why_group_snapshot.ts";
import { explainSnapshot, VOLUME_SNAPSHOTS } from "../diagnosis/why_snapshot.ts";
import { requireTarget, type Target } from "../subcommands.ts";
import type { Colours } from "../output.ts";
import { LISTED, type Session } from "../session.ts";
import { nothingWrongText, problemsText } from "../tables.ts";

/** Explains what the argument names. @returns 0 @throws {StorageError} `NotFound` when nothing is left of it */
export async function explain(session: Session): Promise<number> {
  const target = requireTarget(session.flags["CLAIM"]!, "CLAIM");
  switch (target.kind) {
    case "node":
      return await explainTheNode(session, target.name);
    case "snapshot":
    case "volumesnapshotcontent":
      return await explainRequest(session, { kind: "volumesnapshot", ...await volumeSnapshotOf(session, target) });
    case "volumesnapshot":
    case "volumegroupsnapshot":
      return await explainRequest(session, { ...session.subject, ...target });
    default:
      return await explainClaims(session, target);
  }
}

/** Explains a node. */
async function explainTheNode(session: Session, name: string): Promise<number> {
  return await session.show(LISTED, async (now) => {
    const answer = explainNode(await readClusterState(session.client, session.driver, now), name);
    if (answer === undefined) throw new StorageError("NotFound", `why: there is no node ${name}`);
    return { data: answer, text: ({ colours }) => answerText(answer, { colours, now }) };
  });
}

/** Explains a VolumeSnapshot or a VolumeGroupSnapshot. */
async function explainRequest(
  session: Session,
  { kind, namespace, name }: { kind: string; namespace: string; name: string },
): Promise<number> {
  const { client, driver } = session;
  const resource = kind === "volumesnapshot" ? volumeSnapshots : volumeGroupSnapshots;
  return await session.show([{ resource, selection: { namespace } }], async (now) => {
    const at = { driver, namespace, name, now };
    const answer = kind === "volumesnapshot"
      ? await explainSnapshot(VOLUME_SNAPSHOTS, client, at)
      : await explainSnapshot(GROUP_SNAPSHOTS, client, at);
    const error = whyNothing(answer, { kind, namespace, name });
    if (error !== undefined) throw error;
    return { data: answer, text: ({ colours }) => answerText(answer, { colours, now }) };
  });
}

/** Returns the VolumeSnapshot of an LVMSnapshot, or of a content. @throws {StorageError} `NotFound` without any */
async function volumeSnapshotOf(
  { client }: Session,
  { kind, name }: Target,
): Promise<{ readonly namespace: string; readonly name: string }> {
  const content = kind === "volumesnapshotcontent"
    ? await client.get(volumeSnapshotContents, { name })
    : (await client.list(volumeSnapshotContents)).items.find((one) => snapshotHandleOf(one) === name);
  const { namespace, name: own } = content?.spec.volumeSnapshotRef ?? {};
  if (namespace && own) return { namespace, name: own };
  throw new StorageError("NotFound", `why: ${kind} ${name} belongs to no VolumeSnapshot`);
}

/** Explains a claim, or the claims of a pod or a volume one after the other. */
async function explainClaims(session: Session, target: Target): Promise<number> {
  const { client, driver } = session;
  const claims = await claimsOf(session, target);
  const watched = [...new Set(claims.map(({ namespace }) => namespace))].flatMap((namespace) => [
    { resource: persistentVolumeClaims, selection: { namespace } },
    { resource: pods, selection: { namespace } },
  ]);
  return await session.show([...watched, { resource: lvmVolumes }], async (now) => {
    const answers: WhyAnswer[] = [];
    const missing: StorageError[] = [];
    for (const claim of claims) {
      const answer = explainClaim(await readClaimState(client, { driver, now, ...claim }));
      const error = whyNothing(answer, { kind: "claim", ...claim });
      if (error !== undefined) missing.push(error);
      answers.push(error === undefined ? answer : missingClaim(answer, error));
    }
    if (missing.length === answers.length) throw missing[0];
    return {
      data: target.kind === "claim" ? answers[0]! : { claims: answers },
      text: ({ colours }) => answers.map((answer) => answerText(answer, { colours, now })).join("\n\n"),
    };
  });
}

/** Returns the claims that are meant: of a volume, the one that it was made for. @throws {StorageError} `NotFound` without any */
async function claimsOf(
  { client, subject: { namespace } }: Session,
  { kind, name }: Target,
): Promise<{ readonly namespace: string; readonly name: string }[]> {
  if (kind === "pod") {
    // whoever may see pods at all may list them
    const { items: [pod] } = await client.list(pods, { namespace, fieldSelector: `metadata.name=${name}` });
    const names = pod === undefined ? [] : claimNamesOf(pod);
    if (names.length > 0) return names.map((name) => ({ namespace, name }));
    const what = pod === undefined ? "there is no" : "no claim is used by";
    throw new StorageError("NotFound", `why: ${what} pod ${name} in namespace ${namespace}`);
  }
  if (kind === "claim") return [{ namespace, name }];
  const claim = kind === "persistentvolume"
    ? (await client.get(persistentVolumes, { name })).spec?.claimRef
    : claimOfVolume(await client.get(lvmVolumes, { name }));
  if (claim?.namespace && claim.name) return [{ namespace: claim.namespace, name: claim.name }];
  throw new StorageError("NotFound", `why: ${kind} ${name} belongs to no claim`);
}

function claimOfVolume({ metadata: { annotations } }: LvmVolume): { namespace?: string; name?: string } {
  const [namespace, name] = annotations?.[CLAIM_ANNOTATION]?.split("/") ?? [];
  return { ...defined({ namespace, name }) };
}

/** Returns why there is nothing to explain: it never was, or has gone without a trace. */
function whyNothing(
  { state, facts, unread }: WhyAnswer,
  { kind, namespace, name }: { kind: string; namespace: string; name: string },
): StorageError | undefined {
  if (
    state !== "Deleted" ||
    facts.some(([label]) => /^(?:PersistentVolume|Volume|Volume(?:Group)?SnapshotContent)$/.test(label))
  ) {
    return undefined;
  }
  const unreadText = unread.length === 0 ? "" : ` that you may read (${unread.join(", ")})`;
  return new StorageError(
    "NotFound",
    `why: there is no ${kind} ${name} in namespace ${namespace}${unreadText}, and nothing is left of one`,
  );
}

/** Returns the answer about a claim of a pod that does not exist: the pod waits for it. */
function missingClaim({ object, facts, unread }: WhyAnswer, { message }: StorageError): WhyAnswer {
  const remedy = "Create the claim, or correct the volumes of the pod: it does not start before.";
  const problem = {
    severity: "error",
    reason: "ClaimNotFound",
    object,
    message: message.replace(/^why: /, ""),
    remedy,
  } as const;
  return { object, state: "NotFound", problems: [problem], facts, unread };
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
