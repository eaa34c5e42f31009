// Types of the @std modules that deno.json maps to npm, where they come without any.
// The project may use only what they declare, so that it can also do with the modules of JSR.

declare module "@std/assert" {
  export function assert(value: unknown, message?: string): asserts value;
  export function assertEquals<T>(actual: T, expected: T, message?: string): void;
  export function assertNotEquals<T>(actual: T, expected: T, message?: string): void;
  export function assertMatch(actual: string, expected: RegExp, message?: string): void;
  export function assertStringIncludes(actual: string, expected: string, message?: string): void;
  export function assertThrows<E extends Error = Error>(
    fn: () => unknown,
    // deno-lint-ignore no-explicit-any
    errorClass?: abstract new (...args: any[]) => E,
    messageIncludes?: string,
  ): E;
  export function assertRejects<E extends Error = Error>(
    fn: () => PromiseLike<unknown>,
    // deno-lint-ignore no-explicit-any
    errorClass?: abstract new (...args: any[]) => E,
    messageIncludes?: string,
  ): Promise<E>;
}

declare module "@std/cli/parse-args" {
  export interface ParseArgsOptions {
    string?: readonly string[];
    boolean?: readonly string[];
    collect?: readonly string[];
    alias?: Record<string, string | readonly string[]>;
    default?: Record<string, unknown>;
    stopEarly?: boolean;
    unknown?: (arg: string, key?: string, value?: unknown) => unknown;
  }
  export function parseArgs(
    args: readonly string[],
    options?: ParseArgsOptions,
  ): { _: (string | number)[]; [flag: string]: unknown };
}

declare module "@std/path" {
  export function basename(path: string, suffix?: string): string;
  export function dirname(path: string): string;
  export function join(path: string, ...paths: string[]): string;
  export function normalize(path: string): string;
  export function relative(from: string, to: string): string;
  export function resolve(...paths: string[]): string;
  export function toFileUrl(path: string): URL;
}

declare module "@std/text/closest-string" {
  export function closestString(givenWord: string, possibleWords: readonly string[]): string;
}

declare module "@std/yaml" {
  export interface StringifyOptions {
    lineWidth?: number;
    quoteStyle?: "'" | '"';
  }
  export function parse(content: string): unknown;
  export function parseAll(content: string): unknown[];
  export function stringify(value: unknown, options?: StringifyOptions): string;
}
