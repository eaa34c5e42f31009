import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { parse } from "@std/yaml";
import manifest from "../../deno.json" with { type: "json" };
import { CHART } from "../chart.ts";
import { readObjects } from "../objects.ts";
import { run } from "../process.ts";
import type { Addresses } from "./addresses.ts";
import { type ChartFacts, chartIndex, type ChartMetadata, chartMetadata, packChart } from "./chart_package.ts";

const ENTRY = {
  version: manifest.version,
  date: undefined,
  changes: new Map([["Added", "- A thing\n  on two lines: with a colon.\n- Another."], ["Fixed", "No list."]] as const),
};

const IMAGE = `sha256:${"ab".repeat(32)}`;

const FACTS: ChartFacts = {
  ...{ changes: ENTRY, addresses: {}, image: IMAGE, architectures: ["x86_64", "aarch64"], hasKrewManifest: true },
};

const ADDRESSES: Addresses = {
  registry: "registry.example/team",
  home: "https://git.example/denolith",
  downloads: "https://files.example/v0",
  docsUrl: "https://git.example/denolith/v0/docs",
};

const metadata = await chartMetadata(FACTS);

Deno.test("the chart's icon is icon.svg", async () => {
  const [, icon] = (metadata as unknown as { icon: string }).icon.split("data:image/svg+xml;base64,");
  assertEquals(
    new TextDecoder().decode(Uint8Array.fromBase64(icon!)),
    await Deno.readTextFile(join(CHART, "icon.svg")),
  );
});

Deno.test("the chart's annotations name its CRDs", () => {
  const listed = parse(metadata.annotations["artifacthub.io/crds"]!) as {
    name: string;
    kind: string;
    version: string;
  }[];
  const names = readObjects("crds").map(({ metadata, spec }) =>
    `${metadata.name} ${spec.names.kind} ${spec.versions[0].name}`
  );
  assertEquals(listed.map(({ name, kind, version }) => `${name} ${kind} ${version}`).sort(), names.sort());
  assertEquals(metadata.annotations["artifacthub.io/license"], manifest.license);
});

Deno.test("chartMetadata() lists the changes of the version", () => {
  assertEquals(parse(metadata.annotations["artifacthub.io/changes"]!), [
    { kind: "added", description: "A thing on two lines: with a colon." },
    { kind: "added", description: "Another." },
  ]);
  assert(metadata.version === manifest.version);
});

Deno.test("chartMetadata() has for Artifact Hub what is known, and no addresses that are not", async () => {
  const names = ({ annotations }: ChartMetadata) => Object.keys(annotations).map((name) => name.split("/")[1]);
  const always = ["category", "license", "crds", "prerelease", "containsSecurityUpdates", "changes"];
  assertEquals(names(metadata), always);
  const known = await chartMetadata({ ...FACTS, addresses: ADDRESSES });
  assertEquals(names(known), [...always, "images", "links"]);
  const read = (name: string) => parse(known.annotations[`artifacthub.io/${name}`]!);
  assertEquals(read("images"), [{
    name: "denolith",
    image: `registry.example/team/denolith:${manifest.version}@${IMAGE}`,
    platforms: ["linux/amd64", "linux/arm64"],
  }]);
  assertEquals((read("links") as { url: string }[]).map(({ url }) => url), [
    ...[ADDRESSES.docsUrl!, ADDRESSES.downloads!, "https://files.example/v0/denolith.pub"],
  ]);
  assertEquals([metadata.sources, metadata.home], [undefined, undefined]);
  assertEquals([known.sources, known.home], [[ADDRESSES.home], ADDRESSES.home]);
  assertEquals(known.icon, "https://files.example/v0/icon.svg");
  assertEquals(known.maintainers, [{ name: "denolith maintainers", url: ADDRESSES.home! }]);
});

Deno.test("packChart() writes the addresses that are known wherever the chart names what they are of", async () => {
  const temp = await Deno.makeTempDir();
  try {
    const packed = async (addresses: Addresses) => {
      const file = join(temp, "chart.tgz");
      await packChart({ ...FACTS, addresses }, temp, file);
      const read = (name: string) => run("read the chart", "tar", ["-xOzf", file, `denolith/${name}`]);
      const names = ["README.md", "values.yaml", "templates/NOTES.txt"];
      return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await read(name)])));
    };
    const [without, linked] = [await packed({}), await packed(ADDRESSES)];
    for (const [name, text] of Object.entries(without)) {
      assertEquals(text, await Deno.readTextFile(join(CHART, name)));
    }
    const count = Object.values(without).join().split("docs/guides/").length;
    assert(count > 10, "the chart names documents");
    assertEquals(Object.values(linked).join().split(`${ADDRESSES.docsUrl}/guides/`).length, count);
    const { "README.md": readme, "values.yaml": values, "templates/NOTES.txt": notes } = linked;
    const { docsUrl, image } = parse(values) as { docsUrl: string; image: Record<string, unknown> };
    assertEquals(docsUrl, ADDRESSES.docsUrl);
    assertEquals([image["repository"], image["digest"]], ["registry.example/team/denolith", IMAGE]);
    assertEquals(readme.match(/REGISTRY|--set/), null);
    assertStringIncludes(readme, "helm install denolith oci://registry.example/team/charts/denolith --namespace");
    assertStringIncludes(readme, `\`"registry.example/team/denolith"\``);
    assertStringIncludes(readme, `\`"${IMAGE}"\``);
    assertStringIncludes(readme, "[the source repository](https://git.example/denolith)");
    assertStringIncludes(notes, "kubectl krew install --manifest-url https://files.example/v0/krew.yaml\n");
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});

Deno.test("chartIndex() is the index of a repository with this version", () => {
  const created = "2026-11-24T12:00:00Z";
  const index = parse(chartIndex(metadata, { sha256: "ef".repeat(32), url: "https://files.example/a.tgz", created }));
  const { entries: { denolith: [entry] }, apiVersion } = index as {
    entries: { denolith: (ChartMetadata & { digest: string; urls: string[] })[] };
    apiVersion: string;
  };
  assertEquals([apiVersion, entry!.version, entry!.urls], ["v1", manifest.version, ["https://files.example/a.tgz"]]);
  assertEquals(entry!.digest, "ef".repeat(32));
});
