import { assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { bundle, bundleDriver, bundlePlugin, type DriverModules, removeWhitespace } from "../../deploy/bundle.ts";
import { launchConfig, type Manifest, MODULE, PLUGIN_MODULE, WORKER_MODULE } from "../../deploy/launch.ts";
import { writeSelfExtracting } from "../../deploy/self_extracting.ts";

/** Starts its worker, which may do less, and prints what either may. */
const PROBE = `
const states = {};
for (const name of ["read", "ffi"]) states[name] = (await Deno.permissions.query({ name })).state;
if (typeof WorkerGlobalScope === "undefined") {
  const worker = new Worker(import.meta.resolve("./worker.js"), { type: "module", deno: { permissions: { read: false } } });
  worker.onmessage = ({ data }) => {
    console.log(JSON.stringify({ main: states, worker: data, args: Deno.args }));
    worker.terminate();
  };
} else postMessage(states);
`;

/** An artifact on this machine's deno, which it does not carry: instead, a script that becomes it. */
class Artifact implements AsyncDisposable {
  private constructor(readonly folder: string) {}

  static async create(bundled: (folder: string) => Promise<DriverModules>, config: string): Promise<Artifact> {
    const artifact = new Artifact(await Deno.realPath(await Deno.makeTempDir()));
    const runtime = artifact.path("runtime");
    await Deno.writeTextFile(runtime, `#!/bin/sh\nexec '${Deno.execPath()}' "$@"\n`);
    const parts = { version: "0", arch: Deno.build.arch, runtime, modules: await bundled(artifact.folder), config };
    const plugin = await bundlePlugin(artifact.folder);
    await writeSelfExtracting(artifact.path("denolith"), { ...parts, plugin });
    await Deno.symlink("denolith", artifact.path("kubectl-denolith"));
    return artifact;
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  output(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
    return this.outputOf("denolith", args);
  }

  async outputOf(name: string, args: readonly string[], env: Record<string, string> = {}) {
    const { code, stdout, stderr } = await new Deno.Command(this.path(name), {
      args: [...args],
      env: { DENOLITH_CACHE: this.path("cache"), NO_COLOR: "1", ...env },
      cwd: this.folder,
    }).output();
    const decoder = new TextDecoder();
    return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
  }
}

async function probe(folder: string): Promise<DriverModules> {
  const path = join(folder, "probe.js");
  await Deno.writeTextFile(path, PROBE);
  return { main: path, worker: path };
}

/** Disposes of each name once. */
const USING = `
function play() {
  using it = { say: () => console.log("it"), [Symbol.dispose]: () => console.log("disposed of") };
  it.say();
}
play();
`;

/** A set that permits nearly nothing: without a prompt, a list denies what is not in it. */
const NARROW: Manifest = { unstable: ["worker-options"], permissions: { denolith: { read: ["/etc/hostname"] } } };

Deno.test("the artifact starts under its set, can start its worker, and heeds no configuration around it", async () => {
  await using artifact = await Artifact.create(probe, launchConfig({ moduleIsFile: true }, NARROW));
  for (const file of ["deno.json", "package.json", "cache/deno.json"]) {
    await Deno.mkdir(artifact.path("cache"), { recursive: true });
    await Deno.writeTextFile(artifact.path(file), "no JSON");
  }
  const { code, stdout, stderr } = await artifact.output("a b", "--allow-all", "it's");
  assertEquals([code, stderr], [0, ""]);
  const nothing = { read: "prompt", ffi: "prompt" };
  assertEquals(JSON.parse(stdout), { main: nothing, worker: nothing, args: ["a b", "--allow-all", "it's"] });
});

Deno.test("a bundle disposes of each name once", async () => {
  const module = async (folder: string) => {
    const entry = join(folder, "entry.ts");
    await Deno.writeTextFile(entry, USING);
    const main = await bundle(entry, folder);
    await removeWhitespace(main);
    return { main, worker: main };
  };
  await using artifact = await Artifact.create(module, launchConfig({ moduleIsFile: true }, NARROW));
  assertEquals((await artifact.output()).stdout, "it\ndisposed of\n");
});

Deno.test("the artifact of the driver answers as the driver does", async () => {
  await using artifact = await Artifact.create(bundleDriver, launchConfig({ moduleIsFile: true }));
  const version = await artifact.output("version");
  assertEquals([version.code, version.stderr], [0, ""]);
  assertStringIncludes(version.stdout, `(deno ${Deno.version.deno},`);
  const mistake = await artifact.output("standalon");
  assertEquals([mistake.code, mistake.stdout], [2, ""]);
  assertStringIncludes(mistake.stderr, "did you mean standalone?");
  const inWorker = await artifact.output("status", "--volume-groups", "a b");
  assertEquals(inWorker.code, 2);
});

Deno.test("the artifact under the name kubectl-denolith is the plugin, which may run the kubectl in PATH and nothing else", async () => {
  await using artifact = await Artifact.create(bundleDriver, launchConfig({ moduleIsFile: true }));
  const kubectl =
    '#!/bin/sh\n[ "$1" = config ] && exit 1\necho "Error from server (Forbidden): no, $USER_SAYS" >&2\nexit 1\n';
  await Deno.mkdir(artifact.path("bin"));
  await Deno.writeTextFile(artifact.path("bin/kubectl"), kubectl, { mode: 0o755 });
  const env = { PATH: `${artifact.path("bin")}:/usr/bin:/bin`, USER_SAYS: "hello" };
  const denied = await artifact.outputOf("kubectl-denolith", ["status"], env);
  assertEquals([denied.code, denied.stdout], [1, ""]);
  assertStringIncludes(denied.stderr, "kubectl denolith: list lvmnodes: Forbidden: no, hello");
  const version = await artifact.outputOf("kubectl-denolith", ["version"], env);
  assertStringIncludes(version.stdout, "kubectl-denolith ");
  assertEquals((await artifact.outputOf("kubectl-denolith", ["standalone"], env)).code, 2);
});

Deno.test("bundleDriver() and bundlePlugin() write a file each for what the executables start", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const { main, worker } = await bundleDriver(folder);
    const plugin = await bundlePlugin(folder);
    assertEquals([main, worker, plugin], [MODULE, WORKER_MODULE, PLUGIN_MODULE].map((name) => `${folder}/${name}`));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
