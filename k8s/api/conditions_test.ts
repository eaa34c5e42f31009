import { assertEquals } from "@std/assert";
import { type Condition, conditionsOf, withConditions } from "./conditions.ts";

const [EARLIER, NOW] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"];

function condition(type: string, overrides: Partial<Condition<string>> = {}): Condition<string> {
  return { type, status: "True", reason: "Good", message: "all is well", lastTransitionTime: EARLIER, ...overrides };
}

Deno.test("withConditions() replaces conditions by type, and a transition time only when the status changed", () => {
  const before = [condition("B"), condition("A")];
  const { lastTransitionTime: _, ...added } = condition("B", { message: "still well" });
  assertEquals(withConditions(before, [added], NOW), [condition("A"), condition("B", { message: "still well" })]);
  const failed = { ...added, status: "False" } as const;
  assertEquals(withConditions(before, [failed], NOW), [condition("A"), { ...failed, lastTransitionTime: NOW }]);
  assertEquals(withConditions<Condition<string>>([], [added], NOW), [{ ...added, lastTransitionTime: NOW }]);
});

Deno.test("withConditions() lets its caller say what counts as the same", () => {
  const { lastTransitionTime: _, ...added } = condition("A", { reason: "Better" });
  const [now] = withConditions([condition("A")], [added], NOW, (a, b) => a.reason === b.reason);
  assertEquals(now, condition("A", { reason: "Better", lastTransitionTime: NOW }));
});

Deno.test("conditionsOf() has none for an object without a status", () => {
  assertEquals(conditionsOf({}), []);
  assertEquals(conditionsOf({ status: { conditions: [condition("A")] } }), [condition("A")]);
});
