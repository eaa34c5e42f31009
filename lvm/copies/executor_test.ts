import { assertEquals, assertRejects } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { Lvm } from "../client/client.ts";
import { StorageError } from "../../base/error.ts";
import { type CopyContext, type CopyTask, executeStep } from "./executor.ts";

Deno.test("a step whose LV was removed since the report lets the copy continue by another report", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const lvm = new Lvm(machine);
  const args = ["lvcreate", "--yes", "--wipesignatures", "y", "--name", "cut", "--size", "16777216b", "data"];
  await lvm.change((await lvm.report())[0]!, args);
  const [group] = await lvm.report();
  const [lv] = group!.lvs;
  machine.groups[0]!.lvs.splice(0);
  for (const suspended of [false, true]) {
    const step = { do: "activate", located: { group: group!, lv: { ...lv!, suspended } } } as const;
    const error = await assertRejects(
      () => executeStep(step, {} as CopyTask, { lvm, driver: "d" } as CopyContext),
      StorageError,
      "Failed to find logical volume",
    );
    assertEquals(error.kind, "CommandFailed");
  }
});
