import { assert, assertEquals } from "@std/assert";
import { until } from "../../rig/until.ts";
import { DriverPods, type Role, SYSTEM } from "./driver_pods.ts";
import { Ledger } from "./ledger.ts";
import { peakPerSecond } from "./rights.ts";
import { Scene } from "./scene.ts";

/** How long the API server is away, in milliseconds. */
const AWAY_MS = 60_000;

/** How soon watches must notice that nothing comes any more, in milliseconds. */
const NOTICED_MS = 30_000;

/** Requests in one second that are no storm yet: every watch and list anew, and each claim's own, at once. */
const STORM = 60;

const ROLES: readonly Role[] = ["controller", "node"];

Deno.test("the API server away for a minute in the midst of creations: nothing is lost, no storm follows, nobody restarts", async () => {
  await using scene = await Scene.open("outage");
  await using ledger = await Ledger.open(scene);
  await using driver = await DriverPods.open(scene.cluster);
  const { controlPlane } = scene.cluster;
  const className = await scene.storageClass("now", { volumeBindingMode: "Immediate" });
  const restarts = driver.restarts();
  const names = Array.from({ length: 6 }, (_, n) => `claim-${n}`);
  await Promise.all(names.map((name) => ledger.claim(name, className)));
  await ledger.when("the first volume is begun", () => ledger.begun > 0);

  await controlPlane.stopApi();
  try {
    // The time itself is what is tried here.
    await new Promise((resolve) => setTimeout(resolve, AWAY_MS));
  } finally {
    await controlPlane.startApi();
  }
  const back = Date.now();
  await ledger.remove(names.pop()!);
  await ledger.bound(names);
  await ledger.balanced();

  assertEquals(driver.restarts(), restarts);
  const since = (await controlPlane.auditEvents()).filter((event) =>
    Date.parse(event.requestReceivedTimestamp) >= back - 10_000
  );
  for (const role of ROLES) {
    const account = `system:serviceaccount:${SYSTEM}:denolith-${role}`;
    const peak = peakPerSecond(since.filter(({ user }) => user.username === account));
    console.error(`${role}: at most ${peak} requests a second after the outage`);
    assert(peak > 0 && peak <= STORM, `${role}: ${peak} requests in one second`);
  }
});

Deno.test("an API server that keeps its connections and says nothing is noticed, and work goes on when it speaks again", async () => {
  await using scene = await Scene.open("frozen");
  await using ledger = await Ledger.open(scene);
  await using driver = await DriverPods.open(scene.cluster);
  const className = await scene.storageClass("now", { volumeBindingMode: "Immediate" });
  const restarts = driver.restarts();
  const before = new Map<Role, number>();
  for (const role of ROLES) before.set(role, await failedWatches(driver, role));
  await scene.cluster.controlPlane.freezeApi();
  try {
    const began = performance.now();
    await Promise.all(ROLES.map(async (role) => {
      const noticed = async () => await failedWatches(driver, role) > before.get(role)!;
      await until(noticed, { action: `wait for ${role} to notice`, timeoutMs: NOTICED_MS, everyMs: 500 });
      console.error(`${role}: noticed after ${Math.round((performance.now() - began) / 1000)} s`);
    }));
  } finally {
    await scene.cluster.controlPlane.thawApi();
  }
  await ledger.claim("after", className);
  await ledger.bound(["after"]);
  await ledger.balanced();
  assertEquals(driver.restarts(), restarts);
});

/** How many watches are known to have failed. */
async function failedWatches(driver: DriverPods, role: Role): Promise<number> {
  return (await driver.logs(role)).split("listing and watching failed").length - 1;
}
