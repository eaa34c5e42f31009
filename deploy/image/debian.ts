/**
 * Debian's packages for any architecture, fetched by apt and unpacked side by side. None of their programs is started,
 * so that this takes neither root nor a machine of that architecture.
 *
 * @module
 */

import { join } from "@std/path";
import { requireProgram, run } from "../process.ts";
import { type Architecture, PLATFORM_NAMES } from "../runtime.ts";

/** A source of packages: an address, and a release there. */
export interface Mirror {
  readonly address: string;
  readonly release: string;
}

/** Packages that are unpacked in a folder. */
export interface UnpackedDebian {
  /** The folder that is their root. `/bin`, `/sbin` and `/lib` are links into `/usr`, as on every machine with Debian. */
  readonly root: string;
  /** The package of each file, by its path below `/usr` where the root has a link. */
  readonly owners: ReadonlyMap<string, string>;
  /** What dpkg's list says of each package. */
  readonly status: ReadonlyMap<string, string>;
}

/** The folders that are links into `/usr`. */
export const MERGED_FOLDERS = ["bin", "sbin", "lib", "lib64"] as const;

/** The keys by which apt knows Debian, where this machine may trust others as well. */
const DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg";

/** Files that a package makes of others when it is installed, with those that it makes them of. */
const CONFIGURED: Readonly<Record<string, { readonly from: string; readonly owner: string }>> = {
  "/etc/passwd": { from: "/usr/share/base-passwd/passwd.master", owner: "base-passwd" },
  "/etc/group": { from: "/usr/share/base-passwd/group.master", owner: "base-passwd" },
  "/etc/nsswitch.conf": { from: "/usr/share/libc-bin/nsswitch.conf", owner: "libc-bin" },
};

/**
 * Fetches packages with all that they depend on, and unpacks them.
 *
 * @param folder an empty folder for all of it
 * @throws {Error} when apt-get or dpkg-deb is missing or fails
 */
export async function unpackDebian(
  packages: readonly string[],
  { arch, release, folder }: { arch: Architecture; release: string; folder: string },
): Promise<UnpackedDebian> {
  for (const program of ["apt-get", "dpkg-deb"]) await requireProgram("fetch Debian's packages", program);
  const archives = await fetchPackages(packages, { arch, mirrors: await debianMirrors(release), folder });
  const root = join(folder, "root");
  for (const name of MERGED_FOLDERS) {
    await Deno.mkdir(join(root, "usr", name), { recursive: true });
    await Deno.symlink(`usr/${name}`, join(root, name));
  }
  const [owners, status] = [new Map<string, string>(), new Map<string, string>()];
  for (const archive of archives) {
    const { name, text } = await readControl(archive);
    status.set(name, text);
    for (const path of await unpack(archive, root)) owners.set(path, name);
  }
  for (const [path, { from, owner }] of Object.entries(CONFIGURED)) {
    if (!status.has(owner)) continue;
    await Deno.copyFile(join(root, from), join(root, path));
    owners.set(path, owner);
  }
  return { root, owners, status };
}

/**
 * Returns the sources of a release: those of apt's configuration on this machine, by which it may be another release
 * of Debian, or Debian's own where it has none.
 */
export async function debianMirrors(release: string): Promise<Mirror[]> {
  const format = "$(REPO_URI) $(COMPONENT)";
  const query = ["indextargets", "--no-release-info", "--format", format, "Created-By: Packages"];
  return mirrorsFrom(await run("read apt's sources", "apt-get", query).catch(() => ""), release);
}

/** Returns the sources of a release from apt's lines "address component". */
export function mirrorsFrom(targets: string, release: string): Mirror[] {
  const addresses = targets.split("\n").map((line) => line.split(" "))
    .filter(([, component]) => component === "main").map(([address]) => address!.replace(/\/$/, ""));
  const debian = addresses.find((address) => /^https?:.*\/debian$/.test(address)) ?? "http://deb.debian.org/debian";
  const security = addresses.find((address) => /^https?:.*\/debian-security$/.test(address)) ?? `${debian}-security`;
  return [{ address: debian, release }, { address: security, release: `${release}-security` }];
}

