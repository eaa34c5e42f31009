/**
 * Where the code's `@std/…` comes from: npm's package `deno-std`, for networks that reach no other registry, or JSR, where the
 * authors of Deno publish it. Each has a lock file.
 *
 * deno.jsr.json and deno.jsr.lock are made of deno.json and deno.lock by `deno task reference`. Only what JSR has stands in
 * deno.jsr.lock alone.
 *
 * @module
 */

import { join } from "@std/path";
import { asObject } from "../base/json.ts";
import manifest from "../deno.json" with { type: "json" };

/** Where `@std/…` can come from. */
export const STANDARD_LIBRARIES = ["npm", "jsr"] as const;

/** One of {@linkcode STANDARD_LIBRARIES}. */
export type StandardLibrary = typeof STANDARD_LIBRARIES[number];

/** The lock files, from the root of the checkout. */
export const LOCK_FILES = { npm: "deno.lock", jsr: "deno.jsr.lock" } as const satisfies Record<StandardLibrary, string>;

const ROOT = new URL("..", import.meta.url).pathname;

/** The configuration of Deno for JSR. */
const JSR_CONFIG = "deno.jsr.json";

/** Returns the flags with which Deno, in the root of the checkout, takes `@std/…` from there. */
export function configFlags(std: StandardLibrary): string[] {
  return std === "jsr" ? ["--config", JSR_CONFIG] : [];
}

/** Returns the files for JSR as they must be: their text, by their path from the root. */
export function jsrFiles(): Map<string, string> {
  const imports = jsrImports(manifest.imports);
  const { nodeModulesDir, unstable } = manifest;
  const lock = { path: `./${LOCK_FILES.jsr}`, frozen: true };
  const [npm, jsr] = [LOCK_FILES.npm, LOCK_FILES.jsr].map((name) =>
    asObject(JSON.parse(Deno.readTextFileSync(join(ROOT, name))))
  );
  return new Map([
    [JSR_CONFIG, textOf({ lock, nodeModulesDir, unstable, imports })],
    [LOCK_FILES.jsr, textOf(jsrLock(npm!, jsr!, imports))],
  ]);
}

/** Returns an import map with `@std/…` from JSR. */
export function jsrImports(imports: Readonly<Record<string, string>>): Record<string, string> {
  const targetOf = (specifier: string, target: string) =>
    specifier.startsWith("@std/") ? specifier.replace(/^@std\/[^/]+/, "jsr:$&@^1") : target;
  return Object.fromEntries(
    Object.entries(imports).map(([specifier, target]) => [specifier, targetOf(specifier, target)]),
  );
}

/**
 * Returns the lock file for JSR: what it has of JSR, and what the one for npm has beside `deno-std`. Deno accepts more than
 * it needs, so that the packages of npm are those of the other one.
 */
export function jsrLock(
  npm: Readonly<Record<string, unknown>>,
  jsr: Readonly<Record<string, unknown>>,
  imports: Readonly<Record<string, string>>,
): object {
  const isOurs = ([key]: [string, unknown]) => !/^(?:npm:)?deno-std@/.test(key);
  const specifiers = [
    ...Object.entries(asObject(jsr.specifiers)).filter(([specifier]) => specifier.startsWith("jsr:")),
    ...Object.entries(asObject(npm.specifiers)).filter(isOurs),
  ];
  return {
    version: npm.version,
    specifiers: Object.fromEntries(specifiers),
    jsr: jsr.jsr,
    npm: Object.fromEntries(Object.entries(asObject(npm.npm)).filter(isOurs)),
    workspace: { dependencies: dependenciesOf(imports) },
  };
}

/** Returns the packages of an import map, as a lock file names them. */
function dependenciesOf(imports: Readonly<Record<string, string>>): string[] {
  const packages = Object.values(imports).flatMap((target) =>
    /^((?:npm|jsr):)\/?((?:@[^/]+\/)?[^/]+)/.exec(target)?.slice(1).join("").replace("@^1", "@1") ?? []
  );
  return [...new Set(packages)].sort();
}

function textOf(value: object): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}
