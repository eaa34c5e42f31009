import { chanceOfRun, pick } from "./chance.ts";
import { DriverPods, type Role } from "./driver_pods.ts";
import { Ledger } from "./ledger.ts";
import { FULL, Scene } from "./scene.ts";

/** How many claims are made in all. */
const CLAIMS = FULL ? 50 : 20;

/** How many are made between two kills. */
const ROUND = 5;

/** Milliseconds in which a kill comes after the first request of a round: a creation takes some seconds here. */
const KILL_WITHIN_MS = 6_000;

/** Milliseconds in which all must be in order: a volume whose claim went unseen waits for the sweep. */
const BALANCE_MS = 600_000;

const WAYS = ["delete the pod", "kill the process"] as const;

Deno.test("whoever is killed in the midst of creations and deletions, all converge, and nothing leaks or doubles", async () => {
  await using scene = await Scene.open("kills");
  await using ledger = await Ledger.open(scene);
  await using driver = await DriverPods.open(scene.cluster);
  const className = await scene.storageClass("now", { volumeBindingMode: "Immediate" });
  const chance = chanceOfRun();
  // Each of both is killed, whatever chance says.
  const first = pick(chance, ["controller", "node"] as const);
  for (let made = 0; made < CLAIMS; made += ROUND) {
    const role: Role = (made / ROUND) % 2 === 0 ? first : first === "node" ? "controller" : "node";
    const work = round(ledger, { className, chance, made });
    // Any moment may be the wrong one: that is what is tried here.
    await new Promise((resolve) => setTimeout(resolve, chance() * KILL_WITHIN_MS));
    await kill(driver, role, pick(chance, WAYS));
    await work;
  }
  await ledger.balanced({ timeoutMs: BALANCE_MS });
});

/** Makes some claims and has about half of the others deleted, some of them those just made. */
async function round(
  ledger: Ledger,
  { className, chance, made }: { className: string; chance: () => number; made: number },
): Promise<void> {
  const names = Array.from({ length: ROUND }, (_, n) => `claim-${made + n}`);
  await Promise.all(names.map((name) => ledger.claim(name, className)));
  const doomed = ledger.names().filter(() => chance() < 0.4);
  await Promise.all(doomed.map(async (name) => {
    await new Promise((resolve) => setTimeout(resolve, chance() * KILL_WITHIN_MS));
    await ledger.remove(name);
  }));
}

async function kill(driver: DriverPods, role: Role, way: typeof WAYS[number]): Promise<void> {
  const before = driver.working(role);
  const began = performance.now();
  if (way === "delete the pod") await driver.deletePods(role);
  else await driver.killProcess(role);
  await driver.back(role, { before });
  console.error(`${role}: ${way}; back after ${Math.round((performance.now() - began) / 1000)} s`);
}
