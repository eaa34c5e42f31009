import { Enums, Models, Serialize, SPDX, Spec } from "@cyclonedx/cyclonedx-library";
import { join } from "@std/path";
import { asArray, asObject, asString } from "../lvm/json.ts";
import manifest from "../deno.json" with { type: "json" };
import { run } from "./process.ts";
import type { Runtime } from "./runtime.ts";

/** An npm package that the driver is made of. */
export interface NpmPackage {
  readonly name: string;
  readonly version: string;
  /** The checksum in deno.lock: `sha512-` and base64. */
  readonly integrity: string;
  /** The licence that its package.json names, if it does. */
  readonly license: string | undefined;
  /** The keys of the packages that it asks for itself. */
  readonly dependencies: readonly string[];
}

/** The root of the checkout. */
const ROOT = new URL("..", import.meta.url).pathname;

/**
 * The npm packages that a module of this checkout imports, and those that they ask for, by their keys in deno.lock. Bundling
 * leaves out what is not used of them; what is left of which package is not known, so all are named.
 *
 * @throws {Error} when the module's graph or deno.lock cannot be read
 */
export async function npmPackages(entry: string): Promise<{ roots: string[]; packages: Map<string, NpmPackage> }> {
  const info = await run(`read what ${entry} imports`, Deno.execPath(), ["info", "--json", entry], { cwd: ROOT });
  const graph = asObject(JSON.parse(info));
  const known = asObject(graph.npmPackages);
  const locked = asObject(asObject(JSON.parse(await Deno.readTextFile(join(ROOT, "deno.lock")))).npm);
  const npmModules = asArray(graph.modules).map(asObject).filter(({ kind }) => kind === "npm");
  const roots = [...new Set(npmModules.map(({ npmPackage }) => asString(npmPackage)))];
  const packages = new Map<string, NpmPackage>();
  for (const pending = [...roots]; pending.length > 0;) {
    const key = pending.pop()!;
    if (packages.has(key)) continue;
    const { name, version, localPath, dependencies } = asObject(known[key]);
    const { license } = asObject(JSON.parse(await Deno.readTextFile(join(asString(localPath), "package.json"))));
    const found = {
      name: asString(name),
      version: asString(version),
      integrity: asString(asObject(locked[key]).integrity),
      license: typeof license === "string" ? license : undefined,
      dependencies: asArray(dependencies).map(asString),
    };
    packages.set(key, found);
    pending.push(...found.dependencies);
  }
  return { roots, packages };
}

/**
 * What the artifact is made of, as a CycloneDX document: the npm packages of the driver, and the runtime. It has neither a date
 * nor a number of its own, so that the same content makes the same document.
 *
 * @throws {Error} when the driver's packages cannot be found out
 */
export async function sbom(runtime: Runtime): Promise<string> {
  const { roots, packages } = await npmPackages("main.ts");
  const components = new Map([...packages].map(([key, found]) => [key, npmComponent(found)]));
  for (const [key, { dependencies }] of packages) addDependencies(components.get(key)!, dependencies, components);
  const driver = new Models.Component(Enums.ComponentType.Application, "denolith", {
    version: manifest.version,
    bomRef: `denolith@${manifest.version}`,
    licenses: licensesOf(manifest.license),
  });
  addDependencies(driver, roots, components);
  const platform = runtimeComponent(runtime);
  driver.dependencies.add(platform.bomRef);
  const bom = new Models.Bom({ metadata: new Models.Metadata({ component: driver }) });
  for (const component of [...components.values(), platform]) bom.components.add(component);
  const normalizers = new Serialize.JSON.Normalize.Factory(Spec.Spec1dot6);
  return new Serialize.JsonSerializer(normalizers).serialize(bom, { sortLists: true, space: 2 }) + "\n";
}

function npmComponent({ name, version, integrity, license }: NpmPackage): Models.Component {
  const [, group, base] = /^(?:(@[^/]+)\/)?(.+)$/.exec(name)!;
  const purl = `pkg:npm/${group === undefined ? "" : `${encodeURIComponent(group)}/`}${base}@${version}`;
  return new Models.Component(Enums.ComponentType.Library, base!, {
    ...(group === undefined ? {} : { group }),
    version,
    purl,
    bomRef: purl,
    hashes: new Models.HashDictionary([[Enums.HashAlgorithm["SHA-512"], hexadecimal(integrity)]]),
    licenses: licensesOf(license),
  });
}

function runtimeComponent({ name, version, purl, sha256 }: Runtime): Models.Component {
  return new Models.Component(Enums.ComponentType.Platform, name, {
    version,
    purl,
    bomRef: purl,
    ...(sha256 === undefined ? {} : { hashes: new Models.HashDictionary([[Enums.HashAlgorithm["SHA-256"], sha256]]) }),
    licenses: licensesOf("MIT"),
  });
}

function addDependencies(
  component: Models.Component,
  keys: readonly string[],
  components: ReadonlyMap<string, Models.Component>,
): void {
  for (const key of keys) component.dependencies.add(components.get(key)!.bomRef);
}

/** A package.json names its licence by SPDX's id, by an expression of ids, or in words of its own. */
function licensesOf(license: string | undefined): Models.LicenseRepository {
  if (license === undefined) return new Models.LicenseRepository();
  if (SPDX.isSupportedSpdxId(license)) return new Models.LicenseRepository([new Models.SpdxLicense(license)]);
  const isExpression = / (?:AND|OR|WITH) /.test(license);
  return new Models.LicenseRepository([
    isExpression ? new Models.LicenseExpression(license) : new Models.NamedLicense(license),
  ]);
}

function hexadecimal(integrity: string): string {
  return Uint8Array.fromBase64(integrity.replace(/^sha512-/, "")).toHex();
}
