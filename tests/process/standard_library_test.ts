import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import manifest from "../../deno.json" with { type: "json" };
import { run } from "../../deploy/process.ts";
import { PLUGIN_MODULE } from "../../deploy/launch.ts";
import { LOCK_FILES } from "../../deploy/standard_library.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

/** A package as a lock file has it. */
interface Locked {
  readonly integrity: string;
  readonly dependencies?: readonly string[];
}

/** A lock file, as far as these tests read it. */
interface Lock {
  readonly specifiers: Readonly<Record<string, string>>;
  readonly jsr: Readonly<Record<string, Locked>>;
  readonly workspace: { readonly dependencies: readonly string[] };
}

const lock: Lock = JSON.parse(Deno.readTextFileSync(join(ROOT, LOCK_FILES.jsr)));

const { jsr: LOCKED } = lock;

/**
 * A registry with the protocol of JSR on this machine. It has the packages of the lock file, with the modules of `deno-std`
 * and other checksums than theirs.
 */
class Registry {
  /** The paths that were requested. */
  readonly requests: string[] = [];
  readonly #server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, (request) => {
    const path = new URL(request.url).pathname;
    this.requests.push(path);
    const text = this.#files.get(path);
    const type = path.endsWith(".json") ? "application/json" : "text/javascript";
    return new Response(text ?? "", { status: text === undefined ? 404 : 200, headers: { "content-type": type } });
  });
  readonly #files = new Map<string, string>();
  /** The checksums of its packages, by their keys in the lock file. */
  readonly checksums = new Map<string, string>();

  /** @param std folder of npm's package `deno-std` */
  static async start(std: string): Promise<Registry> {
    const registry = new Registry();
    const modules = modulesIn(std);
    for (const [key, locked] of Object.entries(LOCKED)) await registry.#add(key, locked, modules);
    return registry;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#server.addr.port}`;
  }

  async #add(key: string, { dependencies = [] }: Locked, modules: ReadonlyMap<string, string>): Promise<void> {
    const [, name, version] = /^(.+)@(.+)$/.exec(key)!;
    const files = new Map([...modules].map(([path, text]) => [`/${path}`, text]));
    const imports = dependencies.map((dependency) => `import "${required(dependency)}";\n`).join("");
    const exports: Record<string, string> = {};
    for (const [specifier, target] of Object.entries<string>(manifest.imports)) {
      const path = /^npm:deno-std@[^/]+\/(.+)$/.exec(target)?.[1];
      if (path === undefined || !`${specifier}/`.startsWith(`${name}/`)) continue;
      const file = `/entry_${Object.keys(exports).length}.js`;
      exports[`.${specifier.slice(name!.length)}`] = `.${file}`;
      files.set(file, `${imports}export * from "./${path}";\n`);
    }
    if (Object.keys(exports).length === 0) {
      exports["."] = exports["./os"] = "./entry.js";
      files.set("/entry.js", "export {};\n");
    }
    const listed = [...files].map(async ([path, text]) =>
      [path, { size: new TextEncoder().encode(text).length, checksum: `sha256-${await sha256(text)}` }] as const
    );
    const meta = JSON.stringify({ manifest: Object.fromEntries(await Promise.all(listed)), exports });
    this.checksums.set(key, await sha256(meta));
    this.#files.set(`/${name}/meta.json`, JSON.stringify({ scope: "std", name, versions: { [version!]: {} } }));
    this.#files.set(`/${name}/${version}_meta.json`, meta);
    for (const [path, text] of files) this.#files.set(`/${name}/${version}${path}`, text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.shutdown();
  }
}

/** Returns what a package requires, with its version. */
function required(dependency: string): string {
  return Object.keys(lock.specifiers).find((specifier) => `${specifier}@`.startsWith(`${dependency}@`))!;
}

function modulesIn(folder: string, under = ""): Map<string, string> {
  return new Map(
    [...Deno.readDirSync(join(folder, under))].flatMap(({ name, isDirectory }): [string, string][] => {
      const path = join(under, name);
      if (isDirectory) return [...modulesIn(folder, path)];
      return name.endsWith(".js") ? [[path, Deno.readTextFileSync(join(folder, path))]] : [];
    }),
  );
}

async function sha256(text: string): Promise<string> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text))).toHex();
}

/** A copy of the sources with a cache of its own, in which a build takes the standard library from a registry. */
class Checkout {
  private constructor(readonly folder: string, readonly env: Readonly<Record<string, string>>) {}

  static async create(registry: Registry, cache: string): Promise<Checkout> {
    const folder = await Deno.makeTempDir();
    for (const { name } of Deno.readDirSync(ROOT)) {
      if (/^(?:\.git|dist|tests)$/.test(name)) continue;
      await run("copy the checkout", "cp", ["-R", join(ROOT, name), folder]);
    }
    const own = join(folder, ".cache");
    await Deno.mkdir(own);
    for (const name of ["npm", "dl"]) { // what is downloaded from elsewhere
      await Deno.mkdir(join(cache, name), { recursive: true });
      await Deno.symlink(join(cache, name), join(own, name));
    }
    return new Checkout(folder, { DENO_DIR: own, JSR_URL: registry.url });
  }

  /** Writes the lock file. */
  async lock(jsr: Readonly<Record<string, Locked>>): Promise<void> {
    await Deno.writeTextFile(join(this.folder, LOCK_FILES.jsr), JSON.stringify({ ...lock, jsr }));
  }

