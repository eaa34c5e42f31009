/**
 * The executable for arm64, with the Deno that npm has for it, in an emulated machine.
 *
 * @module
 */

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import manifest from "../../../deno.json" with { type: "json" };
import { bundle, bundleDriver, bundlePlugin } from "../../../deploy/bundle.ts";
import { launchConfig } from "../../../deploy/launch.ts";
import { fetchDeno } from "../../../deploy/runtime.ts";
import { writeSelfExtracting } from "../../../deploy/self_extracting.ts";
import { TempFolder } from "../../rig/temp_folder.ts";
import { runArm64Guest } from "../arm64_guest.ts";

/** A version that npm has for arm64. */
const DENO = "2.9.5";

const SCRIPT = `
set -eu
uname -m
echo "== version"
/test/denolith version
echo "== help"
/test/denolith --help
echo "== plugin"
/test/kubectl-denolith version
echo "== mistake"
/test/denolith standalon || echo "status $?"
echo "== identity"
/test/denolith standalone --volume-groups data &
driver=$!
deno=$(echo /var/cache/denolith/denolith-*/deno)
"$deno" run -A --quiet --no-config --cached-only /test/identity_client.js /run/denolith/csi.sock
kill -TERM "$driver"
wait "$driver"
echo "== end"
`;

Deno.test("the executable for arm64 prints its version and help, and answers Identity", async () => {
  await using temp = await TempFolder.create("/tmp", "denolith-release-");
  const arch = "aarch64";
  const modules = await bundleDriver(temp.path);
  const plugin = await bundlePlugin(temp.path);
  const runtime = await fetchDeno(arch, temp.path, DENO);
  const config = launchConfig({ moduleIsFile: true });
  const program = temp.file("denolith");
  await writeSelfExtracting(program, { version: manifest.version, arch, runtime, modules, plugin, config });
  const client = await bundle("tests/release/identity_client.ts", temp.path);
  const output = await runArm64Guest(SCRIPT, {
    "test/denolith": program,
    "test/kubectl-denolith": program,
    "test/identity_client.js": client,
  }, console.error);
  const parts = new Map(
    output.replaceAll("\r", "").split(/^== /m).map((part) => [part.split("\n")[0]!, part] as const),
  );
  assertMatch(output, /^aarch64\r?$/m);
  assertMatch(parts.get("version")!, new RegExp(`^denolith ${manifest.version} \\(deno ${DENO},`, "m"));
  const help = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--quiet", join(import.meta.dirname!, "../../../main.ts"), "--help"],
    env: { NO_COLOR: "1" },
  }).output();
  assertStringIncludes(parts.get("help")!, new TextDecoder().decode(help.stdout).trim());
  assertMatch(parts.get("plugin")!, /^kubectl-denolith /m);
  assertStringIncludes(parts.get("mistake")!, "status 2");
  assertMatch(parts.get("identity")!, new RegExp(`^plugin lvm\\.denolith\\.dev ${manifest.version} [1-9]`, "m"));
  assertEquals(parts.has("end"), true);
});
