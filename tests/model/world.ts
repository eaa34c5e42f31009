/**
 * A world with its own time and chance, in which whole processes run: the same seed makes the same history, and hours pass in
 * seconds.
 *
 * Timers, dates, random numbers and turns of the event loop belong to the world while it exists. It calls back one thing at a
 * time, of the process that chance chooses, and lets time pass when nothing is left to do at a moment. A process can be killed:
 * then nothing of it is called any more. What takes time of this machine, such as the import of a module, stops the world.
 *
 * @module
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { createHash } from "node:crypto";
import { cpuMs } from "../fake/cpu_time.ts";
import { type RandomSource, seededRandom } from "../rig/seeded_random.ts";

/** The time at which a world begins. */
const EPOCH = Date.UTC(2026, 0, 1);

/** The processor time after which a run fails, in milliseconds. */
const MAX_CPU_MS = 60_000;

/** What is called back. */
interface Task {
  readonly process: Process;
  readonly call: () => void;
}

/** A process of a world. */
export class Process {
  /** Aborted when it is killed, after nothing of it is called any more. */
  readonly end = new AbortController();
  /** Whether nothing of it is called for now, as when it is stopped by SIGSTOP. */
  isPaused = false;
  /** The tasks that are due, in order. */
  readonly due: (() => void)[] = [];
  /** Lets the world go on, if it waits until this process does something that can be seen. */
  onAction = () => {};
  #isDead = false;

  constructor(readonly world: World, readonly name: string) {}

  get isDead(): boolean {
    return this.#isDead;
  }

  /** Runs a function in it. */
  run<T>(body: () => T): T {
    return current.run(this, body);
  }

  /** Ends it at once: what it was about to do is not done. */
  kill(): void {
    if (this.#isDead) return;
    this.#isDead = true;
    this.due.length = 0;
    this.onAction();
    this.run(() => this.end.abort(new Error(`${this.name} was killed`)));
  }
}

const current = new AsyncLocalStorage<Process>();

/** Returns the process that the running code belongs to. */
export function currentProcess(): Process | undefined {
  return current.getStore();
}

const { setTimeout, clearTimeout, setImmediate, Date: RealDate } = globalThis;
const { random } = Math;
const now = performance.now.bind(performance);
const { randomUUID, getRandomValues } = crypto;

/** Has what runs in a process use the time, the chance and the event loop of its world. */
function install(): void {
  const world = () => current.getStore()?.world;
  globalThis.Date = class extends RealDate {
    constructor(...args: unknown[]) {
      super(...(args.length === 0 ? [Date.now()] : args) as [number]);
    }
    static override now(): number {
      const own = world();
      return own === undefined ? RealDate.now() : EPOCH + Math.floor(own.now);
    }
  } as DateConstructor;
  performance.now = () => world()?.now ?? now();
  Math.random = () => world()?.random() ?? random();
  const replaced = {
    setTimeout: (call: (...args: unknown[]) => void, ms?: number, ...args: unknown[]) =>
      world()?.after(ms ?? 0, () => call(...args)) ?? setTimeout(call, ms, ...args),
    clearTimeout: (id?: number) => world()?.cancel(id) ?? clearTimeout(id),
    setImmediate: (call: (...args: unknown[]) => void, ...args: unknown[]) =>
      world() === undefined ? setImmediate(call, ...args) : world()!.soon(() => call(...args)),
  };
  Object.assign(globalThis, replaced);
  const fill = <T extends ArrayBufferView>(view: T, own: World): T => {
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    for (let at = 0; at < bytes.length; at++) bytes[at] = Math.floor(own.randomOfIds() * 256);
    return view;
  };
  Object.assign(crypto, {
    getRandomValues: <T extends Uint8Array<ArrayBuffer>>(view: T): T => {
      const own = world();
      return own === undefined ? getRandomValues.call(crypto, view) as T : fill(view, own);
    },
    randomUUID: () => {
      const own = world();
      if (own === undefined) return randomUUID.call(crypto);
      const hex = fill(new Uint8Array(16), own).toHex();
      return hex.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12})$/, "$1-$2-4$3-a$4-$5");
    },
  });
  // what takes a thread of its own ends at another moment each time
  crypto.subtle.digest = (_algorithm, data) =>
    Promise.resolve(Uint8Array.from(createHash("sha256").update(data as Uint8Array).digest()).buffer);
  // the keys of agents, with which nothing is encrypted here: an empty sequence of ASN.1
  Object.assign(crypto.subtle, {
    generateKey: () => Promise.resolve({}),
    exportKey: () => Promise.resolve(Uint8Array.of(0x30, 0).buffer),
  });
  crypto.subtle.sign = (_algorithm, _key, data) =>
    Promise.resolve(Uint8Array.from(createHash("sha512").update(data as Uint8Array).digest()).buffer);
  const held = <A extends unknown[], T>(call: (...args: A) => Promise<T>) => async (...args: A): Promise<T> => {
    const release = world()?.hold();
    try {
      return await call(...args);
    } finally {
      release?.();
    }
  };
  const { lstat, realPath, readTextFile } = Deno;
  Object.assign(Deno, { lstat: held(lstat), realPath: held(realPath), readTextFile: held(readTextFile) });
}

