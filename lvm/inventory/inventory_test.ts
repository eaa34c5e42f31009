import { assertEquals, assertThrows } from "@std/assert";
import { healthyMachine } from "../../tests/fake/healthy_machine.ts";
import { DRIVER } from "../../tests/fake/status_machine.ts";
import { StorageError } from "../error.ts";
import { Lvm } from "../client/client.ts";
import { createFinders, takeInventory } from "./inventory.ts";

Deno.test("takeInventory() fails while a group is unresponsive, instead of reporting its volumes as foreign", async () => {
  const groups = await new Lvm(healthyMachine().machine).report();
  const finders = createFinders(DRIVER);
  const { volumes, foreign } = takeInventory(groups, finders);
  assertEquals([volumes.length, foreign], [1, []]);
  const unresponsive = groups.map((group) => ({ ...group, responsive: false }));
  const { kind } = assertThrows(() => takeInventory(unresponsive, finders), StorageError, "data");
  assertEquals(kind, "Unavailable");
});
