/**
 * Running a subcommand's body in a worker that has permissions of its own. The process reads the command line, so its own
 * permissions must cover whatever a user can choose; the worker has what was chosen, and the process gives up the rest
 * before the body starts.
 *
 * @module
 */

import type { Flags } from "./command_line.ts";

/** What the worker is to do. */
export interface Order {
  /** The subcommand. */
  readonly name: string;
  /** Its flags. */
  readonly flags: Flags;
}

/** What the process tells its worker. */
type Instruction = { readonly kind: "start"; readonly order: Order } | { readonly kind: "end" };

/** What the worker tells its process. */
type Notice = { readonly kind: "ready" } | { readonly kind: "ended"; readonly status: number };

/** The global scope of a worker, as far as it is used here. */
interface WorkerScope {
  onmessage: (event: MessageEvent<Instruction>) => void;
  postMessage(notice: Notice): void;
}

/** The kinds of permission that the process gives up. */
const GIVEN_UP = ["read", "write", "net", "run", "env", "sys", "ffi", "import"] as const;

/** How {@linkcode runConfined} starts a worker. */
export interface Confinement {
  /** The address of the module to start from, which calls {@linkcode obey} when it finds itself in a worker. */
  readonly module: string;
  /** What the worker may do. */
  readonly permissions: Deno.PermissionOptionsObject;
  /** Asks the body to end. */
  readonly end: AbortSignal;
}

/** Whether this is a worker, started by {@linkcode runConfined}. */
export function isConfined(): boolean {
  return "WorkerGlobalScope" in globalThis;
}

/**
 * Carries out the order in a worker and answers the exit status. This process has no permissions any more afterwards.
 *
 * @throws {Error} when the worker fails by an error that nothing in it caught
 */
export async function runConfined(order: Order, { module, permissions, end }: Confinement): Promise<number> {
  const worker = new Worker(module, { type: "module", deno: { permissions } });
  const tell = (instruction: Instruction) => worker.postMessage(instruction);
  try {
    return await new Promise((resolve, reject) => {
      worker.onmessage = ({ data }: MessageEvent<Notice>) => {
        if (data.kind === "ended") return resolve(data.status);
        for (const name of GIVEN_UP) Deno.permissions.revokeSync({ name });
        tell({ kind: "start", order });
        if (end.aborted) return tell({ kind: "end" });
        end.addEventListener("abort", () => tell({ kind: "end" }), { once: true });
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
export function obey(carryOut: (order: Order, end: AbortSignal) => Promise<number>): void {
  const scope = globalThis as unknown as WorkerScope;
  const end = new AbortController();
  scope.onmessage = async ({ data }) => {
    if (data.kind === "end") return end.abort();
    scope.postMessage({ kind: "ended", status: await carryOut(data.order, end.signal) });
  };
  scope.postMessage({ kind: "ready" });
}