  /** Builds the driver and the plugin with the standard library of JSR. @returns its bill of materials */
  async build(): Promise<Bill> {
    await Deno.mkdir(join(this.folder, "built"), { recursive: true });
    const script = `
      import { bundleDriver, bundlePlugin } from "./deploy/bundle.ts";
      import { sbom } from "./deploy/sbom.ts";
      await bundleDriver("built", "jsr");
      await bundlePlugin("built", "jsr");
      console.log(await sbom({ name: "deno", version: "1", purl: "pkg:npm/deno@1" }, { std: "jsr" }));`;
    return JSON.parse(await this.deno("eval", script));
  }

  /** Runs Deno there. */
  async deno(...args: string[]): Promise<string> {
    const env = Object.entries(this.env).map(([name, value]) => `${name}=${value}`);
    return await run("deno", "env", [...env, Deno.execPath(), ...args], { cwd: this.folder });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
  }
}

/** A bill of materials, as far as these tests read it. */
interface Bill {
  readonly components: readonly {
    readonly name: string;
    readonly group?: string;
    readonly purl: string;
    readonly licenses?: readonly object[];
    readonly hashes?: readonly { readonly alg: string; readonly content: string }[];
  }[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn?: readonly string[] }[];
}

/** Returns Deno's cache, and the folder of `deno-std` there. */
async function caches(): Promise<{ readonly cache: string; readonly std: string }> {
  const cache = JSON.parse(await run("read Deno's folders", Deno.execPath(), ["info", "--json"])).denoDir;
  const { npmPackages } = JSON.parse(
    await run("read the imports", Deno.execPath(), ["info", "--json", `${ROOT}main.ts`]),
  );
  const [, found] = Object.entries<{ localPath: string }>(npmPackages).find(([key]) => key.startsWith("deno-std@"))!;
  return { cache, std: found.localPath };
}

const { cache, std } = await caches();

Deno.test("a build with JSR's standard library has it from there, as the lock file says, and runs", async () => {
  await using registry = await Registry.start(std);
  await using checkout = await Checkout.create(registry, cache);
  await checkout.lock(withChecksums(registry));
  const bill = await checkout.build();
  for (const key of Object.keys(LOCKED)) {
    assert(registry.requests.some((path) => path.startsWith(`/${key.replace(/@([^@]+)$/, "/$1/")}`)), key);
  }
  const set = ["-A", "--no-config"];
  assertStringIncludes(await checkout.deno("run", ...set, "built/main.js", "version"), manifest.version);
  assertStringIncludes(
    await checkout.deno("run", ...set, `built/${PLUGIN_MODULE}`, "help", "why"),
    "kubectl denolith why",
  );

  const components = new Map(bill.components.map((component) => [component.purl, component]));
  assertEquals(bill.components.filter(({ name }) => name === "deno-std"), []);
  const purlOf = (key: string) => {
    const [, name, version] = /^@std\/(.+)@(.+)$/.exec(key)!;
    return `pkg:generic/%40std/${name}@${version}?download_url=https%3A%2F%2Fjsr.io%2F%40std%2F${name}%2F${version}_meta.json`;
  };
  for (const [key, checksum] of registry.checksums) {
    const { group, name, hashes, licenses } = components.get(purlOf(key))!;
    assertEquals(`${group}/${name}`, key.replace(/@[^@]+$/, ""));
    assertEquals(hashes, [{ alg: "SHA-256", content: checksum }]);
    assertEquals(licenses, [{ license: { id: "MIT" } }]);
    const dependencies = (LOCKED[key]!.dependencies ?? []).map((dependency) =>
      purlOf(Object.keys(LOCKED).find((other) => other.startsWith(`${dependency.replace("jsr:", "")}@`))!)
    );
    assertEquals(bill.dependencies.find(({ ref }) => ref === purlOf(key))!.dependsOn ?? [], dependencies, key);
  }
  const ofDriver = bill.dependencies.find(({ ref }) => ref.startsWith("denolith@"))!.dependsOn!;
  const imported = lock.workspace.dependencies.filter((name) => name.startsWith("jsr:"));
  const roots = Object.keys(LOCKED).filter((key) => imported.includes(`jsr:${key.replace(/@1\..+$/, "@1")}`));
  assert(roots.length > 3, "the test sees them");
  assertEquals(ofDriver.filter((purl) => purl.startsWith("pkg:generic/")), roots.map(purlOf).sort());
});

Deno.test("a build refuses what JSR has if the checksum is another one, or if the lock file does not have it", async () => {
  await using registry = await Registry.start(std);
  await using checkout = await Checkout.create(registry, cache);
  const error = await assertRejects(() => checkout.build(), Error);
  assertMatch(error.message, /Integrity check failed/);
  const { [Object.keys(LOCKED).at(-1)!]: _, ...others } = withChecksums(registry);
  await checkout.lock(others);
  const stale = await assertRejects(() => checkout.build(), Error);
  assertMatch(stale.message, /lockfile is out of date/);
  assertEquals([...Deno.readDirSync(join(checkout.folder, "built"))].map(({ name }) => name), []);
});

/** Returns the packages of the lock file with the checksums of a registry. */
function withChecksums(registry: Registry): Record<string, Locked> {
  return Object.fromEntries(
    Object.entries(LOCKED).map(([key, locked]) => [key, { ...locked, integrity: registry.checksums.get(key)! }]),
  );
}
