/**
 * The part of `@std/testing/mock` that the tests use, for where JSR is not reached: spies and stubs.
 *
 * @module
 */

import { assertEquals } from "@std/assert";

/** A call of a spy. */
export interface SpyCall<Args extends unknown[] = unknown[], Return = unknown> {
  /** The arguments. */
  args: Args;
  /** The result, when the call did not fail. */
  returned?: Return;
  /** The error, when the call failed. */
  error?: Error;
}

/** A function that records its calls. */
export interface Spy<Args extends unknown[] = unknown[], Return = unknown> {
  (...args: Args): Return;
  /** The calls so far, the first one first. */
  calls: SpyCall<Args, Return>[];
}

/**
 * Creates a spy.
 *
 * @param func the function that it calls; without one it does nothing
 */
export function spy<Args extends unknown[] = unknown[], Return = undefined>(
  func: (...args: Args) => Return = () => undefined as Return,
): Spy<Args, Return> {
  const calls: SpyCall<Args, Return>[] = [];
  const record = (...args: Args): Return => {
    const call: SpyCall<Args, Return> = { args };
    calls.push(call);
    try {
      return call.returned = func(...args);
    } catch (error) {
      call.error = error as Error;
      throw error;
    }
  };
  return Object.assign(record, { calls });
}

/** A spy in the place of a method, until it is disposed of. */
export interface Stub<Args extends unknown[] = unknown[], Return = unknown> extends Spy<Args, Return>, Disposable {
  /** Puts the real method back. */
  restore(): void;
}

/**
 * Replaces a method of an object by a spy.
 *
 * @param func the function that the spy calls instead of the method
 */
export function stub<Self, Name extends keyof Self, Args extends unknown[], Return>(
  self: Self,
  property: Name,
  func: Self[Name] & ((...args: Args) => Return),
): Stub<Args, Return> {
  const real = self[property];
  const replacement = spy<Args, Return>(func);
  const restore = () => void (self[property] = real);
  self[property] = replacement as Self[Name];
  return Object.assign(replacement, { restore, [Symbol.dispose]: restore });
}

/** Asserts that a spy was called so many times. */
// deno-lint-ignore no-explicit-any
export function assertSpyCalls(spy: Spy<any[], any>, expectedCalls: number): void {
  assertEquals(spy.calls.length, expectedCalls, "the number of calls of the spy");
}

/** Asserts that the call with this index, from 0, was made with these arguments. */
// deno-lint-ignore no-explicit-any
export function assertSpyCallArgs<Args extends any[]>(spy: Spy<Args, any>, callIndex: number, expected: Args): void {
  assertEquals(spy.calls[callIndex]?.args, expected);
}
