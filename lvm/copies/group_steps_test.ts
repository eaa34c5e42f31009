import { assertEquals } from "@std/assert";
import { GroupSteps } from "./group_steps.ts";

const [A, B] = [{ uuid: "a" }, { uuid: "b" }];
type Located = Parameters<GroupSteps["ended"]>[0];
const [IN_A, OTHER_IN_A] = ["one", "other"].map((uuid) => ({ group: A, lv: { uuid } })) as [Located, Located];

/** Lets promises that are settled call back. */
const turn = () => new Promise((resolve) => setTimeout(resolve, 0));

Deno.test("a step begins by a report from after the end of the last one of its group, whatever runs in others", async () => {
  let ends = 0;
  const steps = new GroupSteps(() => ends++);
  const before = steps.beforeReport();
  assertEquals([before(A), before(B)], [true, true]);
  const step = Promise.withResolvers<void>();
  steps.begin(IN_A, () => step.promise.then(() => ({})));
  const during = steps.beforeReport();
  assertEquals([during(A), during(B), ends], [false, true, 0]);
  await steps.ended(OTHER_IN_A);
  step.resolve();
  await steps.ended(IN_A);
  assertEquals([before(A), during(A), during(B), steps.beforeReport()(A), ends], [false, false, true, true, 1]);
});

Deno.test("a step whose command outlasts its deadline ends with the command, which nobody waits for to be idle", async () => {
  for (const end of ["resolve", "reject"] as const) {
    let ends = 0;
    const steps = new GroupSteps(() => ends++);
    const late = Promise.withResolvers<void>();
    steps.begin(IN_A, () => Promise.resolve({ late: late.promise }));
    assertEquals([await steps.idle(), await steps.idle()], [true, false]);
    const during = steps.beforeReport();
    assertEquals([during(A), ends], [false, 0]);
    let hasEnded = false;
    steps.ended(IN_A).then(() => hasEnded = true);
    await turn();
    assertEquals(hasEnded, false);
    if (end === "resolve") late.resolve();
    else late.reject(new Error("it failed"));
    await turn();
    assertEquals([hasEnded, during(A), steps.beforeReport()(A), ends], [true, false, true, 1]);
  }
});
