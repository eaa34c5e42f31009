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
import type { ChangeKind, ChangelogEntry } from "./changelog.ts";
import { type Descriptor, gzip, type OciLayout } from "./oci.ts";

/** The chart's description of itself, Chart.yaml. */
export interface ChartMetadata {
  readonly name: string;
  readonly version: string;
  readonly description: string;
  readonly home?: string;
  readonly annotations: Readonly<Record<string, string>>;
}

/** Artifact Hub's names of the kinds of changes. */
const HUB_KINDS: Readonly<Record<ChangeKind, string>> = {
  Added: "added",
  Changed: "changed",
  Deprecated: "deprecated",
  Removed: "removed",
  Fixed: "fixed",
  Security: "security",
};

/**
 * Reads Chart.yaml, with the changes of the version as an annotation (Artifact Hub, annotations).
 *
 * @param home address of the documents, if they have one
 */
export async function chartMetadata({ changes }: ChangelogEntry, home?: string): Promise<ChartMetadata> {
  const file = parse(await Deno.readTextFile(join(CHART, "Chart.yaml"))) as ChartMetadata;
  const metadata = { ...file, ...defined({ home }) };
  const list = [...changes].flatMap(([kind, text]) =>
    listItems(text).map((description) => ({ kind: HUB_KINDS[kind], description }))
  );
  if (list.length === 0) return metadata;
  const annotations = { ...metadata.annotations, "artifacthub.io/changes": stringify(list, { lineWidth: -1 }) };
  return { ...metadata, annotations };
}

/** Returns the items of a Markdown list, each as one line. */
function listItems(text: string): string[] {
  return [...text.matchAll(/^- (.*(?:\n {2}.*)*)/gm)].map(([, item]) => item!.replace(/\s+/g, " "));
}

/** Returns a text of the chart with the address of the documents as `docsUrl`, and before their paths. */
export function withDocsUrl(text: string, url: string): string {
  return text.replace(/^docsUrl: ""$/m, `docsUrl: ${url}`).replace(/(?<![\w/.])docs\/(?=[a-z])/g, `${url}/`);
}

/**
 * Packs the chart into a file, as `helm package` does. The same chart gives the same file.
 *
 * @param temp a folder for what is made on the way
 */
export async function packChart(metadata: ChartMetadata, temp: string, output: string): Promise<void> {
  const folder = join(temp, metadata.name);
  await run("copy the chart", "cp", ["-r", CHART, folder]);
  await Deno.writeTextFile(join(folder, "Chart.yaml"), stringify({ ...metadata }, { lineWidth: -1 }));
  for (const name of ["README.md", "values.yaml"]) {
    const path = join(folder, name);
    if (metadata.home !== undefined) {
      await Deno.writeTextFile(path, withDocsUrl(await Deno.readTextFile(path), metadata.home));
    }
  }
  const tar = join(temp, "chart.tar");
  await makeTar(temp, tar, { names: [metadata.name], options: ["--mode=u=rwX,go=rX"] }); // whatever the umask
  await gzip(tar, output);
  await Deno.remove(tar);
  await Deno.remove(folder, { recursive: true });
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
    },
  });
}
