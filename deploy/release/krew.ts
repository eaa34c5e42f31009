/**
 * The manifest of the kubectl plugin for krew (krew's documents, plugin-manifest).
 *
 * @module
 */

import { stringify } from "@std/yaml";
import manifest from "../../deno.json" with { type: "json" };
import { PLUGIN } from "../../plugin/subcommands.ts";
import type { PluginArchive } from "../plugin_archive.ts";
import { PLATFORM_NAMES } from "../runtime.ts";

/** An archive with its checksum, in hexadecimal. */
export interface SummedArchive extends PluginArchive {
  readonly sha256: string;
}

/** Where krew and its users find the plugin. */
export interface KrewAddresses {
  /** Address of the folder with the archives. */
  readonly downloads: string;
  readonly home?: string | undefined;
  readonly docsUrl?: string | undefined;
}

/**
 * Returns the manifest, or undefined where krew can start none of the archives: on Windows, it links the program under a
 * name that ends with .exe, which a script cannot have.
 */
export function krewManifest(
  archives: readonly SummedArchive[],
  { downloads, home, docsUrl }: KrewAddresses,
): string | undefined {
  const startable = archives.filter(({ program }) => !program.endsWith(".cmd"));
  if (startable.length === 0) return undefined;
  const [, shortDescription] = /^[^:]*: (.*)$/.exec(PLUGIN.summary)!;
  return stringify({
    apiVersion: "krew.googlecontainertools.github.com/v1alpha2",
    kind: "Plugin",
    metadata: { name: "denolith" },
    spec: {
      version: `v${manifest.version}`,
      ...(home === undefined ? {} : { homepage: home }),
      shortDescription: "See and repair what denolith has in a cluster",
      description: `Shows ${shortDescription}.\n`,
      ...(docsUrl === undefined ? {} : { caveats: `Its documents: ${docsUrl}/guides/kubectl-plugin.md\n` }),
      platforms: startable.map(({ system, arch, name, program, sha256 }) => ({
        selector: { matchLabels: { os: system, arch: PLATFORM_NAMES[arch] } },
        uri: `${downloads}/${name}`,
        sha256,
        bin: program,
      })),
    },
  }, { lineWidth: -1 });
}
