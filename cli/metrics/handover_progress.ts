/**
 * When moves and imports last got further, for metrics: of one that is stuck, no object changes but for its message.
 *
 * @module
 */

import type { Clock } from "../../base/clock.ts";
import { isSameContent } from "../../k8s/api/object_status.ts";
import type { Informer } from "../../k8s/runtime/informer.ts";
import { type Handover, type HandoverStatus, isFinished } from "../../k8s/handover/handover.ts";
import type { LvmMoveStatus } from "../../k8s/handover/moves.ts";

/** A handover that is not finished. */
export interface UnfinishedHandover {
  /** The LVMVolume. */
  readonly volume: string;
  /** The claim, as `namespace/name`. */
  readonly claim: string;
  readonly state: string;
  /** The time at which this process saw that it got further, in seconds since 1970. */
  readonly progressedAt: number;
}

/** Observes the handovers of a driver. */
export class HandoverProgress<H extends Handover> {
  readonly #handovers: Pick<Informer<H>, "list">;
  readonly #driver: string;
  /** By the name of the handover, in seconds since 1970. */
  readonly #progressedAt = new Map<string, number>();

  /** Subscribes to the handovers. */
  constructor(
    handovers: Pick<Informer<H>, "list" | "subscribe">,
    { driver, clock }: { readonly driver: string; readonly clock: Clock },
  ) {
    this.#handovers = handovers;
    this.#driver = driver;
    handovers.subscribe((name, now, before) => {
      if (now === undefined) this.#progressedAt.delete(name);
      else if (before === undefined || hasProgressed(before, now)) {
        this.#progressedAt.set(name, Math.floor(clock.date().getTime() / 1_000));
      }
    });
  }

  /** Returns those that are not finished. */
  unfinished(): UnfinishedHandover[] {
    const own = this.#handovers.list().filter((one) => one.spec.driverName === this.#driver && !isFinished(one));
    return own.map(({ metadata: { name }, spec: { claim }, status }) => ({
      volume: name,
      claim: `${claim.namespace}/${claim.name}`,
      state: status?.state ?? "Pending",
      progressedAt: this.#progressedAt.get(name) ?? 0,
    }));
  }
}

/**
 * Reports whether a handover got further, or somebody asks for something else. Its message, and the last error of its copy, say
 * why it does not.
 */
function hasProgressed<H extends Handover>(before: H, now: H): boolean {
  const of = ({ metadata: { uid, deletionTimestamp }, spec, status }: H) => {
    const { message: _, copy, ...rest }: HandoverStatus & Pick<LvmMoveStatus, "copy"> = status ?? {};
    return [uid, deletionTimestamp, spec, rest, { ...copy, lastError: undefined }];
  };
  return !isSameContent(of(before), of(now));
}
