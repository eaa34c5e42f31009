import { status } from "@grpc/grpc-js";

/** The time for which a failing step is repeated, in milliseconds: starting takes long on an emulated machine. */
const RETRY_TIMEOUT_MS = 180_000;

/** The answers after which an orchestrator repeats a call: it may have failed, or may still run. */
const TRANSIENT = [status.UNAVAILABLE, status.ABORTED, status.DEADLINE_EXCEEDED, status.CANCELLED];

/** Repeats a call until it succeeds. @throws {Error} its error, when that is not a transient one */
export async function retryCall<T>(call: () => Promise<T>): Promise<T> {
  return await retry(call, (error) => TRANSIENT.includes((error as { code?: number }).code!));
}

/** Repeats what fails until something else has happened, such as the end of a process. */
export async function eventually<T>(body: () => Promise<T>): Promise<T> {
  return await retry(body, () => true);
}

async function retry<T>(body: () => Promise<T>, isTransient: (error: unknown) => boolean): Promise<T> {
  for (const start = performance.now();;) {
    try {
      return await body();
    } catch (error) {
      if (!isTransient(error) || performance.now() - start > RETRY_TIMEOUT_MS) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}
