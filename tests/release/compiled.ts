/**
 * Tests of the executables that `deno compile` makes, on this machine or in an emulated one.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import manifest from "../../deno.json" with { type: "json" };
import { writePrograms } from "../../deploy/artifact.ts";
import { bundleDriver, bundlePlugin } from "../../deploy/bundle.ts";
import { launchConfig, MODULE, WORKER_MODULE } from "../../deploy/launch.ts";
import { compileNative } from "../../deploy/native.ts";
import { type Architecture, isProgram } from "../../deploy/runtime.ts";
import { median } from "../bench/statistics.ts";
import type { TempFolder } from "../rig/temp_folder.ts";

/** Tries what the permissions refuse, in the main thread and in a worker with fewer, and prints what was refused. */
const PROBE = `
const tries = {
  env: () => Deno.env.get("HOME"),
  run: () => new Deno.Command("/bin/true").outputSync(),
  sys: () => Deno.osRelease(),
  ffi: () => Deno.dlopen("/lib/none.so", {}),
  read: () => Deno.readTextFileSync("/etc/passwd"),
};
const isRefused = (attempt) => {
  try {
    return void attempt();
  } catch (error) {
    return error instanceof Deno.errors.NotCapable;
  }
};
const refused = Object.keys(tries).filter((name) => isRefused(tries[name]));
if (typeof WorkerGlobalScope === "undefined") {
  const worker = new Worker(import.meta.resolve("./worker.js"), { type: "module", deno: { permissions: { read: [] } } });
  worker.onmessage = ({ data }) => {
    console.log(JSON.stringify({ main: refused, worker: data, args: Deno.args }));
    worker.terminate();
  };
} else postMessage(refused);
`;

/** The number of starts of each form. */
const STARTS = 7;

/** How much longer a start may take, as a share: what differs by chance. */
const TOLERANCE = 1.1;

/** Runs in a folder with the files of {@linkcode compiledFiles}; nothing else of the driver or of Deno is there. */
export const SCRIPT = `
set -eu
cd "$FOLDER"
export DENOLITH_CACHE="$FOLDER/cache" TMPDIR="$FOLDER"
socket=$FOLDER/csi.sock

# Starts a form of the driver, and prints the nanoseconds until its socket is there.
start() {
  begin=$(date +%s%N)
  "$1/denolith" standalone --volume-groups none --node-id n --mount-roots "$FOLDER" --endpoint "$socket" 2>log &
  driver=$!
  until [ -S "$socket" ]; do kill -0 $driver 2>/dev/null || { cat log; exit 1; }; done
  echo "$1 $(($(date +%s%N) - begin))"
}
stop() {
  kill -TERM $driver
  wait $driver
}
echo "== version"
env -i PATH=/nowhere "$FOLDER/compiled/denolith" version
echo "== help"
env -i NO_COLOR=1 "$FOLDER/compiled/denolith" --help
echo "== plugin"
compiled/kubectl-denolith version
echo "== mistake"
compiled/denolith standalon || echo "status $?"
echo "== probe"
HOME=/nowhere compiled/probe --allow-all
echo "== identity"
start compiled
./csi-sanity --ginkgo.no-color --ginkgo.focus "Identity Service" --csi.endpoint "unix://$socket" \\
  --csi.mountdir "$FOLDER/mount" --csi.stagingdir "$FOLDER/stage"
stop
echo "== starts"
start other
stop
echo "== timed"
for _ in $(seq ${STARTS}); do
  for form in other compiled; do
    start $form
    stop
  done
done
echo "== end"
`;

/** What the test needs. */
export interface CompiledOptions {
  readonly arch: Architecture;
  /** The deno binary for the form that contains it. */
  readonly deno: { readonly path: string; readonly version: string };
  /** Path of csi-sanity. */
  readonly csiSanity: string;
}

/**
 * Makes the executables of {@linkcode SCRIPT}, by their paths in its folder.
 *
 * @throws {Error} when they cannot be compiled
 */
export async function compiledFiles(temp: TempFolder, options: CompiledOptions): Promise<Record<string, string>> {
  const { arch, deno, csiSanity } = options;
  const parts = { arch, modules: await bundleDriver(temp.path), plugin: await bundlePlugin(temp.path) };
  const output = { program: temp.file("compiled"), plugin: temp.file("compiled-plugin") };
  const runtime = await writePrograms({ ...parts, output });
  assertEquals(runtime.name, "denort");
  for (const path of Object.values(output)) {
    assert(isProgram(await Deno.readFile(path), { arch }), `${path} is a program`);
  }
  const other = { program: temp.file("other"), plugin: "" };
  await writePrograms({ ...parts, output: other, deno });
  const folder = temp.file("probe-modules");
  await Deno.mkdir(folder);
  for (const name of [MODULE, WORKER_MODULE]) await Deno.writeTextFile(join(folder, name), PROBE);
  await Deno.writeTextFile(join(folder, "deno.json"), launchConfig({ moduleIsFile: false }));
  await compileNative({ arch, folder, output: temp.file("probe") });
  return {
    "compiled/denolith": output.program,
    "compiled/kubectl-denolith": output.plugin,
    "compiled/probe": temp.file("probe"),
    "other/denolith": other.program,
    "csi-sanity": csiSanity,
  };
}

/** Returns the help of the driver. */
export async function driverHelp(): Promise<string> {
  const args = ["run", "-A", "--quiet", new URL("../../main.ts", import.meta.url).pathname, "--help"];
  const { stdout } = await new Deno.Command(Deno.execPath(), { args, env: { NO_COLOR: "1" } }).output();
  return new TextDecoder().decode(stdout).trim();
}

/** Checks what {@linkcode SCRIPT} printed. @param help the help of the driver */
export function checkCompiled(printed: string, help: string): void {
  const parts = new Map(
    printed.replaceAll("\r", "").split(/^== /m).map((
      part,
    ) => [part.split("\n")[0]!, part.slice(part.indexOf("\n") + 1)]),
  );
  const { version } = manifest;
  assertStringIncludes(parts.get("version")!, `denolith ${version} (deno ${Deno.version.deno},`);
  assertStringIncludes(parts.get("help")!, help);
  assertMatch(parts.get("plugin")!, /^kubectl-denolith /m);
  assertStringIncludes(parts.get("mistake")!, "status 2");
  const refused = ["env", "run", "sys", "ffi"];
  const [probe] = parts.get("probe")!.split("\n");
  assertEquals(JSON.parse(probe!), { main: refused, worker: [...refused, "read"], args: ["--allow-all"] });
  assertMatch(parts.get("identity")!, /^Ran [1-9]\d* of \d+ Specs/m);
  assertMatch(parts.get("identity")!, /^SUCCESS! -- [1-9]\d* Passed \| 0 Failed/m);
  const times = (form: string) =>
    [...parts.get("timed")!.matchAll(new RegExp(`^${form} (\\d+)$`, "gm"))].map(([, ns]) => Number(ns) / 1e6);
  const [compiled, other] = [times("compiled"), times("other")];
  assertEquals([compiled.length, other.length], [STARTS, STARTS]);
  const line = `a start takes ${median(compiled).toFixed()} ms, with the deno binary ${median(other).toFixed()} ms`;
  console.error(line);
  assert(median(compiled) <= median(other) * TOLERANCE, line);
  assert(parts.has("end"));
}
