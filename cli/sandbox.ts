/**
 * Running a subcommand's body in a worker that has permissions of its own. The process reads the command line, so its own
 * permissions must cover whatever a user can choose; the worker has what was chosen, and the process gives up the rest
 * before the body starts.
 *
 * @module
 */

import type { Flags } from "./command_line.ts";

/** What the worker is to do. */
export interface WorkerRequest {
  /** The subcommand. */
  readonly name: string;
  /** Its flags. */
  readonly flags: Flags;
}

/** What the process tells its worker. */
type MessageToWorker = { readonly kind: "start"; readonly request: WorkerRequest } | { readonly kind: "end" };

/** What the worker tells its process. */
type MessageFromWorker = { readonly kind: "ready" } | { readonly kind: "ended"; readonly status: number };

/** The global scope of a worker, as far as it is used here. */
interface WorkerScope {
  onmessage: (event: MessageEvent<MessageToWorker>) => void;
  postMessage(message: MessageFromWorker): void;
}

/** The kinds of permission that the process gives up. */
const REVOKED_PERMISSIONS = ["read", "write", "net", "run", "env", "sys", "ffi", "import"] as const;

/** How {@linkcode runSandboxed} starts a worker. */
export interface SandboxOptions {
  /** The address of the module to start from, which calls {@linkcode serveWorker} when it finds itself in a worker. */
  readonly module: string;
  /** What the worker may do. */
  readonly permissions: Deno.PermissionOptionsObject;
  /** Asks the body to end. */
  readonly end: AbortSignal;
}

/** Whether this is a worker, started by {@linkcode runSandboxed}. */
export function isSandboxed(): boolean {
  return "WorkerGlobalScope" in globalThis;
}

/**
 * Carries out the order in a worker and answers the exit status. This process has no permissions any more afterwards.
 *
 * @throws {Error} when the worker fails by an error that nothing in it caught
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

/** Carries out, in the worker, the one order that comes. */
export function serveWorker(execute: (request: WorkerRequest, end: AbortSignal) => Promise<number>): void {
  const scope = globalThis as unknown as WorkerScope;
  const end = new AbortController();
  scope.onmessage = async ({ data }) => {
    if (data.kind === "end") return end.abort();
    scope.postMessage({ kind: "ended", status: await execute(data.request, end.signal) });
  };
  scope.postMessage({ kind: "ready" });
}
