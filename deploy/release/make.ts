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
import { type Architecture, ARCHITECTURES, DENO_VERSION, fetchDeno } from "../runtime.ts";
import { changelogEntry } from "./changelog.ts";
import { makeRelease, type Platform } from "./release.ts";
import { addTag, readSource, requireTaggable } from "./source.ts";
import { refuseArgument, runTool, UsageError } from "../tool.ts";

const ROOT = new URL("../..", import.meta.url).pathname;

/** Who makes a release, unless it is said. */
const DEFAULT_BUILDER = "https://lvm.denolith.dev/builder/local";

const HELP = `Usage: deno task release [flags]

Makes a release of this commit in dist/release: the executables with their SBOMs, the image and the chart as OCI
layouts, checksums and digests. With a key also signatures and provenance. docs/release.md explains how to check and publish
them. It takes a Debian.

The same commit and the same Debian packages give the same files, but for signatures and provenance.

Flags:
  --deno VERSION  make the release with this version of Deno, such as a newer one that has a correction
                  (default: ${DENO_VERSION})
  --key FILE      sign with this private key: ECDSA P-256 in PEM, without a password
  --docs-url URL  write this address of docs/ at this commit into the chart, without a slash at the end
  --builder URI   say in the provenance who made the release (default: ${DEFAULT_BUILDER})
  --output DIR    make it in this folder instead; an older release there is replaced
  --tag           tag the commit as v${manifest.version} at the end; it must have all changes
  -h, --help      show this help`;

async function main(args: readonly string[]): Promise<void> {
  const parsed = parseArgs(args.filter((arg) => arg !== "--"), {
    string: ["deno", "key", "docs-url", "builder", "output"],
    boolean: ["help", "tag"],
    alias: { help: "h" },
    default: { builder: DEFAULT_BUILDER, deno: DENO_VERSION },
    unknown: refuseArgument,
  });
  if (parsed.help === true) return console.log(HELP);
  const denoVersion = parsed.deno as string;
  if (!/^\d+\.\d+\.\d+$/.test(denoVersion)) {
    throw new UsageError(`--deno ${denoVersion}: must be a version such as ${DENO_VERSION}`);
  }
  const builder = parsed.builder as string;
  if (!URL.canParse(builder)) throw new UsageError(`--builder ${builder}: must be a URI`);
  const docsUrl = parsed["docs-url"] as string | undefined;
  if (docsUrl !== undefined && !/^https:\/\/\S*[^\s/]$/.test(docsUrl)) {
    throw new UsageError(`--docs-url ${docsUrl}: must be a URL, without a slash at the end`);
  }
  await release({
    denoVersion,
    docsUrl,
    builder,
    keyFile: parsed.key as string | undefined,
    isTagged: parsed.tag === true,
    folder: resolve(parsed.output as string | undefined ?? join(ROOT, "dist/release")),
  });
}

/** What the command line asks for. */
interface Request {
  readonly denoVersion: string;
  readonly docsUrl: string | undefined;
  readonly builder: string;
  readonly keyFile: string | undefined;
  readonly isTagged: boolean;
  /** The folder to make. */
  readonly folder: string;
}

async function release({ denoVersion, docsUrl, builder, keyFile, isTagged, folder }: Request): Promise<void> {
  const tag = `v${manifest.version}`;
  const source = await readSource();
  if (isTagged) await requireTaggable(source, tag);
  const changelog = await Deno.readTextFile(join(ROOT, "CHANGELOG.md"));
  const changes = changelogEntry(changelog, manifest.version, { isDated: isTagged });
  const key = keyFile === undefined ? undefined : await Deno.readTextFile(keyFile);
  if (source.isChanged) console.error("release: the checkout has changes that are not committed");
  await Deno.mkdir(dirname(folder), { recursive: true });
  const temp = await Deno.makeTempDir({ dir: dirname(folder), prefix: ".deno-" });
  try {
    const platforms: Platform[] = [];
    for (const arch of ARCHITECTURES) platforms.push(await platform(arch, denoVersion, temp));
    const options = { folder, platforms, source, changes, builder, log: console.error };
    const digests = await makeRelease({ ...options, ...defined({ key, docsUrl }) });
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
  const isCompiled = await canCompile(arch, denoVersion, console.error);
  return { arch, denoVersion, isCompiled, deno: await fetchDeno(arch, folder, denoVersion), system };
}

if (import.meta.main) await runTool("release", main);
