import { join } from "@std/path";
import { ensureTools, refreshPackageLists } from "./debian.ts";
import { run, type RunOptions } from "./process.ts";
import type { TempFolder } from "./temp_folder.ts";

/** The version of Go to fetch when this machine has none that is recent enough. */
const FETCHED_VERSION = "1.26.8";

/** From this version on, 1.x, Go fetches by itself the newer Go that a module asks for. */
const MIN_SELF_UPDATING_MINOR = 21;

/** Go's names of the machines that it is fetched for. */
const ARCHITECTURES = { x86_64: "amd64", aarch64: "arm64" } as const;

/** A Go that builds modules written for the latest Go. */
export interface GoToolchain {
  /** The go program, as a path or as a name on the search path. */
  go: string;
  /** Variables to run it with: what it fetches and makes stays in the temporary folder. */
  env: Record<string, string>;
}

/**
 * This machine's Go if it is new enough, and otherwise one that is unpacked into `temp`, installed nowhere: Debian's Go, too
 * old itself, fetches a current one as a Go module, checked against Go's checksum database.
 *
 * @throws {Error} when there is neither a Go nor a Debian to take one from
 */
export async function goToolchain(temp: TempFolder, log: (line: string) => void): Promise<GoToolchain> {
  await ensureTools([{ program: "update-ca-certificates", packages: ["ca-certificates"] }], log);
  const env = {
    CGO_ENABLED: "0",
    GOCACHE: temp.file("go-build"),
    GOFLAGS: "-modcacherw -trimpath",
    GOPATH: temp.file("go"),
    GOTOOLCHAIN: "auto",
  };
  if (await minorVersion("go") >= MIN_SELF_UPDATING_MINOR) return { go: "go", env };
  log(
    `no Go 1.${MIN_SELF_UPDATING_MINOR} or newer on this machine: fetching Go ${FETCHED_VERSION} by way of Debian's Go (about 130 MB)`,
  );
  const debian = await unpackDebianGo(temp).catch((cause) => {
    throw new Error(`get a Go: ${cause.message}\nInstall Go 1.${MIN_SELF_UPDATING_MINOR} or newer by hand`, { cause });
  });
  const go = await fetchGo(temp, debian, env);
  return { go, env };
}

/** Returns the x of Go's version 1.x, or 0 when there is none. */
async function minorVersion(go: string): Promise<number> {
  const version = await run("ask for the version of Go", go, ["version"]).catch(() => "");
  return Number(/\bgo1\.(\d+)/.exec(version)?.[1] ?? 0);
}

/** Unpacks Debian's current Go and answers the path of its go program. */
async function unpackDebianGo(temp: TempFolder): Promise<string> {
  const options: RunOptions = { cwd: temp.path, guardedBy: temp };
  const [name, version] = await debianGoPackage(options);
  await run(`download ${name}`, "apt-get", ["-qq", "-o", "APT::Sandbox::User=root", "download", name], options);
  for await (const entry of Deno.readDir(temp.path)) {
    if (entry.name.endsWith(".deb")) await run(`unpack ${name}`, "dpkg", ["-x", entry.name, "debian-go"], options);
  }
  return temp.file(`debian-go/usr/lib/go-${version}/bin/go`);
}

/** Returns the name of the package with Debian's current Go, and its version. */
async function debianGoPackage(options: RunOptions): Promise<[string, string]> {
  const readDepends = () => run("look for Debian's Go", "apt-cache", ["depends", "golang-go"], options).catch(() => "");
  // A bare machine has no package lists yet.
  const depends = await readDepends() || await refreshPackageLists().then(readDepends);
  const [, name, version] = /Depends: (golang-([\d.]+)-go)\b/.exec(depends) ?? [];
  if (!name || !version) throw new Error("look for Debian's Go: apt's sources have no package golang-go");
  return [name, version];
}

/** Lets an older Go fetch the current one, and answers the path of its go program. */
async function fetchGo(temp: TempFolder, olderGo: string, env: Record<string, string>): Promise<string> {
  const architecture = ARCHITECTURES[Deno.build.arch];
  const module = `golang.org/toolchain@v0.0.1-go${FETCHED_VERSION}.linux-${architecture}`;
  const options: RunOptions = {
    cwd: temp.path,
    env: { ...env, GOROOT: join(olderGo, "../.."), GOTOOLCHAIN: "local" },
    guardedBy: temp,
  };
  await run(`fetch Go ${FETCHED_VERSION}`, olderGo, ["mod", "download", module], options);
  const root = join(temp.file("go"), "pkg/mod", module);
  // Module archives carry no execute bits; Go sets them as well when it fetches itself.
  await run("make Go executable", "chmod", ["-R", "a+x", join(root, "bin"), join(root, "pkg/tool")], options);
  return join(root, "bin/go");
}
