import { assert, assertEquals } from "@std/assert";
import manifest from "../deno.json" with { type: "json" };
import { sourceFiles } from "../tests/meta/source_files.ts";
import { jsrFiles, jsrImports, jsrLock } from "./standard_library.ts";

const ROOT = new URL("../", import.meta.url).pathname;

Deno.test("jsrImports() takes @std from JSR, and all else from where it is", () => {
  const imports = {
    "@std/path": "npm:deno-std@1.4.0/path/posix/mod.js",
    "@std/testing/bdd": "./tests/std/bdd.ts",
    "ajv": "npm:ajv@8.20.0",
  };
  assertEquals(jsrImports(imports), {
    "@std/path": "jsr:@std/path@^1",
    "@std/testing/bdd": "jsr:@std/testing@^1/bdd",
    "ajv": "npm:ajv@8.20.0",
  });
});

Deno.test("jsrLock() keeps what it has of JSR, and takes the packages of npm from the other lock file", () => {
  const npm = {
    version: "5",
    specifiers: { "npm:ajv@8.20.0": "8.20.0", "npm:deno-std@1.4.0": "1.4.0" },
    npm: { "ajv@8.20.0": { integrity: "new" }, "deno-std@1.4.0": { integrity: "s" } },
  };
  const jsr = {
    specifiers: { "jsr:@std/path@1": "1.1.6", "npm:ajv@8.0.0": "8.0.0" },
    jsr: { "@std/path@1.1.6": { integrity: "p" } },
    npm: { "ajv@8.0.0": { integrity: "old" } },
  };
  const imports = { "@std/path": "jsr:@std/path@^1", "@b/c/": "npm:/@b/c@1.0.0/", "@b/c": "npm:@b/c@1.0.0" };
  assertEquals(jsrLock(npm, jsr, imports), {
    version: "5",
    specifiers: { "jsr:@std/path@1": "1.1.6", "npm:ajv@8.20.0": "8.20.0" },
    jsr: { "@std/path@1.1.6": { integrity: "p" } },
    npm: { "ajv@8.20.0": { integrity: "new" } },
    workspace: { dependencies: ["jsr:@std/path@1", "npm:@b/c@1.0.0"] },
  });
});

Deno.test("the configuration for JSR resolves each @std that the code imports, and its lock file has what the driver needs", () => {
  const files = [...jsrFiles()].map(([path, text]) => [path, JSON.parse(text)]);
  const [[, { imports, lock }], [lockFile, { specifiers, jsr, npm }]] = files as [[string, Config], [string, Lock]];
  assertEquals(lock, { path: `./${lockFile}`, frozen: true });
  const used = (folder: string) =>
    sourceFiles(folder).flatMap((path) => [...Deno.readTextFileSync(path).matchAll(/from "(@std\/[^"]+)"/g)])
      .map(([, specifier]) => specifier!);
  const folders = [...Deno.readDirSync(ROOT)].filter(({ name, isDirectory }) =>
    isDirectory && !/^\.|^dist$/.test(name)
  );
  const all = new Set(folders.flatMap(({ name }) => used(name)));
  assert(all.size > 5, "the test sees them");
  assertEquals([...all].filter((specifier) => !/^jsr:@std\/[a-z]+@\^1/.test(imports[specifier] ?? "")), []);
  const needed = new Set(
    ["base", "cli", "csi", "k8s", "lvm", "plugin"].flatMap(used).map((specifier) => specifier.split("/")[1]),
  );
  assert(needed.size > 3, "the test sees them");
  for (const name of needed) {
    const version = specifiers[`jsr:@std/${name}@1`];
    assert(/^[0-9a-f]{64}$/.test(jsr[`@std/${name}@${version}`]?.integrity ?? ""), name);
  }
  assertEquals(Object.keys(npm).filter((key) => key.startsWith("deno-std@")), []);
  assertEquals(Object.keys(imports), Object.keys(manifest.imports));
});

/** The configuration of Deno, as far as this test reads it. */
interface Config {
  readonly imports: Readonly<Record<string, string>>;
  readonly lock: object;
}

/** A lock file, as far as this test reads it. */
interface Lock {
  readonly specifiers: Readonly<Record<string, string>>;
  readonly jsr: Readonly<Record<string, { readonly integrity: string }>>;
  readonly npm: object;
}
