import { Enums, Models, Serialize, SPDX, Spec } from "@cyclonedx/cyclonedx-library";
import { join } from "@std/path";
import { asArray, asObject, asString } from "../base/json.ts";
import manifest from "../deno.json" with { type: "json" };
import { run } from "./process.ts";
import type { Runtime } from "./runtime.ts";
import { configFlags, LOCK_FILES, type StandardLibrary } from "./standard_library.ts";
import { defined } from "../base/defined.ts";

/** A package of npm or JSR in the driver. */
export interface Package {
  /** With its scope, if it has one. */
  readonly name: string;
  readonly version: string;
  /** Its package URL. */
  readonly purl: string;
  /** Checksum in the lock file: algorithm and hexadecimal. */
  readonly checksum: readonly [Enums.HashAlgorithm, string];
  /** Licence, if it names any. */
  readonly license: string | undefined;
  /** Keys of its own dependencies. */
  readonly dependencies: readonly string[];
}

/** Packages by their keys in the lock file, with the keys of those that the driver imports. */
export interface Packages {
  readonly roots: readonly string[];
  readonly packages: ReadonlyMap<string, Package>;
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
 * Returns the packages that the driver imports, and their dependencies. The bundler removes unused code. Which packages
 * remain is not known, so all are listed.
 *
 * @throws {Error} when the graph of the driver's modules or the lock file cannot be read
 */
export async function driverPackages(std: StandardLibrary = "npm"): Promise<Packages> {
  const graphs = await Promise.all(ENTRIES.map(async (entry) => {
    const args = ["info", "--json", ...configFlags(std), entry];
    const info = await run(`read what ${entry} imports`, Deno.execPath(), args, { cwd: ROOT });
    return asObject(JSON.parse(info));
  }));
  const lock = asObject(JSON.parse(await Deno.readTextFile(join(ROOT, LOCK_FILES[std]))));
  const [npm, jsr] = [await npmPackages(graphs, asObject(lock.npm)), jsrPackages(graphs, lock)];
  return { roots: [...npm.roots, ...jsr.roots], packages: new Map([...npm.packages, ...jsr.packages]) };
}

/** Returns the packages of npm in graphs of modules. */
async function npmPackages(
  graphs: readonly Record<string, unknown>[],
  locked: Record<string, unknown>,
): Promise<Packages> {
  const known = Object.assign({}, ...graphs.map((graph) => asObject(graph.npmPackages)));
  const npmModules = graphs.flatMap((graph) => asArray(graph.modules)).map(asObject).filter(({ kind }) =>
    kind === "npm"
  );
  const roots = [...new Set(npmModules.map(({ npmPackage }) => asString(npmPackage)))];
  const packages = new Map<string, Package>();
  for (const pending = [...roots]; pending.length > 0;) {
    const key = pending.pop()!;
    if (packages.has(key)) continue;
    const [name, version, localPath] = ["name", "version", "localPath"].map((field) =>
      asString(asObject(known[key])[field])
    );
    const { license } = asObject(JSON.parse(await Deno.readTextFile(join(localPath!, "package.json"))));
    const sha512 = asString(asObject(locked[key]).integrity).replace(/^sha512-/, "");
    const found: Package = {
      ...{ name: name!, version: version!, purl: `pkg:npm/${name!.replace("@", "%40")}@${version}` },
      checksum: [Enums.HashAlgorithm["SHA-512"], Uint8Array.fromBase64(sha512).toHex()],
      license: typeof license === "string" ? license : undefined,
      dependencies: asArray(asObject(known[key]).dependencies).map(asString),
    };
    packages.set(key, found);
    pending.push(...found.dependencies);
  }
  return { roots, packages };
}

/**
 * Returns the packages of JSR in graphs of modules, which are those of the standard library: its licence is MIT. JSR has no
 * package URLs. The checksum is that of the list of a package's files, so the URL leads there.
 */
function jsrPackages(graphs: readonly Record<string, unknown>[], lock: Record<string, unknown>): Packages {
  // key by what is required, such as @std/path@1
  const resolved = Object.assign({}, ...graphs.map((graph) => asObject(graph.packages ?? {}))) as Record<
    string,
    string
  >;
  const keyOf = (dependency: string) => {
    const required = dependency.replace(/^jsr:/, ""); // without a version if there is one only
    return resolved[required] ?? Object.values(resolved).find((key) => key.startsWith(`${required}@`))!;
  };
  const packages = new Map(
    Object.values(resolved).map((key) => {
      const { integrity, dependencies = [] } = asObject(asObject(lock.jsr)[key]);
      const [, name, version] = /^(.+)@([^@]+)$/.exec(key)!;
      const url = encodeURIComponent(`https://jsr.io/${name}/${version}_meta.json`);
      const found: Package = {
        ...{ name: name!, version: version!, license: "MIT" },
        purl: `pkg:generic/${name!.replace("@", "%40")}@${version}?download_url=${url}`,
        checksum: [Enums.HashAlgorithm["SHA-256"], asString(integrity)],
        dependencies: asArray(dependencies).map(asString).map(keyOf),
      };
      return [key, found];
    }),
  );
  const imported = asArray(asObject(lock.workspace).dependencies).map(asString);
  const roots = Object.entries(resolved).filter(([required]) => imported.includes(`jsr:${required}`));
  return { roots: [...new Set(roots.map(([, key]) => key))], packages };
}

/** What {@linkcode driverPackages} returned: a release asks for several documents. */
const packagesBy = new Map<StandardLibrary, Promise<Packages>>();

/** What an artifact consists of, beside the driver and its runtime. */
export interface SbomOptions {
  /** The Debian packages beside the driver, in an image. */
  readonly debian?: readonly DebianPackage[];
  /** Where the standard library in it is from; npm by default. */
  readonly std?: StandardLibrary;
}

/**
 * Returns the software bill of materials of the artifact, as a CycloneDX document: the packages of the driver, and the
 * runtime. It has neither a date nor a serial number, so the same content gives the same document.
 *
 * @throws {Error} when the driver's packages cannot be determined
 */
export async function sbom(runtime: Runtime, { debian = [], std = "npm" }: SbomOptions = {}): Promise<string> {
  const { roots, packages } = await packagesBy.getOrInsertComputed(std, driverPackages);
  const components = new Map([...packages].map(([key, found]) => [key, packageComponent(found)]));
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

function packageComponent({ name, version, purl, checksum, license }: Package): Models.Component {
  const [, group, base] = /^(?:(@[^/]+)\/)?(.+)$/.exec(name)!;
  return new Models.Component(Enums.ComponentType.Library, base!, {
    ...defined({ group }),
    version,
    purl,
    bomRef: purl,
    hashes: new Models.HashDictionary([checksum]),
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
