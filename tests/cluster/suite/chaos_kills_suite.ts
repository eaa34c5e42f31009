import { pick, runRandom } from "../../rig/seeded_random.ts";
import { DriverPods, type Role } from "./helpers/driver_pods.ts";
import { ClaimTracker } from "./helpers/claim_tracker.ts";
import { FULL, TestNamespace } from "./helpers/test_namespace.ts";

/** The number of claims. */
const CLAIMS = FULL ? 50 : 20;

/** The number of claims between two kills. */
const CLAIMS_PER_ROUND = 5;

/** Milliseconds in which a kill comes after the first request of a round: a creation takes some seconds here. */
const KILL_WITHIN_MS = 6_000;

/** The time limit for consistency, in milliseconds: a volume whose deleted claim was missed waits for garbage collection. */
const CONSISTENCY_TIMEOUT_MS = 600_000;

const KILL_METHODS = ["delete the pod", "kill the process"] as const;

Deno.test("creations and deletions converge whichever process is killed meanwhile, without leaks or duplicates", async () => {
  await using ns = await TestNamespace.open("kills");
  await using tracker = await ClaimTracker.open(ns);
  await using driver = await DriverPods.open(ns.cluster);
  const className = await ns.createStorageClass("now", { volumeBindingMode: "Immediate" });
  const random = runRandom();
  // Both are killed in turn, whatever the random numbers.
  const first = pick(random, ["controller", "node"] as const);
  for (let created = 0; created < CLAIMS; created += CLAIMS_PER_ROUND) {
    const role: Role = (created / CLAIMS_PER_ROUND) % 2 === 0 ? first : first === "node" ? "controller" : "node";
    const claimsDone = createAndDelete(tracker, { className, random, created });
    // The moment is random: a kill at any moment must do no harm.
    await new Promise((resolve) => setTimeout(resolve, random() * KILL_WITHIN_MS));
    await kill(driver, role, pick(random, KILL_METHODS));
    await claimsDone;
  }
  await tracker.waitForConsistency({ timeoutMs: CONSISTENCY_TIMEOUT_MS });
});

/** Makes some claims and has about half of the others deleted, some of them those just made. */
async function createAndDelete(
  tracker: ClaimTracker,
  { className, random, created }: { className: string; random: () => number; created: number },
): Promise<void> {
  const names = Array.from({ length: CLAIMS_PER_ROUND }, (_, n) => `claim-${created + n}`);
  await Promise.all(names.map((name) => tracker.createClaim(name, className)));
  const toDelete = tracker.claimNames().filter(() => random() < 0.4);
  await Promise.all(toDelete.map(async (name) => {
    await new Promise((resolve) => setTimeout(resolve, random() * KILL_WITHIN_MS));
    await tracker.deleteClaim(name);
  }));
}

async function kill(driver: DriverPods, role: Role, method: typeof KILL_METHODS[number]): Promise<void> {
  const before = driver.readyContainers(role);
  const startedAt = performance.now();
  if (method === "delete the pod") await driver.deletePods(role);
  else await driver.killProcess(role);
  await driver.waitForReady(role, { before });
  console.error(`${role}: ${method}; back after ${Math.round((performance.now() - startedAt) / 1000)} s`);
}
