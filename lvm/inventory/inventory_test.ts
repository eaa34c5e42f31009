import { assertEquals } from "@std/assert";
import { healthyMachine } from "../../tests/fake/machine/healthy_machine.ts";
import { DRIVER } from "../../tests/fake/machine/status_machine.ts";
import { Lvm } from "../client/client.ts";
import { createFinders, takeInventory } from "./inventory.ts";

Deno.test("takeInventory() knows nothing of the volumes of an unresponsive group, instead of reporting them as foreign", async () => {
  const groups = await new Lvm(healthyMachine().machine).report();
  const finders = createFinders(DRIVER);
  const { volumes: [volume, ...others], foreign, unknown } = takeInventory(groups, finders);
  assertEquals([others, foreign, unknown], [[], [], []]);
  const unresponsive = takeInventory(groups.map((group) => ({ ...group, responsive: false })), finders);
  assertEquals([unresponsive.volumes, unresponsive.lost, unresponsive.foreign], [[], [], []]);
  assertEquals(unresponsive.unknown.map(({ id, error }) => [id, error.kind]), [[volume!.id, "Unavailable"]]);
});
