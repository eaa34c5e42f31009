/**
 * `deno task release`: makes all that a release has. See {@linkcode HELP}.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { dirname, join, resolve } from "@std/path";
import { defined } from "../../base/defined.ts";
import manifest from "../../deno.json" with { type: "json" };
import { canCompile } from "../artifact.ts";
import { cacheFolder } from "../image/archive.ts";
import { systemLayer } from "../image/system.ts";
import { type Architecture, ARCHITECTURES, DENO_VERSION, fetchDeno, type System, SYSTEMS } from "../runtime.ts";
import { type Addresses, parseAddresses } from "./addresses.ts";
import { changelogEntry } from "./changelog.ts";
import { nfpmVersion } from "./packages.ts";
import { makeRelease, type Platform, type PluginRuntime } from "./release.ts";
import { addTag, readSource, requireTaggable } from "./source.ts";
import { STANDARD_LIBRARIES, type StandardLibrary } from "../standard_library.ts";
import { refuseArgument, runTool, UsageError } from "../tool.ts";

const ROOT = new URL("../..", import.meta.url).pathname;

/** Who makes a release, unless it is said. */
const DEFAULT_BUILDER = "https://lvm.denolith.dev/builder/local";

const HELP = `Usage: deno task release [flags]

Makes a release of this commit in dist/release: the executables with their SBOMs, the image and the chart as OCI
layouts, packages for hosts, the kubectl plugin for all systems, checksums and digests. With a key also signatures and provenance. docs/release.md
explains how to check and publish them. It takes a Debian, and nfpm.

With the addresses where it will be, a chart that needs no values, an index for helm repo add, manifests, a manifest for krew,
and a README. Addresses have no slash at the end.

The same commit and the same Debian packages give the same files, but for signatures and provenance.

Flags:
  --deno VERSION  make the release with this version of Deno, such as a newer one that has a correction
                  (default: ${DENO_VERSION})
  --key FILE      sign with this private key: ECDSA P-256 in PEM, without a password
  --registry REG  image and chart will be REG/denolith and REG/charts/denolith
  --home URL      page of the repository
  --downloads URL the files will be there (default: HOME/releases/download/v${manifest.version})
  --docs-url URL  docs/ of this commit is there (default: HOME/blob/v${manifest.version}/docs)
  --std SOURCE    the standard library is from ${
  STANDARD_LIBRARIES.join(" or ")
} (default: npm): jsr is the registry of its authors, npm is
                  reached by more networks
  --builder URI   say in the provenance who made the release (default: ${DEFAULT_BUILDER})
  --output DIR    make it in this folder instead; an older release there is replaced
  --tag           tag the commit as v${manifest.version} at the end; it must have all changes
  -h, --help      show this help`;

async function main(args: readonly string[]): Promise<void> {
  const parsed = parseArgs(args.filter((arg) => arg !== "--"), {
    string: ["deno", "key", "registry", "home", "downloads", "docs-url", "builder", "output", "std"],
    boolean: ["help", "tag"],
    alias: { help: "h" },
    default: { builder: DEFAULT_BUILDER, deno: DENO_VERSION, std: "npm" },
    unknown: refuseArgument,
  });
  if (parsed.help === true) return console.log(HELP);
  const denoVersion = parsed.deno as string;
  if (!/^\d+\.\d+\.\d+$/.test(denoVersion)) {
    throw new UsageError(`--deno ${denoVersion}: must be a version such as ${DENO_VERSION}`);
  }
  const std = STANDARD_LIBRARIES.find((known) => known === parsed.std);
  if (std === undefined) throw new UsageError(`--std ${parsed.std}: must be ${STANDARD_LIBRARIES.join(" or ")}`);
  const builder = parsed.builder as string;
  if (!URL.canParse(builder)) throw new UsageError(`--builder ${builder}: must be a URI`);
  const addresses = parseAddresses(parsed);
  if (addresses.downloads !== undefined && parsed.key === undefined) {
    throw new UsageError("--key: is missing: what is published is signed, and says where the public key is");
  }
  await release({
    denoVersion,
    std,
    addresses,
    builder,
    keyFile: parsed.key as string | undefined,
    isTagged: parsed.tag === true,
    folder: resolve(parsed.output as string | undefined ?? join(ROOT, "dist/release")),
  });
}

/** What the command line asks for. */
interface Request {
  readonly denoVersion: string;
  readonly std: StandardLibrary;
  readonly addresses: Addresses;
  readonly builder: string;
  readonly keyFile: string | undefined;
  readonly isTagged: boolean;
  /** The folder to make. */
  readonly folder: string;
}

async function release(request: Request): Promise<void> {
  const { denoVersion, std, addresses, builder, keyFile, isTagged, folder } = request;
  const tag = `v${manifest.version}`;
  const source = await readSource();
  if (isTagged) await requireTaggable(source, tag);
  const changelog = await Deno.readTextFile(join(ROOT, "CHANGELOG.md"));
  const changes = changelogEntry(changelog, manifest.version, { isDated: isTagged });
  const key = keyFile === undefined ? undefined : await Deno.readTextFile(keyFile);
  const nfpm = await nfpmVersion();
  if (source.isChanged) console.error("release: the checkout has changes that are not committed");
  await Deno.mkdir(dirname(folder), { recursive: true });
  const temp = await Deno.makeTempDir({ dir: dirname(folder), prefix: ".deno-" });
  try {
    const platforms: Platform[] = [];
    for (const arch of ARCHITECTURES) platforms.push(await platform(arch, denoVersion, temp));
    const plugins: PluginRuntime[] = [];
    for (const system of SYSTEMS) {
      for (const one of platforms) plugins.push(await pluginRuntime(system, one, temp));
    }
    const options = { folder, platforms, plugins, source, changes, std, addresses, nfpm, builder, log: console.error };
    const digests = await makeRelease({ ...options, ...defined({ key }) });
    for (const [name, digest] of Object.entries(digests)) console.log(`${name} ${digest}`);
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
  if (isTagged) await addTag(source, tag, `denolith ${manifest.version}`);
}

/** Fetches what the release for an architecture is made of. */
async function platform(arch: Architecture, denoVersion: string, temp: string): Promise<Platform> {
  const folder = join(temp, arch);
  await Deno.mkdir(folder);
  const system = await systemLayer(cacheFolder(), console.error, arch);
  const isCompiled = await canCompile({ arch }, denoVersion, console.error);
  return { arch, denoVersion, isCompiled, deno: await fetchDeno({ arch }, folder, denoVersion), system };
}

/** Fetches what the plugin for a system is made of. That for Linux is made like the executable. */
async function pluginRuntime(
  system: System,
  { arch, denoVersion, deno, isCompiled }: Platform,
  temp: string,
): Promise<PluginRuntime> {
  const target = { system, arch };
  if (system === "linux") return { target, denoVersion, deno: isCompiled ? undefined : deno };
  if (await canCompile(target, denoVersion, console.error)) return { target, denoVersion, deno: undefined };
  const folder = join(temp, `${system}-${arch}`);
  await Deno.mkdir(folder);
  return { target, denoVersion, deno: await fetchDeno(target, folder, denoVersion) };
}

if (import.meta.main) await runTool("release", main);
