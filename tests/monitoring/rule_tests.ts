/**
 * Unit tests of alerting rules, which promtool runs: what each alert does over simulated time.
 *
 * @module
 */

import { join } from "@std/path";
import { stringify } from "@std/yaml";
import { run } from "../rig/process.ts";
import { TempFolder } from "../rig/temp_folder.ts";

/** An alerting rule. */
export interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<"summary" | "description" | "runbook", string>>;
}

/** The samples of series, one a minute from minute 0 on, by the name of the metric with its labels, in promtool's notation. */
export type Series = Readonly<Record<string, string>>;

/** An alert that fires. */
export interface Firing {
  /** The labels that it has from its series; those of the rule are added. */
  readonly labels: Readonly<Record<string, string>>;
  /** Its summary. */
  readonly summary: string;
}

/** What an alert must do. All times are in minutes. */
export interface AlertCase {
  /** Series with the cause of the alert, from some time to another. */
  readonly series: Series;
  /** The times at which it does not fire: before the cause, and before the cause has lasted long enough. */
  readonly doesNotFire: readonly number[];
  /** The alerts that fire, by the times at which they do. */
  readonly fires: Readonly<Record<number, readonly Firing[]>>;
  /** The times at which it does not fire any more. */
  readonly clears: readonly number[];
  /** Series that resemble the cause: the alert fires at no time. By the reason. */
  readonly neverFires?: Readonly<Record<string, Series>>;
}

/** The minutes in which an alert is checked not to fire on what resembles its cause. */
const NEVER_FIRES_MINUTES = Array.from({ length: 24 }, (_, index) => 5 * (index + 1));

/** Rules with the test of one of them. */
export interface RuleTest {
  /** The rules, of which one may be changed. */
  readonly rules: readonly Rule[];
  /** The rule that is tested, as it should be. */
  readonly rule: Rule;
  readonly alertCase: AlertCase;
}

/** Returns the content of a file of promtool's unit tests. */
function testFile(rulesFile: string, { rule: { alert, labels, annotations }, alertCase }: RuleTest): object {
  const input = (series: Series) => Object.entries(series).map(([series, values]) => ({ series, values }));
  const at = (minute: number, firing: readonly Firing[] = []) => ({
    eval_time: `${minute}m`,
    alertname: alert,
    exp_alerts: firing.map(({ labels: own, summary }) => ({
      exp_labels: { ...own, ...labels },
      exp_annotations: { ...annotations, summary },
    })),
  });
  const { series, doesNotFire, fires, clears, neverFires = {} } = alertCase;
  const silent = [...doesNotFire, ...clears].map((minute) => at(minute));
  const firing = Object.entries(fires).map(([minute, alerts]) => at(Number(minute), alerts));
  return {
    rule_files: [rulesFile],
    evaluation_interval: "1m",
    tests: [
      { interval: "1m", input_series: input(series), alert_rule_test: [...silent, ...firing] },
      ...Object.values(neverFires).map((series) => ({
        ...{ interval: "1m", input_series: input(series) },
        alert_rule_test: NEVER_FIRES_MINUTES.map((minute) => at(minute)),
      })),
    ],
  };
}

/**
 * Runs tests by one promtool.
 *
 * @returns what promtool says about each test: an empty text for one that passes
 */
export async function runRuleTests(promtool: string, tests: readonly RuleTest[]): Promise<string[]> {
  await using folder = await TempFolder.create("/tmp", "denolith-rules-");
  const names = await Promise.all(tests.map(async (test, index) => {
    const [rules, name] = [`rules-${index}.yaml`, `test-${index}.yaml`];
    await Deno.writeTextFile(folder.file(rules), stringify({ groups: [{ name: "denolith", rules: test.rules }] }));
    await Deno.writeTextFile(folder.file(name), JSON.stringify(testFile(rules, test)));
    return name;
  }));
  // It writes the names of files to standard output, and what failed to standard error.
  const args = ["-c", '"$0" test rules "$@" 2>&1 || :', promtool, ...names];
  const output = await run("test rules", "/bin/sh", args, { cwd: folder.path, guardedBy: folder });
  const reports = new Map(
    output.split(/^Unit Testing: +/m).slice(1).map((text) => {
      const [name = "", ...lines] = text.trim().split("\n");
      return [name, lines.join("\n")] as const;
    }),
  );
  return names.map((name) => {
    const report = reports.get(name) ?? reports.get(join(folder.path, name));
    if (report === undefined) throw new Error(`test rules: promtool says nothing of ${name}:\n${output}`);
    return report.trim() === "SUCCESS" ? "" : report;
  });
}
