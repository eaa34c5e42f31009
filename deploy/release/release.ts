/**
 * What a release consists of, and how its parts are made.
 *
 * @module
 */

import { join } from "@std/path";
import { defined } from "../../base/defined.ts";
import manifest from "../../deno.json" with { type: "json" };
import { bundleDriver, bundlePlugin } from "../bundle.ts";
import { makeTar } from "../process.ts";
import { type Architecture, denortRuntime, denoRuntime, PLATFORM_NAMES } from "../runtime.ts";
import { sbom } from "../sbom.ts";
import { sha256OfFile } from "../self_extracting.ts";
import type { ChangelogEntry } from "./changelog.ts";
import { addChart, chartMetadata, packChart } from "./chart_package.ts";
import { addImage, debianPackages, imageAnnotations } from "./image.ts";
import { gzip, OciLayout } from "./oci.ts";
import { PREDICATE_TYPE, provenance, type Resource } from "./provenance.ts";
import { addAttestation, addSignature, cosignTag, envelopeOf, Signer } from "./sign.ts";
import type { Source } from "./source.ts";
import { ignoreNotFound } from "../tool.ts";
import { ARTIFACT_FILES, writeInstalledFiles, writePrograms } from "../artifact.ts";

/** Names of the files and folders of a release that do not depend on version and architecture. */
export const RELEASE_FILES = {
  image: "image",
  chart: "chart",
  digests: "digests.json",
  sums: "SHA256SUMS",
  signature: "SHA256SUMS.sig",
  provenance: "provenance.intoto.json",
  publicKey: "denolith.pub",
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

/** Settings of {@linkcode makeRelease}. */
export interface ReleaseOptions {
  /** The folder to make; an older one is replaced. */
  readonly folder: string;
  readonly platforms: readonly Platform[];
  readonly source: Source;
  readonly changes: ChangelogEntry;
  /** The private key in PEM; without it there are neither signatures nor provenance. */
  readonly key?: string;
  /** Address of the documents of this version. */
  readonly docsUrl?: string;
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
    const digests = {
      image: await writeImage(options, parts, whole),
      chart: await writeChart(options, parts, whole),
    };
    await Deno.writeTextFile(join(whole, RELEASE_FILES.digests), JSON.stringify(digests, null, 2) + "\n");
    const files = await sumsOfFiles(whole);
    const sums = files.map(({ name, digest }) => `${digest.sha256}  ${name}\n`).join("");
    await Deno.writeTextFile(join(whole, RELEASE_FILES.sums), sums);
    if (signer !== undefined) {
      log("release: signatures and provenance");
      const subjects = [...files, ...Object.entries(digests).map(subjectOf)];
      const statement = provenance({
        ...{ version: manifest.version, source: options.source, builder: options.builder, startedOn, subjects },
        ...defined({ docsUrl: options.docsUrl }),
        architectures: options.platforms.map(({ arch }) => PLATFORM_NAMES[arch]),
        materials: await materialsOf(options.platforms),
        finishedOn: new Date(),
      });
      await writeSignatures(whole, { signer, sums, digests, statement });
    }
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
async function writeExecutables({ platforms, log }: ReleaseOptions, parts: string, whole: string): Promise<void> {
  log("release: executables");
  const modules = await bundleDriver(parts);
  const plugin = await bundlePlugin(parts);
  const { version } = manifest;
  for (const { arch, deno, denoVersion, isCompiled, system } of platforms) {
    const name = `denolith-${version}-linux-${PLATFORM_NAMES[arch]}`;
    const output = { program: join(whole, name), plugin: join(whole, `kubectl-${name}`) };
    const binary = isCompiled ? undefined : { path: deno, version: denoVersion };
    const runtime = await writePrograms({ arch, modules, plugin, output, deno: binary });
    await Deno.writeTextFile(join(whole, `${name}.cdx.json`), await sbom(runtime));
    const ofImage = denoRuntime(arch, await sha256OfFile(deno), denoVersion);
    const imageSbom = await sbom(ofImage, await debianPackages(system));
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
  const { time: created } = options.source;
  const images = [];
  for (const { arch, deno, system } of options.platforms) {
    options.log(`release: image for ${PLATFORM_NAMES[arch]}`);
    images.push(await addImage(layout, { arch, deno, system, created }, parts));
  }
  const index = await layout.addIndex(images, imageAnnotations(created));
  await layout.finish(index, manifest.version);
  return index.digest;
}

/** Writes the chart as a file and as a layout. @returns its digest */
async function writeChart(options: ReleaseOptions, parts: string, whole: string): Promise<string> {
  options.log("release: chart");
  const metadata = await chartMetadata(options.changes, options.docsUrl);
  const file = join(whole, `${metadata.name}-${metadata.version}.tgz`);
  await packChart(metadata, parts, file);
  const layout = await OciLayout.create(join(whole, RELEASE_FILES.chart));
  const entry = await addChart(layout, file, { metadata, created: options.source.time });
  await layout.finish(entry, metadata.version);
  return entry.digest;
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
async function materialsOf(platforms: readonly Platform[]): Promise<Resource[]> {
  return (await Promise.all(platforms.map(async ({ arch, deno, denoVersion, isCompiled, system }) => {
    const sum = await sha256OfFile(deno);
    const { name, purl: uri } = denoRuntime(arch, sum, denoVersion);
    const { name: compiled, purl } = denortRuntime();
    return [
      { name, uri, digest: { sha256: sum } },
      ...(isCompiled ? [{ name: compiled, uri: purl }] : []),
      { name: `Debian for ${PLATFORM_NAMES[arch]}`, digest: { sha256: await sha256OfFile(system) } },
    ];
  }))).flat();
}
