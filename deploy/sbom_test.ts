import { assert, assertEquals } from "@std/assert";
import { asArray, asObject, asString } from "../base/json.ts";
import manifest from "../deno.json" with { type: "json" };
import { denoRuntime } from "./runtime.ts";
import { driverPackages, ENTRIES, sbom } from "./sbom.ts";

const ROOT = new URL("..", import.meta.url).pathname;

const RUNTIME = denoRuntime({ arch: "x86_64" }, "ab".repeat(32));

const document = asObject(JSON.parse(await sbom(RUNTIME)));

const components = asArray(document.components).map(asObject);

/** Packages in deno.lock that the driver does not import. */
const NOT_BUNDLED = ["fast-check", "pure-rand", "cyclonedx-library"];

Deno.test("the SBOM has every npm package that the driver imports, with version and checksum, and none of the tests", async () => {
  const imported = new Set<string>();
  for (const entry of ENTRIES) {
    const graph = await new Deno.Command(Deno.execPath(), { args: ["info", "--json", entry], cwd: ROOT }).output();
    const { modules } = JSON.parse(new TextDecoder().decode(graph.stdout));
    for (const { npmPackage } of modules) if (npmPackage !== undefined) imported.add(npmPackage);
  }
  const lock = JSON.parse(await Deno.readTextFile(`${ROOT}/deno.lock`)).npm;
  assert(imported.size >= 5, "the test sees the imports");
  for (const key of imported) {
    const purl = `pkg:npm/${key.replace(/^@/, "%40")}`;
    const component = components.find((candidate) => candidate.purl === purl);
    assert(component !== undefined, `${purl} is missing`);
    const [{ alg, content }] = asArray(component.hashes).map(asObject) as [Record<string, unknown>];
    const integrity = `sha512-${Uint8Array.fromHex(asString(content)).toBase64()}`;
    assertEquals([alg, integrity], ["SHA-512", lock[key].integrity]);
  }
  const names = components.map(({ name }) => name);
  assertEquals(NOT_BUNDLED.filter((name) => names.includes(name)), []);
});

Deno.test("the SBOM has the dependencies of each package", async () => {
  const { roots, packages } = await driverPackages();
  // a key ends in the packages that a package takes as its peers
  const purlOf = (key: string) => `pkg:npm/${key.replace(/^@/, "%40").replace(/(@[^@_]+)_.*$/, "$1")}`;
  const dependenciesOf = new Map(
    asArray(document.dependencies).map(asObject).map((
      { ref, dependsOn },
    ) => [ref, asArray(dependsOn ?? []).map(asString)]),
  );
  for (const [key, { dependencies }] of packages) {
    assertEquals(dependenciesOf.get(purlOf(key)), dependencies.map(purlOf).sort(), key);
  }
  assertEquals(dependenciesOf.get(`denolith@${manifest.version}`), [...roots.map(purlOf), RUNTIME.purl].sort());
  assertEquals(components.length, packages.size + 1);
});

Deno.test("the SBOM names every licence, the driver's own too", () => {
  const own = asObject(asObject(document.metadata).component);
  assertEquals(asObject(asObject(asArray(own.licenses)[0]).license).id, manifest.license);
  assertEquals(components.filter(({ licenses }) => asArray(licenses ?? []).length === 0).map(({ name }) => name), []);
});

Deno.test("the SBOM has the runtime, with its checksum", () => {
  const runtime = components.find(({ type }) => type === "platform")!;
  const { name, version, purl } = RUNTIME;
  assertEquals([runtime.name, runtime.version, runtime.purl], [name, version, purl]);
  assertEquals(asObject(asArray(runtime.hashes)[0]), { alg: "SHA-256", content: RUNTIME.sha256 });
});

Deno.test("the SBOM of the same content is the same document", async () => {
  assertEquals(asObject(JSON.parse(await sbom(RUNTIME))), document);
  assertEquals([document.bomFormat, document.specVersion, document.serialNumber], ["CycloneDX", "1.6", undefined]);
  assertEquals(asObject(document.metadata).timestamp, undefined);
});
