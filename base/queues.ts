/**
 * Work that is done one after the other.
 *
 * @module
 */

/** Bodies that run one after the other, those of each key. */
export class Queues {
  /** What settles when the last body of a key has ended. */
  readonly #last = new Map<string, Promise<unknown>>();

  /** Runs a body after those of the key that were given before, whatever came of them. */
  run<T>(key: string, body: () => Promise<T>): Promise<T> {
    const result = Promise.resolve(this.#last.get(key)).then(body);
    const ended = result.catch(() => {}); // its own caller gets the error
    this.#last.set(key, ended);
    void ended.then(() => this.#last.get(key) === ended && this.#last.delete(key));
    return result;
  }
}

/** Runs that callers share: each gets the result of one that begins after it asked. Those of a key run one after the other. */
export class SharedRuns<T> {
  readonly #queues = new Queues();
  readonly #waiting = new Map<string, Promise<T>>();

  /** Returns the result of the next run of the key, which begins as soon as the one that is running has ended. */
  run(key: string, body: () => Promise<T>): Promise<T> {
    const waiting = this.#waiting.get(key);
    if (waiting !== undefined) return waiting;
    const result = this.#queues.run(key, () => {
      this.#waiting.delete(key);
      return body();
    });
    this.#waiting.set(key, result);
    return result;
  }
}
