import { join } from "@std/path";
import { ensureCached } from "./cache.ts";
import { goToolchain } from "./go_toolchain.ts";
import { run } from "./process.ts";
import { timedLog, withProgress } from "./progress.ts";

/** The version of csi-sanity. */
export const CSI_SANITY_VERSION = "5.6.0";

const PACKAGE = `github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@v${CSI_SANITY_VERSION}`;

/**
 * Returns the path of csi-sanity, the conformance tests of CSI, as a program without libraries. Built on first use, in
 * about a minute, and kept in the cache folder.
 *
 * @param log called with what is done, step by step, with the seconds since the start @throws {Error} when there is no
 * Go and none can be fetched, or when the build fails
 */
export async function ensureCsiSanity(log: (line: string) => void): Promise<string> {
  const folder = await ensureCached(`csi-sanity-${CSI_SANITY_VERSION}`, log, async (temp, into) => {
    const step = timedLog(log);
    step(`csi-sanity ${CSI_SANITY_VERSION}: building it, once (about a minute)`);
    const { go, env } = await goToolchain(temp, step);
    const counts = { fetched: 0, compiled: 0 };
    await withProgress(
      step,
      () => `${counts.fetched} modules fetched, ${counts.compiled} packages compiled`,
      () =>
        run("build csi-sanity", go, ["install", "-v", "-ldflags=-s -w", PACKAGE], {
          cwd: temp.path,
          env: { ...env, GOBIN: into },
          guardedBy: temp,
          onLine: (line) => counts[line.startsWith("go: ") ? "fetched" : "compiled"]++,
        }),
    );
    step("csi-sanity: done");
  });
  return join(folder, "csi-sanity");
}
