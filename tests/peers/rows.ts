/**
 * What the test suites of the official sidecars ask, as rows: each is named by what it asks, in our words.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import type { Backoff } from "../../base/clock.ts";
import { CallError } from "../../k8s/sidecars/csi_client.ts";
import { secrets } from "../../k8s/sidecars/secrets.ts";
import type { FakeApiServer } from "../fake/cluster/api_server.ts";

/**
 * A row: what is asked, what the driver does, and what is wanted; where that differs on purpose, the decision. A row that is
 * simulated in a cluster gets what is wanted, to know when to look.
 */
export type Row = readonly [
  asks: string,
  actual: (wanted: unknown) => unknown,
  wanted: unknown,
  differs?: string | undefined,
];

/** Where the decisions about most of the differences are. */
export const SIDECARS = "docs/guides/official-sidecars.md, Differences";

/** The outcome of a row whose input is refused: a part of the message. */
export function refused(words: string): { readonly refused: string } {
  return { refused: words };
}

/** Registers a test for each row of a table. @param suite the suite that asks, such as `csi-provisioner: secrets` */
export function testRows(suite: string, rows: readonly Row[]): void {
  for (const [asks, actual, wanted, differs] of rows) {
    Deno.test(`${suite}: ${asks}${differs === undefined ? "" : ` (differs: ${differs})`}`, async () => {
      assertEquals(await outcomeOf(actual, wanted), wanted);
    });
  }
}

/** Returns what a row does. A refusal with the wanted words is as it is wanted. */
async function outcomeOf(actual: Row[1], wanted: unknown): Promise<unknown> {
  try {
    return await actual(wanted);
  } catch (error) {
    const { message } = error as Error;
    const words = (wanted as { refused?: string } | undefined)?.refused;
    return refused(words !== undefined && message.includes(words) ? words : message);
  }
}

/**
 * Returns the outcome of what is simulated in a cluster: what is wanted as soon as it is there, and what there is instead after
 * some seconds.
 */
export async function outcomeWhenSettled<T>(outcome: () => T, wanted: unknown): Promise<T> {
  const isThere = () => JSON.stringify(outcome()) === JSON.stringify(wanted);
  for (const end = Date.now() + 10_000; !isThere() && Date.now() < end;) await new Promise((go) => setTimeout(go, 1));
  return outcome();
}

/** What holds for a secret. `unnamed`: its name is empty. */
export type Secret = "readable" | "missing" | "forbidden" | "unnamed";

/** Puts a secret into a cluster, if it can be read. @returns the keys that name it, which begin with `prefix` */
export function secretKeys(api: FakeApiServer, prefix: string, state: Secret | undefined): Record<string, string> {
  if (state === undefined) return {};
  const at = { name: state === "unnamed" ? "" : "s", namespace: "n" };
  if (state === "readable") api.put(secrets, { metadata: at, data: { key: btoa("word") } });
  if (state === "forbidden") api.faults.forbidden.add("secrets");
  return { [`${prefix}-name`]: at.name, [`${prefix}-namespace`]: at.namespace };
}

/** How a call fails: with a code of gRPC, or without one. */
export type FailureCode = number | "no code";

/** Returns the failure of a call. */
export function failure(code: FailureCode): Error {
  return code === "no code" ? new TypeError("no") : new CallError(code, "no");
}

/** Returns the delays of a row: what failed is tried again at once, or never, so that the outcome is that of one attempt. */
export function backoffOf({ retries = false }: { readonly retries?: boolean }): Backoff {
  return retries ? { startMs: 1, capMs: 5 } : { startMs: 600_000, capMs: 600_000 };
}

/** Wraps a driver so that something happens before each of its calls, which fails when that fails. */
export function beforeCalls<T extends object, R>(driver: T, onCall: (call: string, request: R) => unknown): T {
  return new Proxy(driver, {
    get: (target, call: string) => async (...args: unknown[]) => {
      await onCall(call, args[0] as R);
      return await (Reflect.get(target, call) as (...args: unknown[]) => unknown).apply(target, args);
    },
  });
}
