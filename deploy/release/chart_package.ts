/**
 * The chart as a package: a file for `helm install`, and an OCI artifact for `helm install oci://…`.
 *
 * @module
 */

import { join } from "@std/path";
import { parse, stringify } from "@std/yaml";
import { defined } from "../../base/defined.ts";
import { CHART } from "../chart.ts";
import { makeTar, run } from "../process.ts";
import { type Architecture, PLATFORM_NAMES } from "../runtime.ts";
import { type Addresses, REPOSITORIES } from "./addresses.ts";
import type { ChangeKind, ChangelogEntry } from "./changelog.ts";
import { type Descriptor, gzip, type OciLayout } from "./oci.ts";

/** The chart's description of itself, Chart.yaml. */
export interface ChartMetadata {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly home?: string;
  readonly sources?: readonly string[];
  readonly maintainers: readonly { readonly name: string; readonly url?: string }[];
  readonly icon: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** What is known of a release when its chart is packed. */
export interface ChartFacts {
  readonly changes: ChangelogEntry;
  readonly addresses: Addresses;
  /** The digest of the image. */
  readonly image: string;
  readonly architectures: readonly Architecture[];
  /** Whether there is a manifest for krew. */
  readonly hasKrewManifest: boolean;
}

/** Names of the files of a release that the chart names. */
export const CHART_LINKS = { icon: "icon.svg", krew: "krew.yaml", publicKey: "denolith.pub" } as const;

/** Artifact Hub's names of the kinds of changes. */
const HUB_KINDS: Readonly<Record<ChangeKind, string>> = {
  Added: "added",
  Changed: "changed",
  Deprecated: "deprecated",
  Removed: "removed",
  Fixed: "fixed",
  Security: "security",
};

/** Reads Chart.yaml, with what is known of the release, also for Artifact Hub (Helm annotations). */
export async function chartMetadata(facts: ChartFacts): Promise<ChartMetadata> {
  const file = parse(await Deno.readTextFile(join(CHART, "Chart.yaml"))) as ChartMetadata;
  const { home = facts.addresses.docsUrl, downloads } = facts.addresses;
  return {
    ...file,
    ...defined({ home, icon: downloads && `${downloads}/${CHART_LINKS.icon}` }),
    ...(facts.addresses.home === undefined ? {} : { sources: [facts.addresses.home] }),
    maintainers: file.maintainers.map((maintainer) => ({ ...maintainer, ...defined({ url: facts.addresses.home }) })),
    annotations: { ...file.annotations, ...hubAnnotations(facts, file.version) },
  };
}

/** Returns what Artifact Hub shows of a version. */
function hubAnnotations(
  { changes: { changes }, addresses, image, architectures }: ChartFacts,
  version: string,
): Record<string, string> {
  const { registry, downloads, docsUrl } = addresses;
  const listed = [...changes].flatMap(([kind, text]) =>
    listItems(text).map((description) => ({ kind: HUB_KINDS[kind], description }))
  );
  const images = registry && [{
    name: "denolith",
    image: `${registry}/${REPOSITORIES.image}:${version}@${image}`,
    platforms: architectures.map((arch) => `linux/${PLATFORM_NAMES[arch]}`),
  }];
  const publicKey = downloads && `${downloads}/${CHART_LINKS.publicKey}`;
  const links = [["Documents", docsUrl], ["Files", downloads], ["Public key of the signatures", publicKey]];
  const known = {
    changes: listed,
    images,
    links: links.flatMap(([name, url]) => url ? [{ name, url }] : []),
  };
  return {
    "artifacthub.io/prerelease": String(version.includes("-")),
    "artifacthub.io/containsSecurityUpdates": String(changes.has("Security")),
    ...Object.fromEntries(
      Object.entries(known).filter(([, value]) => value && Object.keys(value).length > 0)
        .map(([name, value]) => [`artifacthub.io/${name}`, stringify(value, { lineWidth: -1 })]),
    ),
  };
}

/** Returns the items of a Markdown list, each as one line. */
function listItems(text: string): string[] {
  return [...text.matchAll(/^- (.*(?:\n {2}.*)*)/gm)].map(([, item]) => item!.replace(/\s+/g, " "));
}

/** Returns the values that a release gives the chart other defaults of. */
export function releaseValues({ addresses: { registry, docsUrl }, image }: Pick<ChartFacts, "addresses" | "image">) {
  return {
    ...defined({ docsUrl }),
    ...(registry && { image: { repository: `${registry}/${REPOSITORIES.image}`, digest: image } }),
  };
}

/** Returns the text of a file of the chart with the addresses of the release in the places of names and empty values. */
function withAddresses(file: string, text: string, { addresses, image, hasKrewManifest }: ChartFacts): string {
  const { registry, home, docsUrl, downloads } = addresses;
  let written = text;
  if (docsUrl !== undefined) {
    written = written.replace(/^docsUrl: ""$/m, `docsUrl: ${docsUrl}`)
      .replace(/(?<![\w/.])docs\/(?=[a-z])/g, `${docsUrl}/`);
  }
  if (home !== undefined) written = written.replace("the source repository", `[the source repository](${home})`);
  if (registry !== undefined) {
    const repository = `${registry}/${REPOSITORIES.image}`;
    written = written.replaceAll("oci://REGISTRY", `oci://${registry}`).replace(/ --set image\.repository=\S+/g, "")
      .replace(/^ {2}repository: denolith$/m, `  repository: ${repository}`)
      .replace(/^ {2}digest: ""$/m, `  digest: ${image}`)
      .replace(/^(\| `image\.repository` .*\| `")denolith/m, `$1${repository}`)
      .replace(/^(\| `image\.digest` .*\| `")(?="`)/m, `$1${image}`);
  }
  if (file === "templates/NOTES.txt" && downloads !== undefined && hasKrewManifest) {
    const command = `kubectl krew install --manifest-url ${downloads}/${CHART_LINKS.krew}`;
    written = `${written.trimEnd()}\n\nTo see what the driver has, install the plugin of kubectl:\n\n  ${command}\n`;
  }
  return written;
}

/**
 * Packs the chart into a file, as `helm package` does. The same chart gives the same file.
 *
 * @param temp a folder for what is made on the way
 */
export async function packChart(facts: ChartFacts, temp: string, output: string): Promise<ChartMetadata> {
  const metadata = await chartMetadata(facts);
  const folder = join(temp, metadata.name);
  await run("copy the chart", "cp", ["-r", CHART, folder]);
  await Deno.writeTextFile(join(folder, "Chart.yaml"), stringify({ ...metadata }, { lineWidth: -1 }));
  for (const name of ["README.md", "values.yaml", "templates/NOTES.txt"]) {
    const path = join(folder, name);
    await Deno.writeTextFile(path, withAddresses(name, await Deno.readTextFile(path), facts));
  }
  const tar = join(temp, "chart.tar");
  await makeTar(temp, tar, { names: [metadata.name], options: ["--mode=u=rwX,go=rX"] }); // whatever the umask
  await gzip(tar, output);
  await Deno.remove(tar);
  await Deno.remove(folder, { recursive: true });
  return metadata;
}

/**
 * Returns the index of a repository for `helm repo add` that has this chart alone.
 *
 * @param sha256 checksum of the packed chart, in hexadecimal
 * @param url its address
 * @param created time of the commit (RFC 3339)
 */
export function chartIndex(
  metadata: ChartMetadata,
  { sha256, url, created }: { readonly sha256: string; readonly url: string; readonly created: string },
): string {
  const entry = { ...metadata, created, digest: sha256, urls: [url] };
  const index = { apiVersion: "v1", entries: { [metadata.name]: [entry] }, generated: created };
  return stringify(index, { lineWidth: -1 });
}

/**
 * Adds a packed chart to a layout, in the form of Helm (HIP 6).
 *
 * @param created time of the commit (RFC 3339)
 */
export async function addChart(
  layout: OciLayout,
  path: string,
  { metadata, created }: { readonly metadata: ChartMetadata; readonly created: string },
): Promise<Descriptor> {
  return await layout.addManifest({
    config: await layout.add({ ...metadata }, "application/vnd.cncf.helm.config.v1+json"),
    layers: [await layout.addFile(path, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")],
    annotations: {
      ...metadata.annotations,
      "org.opencontainers.image.title": metadata.name,
      "org.opencontainers.image.version": metadata.version,
      "org.opencontainers.image.description": metadata.description,
      "org.opencontainers.image.created": created,
      ...defined({ "org.opencontainers.image.source": metadata.sources?.[0] }),
    },
  });
}
