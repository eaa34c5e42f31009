/**
 * A rate limit that allows bursts.
 *
 * @module
 */

import type { Clock } from "../../base/clock.ts";

/** Options of a {@linkcode TokenBucket}. */
export interface TokenBucketOptions {
  /** The number of tokens that it holds, and begins with. */
  readonly burst: number;
  /** Milliseconds after which it has one more. */
  readonly refillIntervalMs: number;
  /** Time. */
  readonly clock: Clock;
}

/** A bucket of tokens, which refills at a constant rate. */
export class TokenBucket {
  readonly #options: TokenBucketOptions;
  #tokens: number;
  #filledAt: number;

  /** Creates a full bucket. */
  constructor(options: TokenBucketOptions) {
    this.#options = options;
    this.#tokens = options.burst;
    this.#filledAt = options.clock.now();
  }

  /** Takes a token. @returns whether there was one */
  tryTake(): boolean {
    this.#refill();
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  /** Returns the milliseconds until there is a token; 0 when there is one. */
  waitMs(): number {
    this.#refill();
    return this.#tokens >= 1 ? 0 : Math.ceil((1 - this.#tokens) * this.#options.refillIntervalMs);
  }

  #refill(): void {
    const { burst, refillIntervalMs, clock } = this.#options;
    const now = clock.now();
    this.#tokens = Math.min(burst, this.#tokens + (now - this.#filledAt) / refillIntervalMs);
    this.#filledAt = now;
  }
}
