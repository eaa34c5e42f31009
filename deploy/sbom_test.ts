import { assert, assertEquals } from "@std/assert";
import { array, object, text } from "../lvm/json.ts";
import manifest from "../deno.json" with { type: "json" };
import { denoRuntime } from "./runtime.ts";
import { npmPackages, sbom } from "./sbom.ts";

const ROOT = new URL("..", import.meta.url).pathname;

const RUNTIME = denoRuntime("x86_64", "ab".repeat(32));

const document = object(JSON.parse(await sbom(RUNTIME)));

const components = array(document.components).map(object);

/** What deno.lock has that the driver does not import. */
const NOT_INSIDE = ["fast-check", "pure-rand", "cyclonedx-library"];

Deno.test("the SBOM has every npm package that the driver imports, with version and checksum, and none of the tests", async () => {
  const graph = await new Deno.Command(Deno.execPath(), { args: ["info", "--json", "main.ts"], cwd: ROOT }).output();
  const { modules } = JSON.parse(new TextDecoder().decode(graph.stdout));
  const imported = new Set<string>(modules.flatMap(({ npmPackage = [] }) => npmPackage));
  const lock = JSON.parse(await Deno.readTextFile(`${ROOT}/deno.lock`)).npm;
  assert(imported.size >= 5, "the test sees the imports");
  for (const key of imported) {
    const purl = `pkg:npm/${key.replace(/^@/, "%40")}`;
    const component = components.find((candidate) => candidate.purl === purl);
    assert(component !== undefined, `${purl} is missing`);
    const [{ alg, content }] = array(component.hashes).map(object) as [Record<string, unknown>];
    const integrity = `sha512-${Uint8Array.fromHex(text(content)).toBase64()}`;
    assertEquals([alg, integrity], ["SHA-512", lock[key].integrity]);
  }
  const names = components.map(({ name }) => name);
  assertEquals(NOT_INSIDE.filter((name) => names.includes(name)), []);
});

Deno.test("the SBOM has what the packages ask for themselves, and says which for which", async () => {
  const { roots, packages } = await npmPackages("main.ts");
  // a key ends in the packages that a package takes as its peers
  const purlOf = (key: string) => `pkg:npm/${key.replace(/^@/, "%40").replace(/(@[^@_]+)_.*$/, "$1")}`;
  const told = new Map(
    array(document.dependencies).map(object).map(({ ref, dependsOn }) => [ref, array(dependsOn ?? []).map(text)]),
  );
  for (const [key, { dependencies }] of packages) {
    assertEquals(told.get(purlOf(key)), dependencies.map(purlOf).sort(), key);
  }
  assertEquals(told.get(`denolith@${manifest.version}`), [...roots.map(purlOf), RUNTIME.purl].sort());
  assertEquals(components.length, packages.size + 1);
});

Deno.test("the SBOM names every licence, the driver's own too", () => {
  const own = object(object(document.metadata).component);
  assertEquals(object(object(array(own.licenses)[0]).license).id, manifest.license);
  assertEquals(components.filter(({ licenses }) => array(licenses ?? []).length === 0).map(({ name }) => name), []);
});

Deno.test("the SBOM has the runtime, with its checksum", () => {
  const runtime = components.find(({ type }) => type === "platform")!;
  const { name, version, purl } = RUNTIME;
  assertEquals([runtime.name, runtime.version, runtime.purl], [name, version, purl]);
  assertEquals(object(array(runtime.hashes)[0]), { alg: "SHA-256", content: RUNTIME.sha256 });
});

Deno.test("the SBOM of the same content is the same document", async () => {
  assertEquals(object(JSON.parse(await sbom(RUNTIME))), document);
  assertEquals([document.bomFormat, document.specVersion, document.serialNumber], ["CycloneDX", "1.6", undefined]);
  assertEquals(object(document.metadata).timestamp, undefined);
});
