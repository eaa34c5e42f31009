/** The time for which a failing step is repeated, in milliseconds: starting takes long on an emulated machine. */
const RETRY_TIMEOUT_MS = 180_000;

/** Repeats what fails, as an orchestrator does, or while something starts. */
export async function retry<T>(body: () => Promise<T>): Promise<T> {
  for (const start = performance.now();;) {
    try {
      return await body();
    } catch (error) {
      if (performance.now() - start > RETRY_TIMEOUT_MS) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}
