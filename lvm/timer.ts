/**
 * Time for what is done in the background, so that tests can stand still.
 *
 * @module
 */

/** Time. */
export interface Timer {
  /** The time of day. */
  date(): Date;
  /** Calls once after `ms`; the answer takes it back. */
  after(ms: number, call: () => void): () => void;
}

/** The machine's own. */
export const systemTimer: Timer = {
  date: () => new Date(),
  after: (ms, call) => {
    const timer = setTimeout(call, ms);
    return () => clearTimeout(timer);
  },
};
