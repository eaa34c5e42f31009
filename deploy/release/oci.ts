/**
 * OCI image layouts: folders of blobs under their checksums, which skopeo, crane and oras push to a registry.
 *
 * Source of the forms: the OCI image specification 1.1, image-layout.md, manifest.md and image-index.md.
 *
 * @module
 */

import { createGzip } from "node:zlib";
import { createReadStream, createWriteStream } from "node:fs";
import { pipeline } from "node:stream/promises";
import { join } from "@std/path";
import { sha256, sha256OfFile } from "../self_extracting.ts";

/** Media types of OCI. */
export const OCI_TYPES = {
  index: "application/vnd.oci.image.index.v1+json",
  manifest: "application/vnd.oci.image.manifest.v1+json",
  config: "application/vnd.oci.image.config.v1+json",
  layer: "application/vnd.oci.image.layer.v1.tar+gzip",
} as const;

/** A reference to a blob of a layout (descriptor.md). */
export interface Descriptor {
  readonly mediaType: string;
  /** `sha256:` and hexadecimal. */
  readonly digest: string;
  /** Size in bytes. */
  readonly size: number;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly platform?: { readonly architecture: string; readonly os: string };
}

/** The parts of an image's or an artifact's manifest. */
export interface ManifestParts {
  readonly config: Descriptor;
  readonly layers: readonly Descriptor[];
  readonly annotations?: Readonly<Record<string, string>>;
}

/** A layout that is being written. The same blobs give the same files. */
export class OciLayout {
  readonly #folder: string;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  /** Starts a layout in a folder, which must not exist. @throws {Error} when it exists */
  static async create(folder: string): Promise<OciLayout> {
    await Deno.mkdir(folder);
    await Deno.mkdir(join(folder, "blobs/sha256"), { recursive: true });
    await Deno.writeTextFile(join(folder, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
    return new OciLayout(folder);
  }

  /** Adds a text, or an object as JSON. */
  async add(content: string | object, mediaType: string): Promise<Descriptor> {
    const bytes = new TextEncoder().encode(typeof content === "string" ? content : JSON.stringify(content));
    const sum = sha256(bytes);
    await Deno.writeFile(this.#blob(sum), bytes);
    return { mediaType, digest: `sha256:${sum}`, size: bytes.length };
  }

  /** Adds a file by copying it. */
  async addFile(path: string, mediaType: string): Promise<Descriptor> {
    const sum = await sha256OfFile(path);
    await Deno.copyFile(path, this.#blob(sum));
    return { mediaType, digest: `sha256:${sum}`, size: (await Deno.stat(path)).size };
  }

  /** Adds a tar file as a compressed layer. The header of gzip has no time and no name. */
  async addLayer(tar: string): Promise<Descriptor> {
    const packed = join(this.#folder, "packed");
    await gzip(tar, packed);
    const descriptor = await this.addFile(packed, OCI_TYPES.layer);
    await Deno.remove(packed);
    return descriptor;
  }

  /** Adds a manifest. */
  addManifest({ config, layers, annotations }: ManifestParts): Promise<Descriptor> {
    const manifest = { schemaVersion: 2, mediaType: OCI_TYPES.manifest, config, layers };
    return this.add(annotations === undefined ? manifest : { ...manifest, annotations }, OCI_TYPES.manifest);
  }

  /** Adds an index of the manifests of several platforms. */
  addIndex(manifests: readonly Descriptor[], annotations: Readonly<Record<string, string>>): Promise<Descriptor> {
    return this.add({ schemaVersion: 2, mediaType: OCI_TYPES.index, manifests, annotations }, OCI_TYPES.index);
  }

  /** Completes the layout with its one entry, under a tag. crane pushes a layout of one entry as that entry. */
  async finish(entry: Descriptor, tag: string): Promise<void> {
    const annotations = { "org.opencontainers.image.ref.name": tag };
    const index = { schemaVersion: 2, mediaType: OCI_TYPES.index, manifests: [{ ...entry, annotations }] };
    await Deno.writeTextFile(join(this.#folder, "index.json"), JSON.stringify(index));
  }

  #blob(sum: string): string {
    return join(this.#folder, "blobs/sha256", sum);
  }
}

/** Compresses a file. The same content gives the same file, since gzip's header has neither a time nor a name. */
export async function gzip(from: string, to: string): Promise<void> {
  await pipeline(createReadStream(from), createGzip({ level: 6 }), createWriteStream(to));
}
