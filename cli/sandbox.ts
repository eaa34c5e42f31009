/**
 * Runs the body of a subcommand in a web worker that has permissions of its own. The process starts with permissions
 * for every path and address that flags can name. Its main thread parses the flags, starts the worker with only the
 * permissions that these flags need, and revokes its own permissions before the body starts.
 *
 * @module
 */

import type { Flags } from "./command_line.ts";

/** The subcommand that a worker runs. */
export interface WorkerRequest {
  /** Name of the subcommand. */
  readonly name: string;
  /** Values of its flags. */
  readonly flags: Flags;
}

/** A message from the main thread to the worker. */
type MessageToWorker = { readonly kind: "start"; readonly request: WorkerRequest } | { readonly kind: "end" };

/** A message from the worker to the main thread. */
type MessageFromWorker =
  | { readonly kind: "ready" }
  | { readonly kind: "ended"; readonly status: number }
  | { readonly kind: "failed"; readonly message: string };

/** The part of the global scope of a worker that is used here. */
export interface WorkerScope {
  onmessage: (event: MessageEvent<MessageToWorker>) => void;
  postMessage(message: MessageFromWorker): void;
  addEventListener: typeof globalThis.addEventListener;
}

/** The time that calls in progress may take after SIGTERM, in milliseconds: the deadline of the longest command. */
export const GRACE_MS = 110_000;

/** The time after the first signal in which a further SIGINT is ignored, in milliseconds. */
const REPEATED_SIGINT_MS = 1_000;

/** The kinds of permission that the main thread revokes. */
const REVOKED_PERMISSIONS = ["read", "write", "net", "run", "env", "sys", "ffi", "import"] as const;

type PermissionKind = typeof REVOKED_PERMISSIONS[number];

/** The part of a worker that is used here. */
interface WorkerHandle extends Pick<Worker, "onmessage" | "onerror"> {
  postMessage(message: MessageToWorker): void;
}

/** Options of {@linkcode runSandboxed}. */
export interface SandboxOptions {
  /** URL of the module that the worker loads. When {@linkcode isSandboxed}, it must call {@linkcode serveWorker}. */
  readonly module: string;
  /** Permissions of the worker. */
  readonly permissions: Deno.PermissionOptionsObject;
  /** Aborted when the body is asked to end. */
  readonly end: AbortSignal;
}

/**
 * Returns a signal that is aborted by SIGTERM or SIGINT. A supervisor may send the same signal twice (timeout(1) does),
 * so further SIGTERMs change nothing. A second Ctrl-C ends the process at once, unless it follows the first signal too
 * soon.
 *
 * @param host listens for signals
 * @param repeatedSigintMs the time after the first signal in which a further SIGINT is ignored, in milliseconds
 */
export function abortOnSignals(
  host: Pick<typeof Deno, "addSignalListener" | "removeSignalListener"> = Deno,
  repeatedSigintMs = REPEATED_SIGINT_MS,
): AbortSignal {
  const end = new AbortController();
  const onSignal = () => {
    if (!end.signal.aborted) {
      Deno.unrefTimer(setTimeout(() => host.removeSignalListener("SIGINT", onSignal), repeatedSigintMs));
    }
    end.abort();
  };
  for (const signal of ["SIGTERM", "SIGINT"] as const) host.addSignalListener(signal, onSignal);
  return end.signal;
}

/** Reports whether this code runs in a worker that {@linkcode runSandboxed} started. */
export function isSandboxed(): boolean {
  return "WorkerGlobalScope" in globalThis;
}

/**
 * Runs a subcommand in a worker. The main thread has no permissions afterwards.
 *
 * The worker goes on until the process exits, which the caller must see to: Deno kills the commands that a worker started when
 * the worker ends, and not when the process exits. A command that changes something must not be killed.
 *
 * @returns the exit status
 * @throws {Error} for an uncaught error in the worker
 */
export async function runSandboxed(
  request: WorkerRequest,
  { module, permissions, end }: SandboxOptions,
): Promise<number> {
  const worker = new Worker(module, { type: "module", deno: { permissions } });
  return await supervise(worker, request, { end, revoke: (name) => void Deno.permissions.revokeSync({ name }) });
}

/**
 * Lets a worker run a subcommand, after this thread has given up its permissions.
 *
 * @param options `end` is aborted when the subcommand is asked to end; `revoke` gives up a kind of permission
 * @returns the exit status
 * @throws {Error} for an uncaught error in the worker
 */
export async function supervise(
  worker: WorkerHandle,
  request: WorkerRequest,
  { end, revoke }: { readonly end: AbortSignal; readonly revoke: (kind: PermissionKind) => void },
): Promise<number> {
  const send = (message: MessageToWorker) => worker.postMessage(message);
  return await new Promise((resolve, reject) => {
    worker.onmessage = ({ data }: MessageEvent<MessageFromWorker>) => {
      if (data.kind === "ended") return resolve(data.status);
      if (data.kind === "failed") return reject(new Error(data.message));
      for (const kind of REVOKED_PERMISSIONS) revoke(kind);
      send({ kind: "start", request });
      if (end.aborted) return send({ kind: "end" });
      end.addEventListener("abort", () => send({ kind: "end" }));
    };
    worker.onerror = (event) => {
      event.preventDefault();
      reject(new Error(event.message));
    };
  });
}

/**
 * Runs, in the worker, the subcommand that the main thread sends.
 *
 * @param execute runs it, and returns its exit status
 * @param scope the global scope of the worker
 */
export function serveWorker(
  execute: (request: WorkerRequest, end: AbortSignal) => Promise<number>,
  scope: WorkerScope = globalThis as unknown as WorkerScope,
): void {
  const end = new AbortController();
  // Without these, an uncaught error would end the worker, and with it the commands that it started.
  const fail = (event: Event, message: string) => {
    event.preventDefault();
    scope.postMessage({ kind: "failed", message });
  };
  scope.addEventListener("error", (event) => fail(event, event.message));
  scope.addEventListener("unhandledrejection", (event) => fail(event, `Uncaught (in promise) ${event.reason}`));
  scope.onmessage = async ({ data }) => {
    if (data.kind === "end") return end.abort();
    scope.postMessage({ kind: "ended", status: await execute(data.request, end.signal) });
  };
  scope.postMessage({ kind: "ready" });
}
