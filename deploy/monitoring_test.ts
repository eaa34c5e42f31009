import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { parse } from "@std/yaml";
import { Controller, Identity, Node } from "../csi/proto/csi_pb.ts";
import { chapterCommand, chapterName, chapters } from "../plugin/runbooks.ts";
import { CHART, renderChart } from "./chart.ts";
import { allMetrics } from "./reference/lists.ts";

/** Labels that come from where Prometheus found the target, not from the target: the PodMonitor's, and those of pods. */
const TARGET_LABELS = ["namespace", "node", "pod"];

/** Words of PromQL that the expressions use. */
const PROMQL = [
  ...[
    "and",
    "by",
    "count",
    "delta",
    "group_left",
    "histogram_quantile",
    "increase",
    "label_values",
    "max",
    "min",
    "min_over_time",
    "on",
    "or",
    "rate",
    "resets",
    "sum",
    "time",
  ],
  "topk",
  "unless",
];

/** The metrics, as Prometheus stores them, each with its labels. */
const metrics: ReadonlyMap<string, readonly string[]> = new Map(
  allMetrics().flatMap(({ name, type, labels }): [string, readonly string[]][] =>
    type === "histogram"
      ? [[`${name}_bucket`, [...labels, "le"]], [`${name}_count`, labels], [`${name}_sum`, labels]]
      : [[name, labels]]
  ),
);

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for: string;
  readonly labels: { readonly severity: string };
  readonly annotations: Readonly<Record<"summary" | "description" | "runbook", string>>;
}

interface Panel {
  readonly title: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

const { groups: [{ rules }] } = parse(Deno.readTextFileSync(join(CHART, "files/alerts.yaml"))) as {
  groups: [{ rules: Rule[] }];
};
const dashboard = JSON.parse(Deno.readTextFileSync(join(CHART, "files/dashboard.json"))) as {
  panels: Panel[];
  templating: { list: { name: string; definition?: string }[] };
};

/** The panels and alerts that people read: the labels that each shows, and the expression that must have them. */
const expressions = [
  ...rules.map(({ annotations: { summary }, expr }) => [expr, summary.match(/(?<=\$labels\.)\w+/g) ?? []] as const),
  ...dashboard.panels.flatMap(({ targets = [] }) => targets).map(({ expr, legendFormat }) =>
    [expr, legendFormat.match(/(?<=\{\{)\w+/g) ?? []] as const
  ),
  ...dashboard.templating.list.flatMap(({ definition }) => definition === undefined ? [] : [[definition, []] as const]),
];

/** Returns the words of an expression outside of strings, durations and Grafana's variables. */
function wordsOf(expression: string): string[] {
  return expression.replace(/"[^"]*"|\[[^\]]*\]/g, "").match(/[a-z_]\w*/g) ?? [];
}

Deno.test("every metric and label in alerts and dashboard exists", () => {
  assert(expressions.length > 20, "the test sees the expressions");
  for (const [expression, readLabels] of expressions) {
    const words = wordsOf(expression);
    const used = words.filter((word) => metrics.has(word));
    assert(used.length > 0, expression);
    const labels = new Set([...TARGET_LABELS, ...used.flatMap((name) => metrics.get(name)!)]);
    const unknown = words.filter((word) => !metrics.has(word) && !labels.has(word) && !PROMQL.includes(word));
    assertEquals([...unknown, ...readLabels.filter((label) => !labels.has(label))], [], expression);
  }
});

Deno.test("a panel of a sum shows the labels that it is grouped by", () => {
  for (const [expression, readLabels] of expressions) {
    const by = /\b(?:sum|min) by \(([^)]*)\)/.exec(expression)?.[1]?.split(", ");
    if (by !== undefined) assertEquals(readLabels.filter((label) => !by.includes(label)), [], expression);
  }
});

Deno.test("calls and results in alerts and dashboard are those that are counted", () => {
  const methods = [Controller, Identity, Node].flatMap((service) => service.methods.map(({ name }) => name));
  const values = (label: string) =>
    expressions.flatMap(([expression]) =>
      [...expression.matchAll(new RegExp(`\\b${label}=~?"([^"]*)"`, "g"))].flatMap(([, text]) => text!.split("|"))
    );
  assertEquals(values("method").filter((name) => !methods.includes(name)), []);
  assertEquals(values("result").filter((result) => !["success", "error"].includes(result)), []);
  assert(values("method").length > 0 && values("result").length > 0, "the test sees them");
});

Deno.test("every alert has a severity, a description and a runbook", () => {
  const names = rules.map(({ alert }) => alert);
  assertEquals(new Set(names).size, names.length);
  for (const { alert, labels: { severity }, annotations: { description, runbook } } of rules) {
    assert(/^Denolith[A-Z]\w+$/.test(alert) && /^(?:critical|warning)$/.test(severity), alert);
    assert(description.endsWith("."), alert);
    assert(chapters().has(runbook.replace("kubectl denolith help runbook ", "")), runbook);
  }
});

Deno.test("alerts have a link to the chapter that they name if docsUrl is set, and none otherwise", () => {
  const annotations = (docsUrl: string) => {
    const values = { docsUrl, metrics: { prometheusRule: { create: true } } };
    const { spec } = parse(renderChart({ values }).get("prometheusrule.yaml")!) as {
      spec: { groups: [{ rules: { annotations: Record<string, string> }[] }] };
    };
    return spec.groups[0].rules.map(({ annotations }) => annotations);
  };
  assertEquals(annotations("").flatMap(({ runbook_url }) => runbook_url ?? []), []);
  const linked = annotations("https://git.example/denolith/docs");
  for (const { runbook_url = "", runbook } of linked) {
    const [, path = "", page] = /^https:\/\/git\.example\/denolith\/docs\/((.*)#.*)$/.exec(runbook_url) ?? [];
    assertEquals(runbook, chapterCommand(chapterName(path)));
    assertEquals(chapters().get(chapterName(path))?.page, page);
  }
  assertEquals(linked.length, rules.length);
});

Deno.test("panels of the dashboard lie side by side and not over each other", () => {
  const taken = new Map<string, string>();
  for (const { title, gridPos: { x, y, w, h } } of dashboard.panels) {
    for (let row = y; row < y + h; row++) {
      for (let column = x; column < x + w; column++) {
        assertEquals([title, taken.get(`${column} ${row}`)], [title, undefined]);
        assert(column < 24, title);
        taken.set(`${column} ${row}`, title);
      }
    }
  }
});
