import { assertEquals } from "@std/assert";
import type { LvmMoveStatus } from "./moves.ts";
import type { MovePlan } from "../../plugin/move/preview.ts";
import { downtimeSeconds, moveProgressText, outcomeText, sentText, wayText } from "./move_text.ts";
import { movePlanText } from "../../plugin/move/preview.ts";

const PLAN: MovePlan = {
  ...{ claim: "n/c", persistentVolume: "pv", volume: "v", size: 1n << 20n, thin: false, erase: "zero" },
  ...{ sourceNode: "a", targetNode: "b", pods: ["n/p", "n/q"], companions: [], way: "Online" },
};
const HEAD = "Claim n/c (thick volume v, 1 MiB) moves from node a to node b:";
const TAIL = [
  "PersistentVolume pv gets the affinity to node b. Where the API server does not allow",
  "     to change it, it is deleted and created again with the same name; the claim is Lost for some seconds.",
].join("\n");

Deno.test("movePlanText() has the steps of an online move", () => {
  assertEquals(
    movePlanText(PLAN),
    [
      HEAD,
      "",
      "  1. It is copied to node b while it is used, from a temporary snapshot, and compared. Then what changed",
      "     meanwhile is copied, where that is much.",
      "  2. Nobody may begin to use it on node a, and the move waits until nobody uses it.",
      "     Pods that use it: n/p, n/q",
      "  3. What changed last is copied, while nobody can use it.",
      `  4. ${TAIL}`,
      "  5. The volume on node a is deleted, its data overwritten with zeros, and the copy takes its place.",
      "",
      "Until step 5, --cancel undoes it.",
    ].join("\n"),
  );
});

Deno.test("movePlanText() has the steps of an offline move, and why it is one", () => {
  const plan = { ...PLAN, thin: true, erase: "discard", pods: [], way: "Offline", offlineReason: "no space" } as const;
  assertEquals(
    movePlanText(plan),
    [
      HEAD.replace("thick", "thin"),
      "",
      "  1. Nobody may begin to use it on node a, and the move waits until nobody uses it.",
      "     Pods that use it: none",
      "  2. It is copied to node b while nobody can use it, and compared. It cannot be copied before:",
      "     no space.",
      `  3. ${TAIL}`,
      "  4. The volume on node a is deleted, its data discarded, and the copy takes its place.",
      "",
      "Until step 4, --cancel undoes it.",
    ].join("\n"),
  );
});

Deno.test("movePlanText() says how the data is erased, or why nothing is moved", () => {
  assertEquals(movePlanText({ ...PLAN, erase: "none" }).includes("its data not erased, and"), true);
  assertEquals(
    movePlanText({ ...PLAN, refusal: "it is full" }),
    "Claim n/c (thick volume v, 1 MiB) cannot be moved from node a to node b: it is full",
  );
});

const USED = { difference: 0, received: "5Mi", held: false };
const AGAIN = { difference: 1, received: "2Mi", held: false };
const HELD = { difference: 2, received: "64Ki", held: true };

Deno.test("sentText() has what was sent while the volume could be used, and while it could not", () => {
  assertEquals(sentText({}), undefined);
  assertEquals(sentText({ stages: [] }), undefined);
  assertEquals(sentText({ stages: [USED] }), "sent 5 MiB while it was used");
  assertEquals(sentText({ stages: [{ ...HELD, difference: 0 }] }), "sent 64 KiB while nobody could use it");
  const all = "sent 5 MiB and 2 MiB while it was used, 64 KiB while nobody could use it";
  assertEquals(sentText({ stages: [USED, AGAIN, HELD] }), all);
  assertEquals(sentText({ stages: [{ ...USED, received: "?" }] }), "sent 0 B while it was used");
});

Deno.test("wayText() says how a volume is copied", () => {
  assertEquals(wayText({ way: "Online" }), "online, so that it is copied while it is used");
  const offline = wayText({ way: "Offline", offlineReason: "no space" });
  assertEquals(offline, "offline, so that it is copied while nobody can use it: no space");
});

const LINES: readonly [status: LvmMoveStatus | undefined, line: string][] = [
  [undefined, "Pending"],
  [{ state: "Holding", message: "" }, "Holding"],
  [{ state: "Holding", way: "Online", message: "a pod uses it" }, "Holding: online, a pod uses it"],
  [
    { state: "Copying", copy: { copied: "1", percent: 40, total: "5Mi" }, message: "copies it" },
    "Copying: 40% of 5Mi, copies it",
  ],
  [{ state: "Copying", copy: { copied: "1" } }, "Copying: 0% of ?"],
  [{ state: "Copying", copy: { copied: "1", snapshot: "s" }, stages: [USED] }, "Copying: sent 5 MiB while it was used"],
  [{ state: "Switching", copy: { copied: "1", percent: 40 } }, "Switching"],
  [{ state: "Complete", way: "Online", message: "moved online" }, "Complete"],
  [{ state: "Failed", way: "Online", message: "no space" }, "Failed"],
];

for (const [status, line] of LINES) {
  Deno.test(`moveProgressText(): ${line}`, () => {
    assertEquals(moveProgressText({ metadata: { name: "m" }, spec: {} as never, ...(status && { status }) }), line);
  });
}

Deno.test("downtimeSeconds() is the time between the hold and the end of it, in whole seconds", () => {
  const [heldTime, releasedTime] = ["2026-01-02T03:04:05.000Z", "2026-01-02T03:05:07.600Z"];
  assertEquals(downtimeSeconds({ status: { heldTime, releasedTime } }), 63);
  assertEquals(downtimeSeconds({ status: { heldTime: releasedTime, releasedTime: heldTime } }), 0);
  assertEquals(downtimeSeconds({ status: { heldTime } }), undefined);
  assertEquals(downtimeSeconds({}), undefined);
});

Deno.test("outcomeText() has the way, what was sent, and the downtime, as far as they are known", () => {
  assertEquals(outcomeText({}), "");
  const times = { heldTime: "2026-01-02T03:04:05Z", releasedTime: "2026-01-02T03:04:06Z" };
  const text = "moved online; sent 5 MiB while it was used; nobody could use it for 1 s";
  assertEquals(outcomeText({ way: "Online", stages: [USED], ...times }), text);
});
