import { join } from "@std/path";
import initrdInit from "./guest/initrd_init.sh" with { type: "text" };
import makeInitrd from "./guest/make_initrd.sh" with { type: "text" };
import { cacheFolder, cacheKey, ensureCached, removeUnused } from "./cache.ts";
import { debianMirror, ensureTools, type Tool } from "./debian.ts";
import { run } from "./process.ts";
import { timedLog, withProgress } from "./progress.ts";
import type { TempFolder } from "./temp_folder.ts";

/** A built guest: what a machine needs to boot it. All paths are absolute; the files are never written to again. */
export interface GuestImage {
  /** The folder that holds them. */
  folder: string;
  /** The kernel of qemu, Debian's cloud flavour. */
  kernel: string;
  /** The first root file system of qemu: disk drivers and busybox. */
  initrd: string;
  /** The root disk, ext4, sparse. */
  root: string;
}

/** The releases of Debian that a guest can have, by their names, oldest first. */
export const DEBIAN_RELEASES = ["bookworm", "trixie"] as const;

/** A release of Debian: `bookworm` is 12, `trixie` is 13. They differ in the versions of LVM and of all other tools. */
export type DebianRelease = typeof DEBIAN_RELEASES[number];

/** To be raised when the way in which an image is put together changes. */
const IMAGE_FORMAT = 1;

const ROOT_SIZE = "4G";

const PACKAGES = [
  ...[
    "linux-image-cloud-amd64",
    "kmod",
    "udev",
    "util-linux",
    "procps",
    "busybox-static",
    "diffutils",
    "ca-certificates",
  ],
  ...["lvm2", "dmsetup", "thin-provisioning-tools", "cryptsetup-bin", "e2fsprogs", "xfsprogs", "btrfs-progs"],
  ...["iproute2", "ipvsadm", "containerd", "runc", "containernetworking-plugins"],
];

const UNUSED_DAYS = 30;

/** Programs that making disks takes, each time. */
const DISK_TOOLS: Tool[] = [{ program: "mkfs.ext4", packages: ["e2fsprogs"] }];

/** Programs that building takes, once. */
const BUILD_TOOLS: Tool[] = [
  { program: "debootstrap", packages: ["debootstrap"] },
  { program: "unshare", packages: ["util-linux"] },
];

/**
 * Returns the guest image of this version of the rig. It is built on first use, in about a minute and a half, and kept
 * in the cache folder. Packages that are missing on this machine are installed. Images of other versions that were
 * unused for a month are removed.
 *
 * @param log receives a line for each step, with the seconds since the start
 * @param release the Debian of the guest
 * @throws {Error} when a tool is missing and cannot be installed, when not run as root on first use, or when a step fails
 */
export async function ensureGuestImage(
  log: (line: string) => void,
  release: DebianRelease = "bookworm",
): Promise<GuestImage> {
  await ensureTools(DISK_TOOLS, log);
  const name = `guest-${await imageKey(release)}`;
  const folder = await ensureCached(name, log, (temp, into) => build(temp, into, release, log));
  return {
    folder,
    kernel: join(folder, "vmlinuz"),
    initrd: join(folder, "initrd.gz"),
    root: join(folder, "root.img"),
  };
}

/** Returns the key of what an image is made of. */
function imageKey(release: DebianRelease): Promise<string> {
  return cacheKey(JSON.stringify([IMAGE_FORMAT, release, ROOT_SIZE, PACKAGES, initrdInit, makeInitrd]));
}

async function build(
  temp: TempFolder,
  into: string,
  release: DebianRelease,
  log: (line: string) => void,
): Promise<void> {
  const step = timedLog(log);
  log(`guest image: building it, once, in ${cacheFolder()} (one to two minutes)`);
  checkMachine();
  await ensureTools(BUILD_TOOLS, step);
  const system = temp.file("system");
  await unpackDebian(temp, system, release, step);
  step("initrd and settings");
  await configure(temp, system);
  await Deno.rename(join(system, "initrd.gz"), join(into, "initrd.gz"));
  await moveKernel(system, join(into, "vmlinuz"));
  step("root disk");
  await pruneSystem(system);
  const root = join(into, "root.img");
  const mkfs = ["-q", "-d", system, "-O", "^has_journal", "-m", "0", "-L", "root", root, ROOT_SIZE];
  await run("make the guest's root disk", "mkfs.ext4", mkfs, { guardedBy: temp });
  for (const old of await removeUnused("guest-", UNUSED_DAYS)) step(`removed ${old}, unused for ${UNUSED_DAYS} days`);
  step("guest image: done");
}

