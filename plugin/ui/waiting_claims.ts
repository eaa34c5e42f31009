/**
 * Claims that wait for their volumes, each with the reason in a sentence, from what an overview reads. `why` says more, and
 * reads more for it.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { CLAIM_ANNOTATION, type LvmVolume } from "../../k8s/api/lvm_objects.ts";
import { type Event, events, type PersistentVolumeClaim, type StorageClass } from "../../k8s/api/objects.ts";
import { classNameOf, waitsForConsumer } from "../../k8s/provisioner/claim.ts";
import { requestedBytes } from "../diagnosis/claim_state.ts";
import type { ClusterState } from "../diagnosis/cluster_state.ts";
import { eventProblem, lastEvent, messageProblem, timeOfEvent } from "../diagnosis/evidence.ts";
import { compareProblems, compareText, isUnread, type Problem, problem } from "../problem.ts";

/** A claim that waits. */
export interface WaitingClaim extends Problem {
  /** The claim, as `namespace/name`. */
  readonly claim: string;
  readonly storageClass: string;
  /** What it requests, in bytes. */
  readonly size: bigint;
}

/** Returns the claims that wait, the worst first. */
export function waitingClaims({ work, volumes, unread }: ClusterState): WaitingClaim[] {
  if (work === undefined) return [];
  const { claims, claimEvents, storageClasses } = work;
  const classes = new Map(storageClasses.map((one) => [one.metadata.name, one]));
  const eventsOf = Map.groupBy(
    claimEvents,
    ({ involvedObject }) => `${involvedObject?.namespace}/${involvedObject?.name}`,
  );
  const volumeOf = new Map(volumes.map((volume) => [volume.metadata.annotations?.[CLAIM_ANNOTATION], volume]));
  return claims.map((claim): WaitingClaim => {
    const { namespace, name, uid, creationTimestamp } = claim.metadata;
    const key = `${namespace}/${name}`;
    const storageClass = classNameOf(claim);
    const evidence = {
      storageClass: classes.get(storageClass),
      // events of an earlier claim of the name live for an hour
      events: (eventsOf.get(key) ?? []).filter(({ involvedObject }) =>
        !involvedObject?.uid || involvedObject.uid === uid
      ),
      volume: volumeOf.get(key),
      areEventsRead: !isUnread({ unread }, events.plural),
    };
    return {
      ...reasonOf(claim, `claim/${key}`, evidence),
      ...{ claim: key, storageClass, size: requestedBytes(claim) },
      ...defined({ since: creationTimestamp }),
    };
  }).sort(compareProblems);
}

/** What is known of a claim. */
interface ClaimEvidence {
  readonly storageClass: StorageClass | undefined;
  readonly events: readonly Event[];
  readonly volume: LvmVolume | undefined;
  readonly areEventsRead: boolean;
}

function reasonOf(
  claim: PersistentVolumeClaim,
  object: string,
  { storageClass, events, volume, areEventsRead }: ClaimEvidence,
): Problem {
  const failed = lastEvent(events, "ProvisioningFailed");
  if (failed !== undefined) return eventProblem(failed, { chapter: "pending", object });
  const { error, copy } = volume?.status ?? {};
  if (error !== undefined) {
    return messageProblem(error.message, { chapter: "pending", object, reason: error.reason ?? error.code });
  }
  const [said] = events.toSorted((a, b) => compareText(timeOfEvent(b), timeOfEvent(a)));
  const about = { runbook: "claim-stays-pending" };
  if (copy !== undefined) {
    const message = `its data is being copied: ${copy.copied}${copy.total === undefined ? "" : ` of ${copy.total}`}`;
    return problem("info", "Copying", object, { message, ...about });
  }
  if (storageClass !== undefined && waitsForConsumer(claim, storageClass)) {
    const message = said?.message ?? "its class waits for the first pod that uses the claim";
    return problem("info", "WaitsForConsumer", object, { message, ...about });
  }
  const message = said?.message ??
    (areEventsRead ? "the controller has not said anything of the claim yet" : "the events of claims are not read");
  return problem("info", "Provisioning", object, { message, ...about });
}
