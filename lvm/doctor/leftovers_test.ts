import { assertEquals } from "@std/assert";
import { diagnose } from "../../tests/fake/machine/doctor_machine.ts";
import { healthyMachine } from "../../tests/fake/machine/healthy_machine.ts";
import type { FakeLv } from "../../tests/fake/machine/machine.ts";
import type { Program } from "../exec.ts";

Deno.test("the remedy for a device that a killed command left suspended does not put that command's table in use", async () => {
  const { machine, lv, device } = healthyMachine();
  machine.host.suspended.add(device);
  const { findings: [finding] } = await diagnose(machine);
  Object.assign(lv, { suspended: true, killedTable: "beside" });
  for (const command of finding!.remedy!.split(" && ")) {
    const [program, ...args] = command.split(" ");
    assertEquals((await machine.run({ program: program as Program, args, mutates: true })).code, 0, command);
  }
  assertEquals([lv.suspended, (lv as FakeLv).failedWrites], [false, undefined]);
});
