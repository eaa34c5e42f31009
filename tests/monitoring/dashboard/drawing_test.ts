import { assert, assertEquals } from "@std/assert";
import { parseDocument } from "htmlparser2";
import { drawRow, formatValue, type Series, ticksBetween } from "./drawing.ts";
import { dashboardRows, type Panel, pictureOf, seriesName } from "./panels.ts";

const PANEL: Panel = {
  title: "Free <space>",
  type: "timeseries",
  gridPos: { x: 0, y: 1, w: 8, h: 8 },
  targets: [],
  fieldConfig: { defaults: { unit: "bytes" } },
};

const SERIES: readonly Series[] = [{ name: "n1 data", points: [[0, 0], [10, 1024]] }];

/** Draws a row of one panel. */
function drawOne(panel: Partial<Panel>, series: readonly Series[] = SERIES): string {
  return drawRow({ title: "Row", panels: [{ ...PANEL, ...panel }] }, { seconds: 20, seriesOf: () => series });
}

Deno.test("a panel of each type has its title and its value", () => {
  const types = ["stat", "bargauge", "timeseries"] as const;
  for (const type of types) {
    const svg = drawOne({ type });
    assert(svg.includes(">Free &lt;space></text>") && svg.includes(">1 KiB</text>"), svg);
  }
  assert(/ points="78,\d+ 231,\d+"/.test(drawOne({})), "a line over half of the time");
  assert(drawOne({}, []).includes(">No data</text>"), "without a series");
});

Deno.test("a value has the colour of the last threshold that it reaches", () => {
  const steps = [{ color: "green", value: null }, { color: "red", value: 1 }];
  const colored = (value: number) =>
    drawOne({ type: "stat", fieldConfig: { defaults: { unit: "short", thresholds: { steps } } } }, [
      { name: "", points: [[0, value]] },
    ]);
  assert(colored(0).includes("fill:var(--green)") && colored(1).includes("fill:var(--red)"));
});

Deno.test("many series: three in the legend, with the number of the others", () => {
  const many = [1, 2, 3, 4, 5].map((value) => ({ name: `s${value}`, points: [[0, value], [1, value]] } as Series));
  const svg = drawOne({}, many);
  assertEquals([svg.match(/<polyline/g)!.length, svg.includes(">s3 and 2 more</text>")], [5, true]);
});

Deno.test("the picture has colours for light and dark, and loads nothing", () => {
  const svg = drawOne({});
  assert(svg.includes("@media (prefers-color-scheme:dark)"));
  assertEquals(svg.match(/href|url\(|@import/), null);
  assertEquals(parseDocument(svg, { xmlMode: true }).children.filter(({ type }) => type === "tag").length, 1);
});

Deno.test("ticksBetween() returns round values around those that are shown", () => {
  assertEquals(ticksBetween(0, 1, "percentunit"), [0, 0.5, 1]);
  assertEquals(ticksBetween(0, 7.5 * 2 ** 30, "bytes").map((tick) => tick / 2 ** 30), [0, 2.5, 5, 7.5]);
  assertEquals(ticksBetween(0, 7, "short"), [0, 2.5, 5, 7.5]);
  assertEquals(ticksBetween(0, 0, "short"), [0, 1]);
});

Deno.test("formatValue() writes units as Grafana does", () => {
  const formatted = [[0.957, "percentunit"], [4 << 20, "Bps"], [0.0123, "s"], [12.34, "reqps"], [500, "iops"], [
    3,
    "short",
  ]];
  assertEquals(formatted.map(([value, unit]) => formatValue(value as number, unit as string)), [
    ...["95.7%", "4 MiB/s", "12.3 ms", "12.3 req/s", "500 io/s", "3"],
  ]);
});

Deno.test("the rows have all panels of the dashboard, each with a place and queries", () => {
  const rows = dashboardRows();
  assertEquals(rows.map(({ title }) => title), [
    "Volume groups",
    "Thin pools, copies and IO limits",
    "Controllers",
    "CSI operations and API requests",
  ]);
  for (const { title, targets, gridPos: { x, w } } of rows.flatMap(({ panels }) => panels)) {
    assert(targets.length > 0 && x + w <= 24, title);
  }
  assertEquals(seriesName("{{node}} {{group}}/{{lv}}", { node: "n1", group: "data", lv: "a" }), "n1 data/a");
});

Deno.test("docs/reference/alerts.md shows the picture of each row, and a picture has the titles of its panels", () => {
  const docs = new URL("../../../docs/", import.meta.url);
  const page = Deno.readTextFileSync(new URL("reference/alerts.md", docs));
  for (const row of dashboardRows()) {
    assert(page.includes(`](../pictures/${pictureOf(row)})`), row.title);
    const svg = Deno.readTextFileSync(new URL(`pictures/${pictureOf(row)}`, docs));
    assertEquals(row.panels.map(({ title }) => title).filter((title) => !svg.includes(`>${title}</text>`)), []);
  }
});