function checkMachine(): void {
  if (Deno.build.arch !== "x86_64") {
    throw new Error(
      `build the guest image: this machine is ${Deno.build.arch}; the guest's Debian needs an x86_64 machine`,
    );
  }
  if (Deno.uid() !== 0) {
    throw new Error("build the guest image: debootstrap needs root; run it once as root with the same XDG_CACHE_HOME");
  }
}

/** Unpacks and sets up Debian in `system`, telling `step` every few seconds how far it is. */
async function unpackDebian(
  temp: TempFolder,
  system: string,
  release: DebianRelease,
  step: (text: string) => void,
): Promise<void> {
  const mirror = await debianMirror();
  step(`Debian ${release} by debootstrap from ${mirror ?? "its default mirror"}`);
  const counts = { Retrieving: new Set<string>(), Unpacking: new Set<string>(), Configuring: new Set<string>() };
  const state = () =>
    `packages: ${counts.Retrieving.size} fetched, ${counts.Unpacking.size} unpacked, ` +
    `${counts.Configuring.size} configured`;
  const debootstrap = ["debootstrap", "--variant=minbase", `--include=${PACKAGES.join(",")}`, release, system];
  if (mirror) debootstrap.push(mirror);
  await withProgress(step, state, () =>
    run("unpack Debian for the guest", "unshare", [...NAMESPACES, ...debootstrap], {
      env: { INITRD: "No" }, // the kernel package would take 15 s to make an initrd that nobody boots
      guardedBy: temp,
      onLine: (line) => {
        const [, what, name] = /^I: (Retrieving|Unpacking|Configuring) (\S+)/.exec(line) ?? [];
        if (what && name) counts[what as keyof typeof counts].add(name);
      },
    }));
}

/** Namespaces of its own for a program: its mounts and processes are gone when it is, however it ends. */
const NAMESPACES = ["--mount", "--pid", "--fork", "--kill-child"];

/** Makes the initrd and sets the few files of the system that the guest needs otherwise. */
async function configure(temp: TempFolder, system: string): Promise<void> {
  await Deno.writeTextFile(join(system, "initrd_init"), initrdInit);
  await Deno.writeTextFile(join(system, "make_initrd"), makeInitrd);
  const script = [...NAMESPACES, "chroot", system, "/bin/sh", "/make_initrd"];
  await run("make the guest's initrd", "unshare", script, { guardedBy: temp });
  await Deno.mkdir(join(system, "work"));
  await Deno.writeTextFile(join(system, "etc/hostname"), "guest\n");
  await Deno.writeTextFile(join(system, "etc/hosts"), "127.0.0.1 localhost guest\n::1 localhost\n");
  // The host's name server is of no use in the guest, which has nothing to look up.
  await Deno.writeTextFile(join(system, "etc/resolv.conf"), "");
}

async function moveKernel(system: string, to: string): Promise<void> {
  for await (const entry of Deno.readDir(join(system, "boot"))) {
    if (!entry.name.startsWith("vmlinuz-")) continue;
    await Deno.rename(join(system, "boot", entry.name), to);
    return;
  }
  throw new Error(
    "build the guest image: the kernel package left no /boot/vmlinuz-*; see whether its name has changed",
  );
}

/** The files that {@linkcode configure} puts into the system to make the initrd. */
const INITRD_BUILD_FILES = ["initrd", "initrd_init", "make_initrd"];

/** Removes what the guest never reads. */
async function pruneSystem(system: string): Promise<void> {
  for (const path of ["boot", "vmlinuz", "vmlinuz.old", "var/cache/apt", "var/lib/apt/lists", ...INITRD_BUILD_FILES]) {
    await Deno.remove(join(system, path), { recursive: true });
  }
}
