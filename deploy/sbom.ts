import { Enums, Models, Serialize, SPDX, Spec } from "@cyclonedx/cyclonedx-library";
import { join } from "@std/path";
import { asArray, asObject, asString } from "../base/json.ts";
import manifest from "../deno.json" with { type: "json" };
import { run } from "./process.ts";
import type { Runtime } from "./runtime.ts";
import { defined } from "../base/defined.ts";

/** An npm package in the driver. */
export interface NpmPackage {
  readonly name: string;
  readonly version: string;
  /** Checksum in deno.lock: `sha512-` and base64. */
  readonly integrity: string;
  /** Licence in its package.json, if any. */
  readonly license: string | undefined;
  /** Keys of its own dependencies. */
  readonly dependencies: readonly string[];
}

/** A Debian package in an image. */
export interface DebianPackage {
  readonly name: string;
  readonly version: string;
  /** Debian's name of the architecture, or `all`. */
  readonly architecture: string;
}

/** The root of the checkout. */
const ROOT = new URL("..", import.meta.url).pathname;

/** The modules that start the threads of the driver. */
export const ENTRIES = ["main.ts", "cli/worker.ts", "plugin/main.ts"] as const;

/**
 * Returns the npm packages that the driver imports, and their dependencies, by their keys in deno.lock. The bundler removes
 * unused code. Which packages remain is not known, so all are listed.
 *
 * @throws {Error} when the graph of the driver's modules or deno.lock cannot be read
 */
export async function npmPackages(): Promise<{ roots: string[]; packages: Map<string, NpmPackage> }> {
  const graphs = await Promise.all(ENTRIES.map(async (entry) => {
    const info = await run(`read what ${entry} imports`, Deno.execPath(), ["info", "--json", entry], { cwd: ROOT });
    return asObject(JSON.parse(info));
  }));
  const known = Object.assign({}, ...graphs.map((graph) => asObject(graph.npmPackages)));
  const locked = asObject(asObject(JSON.parse(await Deno.readTextFile(join(ROOT, "deno.lock")))).npm);
  const npmModules = graphs.flatMap((graph) => asArray(graph.modules)).map(asObject).filter(({ kind }) =>
    kind === "npm"
  );
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

/** What {@linkcode npmPackages} returned: a release asks for several documents. */
let driverPackages: ReturnType<typeof npmPackages> | undefined;

/**
 * Returns the software bill of materials of the artifact, as a CycloneDX document: the npm packages of the driver, and the
 * runtime. It has neither a date nor a serial number, so the same content gives the same document.
 *
 * @param debian the Debian packages beside the driver, in an image
 * @throws {Error} when the driver's packages cannot be determined
 */
export async function sbom(runtime: Runtime, debian: readonly DebianPackage[] = []): Promise<string> {
  const { roots, packages } = await (driverPackages ??= npmPackages());
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
  const system = debian.map(debianComponent);
  for (const { bomRef } of system) driver.dependencies.add(bomRef);
  const bom = new Models.Bom({ metadata: new Models.Metadata({ component: driver }) });
  for (const component of [...components.values(), platform, ...system]) bom.components.add(component);
  const normalizers = new Serialize.JSON.Normalize.Factory(Spec.Spec1dot6);
  return new Serialize.JsonSerializer(normalizers).serialize(bom, { sortLists: true, space: 2 }) + "\n";
}

function npmComponent({ name, version, integrity, license }: NpmPackage): Models.Component {
  const [, group, base] = /^(?:(@[^/]+)\/)?(.+)$/.exec(name)!;
  const purl = `pkg:npm/${group === undefined ? "" : `${encodeURIComponent(group)}/`}${base}@${version}`;
  return new Models.Component(Enums.ComponentType.Library, base!, {
    ...defined({ group }),
    version,
    purl,
    bomRef: purl,
    hashes: new Models.HashDictionary([[Enums.HashAlgorithm["SHA-512"], hexadecimal(integrity)]]),
    licenses: licensesOf(license),
  });
}

function debianComponent({ name, version, architecture }: DebianPackage): Models.Component {
  const purl = `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(version)}?arch=${architecture}`;
  return new Models.Component(Enums.ComponentType.Library, name, { version, purl, bomRef: purl });
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

/** Returns the licence in a package.json, which is an SPDX id, an SPDX expression, or free text. */
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
