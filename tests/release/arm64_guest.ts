/**
 * A virtual machine for arm64, emulated in software by qemu: Debian's kernel, and the packages that the executable needs.
 *
 * @module
 */

import { join } from "@std/path";
import { cacheKey, ensureCached } from "../rig/cache.ts";
import { unpackDebian } from "../../deploy/image/debian.ts";
import { DEBIAN_RELEASE } from "../../deploy/image/system.ts";
import { ensureTools } from "../rig/debian.ts";
import { run } from "../rig/process.ts";
import { timedLog } from "../rig/progress.ts";
import { TempFolder } from "../rig/temp_folder.ts";

/** The Debian packages of the guest, beside those that they depend on. */
const PACKAGES = [
  ...["linux-image-cloud-arm64", "busybox-static", "dash", "coreutils", "findutils", "libgcc-s1"],
  ...["lvm2", "mount", "util-linux", "udev", "e2fsprogs"],
];

/** To be raised when the way in which the guest is put together changes. */
const FORMAT = 2;

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
 * @param files paths of files and folders on this machine, by their paths in the guest; all may be executed
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
  const name = `arm64-guest-${await cacheKey(JSON.stringify([FORMAT, DEBIAN_RELEASE, PACKAGES]))}`;
  const guest = await ensureCached(name, log, (temp, into) => fetchGuest(temp, into, timedLog(log)));
  await using temp = await TempFolder.create("/tmp", "denolith-arm64-");
  const added = temp.file("added");
  await Deno.mkdir(added);
  await Deno.writeTextFile(join(added, "init"), INIT, { mode: 0o755 });
  await Deno.writeTextFile(join(added, "test.sh"), script);
  for (const [path, from] of Object.entries(files)) {
    await Deno.mkdir(join(added, path, ".."), { recursive: true });
    await run(`copy ${from}`, "cp", ["-a", from, join(added, path)]);
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

/** Fetches the packages and unpacks them. Nothing in them is started. */
async function fetchGuest(temp: TempFolder, into: string, step: (line: string) => void): Promise<void> {
  step("arm64 guest: fetching and unpacking Debian's packages, once");
  const folder = temp.file("packages");
  await Deno.mkdir(folder);
  const unpacked = await unpackDebian(PACKAGES, { arch: "aarch64", release: DEBIAN_RELEASE, folder });
  const root = join(into, "root");
  await Deno.rename(unpacked.root, root);
  const [kernel] = [...Deno.readDirSync(join(root, "boot"))].filter(({ name }) => name.startsWith("vmlinuz-"));
  if (kernel === undefined) throw new Error("unpack the packages for arm64: there is no kernel");
  await Deno.rename(join(root, "boot", kernel.name), join(into, "vmlinuz"));
  // large, and not needed
  for (const name of ["boot", "usr/lib/modules", "usr/share/doc", "usr/share/locale", "usr/share/man"]) {
    await Deno.remove(join(root, name), { recursive: true }).catch(() => {});
  }
}
