/**
 * Answers who asks for a diagnosis of the node: a person names a request in an annotation of the LVMNode, and the agent
 * writes what the doctor finds into its status, once. So nobody needs the right to run programs in its pod, which is root
 * on the node.
 *
 * It does not wait for a report of the volume groups: where LVM hangs, the doctor is needed most, and answers within a
 * minute.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type Clock, systemClock, timestamp } from "../../base/clock.ts";
import type { Diagnosis } from "../../lvm/doctor/doctor.ts";
import { truncate } from "../../base/error.ts";
import { BackgroundWorker } from "../../base/worker.ts";
import { DOCTOR_ANNOTATION, type LvmNode, lvmNodes, type NodeDiagnosis } from "../api/lvm_objects.ts";
import { ApiError, type MergePatch, type NodeClient, orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { TokenBucket } from "../runtime/token_bucket.ts";

/** Options of {@linkcode DoctorReconciler}. */
export interface DoctorReconcilerOptions extends NodeClient {
  /** The LVMNode of this node. */
  readonly objects: Pick<Informer<LvmNode>, "get" | "subscribe">;
  /** Checks the machine. */
  readonly examine: () => Promise<Diagnosis>;
  /** Aborted when the process is asked to end. */
  readonly end: AbortSignal;
}

/** The time after which an answer that nobody removed is removed, in milliseconds. */
const EXPIRY_MS = 600_000;

/** The delay after which a failed attempt is repeated, in milliseconds. */
const RETRY_MS = 5_000;

/** The number of requests that are answered at once, and the time after which there may be one more, in milliseconds. */
const REQUESTS = { burst: 5, refillIntervalMs: 10_000 };

/** The limits of an answer, which is part of an object that many read. */
const MAX_FINDINGS = 50;
const MAX_TEXT_LENGTH = 512;

/** The next step for an LVMNode. */
export type DoctorStep =
  | { readonly kind: "nothing"; readonly waitMs?: number }
  | { readonly kind: "examine"; readonly request: string }
  /** Removes the answer. With the request, so that it is not answered again. */
  | { readonly kind: "remove"; readonly request?: string };

/** Returns the next step: a request is answered once, and the answer goes with it, or after some minutes. */
export function nextDoctorStep({ metadata, status }: LvmNode, now: Date): DoctorStep {
  const asked = metadata.annotations?.[DOCTOR_ANNOTATION];
  const request = asked !== undefined && /^[\w-]{1,64}$/.test(asked) ? asked : undefined;
  const answer = status?.doctor;
  if (request === undefined) return answer === undefined ? { kind: "nothing" } : { kind: "remove" };
  if (answer?.request !== request) return { kind: "examine", request };
  if (answer.time === undefined) return { kind: "nothing" };
  const waitMs = Date.parse(answer.time) + EXPIRY_MS - now.getTime();
  return waitMs > 0 ? { kind: "nothing", waitMs } : { kind: "remove", request };
}

/** Returns a diagnosis as an object has it: the worst findings, and their texts, as far as they fit. */
export function toNodeDiagnosis({ level, checks, findings }: Diagnosis, request: string, now: Date): NodeDiagnosis {
  const order = ["error", "warning", "info"];
  const shown = findings.toSorted((a, b) => order.indexOf(a.level) - order.indexOf(b.level)).slice(0, MAX_FINDINGS);
  const short = (text: string) => truncate(text, MAX_TEXT_LENGTH);
  return {
    ...{ request, time: timestamp(now), level },
    checks: checks.map(({ check, level, summary }) => ({ check, level, summary: short(summary) })),
    findings: findings.filter((finding) => shown.includes(finding)).map((
      { check, level, subject, message, remedy },
    ) => ({
      ...{ check, level, subject: short(subject), message: short(message) },
      ...(remedy !== undefined && { remedy: short(remedy) }),
    })),
    omitted: findings.length - shown.length,
  };
}

const log = getLogger(["denolith", "doctor"]);

/** Answers requests for a diagnosis of the node, one at a time. */
export class DoctorReconciler {
  readonly #options: DoctorReconcilerOptions;
  readonly #clock: Clock;
  readonly #worker: BackgroundWorker;
  readonly #requests: TokenBucket;
  /** The last answer: the node is not checked again for a request whose answer could not be written. */
  #answer: NodeDiagnosis | undefined;
  /** The request that was answered last: the cache may not show the answer yet. */
  #answered: string | undefined;

  /** Subscribes to the LVMNode. */
  constructor(options: DoctorReconcilerOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#requests = new TokenBucket({ ...REQUESTS, clock: this.#clock });
    this.#worker = new BackgroundWorker({
      pass: () => this.#pass(),
      onError: (error) => log.warn("answering a request for a diagnosis failed", { error }),
      retryMs: RETRY_MS,
      clock: this.#clock,
    });
    options.objects.subscribe((name) => {
      if (name === options.nodeName) this.#worker.wake();
    });
    options.end.addEventListener("abort", () => void this.#worker.stop());
  }

  /** Waits until no request is being answered. */
  async idle(): Promise<void> {
    await this.#worker.idle();
  }

  async #pass(): Promise<void> {
    const { objects, nodeName, driver, examine } = this.#options;
    const node = objects.get(nodeName);
    // withdrawn, and maybe made again later
    if (node?.metadata.annotations?.[DOCTOR_ANNOTATION] !== this.#answered) this.#answered = undefined;
    if (node?.spec.driverName !== driver) return;
    const now = this.#clock.date();
    const step = nextDoctorStep(node, now);
    switch (step.kind) {
      case "nothing":
        return this.#worker.wakeAfter(step.waitMs);
      case "remove":
        return await this.#write(step.request === undefined ? null : { request: step.request, ...NO_FINDINGS });
      case "examine": {
        if (step.request === this.#answered) return;
        if (this.#answer?.request !== step.request) {
          if (!this.#requests.tryTake()) return this.#worker.wakeAfter(this.#requests.waitMs());
          this.#answer = toNodeDiagnosis(await examine(), step.request, this.#clock.date());
        }
        await this.#writeAnswer(this.#answer);
        this.#answered = step.request;
        this.#answer = undefined;
      }
    }
  }

  /** Writes an answer. One that the CRD does not allow, as that of an older version, is not written again. */
  async #writeAnswer(answer: NodeDiagnosis): Promise<void> {
    try {
      await this.#write(answer);
    } catch (error) {
      if (!(error instanceof ApiError) || error.reason !== "Invalid") throw error;
      log.warn("the API server refuses the answer to a request for a diagnosis", { error });
    }
  }

  /** Writes an answer, or removes it. */
  async #write(doctor: MergePatch<NodeDiagnosis> | null): Promise<void> {
    const { client, nodeName, end } = this.#options;
    const merge = { status: { doctor } };
    await orAbsent(client.patch(lvmNodes, { name: nodeName }, { merge, subresource: "status", signal: end }));
  }
}

/** Removes all of an answer but its request. */
const NO_FINDINGS = { time: null, level: null, checks: null, findings: null, omitted: null };
