/**
 * The archives of the kubectl plugin: that for this system is unpacked and started, as krew and people do it.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { unzipSync } from "fflate";
import { join } from "@std/path";
import manifest from "../../deno.json" with { type: "json" };
import { bundlePlugin } from "../../deploy/bundle.ts";
import { LAUNCH_ENV } from "../../deploy/launch.ts";
import { packPlugin, type PluginTarget } from "../../deploy/plugin_archive.ts";
import { run } from "../../deploy/process.ts";
import { isProgram, PLATFORM_NAMES } from "../../deploy/runtime.ts";
import { sha256OfFile } from "../../deploy/self_extracting.ts";

const HERE: PluginTarget = { system: "linux", arch: Deno.build.arch };
const { version } = manifest;

/** A folder with a bundle of the plugin and a program in the place of Deno, which starts that of this machine. */
async function parts() {
  const folder = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-plugin-" }));
  const deno = join(folder, "a-deno");
  await Deno.writeTextFile(deno, `#!/bin/sh\nprintf '%s\\n' "$DENO_V8_FLAGS" >&2\nexec '${Deno.execPath()}' "$@"\n`);
  return {
    ...{ folder, deno, plugin: await bundlePlugin(folder) },
    [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }),
  };
}

/** Runs a body while DENORT_BIN names a program. */
async function withRuntime<T>(path: string, body: () => Promise<T>): Promise<T> {
  Deno.env.set("DENORT_BIN", path);
  try {
    return await body();
  } finally {
    Deno.env.delete("DENORT_BIN");
  }
}

Deno.test("the archive with Deno starts the plugin where it was unpacked, also by links, and twice it is the same", async () => {
  await using made = await parts();
  const { folder } = made;
  const archive = await packPlugin({ ...made, target: HERE });
  assertEquals(archive, {
    ...{ ...HERE, program: "kubectl-denolith" },
    name: `kubectl-denolith-${version}-linux-${PLATFORM_NAMES[HERE.arch]}.tar.gz`,
  });
  const sum = await sha256OfFile(join(folder, archive.name));
  await packPlugin({ ...made, target: HERE });
  assertEquals(await sha256OfFile(join(folder, archive.name)), sum);

  const [store, bin] = [join(folder, "a store/v1"), join(folder, "bin")];
  for (const path of [store, bin]) await Deno.mkdir(path, { recursive: true });
  await run("unpack", "tar", ["-C", store, "-xzf", join(folder, archive.name)]);
  await Deno.symlink(join(store, "kubectl-denolith"), join(folder, "absolute"));
  await Deno.symlink("../absolute", join(bin, "kubectl-denolith"));
  const { code, stdout, stderr } = await new Deno.Command(join(bin, "kubectl-denolith"), {
    args: ["why", "a b"],
    ...{ cwd: "/", env: { NO_COLOR: "1" } },
  }).output();
  const [flags, error] = new TextDecoder().decode(stderr).split("\n");
  assertEquals([code, new TextDecoder().decode(stdout)], [2, ""]);
  assertEquals(`DENO_V8_FLAGS=${flags}`, LAUNCH_ENV.find((variable) => variable.startsWith("DENO_V8")));
  assertStringIncludes(error!, `CLAIM "a b": must be`);
});

Deno.test("the archive for Windows is a zip file with a script that names what is beside it", async () => {
  await using made = await parts();
  const archive = await packPlugin({ ...made, target: { system: "windows", arch: "aarch64" } });
  assertEquals(
    [archive.name, archive.program],
    [`kubectl-denolith-${version}-windows-arm64.zip`, "kubectl-denolith.cmd"],
  );
  const files = unzipSync(await Deno.readFile(join(made.folder, archive.name)));
  const names = ["LICENSE", "deno.exe", "deno.json", "kubectl-denolith.cmd", "kubectl_denolith.js"];
  assertEquals(Object.keys(files), names);
  assertEquals(files["deno.exe"], await Deno.readFile(made.deno));
  const script = new TextDecoder().decode(files["kubectl-denolith.cmd"]);
  assertEquals(script.replaceAll("\r\n", "").match(/[\r\n]|@[A-Z]+@/), null);
  const [, started] =
    /^"%~dp0([^"]+)" run .*-P=kubectl-denolith --config "%~dp0deno.json" "%~dp0kubectl_denolith.js" %\*\r$/m
      .exec(script)!;
  assertEquals(started, "deno.exe");
  assertMatch(script, /^set "DENO_NO_UPDATE_CHECK=1"\r$/m);
});

Deno.test("the archive of deno compile has one program, with the plugin in it", async () => {
  await using made = await parts();
  const archive = await withRuntime("/usr/bin/true", () => packPlugin({ ...made, deno: undefined, target: HERE }));
  await run("unpack", "tar", ["-C", made.folder, "-xzf", join(made.folder, archive.name)]);
  assertEquals(await run("list", "tar", ["-tzf", join(made.folder, archive.name)]), "LICENSE\nkubectl-denolith\n");
  const program = await Deno.readFile(join(made.folder, "kubectl-denolith"));
  assert(isProgram(program, HERE) && new TextDecoder().decode(program).includes("forget-node"));
});
