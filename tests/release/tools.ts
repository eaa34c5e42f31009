/**
 * Programs that read what a release consists of, by other authors.
 *
 * @module
 */

import { join } from "@std/path";
import { defined } from "../../base/defined.ts";
import { cacheKey, ensureCached } from "../rig/cache.ts";
import { ensureTools } from "../rig/debian.ts";
import { buildGo, type GoModule } from "../rig/go_build.ts";

const CRANE = { path: "github.com/google/go-containerregistry", version: "0.22.1", program: "crane", time: "a minute" };
const COSIGN = { path: "github.com/sigstore/cosign/v3", version: "3.1.3", program: "cosign", time: "ten minutes" };

const KREW = { path: "sigs.k8s.io/krew", version: "0.4.3", program: "krew", time: "a minute" };

const NFPM = { path: "github.com/goreleaser/nfpm/v2", version: "2.45.2", program: "nfpm", time: "two minutes" };

const CSI_SANITY = {
  path: "github.com/kubernetes-csi/csi-test/v5",
  version: "5.6.0",
  program: "csi-sanity",
  time: "a minute",
};

/** Returns the path of csi-sanity for arm64; built on first use. */
export function ensureCsiSanityArm64(log: (line: string) => void): Promise<string> {
  return ensureProgram({ ...CSI_SANITY, architecture: "arm64" }, log);
}

/** Returns the path of crane, a client of registries, and a small registry; built on first use. */
export function ensureCrane(log: (line: string) => void): Promise<string> {
  return ensureProgram(CRANE, log);
}

/** Returns the path of krew, which installs plugins of kubectl; built on first use. */
export function ensureKrew(log: (line: string) => void): Promise<string> {
  return ensureProgram(KREW, log);
}

/** Returns the path of nfpm, which makes packages; built on first use. */
export function ensureNfpm(log: (line: string) => void): Promise<string> {
  return ensureProgram(NFPM, log);
}

/** Returns the path of cosign, which verifies signatures; built on first use. */
export function ensureCosign(log: (line: string) => void): Promise<string> {
  return ensureProgram(COSIGN, log);
}

/** Installs skopeo where it is missing. @throws {Error} when it cannot be installed */
export async function ensureSkopeo(log: (line: string) => void): Promise<void> {
  await ensureTools([{ program: "skopeo", packages: ["skopeo"] }], log);
}

async function ensureProgram(
  of: typeof CRANE & Pick<GoModule, "architecture">,
  log: (line: string) => void,
): Promise<string> {
  const { path, version, program, time, architecture } = of;
  const module: GoModule = {
    ...{ name: `${program} ${version}`, time, require: { [path]: version }, replace: {}, linkFlags: "", rename: {} },
    packages: [`${path}/cmd/${program}`],
    ...defined({ architecture }),
  };
  const name = `${program}-${await cacheKey(JSON.stringify(module))}`;
  const folder = await ensureCached(name, log, (temp, into) => buildGo(module, { temp, into, log }));
  return join(folder, program);
}
