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
type MessageFromWorker = { readonly kind: "ready" } | { readonly kind: "ended"; readonly status: number };

/** The part of the global scope of a worker that is used here. */
interface WorkerScope {
  onmessage: (event: MessageEvent<MessageToWorker>) => void;
  postMessage(message: MessageFromWorker): void;
}

/** The kinds of permission that the main thread revokes. */
const REVOKED_PERMISSIONS = ["read", "write", "net", "run", "env", "sys", "ffi", "import"] as const;

/** Options of {@linkcode runSandboxed}. */
export interface SandboxOptions {
  /** URL of the module that the worker loads. When {@linkcode isSandboxed}, it must call {@linkcode serveWorker}. */
  readonly module: string;
  /** Permissions of the worker. */
  readonly permissions: Deno.PermissionOptionsObject;
  /** Aborted when the body is asked to end. */
  readonly end: AbortSignal;
}

/** Reports whether this code runs in a worker that {@linkcode runSandboxed} started. */
export function isSandboxed(): boolean {
  return "WorkerGlobalScope" in globalThis;
}

/**
 * Runs a subcommand in a worker. The main thread has no permissions afterwards.
 *
 * @returns the exit status
 * @throws {Error} for an uncaught error in the worker
 */
export async function runSandboxed(
  request: WorkerRequest,
  { module, permissions, end }: SandboxOptions,
): Promise<number> {
  const worker = new Worker(module, { type: "module", deno: { permissions } });
  const send = (message: MessageToWorker) => worker.postMessage(message);
  try {
    return await new Promise((resolve, reject) => {
      worker.onmessage = ({ data }: MessageEvent<MessageFromWorker>) => {
        if (data.kind === "ended") return resolve(data.status);
        for (const name of REVOKED_PERMISSIONS) Deno.permissions.revokeSync({ name });
        send({ kind: "start", request });
        if (end.aborted) return send({ kind: "end" });
        end.addEventListener("abort", () => send({ kind: "end" }), { once: true });
      };
      worker.onerror = (event) => {
        event.preventDefault();
        reject(new Error(event.message));
      };
    });
  } finally {
    worker.terminate();
  }
}

/** Runs, in the worker, the subcommand that the main thread sends. @param execute runs it, and returns its exit status */
export function serveWorker(execute: (request: WorkerRequest, end: AbortSignal) => Promise<number>): void {
  const scope = globalThis as unknown as WorkerScope;
  const end = new AbortController();
  scope.onmessage = async ({ data }) => {
    if (data.kind === "end") return end.abort();
    scope.postMessage({ kind: "ended", status: await execute(data.request, end.signal) });
  };
  scope.postMessage({ kind: "ready" });
}
