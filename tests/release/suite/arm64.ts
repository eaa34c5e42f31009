/**
 * The executable and the image for arm64, with the Deno that npm has for it, in an emulated machine.
 *
 * @module
 */

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import manifest from "../../../deno.json" with { type: "json" };
import { bundle, bundleDriver, bundlePlugin } from "../../../deploy/bundle.ts";
import { driverLayer } from "../../../deploy/image/archive.ts";
import { systemLayer } from "../../../deploy/image/system.ts";
import { launchConfig } from "../../../deploy/launch.ts";
import { DENO_VERSION, fetchDeno } from "../../../deploy/runtime.ts";
import { writeSelfExtracting } from "../../../deploy/self_extracting.ts";
import { cacheFolder } from "../../rig/cache.ts";
import { run } from "../../rig/process.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { runArm64Guest } from "../arm64_guest.ts";
import { driverHelp } from "../compiled.ts";

const SCRIPT = `
set -eu
# Calls Identity of a driver that is started with a command, on the socket.
identity() {
  socket=$1
  shift
  "$@" standalone --volume-groups data &
  driver=$!
  "$deno" run -A --quiet --no-config --cached-only /test/identity_client.js "$socket"
  kill -TERM "$driver"
  wait "$driver"
}
uname -m
echo "== version"
/test/denolith version
deno=$(echo /var/cache/denolith/denolith-*/deno)
echo "== help"
/test/denolith --help
echo "== plugin"
/test/kubectl-denolith version
echo "== mistake"
/test/denolith standalon || echo "status $?"
echo "== identity"
identity /run/denolith/csi.sock /test/denolith
echo "== image"
busybox mount -t proc proc /image/proc
busybox mount -t sysfs sys /image/sys
busybox mount -t devtmpfs dev /image/dev
chroot /image /usr/bin/denolith version
echo "== programs"
for path in /image/usr/bin/* /image/usr/sbin/*; do
  case $path in */denolith) continue ;; esac
  chroot /image /lib/ld-linux-aarch64.so.1 --list "\${path#/image}" >/tmp/list || { cat /tmp/list; exit 1; }
done
chroot /image /usr/sbin/lvm version
truncate -s 64M /image/tmp/disk
chroot /image /usr/sbin/mke2fs -q -F /tmp/disk
chroot /image /usr/sbin/e2fsck -fn /tmp/disk
echo "== image's identity"
identity /image/run/denolith/csi.sock chroot /image /usr/bin/denolith
echo "== end"
`;

Deno.test("executable and image for arm64 print their version, and answer Identity", async () => {
  await using temp = await TempFolder.create("/tmp", "denolith-release-");
  const arch = "aarch64";
  const modules = await bundleDriver(temp.path);
  const plugin = await bundlePlugin(temp.path);
  const runtime = await fetchDeno({ arch }, temp.path);
  const config = launchConfig({ moduleIsFile: true });
  const program = temp.file("denolith");
  await writeSelfExtracting(program, { version: manifest.version, arch, runtime, modules, plugin, config });
  const client = await bundle("tests/release/identity_client.ts", temp.path);
  const image = temp.file("image");
  await Deno.mkdir(image);
  for (const layer of [await systemLayer(cacheFolder(), console.error, arch), await driverLayer(temp.path, runtime)]) {
    await run("unpack the image", "tar", ["-C", image, "-xf", layer]);
  }
  const output = await runArm64Guest(SCRIPT, {
    "test/denolith": program,
    "test/kubectl-denolith": program,
    "test/identity_client.js": client,
    image,
  }, console.error);
  const parts = new Map(
    output.replaceAll("\r", "").split(/^== /m).map((part) => [part.split("\n")[0]!, part] as const),
  );
  assertMatch(output, /^aarch64\r?$/m);
  assertMatch(parts.get("version")!, new RegExp(`^denolith ${manifest.version} \\(deno ${DENO_VERSION},`, "m"));
  assertStringIncludes(parts.get("help")!, await driverHelp());
  assertMatch(parts.get("plugin")!, /^kubectl-denolith /m);
  assertStringIncludes(parts.get("mistake")!, "status 2");
  assertMatch(parts.get("image")!, new RegExp(`^denolith ${manifest.version} \\(deno ${DENO_VERSION},`, "m"));
  assertMatch(parts.get("programs")!, /^ *LVM version: +2\.03\.16/m);
  for (const part of ["identity", "image's identity"]) {
    assertMatch(parts.get(part)!, new RegExp(`^plugin lvm\\.denolith\\.dev ${manifest.version} [1-9]`, "m"));
  }
  assertEquals(parts.has("end"), true);
});