install();

/** A world. */
export class World implements Disposable {
  /** The process of what surrounds the processes under test. */
  readonly root: Process = new Process(this, "world");
  readonly #timers = new Timers();
  readonly #processes = new Set<Process>([this.root]);
  #random: RandomSource;
  readonly #idRandom: RandomSource;
  #now = 0;
  /** The number of things that take time of this machine. */
  #holds = 0;
  #failure: unknown;
  /** Takes what happens, a line each. */
  onLog: ((line: string) => void) | undefined;

  /** Begins at the same time each time. */
  constructor(seed: number) {
    this.#random = seededRandom(seed);
    this.#idRandom = seededRandom(seed + 1);
  }

  /** The milliseconds since it began. */
  get now(): number {
    return this.#now;
  }

  /** Begins other random numbers, so that what comes does not depend on what was before. */
  reseed(seed: number): void {
    this.#random = seededRandom(seed);
  }

  /** Returns a random number from 0 to below 1. */
  random(): number {
    return this.#random();
  }

  /** Returns a random number of ids, which do not repeat when the other ones do. */
  randomOfIds(): number {
    return this.#idRandom();
  }

  /** Returns a random whole number from one to another, both included. */
  between(from: number, to: number): number {
    return from + Math.floor(this.#random() * (to - from + 1));
  }

  /** Notes what happens, for people. */
  log(text: string): void {
    this.onLog?.(`${(this.#now / 1000).toFixed(3).padStart(9)} ${(currentProcess()?.name ?? "").padEnd(10)} ${text}`);
  }

  /** Picks one of several values. */
  pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.#random() * from.length)]!;
  }

