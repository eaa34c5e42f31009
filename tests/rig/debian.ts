import { join } from "@std/path";
import { cacheFolder } from "./cache.ts";
import { hasProgram, run } from "./process.ts";

/** Debian's releases by the names that sources use, without the -updates, -security and -backports beside them. */
const RELEASES = /^(bullseye|bookworm|trixie|forky|sid|oldoldstable|oldstable|stable|testing|unstable)$/;

/** A program and the Debian packages that bring it. */
export interface Tool {
  program: string;
  packages: readonly string[];
}

/**
 * Sees to it that programs are there, by apt-get where they are missing.
 *
 * @throws {Error} naming the packages, when one is missing and this user or machine cannot install it
 */
export async function ensureTools(tools: readonly Tool[], log: (line: string) => void): Promise<void> {
  const packages: string[] = [];
  for (const tool of tools) {
    if (!(await hasProgram(tool.program))) packages.push(...tool.packages);
  }
  if (packages.length === 0) return;
  const names = packages.join(" ");
  if (!(await hasProgram("apt-get"))) {
    throw new Error(`install ${names}: this machine has no apt-get; install these Debian packages' programs by hand`);
  }
  if (Deno.uid() !== 0) {
    throw new Error(`install ${names}: only root may; run: sudo apt-get install ${names}`);
  }
  log(`installing Debian packages: ${names}`);
  await refreshPackageLists();
  const install = [...APT_OPTIONS, "-y", "install", "--no-install-recommends", ...packages];
  await run(`install ${names}`, "apt-get", install);
}

/**
 * Fetches apt's current package lists. apt-get waits for others that install packages, and not for others that fetch lists:
 * guests that start together would fail on a new machine.
 *
 * @throws {Error} when not run as root, or when a mirror does not answer
 */
export async function refreshPackageLists(): Promise<void> {
  await Deno.mkdir(cacheFolder(), { recursive: true });
  using lock = await Deno.open(join(cacheFolder(), "package-lists.lock"), { create: true, write: true });
  await lock.lock(true);
  await run("refresh apt's package lists", "apt-get", [...APT_OPTIONS, "update"]);
}

/** Options of apt-get: few words, and others' runs are waited for. */
const APT_OPTIONS = ["-qq", "-o", "DPkg::Lock::Timeout=300"];

/**
 * Returns the Debian mirror of this machine's apt configuration, or undefined when it has none. It asks apt, so that
 * both file formats, disabled entries and included folders are read as apt reads them.
 */
export async function debianMirror(): Promise<string | undefined> {
  const format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
  const query = ["indextargets", "--no-release-info", "--format", format, "Created-By: Packages"];
  return mirrorFrom(await run("read apt's sources", "apt-get", query));
}

/** Returns the first address that serves the main part of a Debian release, from lines "address release component". */
export function mirrorFrom(targets: string): string | undefined {
  for (const line of targets.split("\n")) {
    const [address, release, component] = line.split(" ");
    if (component !== "main" || !RELEASES.test(release ?? "")) continue;
    if (address?.startsWith("http://") || address?.startsWith("https://")) return address;
  }
  return undefined;
}
