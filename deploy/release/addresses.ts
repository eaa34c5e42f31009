/**
 * Where a release will be found. What is known of that is written into its parts.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import manifest from "../../deno.json" with { type: "json" };
import { UsageError } from "../tool.ts";

/** The addresses of a release, as far as they are known. None ends with a slash. */
export interface Addresses {
  /** A registry of images, with a path if it has one. */
  readonly registry?: string;
  /** The page of the repository. */
  readonly home?: string;
  /** The folder with the files of the release. */
  readonly downloads?: string;
  /** The folder docs/ at this version. */
  readonly docsUrl?: string;
}

/** Where image and chart are in a registry. Helm requires that the chart's repository ends with the name of the chart. */
export const REPOSITORIES = { image: "denolith", chart: "charts/denolith" } as const;

/** Flags that name addresses, by what they name. */
const FLAGS = { registry: "registry", home: "home", downloads: "downloads", docsUrl: "docs-url" } as const;

/** Addresses that shells and templates take as they are, and that the name of a file can follow. */
const WEB = /^https?:\/\/[\w.~:@%+/-]*[\w.~:@%+-]$/;

const FORMS: Readonly<Record<keyof Addresses, readonly [RegExp, string]>> = {
  registry: [/^[a-z0-9.-]+(?::\d+)?(?:\/[a-z0-9._-]+)*$/, "a registry, such as registry.example/team"],
  home: [WEB, "a URL, without a slash at the end"],
  downloads: [WEB, "a URL, without a slash at the end"],
  docsUrl: [WEB, "a URL, without a slash at the end"],
};

/**
 * Reads the addresses of a command line. Those of files and documents that are not given are the ones of GitHub for the
 * repository.
 *
 * @throws {UsageError} when one has another form
 */
export function parseAddresses(flags: Readonly<Record<string, unknown>>): Addresses {
  const given: Partial<Record<keyof Addresses, string>> = {};
  for (const [name, flag] of Object.entries(FLAGS) as [keyof Addresses, string][]) {
    const value = flags[flag] as string | undefined;
    if (value === undefined) continue;
    const [form, words] = FORMS[name];
    if (!form.test(value)) throw new UsageError(`--${flag} ${value}: must be ${words}`);
    given[name] = value;
  }
  const { home } = given;
  const tag = `v${manifest.version}`;
  return defined({
    downloads: home && `${home}/releases/download/${tag}`,
    docsUrl: home && `${home}/blob/${tag}/docs`,
    ...given,
  });
}
