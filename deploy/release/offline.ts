/**
 * What a cluster without a way to the internet needs of a release, in one archive: image, chart, plugin, documents, checksums, and
 * a guide.
 *
 * @module
 */

import { join } from "@std/path";
import manifest from "../../deno.json" with { type: "json" };
import { makeTar, run } from "../process.ts";
import { fillPlaceholders } from "../self_extracting.ts";
import { type Addresses, REPOSITORIES } from "./addresses.ts";
import { gzip } from "./oci.ts";
import guide from "./offline.md" with { type: "text" };

const ROOT = new URL("../..", import.meta.url).pathname;

const { version } = manifest;

/** Names of the files. */
export const OFFLINE_FILES = {
  guide: "OFFLINE.md",
  docs: `denolith-${version}-docs.tar.gz`,
  bundle: `denolith-${version}-offline.tar`,
  script: "publish.sh",
} as const;

/** The files of a release that hosts and other clusters need: they are not in the archive. */
const NOT_OFFLINE =
  /^(?:denolith-.*-(?:linux-.*|share\.tar\.gz|offline\.tar)|index\.yaml|krew\.yaml|README\.md|icon\.svg)$/;

/** Returns the guide. Without a registry, there are no manifests, and the chart does not name the image's digest. */
export function offlineGuide({ registry }: Addresses, image: string): string {
  const values = registry === undefined
    ? { IMAGE: `docker.io/library/${REPOSITORIES.image}`, FLAGS: ` --set image.digest=${image},image.pullPolicy=Never` }
    : { IMAGE: `${registry}/${REPOSITORIES.image}`, FLAGS: "" };
  const text = registry === undefined ? guide.replace(/^.*`install\.yaml`.*\n\n?/gm, "") : guide;
  return fillPlaceholders("offline.md", text, { VERSION: version, ...values });
}

/** Writes the documents, the guide, and the script that publishes: parts of the release that have checksums. */
export async function writeOfflineParts(
  { addresses, image, temp }: { readonly addresses: Addresses; readonly image: string; readonly temp: string },
  folder: string,
): Promise<void> {
  await Deno.writeTextFile(join(folder, OFFLINE_FILES.guide), offlineGuide(addresses, image));
  await Deno.copyFile(join(ROOT, "deploy/release/publish.sh"), join(folder, OFFLINE_FILES.script));
  await Deno.chmod(join(folder, OFFLINE_FILES.script), 0o755); // whatever the umask
  const files = await run("list the documents", "git", [
    "ls-files",
    "docs",
    "deploy/examples",
    ":(glob)*.md",
    "LICENSE",
  ], {
    cwd: ROOT,
  });
  const tar = join(temp, "docs.tar");
  const options = ["--mode=u=rwX,go=rX", `--transform=s,^,denolith-${version}/,`];
  await makeTar(ROOT, tar, { names: files.trim().split("\n"), options });
  await gzip(tar, join(folder, OFFLINE_FILES.docs));
  await Deno.remove(tar);
}

/** Writes the archive, of a release that is whole but for it. */
export async function writeOfflineBundle(folder: string): Promise<void> {
  const names = [...Deno.readDirSync(folder)].map(({ name }) => name).filter((name) => !NOT_OFFLINE.test(name)).sort();
  const options = ["--mode=u=rwX,go=rX", `--transform=s,^,denolith-${version}/,`];
  await makeTar(folder, join(folder, OFFLINE_FILES.bundle), { names, options });
}
