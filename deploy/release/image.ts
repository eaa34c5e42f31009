/**
 * The container image of a release: an index of one image for each architecture.
 *
 * @module
 */

import { driverLayer, IMAGE_LABELS, imageConfig } from "../image/archive.ts";
import { run } from "../process.ts";
import { type Architecture, PLATFORM_NAMES } from "../runtime.ts";
import type { DebianPackage } from "../sbom.ts";
import { sha256OfFile } from "../self_extracting.ts";
import type { StandardLibrary } from "../standard_library.ts";
import { type Descriptor, OCI_TYPES, type OciLayout } from "./oci.ts";

/** What the image for an architecture is made of. */
export interface ImageParts {
  readonly arch: Architecture;
  /** Path of the deno binary. */
  readonly deno: string;
  /** Path of the layer with Debian's programs, a tar file. */
  readonly system: string;
  /** Where the standard library comes from. */
  readonly std: StandardLibrary;
  /** Time of the commit (RFC 3339). */
  readonly created: string;
}

/** Returns the annotations of the image's manifests. */
export function imageAnnotations(created: string): Record<string, string> {
  return { ...IMAGE_LABELS, "org.opencontainers.image.created": created };
}

/**
 * Adds the image for an architecture to a layout.
 *
 * @param temp a folder for what is made on the way; images of the same driver may share it
 * @returns its entry in the index of the image
 */
export async function addImage(layout: OciLayout, parts: ImageParts, temp: string): Promise<Descriptor> {
  const { arch, deno, system, std, created } = parts;
  const tars = [system, await driverLayer(temp, deno, std)];
  const sums = await Promise.all(tars.map(sha256OfFile));
  const config = await layout.add(imageConfig(sums, arch, created), OCI_TYPES.config);
  const layers: Descriptor[] = [];
  for (const tar of tars) layers.push(await layout.addLayer(tar));
  const entry = await layout.addManifest({ config, layers, annotations: imageAnnotations(created) });
  return { ...entry, platform: { architecture: PLATFORM_NAMES[arch], os: "linux" } };
}

/** Returns the Debian packages of a layer, of which something is in it. @throws {Error} when the layer has no list of them */
export async function debianPackages(system: string): Promise<DebianPackage[]> {
  const action = `read the packages of ${system}`;
  const status = await run(action, "tar", ["-xOf", system, "./var/lib/dpkg/status"]);
  const packages = status.split("\n\n").filter((part) => part.trim() !== "").map((part) => {
    const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(part)?.[1];
    const [name, version, architecture] = [field("Package"), field("Version"), field("Architecture")];
    if (name === undefined || version === undefined || architecture === undefined) {
      throw new Error(`${action}: a package without name, version or architecture`);
    }
    return { name, version, architecture };
  });
  if (packages.length === 0) throw new Error(`${action}: there are none`);
  return packages;
}