/** Fetches packages by apt with lists and settings of its own. @returns the paths of the archives, sorted */
async function fetchPackages(
  packages: readonly string[],
  { arch, mirrors, folder }: { arch: Architecture; mirrors: readonly Mirror[]; folder: string },
): Promise<string[]> {
  const architecture = PLATFORM_NAMES[arch];
  const path = (name: string) => join(folder, name);
  for (const name of ["state/lists/partial", "cache/archives/partial"]) {
    await Deno.mkdir(path(name), { recursive: true });
  }
  const keys = await Deno.stat(DEBIAN_KEYS).then(() => ` signed-by=${DEBIAN_KEYS}`, () => "");
  const sources = mirrors.map(({ address, release }) =>
    `deb [arch=${architecture}${keys}] ${address} ${release} main\n`
  );
  await Deno.writeTextFile(path("state/status"), "");
  await Deno.writeTextFile(path("sources.list"), sources.join(""));
  const settings = {
    "Dir::Etc::SourceList": path("sources.list"),
    "Dir::Etc::SourceParts": "/dev/null",
    "Dir::Etc::Preferences": "/dev/null",
    "Dir::Etc::PreferencesParts": "/dev/null",
    "Dir::State": path("state"),
    "Dir::State::status": path("state/status"),
    "Dir::Cache": path("cache"),
    "APT::Architecture": architecture,
    "APT::Architectures": architecture,
    "APT::Install-Recommends": "false",
    "APT::Sandbox::User": "", // the folder is this user's alone
    "Acquire::Languages": "none",
    "Debug::NoLocking": "true",
  };
  const options = ["-qq", ...Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`])];
  await run("read Debian's package lists", "apt-get", [...options, "update"]);
  const install = ["install", "--yes", "--download-only", ...packages];
  await run("fetch Debian's packages", "apt-get", [...options, ...install]);
  const archives = path("cache/archives");
  const names = [...Deno.readDirSync(archives)].map(({ name }) => name).filter((name) => name.endsWith(".deb"));
  return names.sort().map((name) => join(archives, name));
}

/** Returns a package's name, and its part of dpkg's list. */
async function readControl(archive: string): Promise<{ name: string; text: string }> {
  const control = await run(`read ${archive}`, "dpkg-deb", ["--field", archive]);
  const name = /^Package: (.*)$/m.exec(control)?.[1];
  if (name === undefined) throw new Error(`read ${archive}: it has no name`);
  return { name, text: control.trimEnd().replace(/^(Package: .*)$/m, "$1\nStatus: install ok installed") };
}

/** Unpacks an archive over a root. @returns the paths of its files and links */
async function unpack(archive: string, root: string): Promise<string[]> {
  const tar = `${root}.tar`;
  const file = await Deno.open(tar, { create: true, write: true, truncate: true });
  // not `dpkg-deb --extract`, which puts folders in the places of links
  const { stdout, status } = new Deno.Command("dpkg-deb", {
    args: ["--fsys-tarfile", archive],
    stdin: "null",
    stdout: "piped",
  }).spawn();
  await stdout.pipeTo(file.writable);
  if (!(await status).success) throw new Error(`unpack ${archive}: dpkg-deb failed`);
  const names = await run(`list ${archive}`, "tar", ["-tf", tar]);
  const options = ["--keep-directory-symlink", "--no-same-owner", "--preserve-permissions"];
  await run(`unpack ${archive}`, "tar", ["-C", root, ...options, "-xf", tar]);
  await Deno.remove(tar);
  return names.split("\n").filter((name) => name !== "" && !name.endsWith("/")).map((name) =>
    mergedPath(name.slice(1))
  );
}

/** Returns where a path of a package is, since `/bin` and the like are links. */
export function mergedPath(path: string): string {
  return MERGED_FOLDERS.some((name) => path.startsWith(`/${name}/`)) ? `/usr${path}` : path;
}
