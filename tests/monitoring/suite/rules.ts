/**
 * promtool's check of the alerting rules, and its tests of what they do over time.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { ensurePrometheus } from "../../rig/prometheus.ts";
import { run } from "../../rig/process.ts";
import { ALERT_CASES } from "../alert_cases.ts";
import { CHART } from "../../../deploy/chart.ts";
import { RULES } from "../chart_files.ts";
import { type Rule, runRuleTests } from "../rule_tests.ts";

const { promtool } = await ensurePrometheus(console.error);

/** A rule with a mistake. */
interface Mutant {
  readonly rule: Rule;
  /** What differs. */
  readonly what: string;
}

/** Yields a rule with each of its thresholds, its duration and its matchers changed, one at a time. */
function* mutants(rule: Rule): Generator<Mutant> {
  for (const match of rule.expr.matchAll(/(?<=(?:[<>]=?|==) *)\d+(?:\.\d+)?/g)) {
    const step = match[0].includes(".") ? 0.015 : 1;
    for (const value of [Number(match[0]) - step, Number(match[0]) + step]) {
      const expr = rule.expr.slice(0, match.index) + value + rule.expr.slice(match.index + match[0].length);
      yield { rule: { ...rule, expr }, what: expr };
    }
  }
  for (const match of rule.expr.matchAll(/(?<=\{|, )\w+(?:=~|!~|!=|=)"[^"]*"/g)) {
    const expr = rule.expr.slice(0, match.index) + rule.expr.slice(match.index + match[0].length);
    yield { rule: { ...rule, expr: expr.replace("{, ", "{").replace(", }", "}") }, what: expr };
  }
  const minutes = Number(/^(\d+)m$/.exec(rule.for ?? "0m")![1]);
  for (const changed of minutes === 0 ? [5] : [0, minutes * 2]) {
    yield { rule: { ...rule, for: `${changed}m` }, what: `for: ${changed}m` };
  }
}

Deno.test("promtool has no complaint about the rules", async () => {
  await run("check the rules", promtool, [
    "check",
    "rules",
    "--lint=all",
    "--lint-fatal",
    `${CHART}/files/alerts.yaml`,
  ]);
});

Deno.test("every alert does not fire, fires and clears as its case says", async () => {
  const tests = RULES.map((rule) => ({ rules: [rule], rule, alertCase: ALERT_CASES[rule.alert]! }));
  const reports = await runRuleTests(promtool, tests);
  assertEquals(reports.filter((report) => report !== "").join("\n"), "");
});

Deno.test("a rule with another threshold, duration or selection fails its case", async () => {
  const changed = RULES.flatMap((rule) => [...mutants(rule)].map((mutant) => ({ ...mutant, original: rule })));
  const reports = await runRuleTests(
    promtool,
    changed.map(({ rule, original }) => ({ rules: [rule], rule: original, alertCase: ALERT_CASES[rule.alert]! })),
  );
  assert(changed.length > 3 * RULES.length, "the test sees the thresholds");
  const unnoticed = changed.filter((_, index) => reports[index] === "");
  assertEquals(unnoticed.map(({ rule: { alert }, what }) => `${alert}: ${what}`), []);
});
