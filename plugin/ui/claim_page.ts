/**
 * One claim as the page shows it, also one without a volume: the answer of `kubectl denolith why`, with its events.
 *
 * @module
 */

import type { ClaimState } from "../diagnosis/claim_state.ts";
import type { Problem } from "../problem.ts";
import { explainClaim, type WhyAnswer } from "../diagnosis/why.ts";
import { commandsFor, type CommandTarget } from "./commands.ts";
import { eventEntries, type EventEntry } from "./volume_page.ts";

/** A claim. */
export interface ClaimPage extends WhyAnswer {
  readonly problems: readonly (Problem & { readonly commands: readonly string[] })[];
  readonly events: readonly EventEntry[];
}

/** What the page gets of a claim; nothing but the time when nothing is left of it. */
export interface ClaimMessage {
  /** The time at which it was read (RFC 3339). */
  readonly read: string;
  readonly claim?: ClaimPage;
}

/** Returns what the page shows of a claim. */
export function claimPage(state: ClaimState, target: CommandTarget): ClaimPage {
  const answer = explainClaim(state);
  const { claimEvents, podEvents, volumeEvents, nodeName: node } = state;
  return {
    ...answer,
    problems: answer.problems.map((one) => ({ ...one, commands: commandsFor(one, { ...target, node }) })),
    events: eventEntries([...claimEvents, ...podEvents, ...volumeEvents]),
  };
}
