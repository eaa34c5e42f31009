/**
 * What a release consists of, and how its parts are made.
 *
 * @module
 */

import { join } from "@std/path";
import manifest from "../../deno.json" with { type: "json" };
import { bundleDriver, bundlePlugin } from "../bundle.ts";
import { CHART } from "../chart.ts";
import { PLUGIN_MODULE } from "../launch.ts";
import { plainManifests } from "../manifests.ts";
import { packPlugin, type PluginTarget } from "../plugin_archive.ts";
import { makeTar } from "../process.ts";
import { type Architecture, denortRuntime, denoRuntime, PLATFORM_NAMES, type Target } from "../runtime.ts";
import { sbom } from "../sbom.ts";
import { sha256OfFile } from "../self_extracting.ts";
import type { Addresses } from "./addresses.ts";
import type { ChangelogEntry } from "./changelog.ts";
import { addChart, CHART_LINKS, type ChartFacts, chartIndex, packChart, releaseValues } from "./chart_package.ts";
import { addImage, debianPackages, imageAnnotations } from "./image.ts";
import { krewManifest, type SummedArchive } from "./krew.ts";
import { gzip, OciLayout } from "./oci.ts";
import { writeOfflineBundle, writeOfflineParts } from "./offline.ts";
import { writePackages } from "./packages.ts";
import { PREDICATE_TYPE, provenance, type Resource } from "./provenance.ts";
import { releasedReadme } from "./readme.ts";
import { addAttestation, addSignature, cosignTag, envelopeOf, Signer } from "./sign.ts";
import type { Source } from "./source.ts";
import type { StandardLibrary } from "../standard_library.ts";
import { ignoreNotFound } from "../tool.ts";
import { ARTIFACT_FILES, writeInstalledFiles, writePrograms } from "../artifact.ts";

const ROOT = new URL("../..", import.meta.url).pathname;

/** Names of the files and folders of a release that do not depend on version and architecture. */
export const RELEASE_FILES = {
  image: "image",
  chart: "chart",
  digests: "digests.json",
  sums: "SHA256SUMS",
  signature: "SHA256SUMS.sig",
  provenance: "provenance.intoto.json",
  ...CHART_LINKS,
  index: "index.yaml",
  install: "install.yaml",
  example: "example.yaml",
  readme: "README.md",
} as const;

/** What a release has for an architecture. */
export interface Platform {
  readonly arch: Architecture;
  /** Path of the deno binary. */
  readonly deno: string;
  readonly denoVersion: string;
  /** Whether `deno compile` makes the executable; otherwise it contains the deno binary. */
  readonly isCompiled: boolean;
  /** Path of the layer with Debian's programs, a tar file. */
  readonly system: string;
}

/** What the archive of the kubectl plugin for a system is made of. */
export interface PluginRuntime {
  readonly target: PluginTarget;
  readonly denoVersion: string;
  /** Path of the deno binary that it contains; without it, `deno compile` makes the program. */
  readonly deno: string | undefined;
}

/** Settings of {@linkcode makeRelease}. */
export interface ReleaseOptions {
  /** The folder to make; an older one is replaced. */
  readonly folder: string;
  readonly platforms: readonly Platform[];
  readonly plugins: readonly PluginRuntime[];
  readonly source: Source;
  readonly changes: ChangelogEntry;
  /** The private key in PEM; without it there are neither signatures nor provenance. */
  readonly key?: string;
  /** Where the standard library comes from. */
  readonly std: StandardLibrary;
  /** Where it will be found. */
  readonly addresses: Addresses;
  /** The version of nfpm, which makes packages; without it there are none. */
  readonly nfpm?: string;
  /** A URI of who makes the release, for the provenance. */
  readonly builder: string;
  /** Called with a line for each step. */
  readonly log: (line: string) => void;
}

/** The digests of a release's image and chart, each `sha256:` and hexadecimal. */
export interface ReleaseDigests {
  readonly image: string;
  readonly chart: string;
}

