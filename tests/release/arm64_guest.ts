/**
 * A virtual machine for arm64, emulated in software by qemu: Debian's kernel, and the packages that the executable needs.
 *
 * @module
 */

import { join } from "@std/path";
import { cacheKey, ensureCached } from "../rig/cache.ts";
import { debianMirror, ensureTools } from "../rig/debian.ts";
import { run } from "../rig/process.ts";
import { timedLog } from "../rig/progress.ts";
import { TempFolder } from "../rig/temp_folder.ts";

/** The Debian packages of the guest, beside those that they depend on. */
const PACKAGES = [
  ...["linux-image-cloud-arm64", "busybox-static", "dash", "coreutils", "findutils", "libgcc-s1"],
  ...["lvm2", "mount", "util-linux", "udev", "e2fsprogs"],
];

const RELEASE = "bookworm";

/** To be raised when the way in which the guest is put together changes. */
const FORMAT = 1;

/** Time limit of a guest, in milliseconds. It boots in less than a minute, and starts Deno in some ten seconds. Others may use this machine. */
const TIMEOUT_MS = 20 * 60_000;

/** The first program of the guest: it runs /test.sh, prints its exit status, and ends the machine. */
const INIT = `#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /var/cache /etc/lvm
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox hostname arm64
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
/bin/sh /test.sh </dev/null 2>&1
echo "exit status $?"
/bin/busybox sync
/bin/busybox poweroff -f
`;

/**
 * Runs a script in a guest.
 *
 * @param script text of a shell script
 * @param files paths on this machine, by their paths in the guest
 * @param log called with each line that the guest prints, and with what is done before
 * @returns what the guest printed
 * @throws {Error} when the guest cannot be made, or the script fails
 */
export async function runArm64Guest(
  script: string,
  files: Readonly<Record<string, string>>,
  log: (line: string) => void,
): Promise<string> {
  await ensureTools([
    { program: "qemu-system-aarch64", packages: ["qemu-system-arm"] },
    { program: "cpio", packages: ["cpio"] },
  ], log);
  const name = `arm64-guest-${await cacheKey(JSON.stringify([FORMAT, RELEASE, PACKAGES]))}`;
  const guest = await ensureCached(name, log, (temp, into) => fetchGuest(temp, into, timedLog(log)));
  await using temp = await TempFolder.create("/tmp", "denolith-arm64-");
  const added = temp.file("added");
  await Deno.mkdir(added);
  await Deno.writeTextFile(join(added, "init"), INIT, { mode: 0o755 });
  await Deno.writeTextFile(join(added, "test.sh"), script);
  for (const [path, from] of Object.entries(files)) {
    await Deno.mkdir(join(added, path, ".."), { recursive: true });
    await Deno.copyFile(from, join(added, path));
    await Deno.chmod(join(added, path), 0o755);
  }
  // the kernel unpacks several archives over one another
  const initrd = temp.file("initrd");
  const pack =
    `(cd "$1" && find . | cpio -o -H newc --quiet) > "$3" && (cd "$2" && find . | cpio -o -H newc --quiet) >> "$3"`;
  await run("make the initial file system", "sh", ["-c", pack, "pack", join(guest, "root"), added, initrd], {
    guardedBy: temp,
  });
  const machine = ["-machine", "virt", "-accel", "tcg", "-cpu", "cortex-a72", "-smp", "2", "-m", "3072"];
  const output: string[] = [];
  await run("run the guest", "timeout", [
    ...[String(TIMEOUT_MS / 1000), "qemu-system-aarch64", ...machine, "-nographic", "-no-reboot", "-nic", "none"],
    ...["-kernel", join(guest, "vmlinuz"), "-initrd", initrd],
    ...["-append", "console=ttyAMA0 quiet panic=-1 rdinit=/init"],
  ], {
    guardedBy: temp,
    onLine: (line) => {
      output.push(line);
      log(`arm64 | ${line}`);
    },
  });
  const text = output.join("\n");
  if (!/^exit status 0\r?$/m.test(text)) throw new Error(`run the guest: its script failed:\n${text.slice(-2000)}`);
  return text;
}

/** Fetches the packages by apt with lists of its own, and unpacks them. Nothing in them is started. */
async function fetchGuest(temp: TempFolder, into: string, step: (line: string) => void): Promise<void> {
  const mirror = await debianMirror();
  if (mirror === undefined) throw new Error("find Debian's packages: apt has no mirror");
  const packages = temp.file("packages");
  for (const folder of ["state/lists/partial", "cache/archives/partial"]) {
    await Deno.mkdir(join(packages, folder), { recursive: true });
  }
  await Deno.writeTextFile(join(packages, "state/status"), "");
  await Deno.writeTextFile(join(packages, "sources.list"), `deb [arch=arm64] ${mirror} ${RELEASE} main\n`);
  const settings = {
    "Dir::Etc::SourceList": join(packages, "sources.list"),
    "Dir::Etc::SourceParts": "/dev/null",
    "Dir::State": join(packages, "state"),
    "Dir::State::status": join(packages, "state/status"),
    "Dir::Cache": join(packages, "cache"),
    "APT::Architecture": "arm64",
    "APT::Architectures": "arm64",
    "APT::Install-Recommends": "false",
    "APT::Sandbox::User": "root",
    "Acquire::Languages": "none",
  };
  const options = ["-qq", ...Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`])];
  const apt = (action: string, args: string[]) =>
    run(action, "apt-get", [...options, ...args], { cwd: packages, guardedBy: temp });
  step("arm64 guest: fetching Debian's packages, once");
  await apt("read the package lists for arm64", ["update"]);
  await apt("fetch packages for arm64", ["install", "--yes", "--download-only", ...PACKAGES]);
  const root = join(into, "root");
  // as in Debian since /usr was merged: dpkg-deb follows these links
  for (const name of ["bin", "sbin", "lib"]) {
    await Deno.mkdir(join(root, "usr", name), { recursive: true });
    await Deno.symlink(`usr/${name}`, join(root, name));
  }
  step("arm64 guest: unpacking them");
  const archives = join(packages, "cache/archives");
  for (const { name } of [...Deno.readDirSync(archives)].filter(({ name }) => name.endsWith(".deb"))) {
    // not dpkg-deb -x, which puts folders in the places of links
    const unpack = `dpkg-deb --fsys-tarfile "$1" | tar -C "$2" --keep-directory-symlink -xf -`;
    await run(`unpack ${name}`, "sh", ["-c", unpack, "unpack", join(archives, name), root], { guardedBy: temp });
  }
  const [kernel] = [...Deno.readDirSync(join(root, "boot"))].filter(({ name }) => name.startsWith("vmlinuz-"));
  if (kernel === undefined) throw new Error("unpack the packages for arm64: there is no kernel");
  await Deno.rename(join(root, "boot", kernel.name), join(into, "vmlinuz"));
  // large, and not needed
  for (const name of ["boot", "usr/lib/modules", "usr/share/doc", "usr/share/locale", "usr/share/man"]) {
    await Deno.remove(join(root, name), { recursive: true }).catch(() => {});
  }
}
