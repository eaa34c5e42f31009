import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { parse } from "@std/yaml";
import manifest from "../../deno.json" with { type: "json" };
import { CHART } from "../chart.ts";
import { readObjects } from "../objects.ts";
import { run } from "../process.ts";
import { chartMetadata, packChart } from "./chart_package.ts";

const ENTRY = {
  version: manifest.version,
  date: undefined,
  changes: new Map([["Added", "- A thing\n  on two lines: with a colon.\n- Another."], ["Fixed", "No list."]] as const),
};

const metadata = await chartMetadata(ENTRY);

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

Deno.test("packChart() writes the address of the documents, if there is one, wherever the chart names them", async () => {
  const temp = await Deno.makeTempDir();
  try {
    const packed = async (home?: string) => {
      const file = join(temp, "chart.tgz");
      await packChart(await chartMetadata(ENTRY, home), temp, file);
      const read = (name: string) => run("read the chart", "tar", ["-xOzf", file, `denolith/${name}`]);
      return { home: parse(await read("Chart.yaml")), text: await read("README.md") + await read("values.yaml") };
    };
    const URL = "https://git.example/denolith/docs";
    const [without, linked] = [await packed(), await packed(URL)];
    assertEquals([without.home, linked.home].map((chart) => (chart as { home?: string }).home), [undefined, URL]);
    assertEquals(without.text.includes("https://git.example"), false);
    const count = without.text.split("docs/guides/").length;
    assert(count > 10, "the chart names documents");
    assertEquals(linked.text.split(`${URL}/guides/`).length, count);
    assertEquals(
      (parse(linked.text.slice(linked.text.indexOf("# Values of the chart"))) as { docsUrl: string }).docsUrl,
      URL,
    );
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});
