import { assert, assertEquals } from "@std/assert";
import { pollUntil } from "../../rig/poll_until.ts";
import { DriverPods, type Role, SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import { ClaimTracker } from "./helpers/claim_tracker.ts";
import { peakPerSecond } from "./helpers/rbac_usage.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

/** The duration of the API server's outage, in milliseconds. */
const OUTAGE_MS = 60_000;

/** The time in milliseconds within which a watch must notice that its connection is dead: 30 s idle, 5 s for an answer, and some. */
const DETECTION_TIMEOUT_MS = 40_000;

/** The limit of requests in one second: every watch and list again, and those of each claim, at once. */
const MAX_REQUESTS_PER_SECOND = 60;

const ROLES: readonly Role[] = ["controller", "node"];

Deno.test("the API server is away for a minute during creations: nothing is lost, no retry storm follows, no process restarts", async () => {
  await using ns = await TestNamespace.open("outage");
  await using tracker = await ClaimTracker.open(ns);
  await using driver = await DriverPods.open(ns.cluster);
  const { controlPlane } = ns.cluster;
  const className = await ns.createStorageClass("now", { volumeBindingMode: "Immediate" });
  const restarts = driver.restarts();
  const names = Array.from({ length: 6 }, (_, n) => `claim-${n}`);
  await Promise.all(names.map((name) => tracker.createClaim(name, className)));
  await tracker.waitUntil("the creation of the first volume started", () => tracker.startedCount > 0);

  await controlPlane.stopApi();
  try {
    // The test needs this fixed time.
    await new Promise((resolve) => setTimeout(resolve, OUTAGE_MS));
  } finally {
    await controlPlane.startApi();
  }
  const restoredAt = Date.now();
  await tracker.deleteClaim(names.pop()!);
  await tracker.waitForBound(names);
  await tracker.waitForConsistency();

  assertEquals(driver.restarts(), restarts);
  const eventsSince = (await controlPlane.auditEvents()).filter((event) =>
    Date.parse(event.requestReceivedTimestamp) >= restoredAt - 10_000
  );
  for (const role of ROLES) {
    const account = `system:serviceaccount:${SYSTEM_NAMESPACE}:denolith-${role}`;
    const peak = peakPerSecond(eventsSince.filter(({ user }) => user.username === account));
    console.error(`${role}: at most ${peak} requests a second after the outage`);
    assert(peak > 0 && peak <= MAX_REQUESTS_PER_SECOND, `${role}: ${peak} requests in one second`);
  }
});

Deno.test("an API server that stops answering on open connections is detected, and work continues when it answers again", async () => {
  await using ns = await TestNamespace.open("frozen");
  await using tracker = await ClaimTracker.open(ns);
  await using driver = await DriverPods.open(ns.cluster);
  const className = await ns.createStorageClass("now", { volumeBindingMode: "Immediate" });
  const restarts = driver.restarts();
  const before = new Map<Role, number>();
  for (const role of ROLES) before.set(role, await failedWatches(driver, role));
  await ns.cluster.controlPlane.pauseApi();
  try {
    const startedAt = performance.now();
    await Promise.all(ROLES.map(async (role) => {
      const hasNoticed = async () => await failedWatches(driver, role) > before.get(role)!;
      await pollUntil(hasNoticed, {
        action: `wait for ${role} to notice`,
        timeoutMs: DETECTION_TIMEOUT_MS,
        intervalMs: 500,
      });
      console.error(`${role}: noticed after ${Math.round((performance.now() - startedAt) / 1000)} s`);
    }));
  } finally {
    await ns.cluster.controlPlane.resumeApi();
  }
  await tracker.createClaim("after", className);
  await tracker.waitForBound(["after"]);
  await tracker.waitForConsistency();
  assertEquals(driver.restarts(), restarts);
});

/** Returns the number of watches that failed. */
async function failedWatches(driver: DriverPods, role: Role): Promise<number> {
  return (await driver.logs(role)).split("listing and watching failed").length - 1;
}