/**
 * Makes a release. Its folder is put in place when it is whole. The same commit, deno binaries and layers give the same
 * files, but for signatures and provenance.
 *
 * @throws {Error} when a step fails
 */
export async function makeRelease(options: ReleaseOptions): Promise<ReleaseDigests> {
  const { folder, key, log } = options;
  const startedOn = new Date();
  const signer = key === undefined ? undefined : new Signer(key);
  await requireReplaceable(folder);
  const temp = `${folder}.making`;
  await Deno.remove(temp, { recursive: true }).catch(ignoreNotFound);
  const [parts, whole] = [join(temp, "parts"), join(temp, "whole")];
  for (const path of [parts, whole]) await Deno.mkdir(path, { recursive: true });
  try {
    await writeExecutables(options, parts, whole);
    const hasKrewManifest = await writePlugins(options, parts, whole);
    const image = await writeImage(options, parts, whole);
    const facts: ChartFacts = {
      ...{ changes: options.changes, addresses: options.addresses, image, hasKrewManifest },
      architectures: options.platforms.map(({ arch }) => arch),
    };
    const digests = { image, chart: await writeChart(options, facts, { parts, whole }) };
    await writeTexts(options, image, whole);
    await writeOfflineParts({ addresses: options.addresses, image, temp: parts }, whole);
    await Deno.writeTextFile(join(whole, RELEASE_FILES.digests), JSON.stringify(digests, null, 2) + "\n");
    const files = await sumsOfFiles(whole);
    const sums = files.map(({ name, digest }) => `${digest.sha256}  ${name}\n`).join("");
    await Deno.writeTextFile(join(whole, RELEASE_FILES.sums), sums);
    if (signer !== undefined) {
      log("release: signatures and provenance");
      const subjects = [...files, ...Object.entries(digests).map(subjectOf)];
      const statement = provenance({
        ...{ version: manifest.version, source: options.source, builder: options.builder, startedOn, subjects },
        ...{ addresses: options.addresses, std: options.std },
        architectures: options.platforms.map(({ arch }) => PLATFORM_NAMES[arch]),
        materials: await materialsOf(options),
        finishedOn: new Date(),
      });
      await writeSignatures(whole, { signer, sums, digests, statement });
    }
    log("release: archive for clusters without a network");
    await writeOfflineBundle(whole);
    await Deno.remove(folder, { recursive: true }).catch(ignoreNotFound);
    await Deno.rename(whole, folder);
    return digests;
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
}

/** Checks that nothing else is lost when a release is put in the place of a folder. @throws {Error} when it is no release */
async function requireReplaceable(folder: string): Promise<void> {
  const names = await Array.fromAsync(Deno.readDir(folder), ({ name }) => name).catch(ignoreNotFound) ?? [];
  if (names.length === 0 || names.includes(RELEASE_FILES.digests)) return;
  throw new Error(`replace ${folder}: it is not empty, and no release: it has no ${RELEASE_FILES.digests}`);
}

/** Writes the executables, their bills of materials, and the files that are installed beside them. */
async function writeExecutables(options: ReleaseOptions, parts: string, whole: string): Promise<void> {
  const { platforms, nfpm, std, source: { time: created }, addresses: { home }, log } = options;
  log("release: executables");
  const modules = await bundleDriver(parts, std);
  const plugin = await bundlePlugin(parts, std);
  const { version } = manifest;
  for (const { arch, deno, denoVersion, isCompiled, system } of platforms) {
    const name = `denolith-${version}-linux-${PLATFORM_NAMES[arch]}`;
    const output = { program: join(whole, name) };
    const binary = isCompiled ? undefined : { path: deno, version: denoVersion };
    const runtime = await writePrograms({ arch, modules, plugin, output, deno: binary });
    const bill = join(whole, `${name}.cdx.json`);
    await Deno.writeTextFile(bill, await sbom(runtime, { std }));
    if (nfpm !== undefined) {
      const temp = await Deno.makeTempDir({ dir: parts });
      await writePackages({ arch, program: output.program, sbom: bill, created, home }, temp, whole);
    }
    const ofImage = denoRuntime({ arch }, await sha256OfFile(deno), denoVersion);
    const imageSbom = await sbom(ofImage, { debian: await debianPackages(system), std });
    const imageName = `denolith-image-${version}-linux-${PLATFORM_NAMES[arch]}`;
    await Deno.writeTextFile(join(whole, `${imageName}.cdx.json`), imageSbom);
  }
  const share = join(parts, "share-files");
  await writeInstalledFiles(share, `bin/${ARTIFACT_FILES.pluginCompletion}`);
  const tar = join(parts, "share.tar");
  await makeTar(share, tar, { options: ["--mode=u=rwX,go=rX"] }); // whatever the umask
  await gzip(tar, join(whole, `denolith-${version}-share.tar.gz`));
}

/** Writes the image of all architectures as a layout. @returns its digest */
async function writeImage(options: ReleaseOptions, parts: string, whole: string): Promise<string> {
  const layout = await OciLayout.create(join(whole, RELEASE_FILES.image));
  const { std, source: { time: created } } = options;
  const images = [];
  for (const { arch, deno, system } of options.platforms) {
    options.log(`release: image for ${PLATFORM_NAMES[arch]}`);
    images.push(await addImage(layout, { arch, deno, system, std, created }, parts));
  }
  const index = await layout.addIndex(images, imageAnnotations(created));
  await layout.finish(index, manifest.version);
  return index.digest;
}

/** Writes the archives of the plugin, and its manifest for krew if their address is known. @returns whether there is one */
async function writePlugins(
  { plugins, addresses: { downloads, home, docsUrl }, log }: ReleaseOptions,
  parts: string,
  whole: string,
): Promise<boolean> {
  const archives: SummedArchive[] = [];
  for (const { target, deno } of plugins) {
    log(`release: kubectl plugin for ${target.system} on ${PLATFORM_NAMES[target.arch]}`);
    const archive = await packPlugin({ target, plugin: join(parts, PLUGIN_MODULE), deno, folder: whole });
    archives.push({ ...archive, sha256: await sha256OfFile(join(whole, archive.name)) });
  }
  const text = downloads && krewManifest(archives, { downloads, home, docsUrl });
  if (text) await Deno.writeTextFile(join(whole, RELEASE_FILES.krew), text);
  return Boolean(text);
}

/** Writes the chart as a file and as a layout, and its index if the address of the file is known. @returns its digest */
async function writeChart(
  { source, addresses: { downloads }, log }: ReleaseOptions,
  facts: ChartFacts,
  { parts, whole }: { readonly parts: string; readonly whole: string },
): Promise<string> {
  log("release: chart");
  const name = `denolith-${manifest.version}.tgz`;
  const file = join(whole, name);
  const metadata = await packChart(facts, parts, file);
  const layout = await OciLayout.create(join(whole, RELEASE_FILES.chart));
  const created = source.time;
  const entry = await addChart(layout, file, { metadata, created });
  await layout.finish(entry, metadata.version);
  if (downloads !== undefined) {
    const index = chartIndex(metadata, { sha256: await sha256OfFile(file), url: `${downloads}/${name}`, created });
    await Deno.writeTextFile(join(whole, RELEASE_FILES.index), index);
    await Deno.copyFile(join(CHART, "icon.svg"), join(whole, RELEASE_FILES.icon));
  }
  return entry.digest;
}

/** Writes what needs the addresses: manifests for kubectl alone, an example, and the README. */
async function writeTexts({ addresses }: ReleaseOptions, image: string, whole: string): Promise<void> {
  const { registry, home, downloads, docsUrl } = addresses;
  const write = (name: string, text: string) => Deno.writeTextFile(join(whole, name), text);
  if (registry !== undefined) await write(RELEASE_FILES.install, plainManifests(releaseValues({ addresses, image })));
  if (registry === undefined || home === undefined || downloads === undefined || docsUrl === undefined) return;
  const example = ["claim", "pod"].map((name) => Deno.readTextFileSync(join(ROOT, `deploy/examples/pod/${name}.yaml`)));
  await write(RELEASE_FILES.example, example.join("---\n"));
  const readme = await Deno.readTextFile(join(ROOT, "README.md"));
  await write(RELEASE_FILES.readme, releasedReadme(readme, { registry, home, downloads, docsUrl }, manifest.version));
}

/** What {@linkcode writeSignatures} signs, and with what. */
interface Signed {
  readonly signer: Signer;
  /** The text of the file of checksums. */
  readonly sums: string;
  readonly digests: ReleaseDigests;
  /** The provenance. */
  readonly statement: object;
}

/** Writes the signatures of the checksums, of image and chart, and the signed provenance. */
async function writeSignatures(whole: string, { signer, sums, digests, statement }: Signed): Promise<void> {
  const envelope = envelopeOf(statement, signer);
  await Deno.writeTextFile(join(whole, RELEASE_FILES.signature), signer.sign(new TextEncoder().encode(sums)));
  await Deno.writeTextFile(join(whole, RELEASE_FILES.provenance), envelope);
  await Deno.writeTextFile(join(whole, RELEASE_FILES.publicKey), signer.publicKey);
  for (const [name, digest] of Object.entries(digests)) {
    const signature = await OciLayout.create(join(whole, `${name}.sig`));
    await signature.finish(await addSignature(signature, digest, signer), cosignTag(digest, "sig"));
    const attestation = await OciLayout.create(join(whole, `${name}.att`));
    const attested = await addAttestation(attestation, envelope, PREDICATE_TYPE);
    await attestation.finish(attested, cosignTag(digest, "att"));
  }
}

/** Returns the files of a folder, without those of folders below it, in the order of their names, with their checksums. */
async function sumsOfFiles(folder: string): Promise<{ name: string; digest: { sha256: string } }[]> {
  const names = [...Deno.readDirSync(folder)].filter(({ isFile }) => isFile).map(({ name }) => name).sort();
  return await Promise.all(
    names.map(async (name) => ({ name, digest: { sha256: await sha256OfFile(join(folder, name)) } })),
  );
}

function subjectOf([name, digest]: [string, string]): Resource {
  return { name: `${name}:${manifest.version}`, digest: { sha256: digest.replace("sha256:", "") } };
}

/** Returns what is not in the commit: the runtimes, and the layers with Debian's programs. */
async function materialsOf({ platforms, plugins, nfpm }: ReleaseOptions): Promise<Resource[]> {
  const runtimes = new Map<string, Resource>();
  const add = async (target: Target, deno: string, version: string) => {
    const sum = await sha256OfFile(deno);
    const { name, purl: uri } = denoRuntime(target, sum, version);
    runtimes.set(uri, { name, uri, digest: { sha256: sum } });
  };
  for (const { arch, deno, denoVersion } of platforms) await add({ arch }, deno, denoVersion);
  for (const { target, deno, denoVersion } of plugins) {
    if (deno !== undefined) await add(target, deno, denoVersion);
  }
  const { name, purl: uri } = denortRuntime();
  const isCompiled = platforms.some(({ isCompiled }) => isCompiled) || plugins.some(({ deno }) => deno === undefined);
  const layers = platforms.map(async ({ arch, system }) => ({
    name: `Debian for ${PLATFORM_NAMES[arch]}`,
    digest: { sha256: await sha256OfFile(system) },
  }));
  const packager = { name: "nfpm", uri: `pkg:golang/github.com/goreleaser/nfpm/v2@v${nfpm}` };
  return [
    ...runtimes.values(),
    ...(isCompiled ? [{ name, uri }] : []),
    ...(nfpm === undefined ? [] : [packager]),
    ...await Promise.all(layers),
  ];
}
