import { assert, assertEquals } from "@std/assert";
import { ALERT_CASES } from "./alert_cases.ts";
import { PANEL_QUERIES, RULES, selectorsOf, withoutVariables } from "./chart_files.ts";

Deno.test("every alert has a test in which it does not fire, fires and clears", () => {
  assertEquals(Object.keys(ALERT_CASES).sort(), RULES.map(({ alert }) => alert).sort());
  for (const [alert, { doesNotFire, fires, clears }] of Object.entries(ALERT_CASES)) {
    const firing = Object.entries(fires).filter(([, alerts]) => alerts.length > 0).map(([minute]) => Number(minute));
    assert(doesNotFire.length > 0 && firing.length > 0 && clears.length > 0, alert);
    assert(Math.max(...doesNotFire) < Math.min(...firing), `${alert}: it does not fire before it fires`);
    assert(Math.min(...clears) > Math.max(...firing), `${alert}: it clears after it has fired`);
  }
});

Deno.test("descriptions and runbooks have no values, so that each test of an alert names its summary alone", () => {
  const templates = RULES.filter(({ annotations: { description, runbook } }) =>
    `${description}${runbook}`.includes("{{")
  );
  assertEquals(templates.map(({ alert }) => alert), []);
});

Deno.test("withoutVariables() knows all variables of the dashboard", () => {
  for (const { expr } of PANEL_QUERIES) assert(!withoutVariables(expr, "5s").includes("$"), expr);
});

Deno.test("selectorsOf() finds the series of each rule", () => {
  for (const { alert, expr } of RULES) assert(selectorsOf(expr).length > 0, alert);
  assertEquals(selectorsOf('sum(rate(denolith_a_count{x=~"a|b"}[5m])) > 0 and on (x) denolith_b'), [
    'denolith_a_count{x=~"a|b"}',
    "denolith_b",
  ]);
});