  /** Creates a process. */
  process(name: string): Process {
    const process = new Process(this, name);
    this.#processes.add(process);
    process.end.signal.addEventListener("abort", () => this.#processes.delete(process));
    return process;
  }

  /** Waits. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.after(ms, () => resolve()));
  }

  /** Calls something of the running process after some time. @returns a number by which it is cancelled */
  after(ms: number, call: () => void): number {
    return this.#timers.add(this.#now + Math.max(0, ms), this.#task(call));
  }

  /** Cancels what was to be called. */
  cancel(id: number | undefined): true {
    if (id !== undefined) this.#timers.remove(id);
    return true;
  }

  /** Calls something of the running process in its next turn. */
  soon(call: () => void): object {
    this.#add(this.#task(call));
    return {};
  }

  /** Stops the world until it is released. */
  hold(): () => void {
    this.#holds++;
    let isHeld = true;
    return () => {
      if (isHeld) this.#holds--;
      isHeld = false;
    };
  }

  /**
   * Stops the world until a process does something that can be seen: it imports modules and reads its kubeconfig, which takes
   * time of this machine. One that is asked to end may do nothing any more.
   */
  untilAction(process: Process, end: AbortSignal): Promise<void> {
    const release = this.hold();
    const { promise, resolve } = Promise.withResolvers<void>();
    process.onAction = () => {
      process.onAction = () => {};
      release();
      resolve();
    };
    if (end.aborted) process.onAction();
    end.addEventListener("abort", process.onAction);
    return promise;
  }

  /** Ends the run with a failure, whoever catches errors. */
  fail(error: unknown): void {
    this.#failure ??= error;
  }

  /** Runs a body, with time as it needs it. @throws {Error} when nothing happens any more, and it has not ended */
  async run<T>(body: () => Promise<T>): Promise<T> {
    const deadline = cpuMs() + MAX_CPU_MS;
    let outcome: { value: T } | { error: unknown } | undefined;
    let turns = 0;
    this.root.run(body).then((value) => outcome = { value }, (error) => outcome = { error });
    while (outcome === undefined) {
      await new Promise<void>((resolve) => setImmediate(resolve));
      if (this.#failure !== undefined) throw this.#failure;
      if (turns++ % 1_000 === 0 && cpuMs() > deadline) {
        throw new Error("the run takes too long: something is done again and again, or never");
      }
      if (outcome !== undefined || this.#holds > 0) continue;
      const task = this.#next();
      if (task === undefined) throw new Error("nothing happens any more");
      task();
    }
    const ended = outcome as { value: T } | { error: unknown };
    if ("error" in ended) throw ended.error;
    return ended.value;
  }

  /** Returns what is called next. */
  #next(): (() => void) | undefined {
    for (;;) {
      const ready = [...this.#processes].filter(({ due, isPaused }) => due.length > 0 && !isPaused);
      if (ready.length > 0) return ready[ready.length === 1 ? 0 : this.between(0, ready.length - 1)]!.due.shift();
      const timer = this.#timers.take();
      if (timer === undefined) return undefined;
      this.#now = Math.max(this.#now, timer.at);
      this.#add(timer);
    }
  }

  #add({ process, call }: Task): void {
    if (!process.isDead) process.due.push(call);
  }

  #task(call: () => void): Task {
    const inContext = AsyncLocalStorage.snapshot() as (call: () => void) => void;
    return { process: currentProcess() ?? this.root, call: () => inContext(call) };
  }

  [Symbol.dispose](): void {
    for (const process of this.#processes) process.kill();
  }
}

/** Timers, in the order in which they are due. */
class Timers {
  readonly #heap: (Task & { readonly at: number; readonly id: number })[] = [];
  readonly #removed = new Set<number>();
  #next = 1;

  add(at: number, task: Task): number {
    const id = this.#next++;
    const heap = this.#heap;
    let index = heap.push({ ...task, at, id }) - 1;
    for (let parent = (index - 1) >> 1; index > 0 && this.#isBefore(index, parent); parent = (index - 1) >> 1) {
      this.#swap(index, parent);
      index = parent;
    }
    return id;
  }

  remove(id: number): void {
    this.#removed.add(id);
  }

  take(): (Task & { readonly at: number }) | undefined {
    const heap = this.#heap;
    for (;;) {
      const first = heap[0];
      if (first === undefined) return undefined;
      const last = heap.pop()!;
      if (heap.length > 0) heap[0] = last;
      for (let index = 0;;) {
        const [left, right] = [2 * index + 1, 2 * index + 2];
        let least = index;
        if (left < heap.length && this.#isBefore(left, least)) least = left;
        if (right < heap.length && this.#isBefore(right, least)) least = right;
        if (least === index) break;
        this.#swap(index, least);
        index = least;
      }
      if (!this.#removed.delete(first.id) && !first.process.isDead) return first;
    }
  }

  #isBefore(one: number, other: number): boolean {
    const [a, b] = [this.#heap[one]!, this.#heap[other]!];
    return a.at < b.at || a.at === b.at && a.id < b.id;
  }

  #swap(one: number, other: number): void {
    [this.#heap[one], this.#heap[other]] = [this.#heap[other]!, this.#heap[one]!];
  }
}
