import { assert, assertEquals, assertRejects } from "@std/assert";
import { launchConfig, MODULE, PLUGIN_MODULE, WORKER_MODULE } from "./launch.ts";
import { compileNative, isMissingRuntime, NATIVE_PLUGIN, runtimeMissing } from "./native.ts";
import { ARCHITECTURES, isProgram } from "./runtime.ts";
import { sha256 } from "./self_extracting.ts";

const MODULES = [MODULE, WORKER_MODULE, PLUGIN_MODULE];

/** A program of this machine that stands in for the runtime: `deno compile` adds the driver to any. */
const STAND_IN = "/usr/bin/true";

/** Runs a body while DENORT_BIN has a value. */
async function withRuntime(path: string, body: () => Promise<void>): Promise<void> {
  const before = Deno.env.get("DENORT_BIN");
  Deno.env.set("DENORT_BIN", path);
  try {
    await body();
  } finally {
    if (before === undefined) Deno.env.delete("DENORT_BIN");
    else Deno.env.set("DENORT_BIN", before);
  }
}

const COMPILE =
  "error: Writing deno compile executable to temporary file '/tmp/x/denolith.tmp-a0d2f01ff7f8cb00'\n\nCaused by:\n";

Deno.test("isMissingRuntime() reports whether deno compile failed to fetch its runtime", () => {
  const causes = [
    "    0: Setting up base binary.\n    1: error sending request for url (https://example.com/denort.zip): client error\n",
    "    0: Setting up base binary.\n    1: Failed downloading 'https://example.com/denort.zip'\n",
  ];
  for (const cause of causes) assert(isMissingRuntime(COMPILE + cause), cause);
});

Deno.test("isMissingRuntime(): every other failure of deno compile is one", () => {
  const failures = [
    "",
    'error: Module not found "file:///main.js".',
    "error: Permission set 'denolith' not found in config file.",
    COMPILE + "    Could not find denort at '/x'\n",
    COMPILE +
    "    0: Setting up base binary.\n    1: Writing /root/.cache/denort.zip\n    2: No space left on device\n",
    COMPILE + "    0: Setting up base binary.\n    1: Creating /root/.cache/dl\n    2: Permission denied\n",
  ];
  assertEquals(failures.filter(isMissingRuntime), []);
});

Deno.test("runtimeMissing() takes what DENORT_BIN names for its architecture, and says why not for another", async () => {
  await withRuntime(STAND_IN, async () => {
    for (const arch of ARCHITECTURES) {
      const reason =
        `the runtime of deno compile ${Deno.version.deno} for ${arch} is missing: DENORT_BIN is no program for it`;
      assertEquals(await runtimeMissing({ arch }), arch === Deno.build.arch ? undefined : reason);
    }
  });
  await withRuntime("/nowhere", async () => {
    await assertRejects(() => runtimeMissing({ arch: Deno.build.arch }), Deno.errors.NotFound);
  });
});

/** Compiles small modules in a folder of their own. @returns the bytes of the driver and of the plugin */
async function compileSmall(): Promise<Uint8Array<ArrayBuffer>[]> {
  const folder = await Deno.makeTempDir();
  try {
    for (const name of MODULES) await Deno.writeTextFile(`${folder}/${name}`, `console.log("this is ${name}");`);
    await Deno.writeTextFile(`${folder}/deno.json`, launchConfig({ moduleIsFile: false }));
    const options = { arch: Deno.build.arch, folder };
    await compileNative({ ...options, output: `${folder}/driver` });
    await compileNative({ ...options, output: `${folder}/plugin`, program: NATIVE_PLUGIN });
    return await Promise.all(["driver", "plugin"].map((name) => Deno.readFile(`${folder}/${name}`)));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("compileNative() adds the modules of a program to the runtime, and twice makes the same file", async () => {
  await withRuntime(STAND_IN, async () => {
    const programs = await compileSmall();
    assertEquals((await compileSmall()).map(sha256), programs.map(sha256));
    const found = programs.map((bytes) => {
      assert(isProgram(bytes, { arch: Deno.build.arch }));
      const text = new TextDecoder().decode(bytes);
      return MODULES.filter((name) => text.includes(`this is ${name}`));
    });
    assertEquals(found, [[MODULE, WORKER_MODULE], [PLUGIN_MODULE]]);
  });
});
