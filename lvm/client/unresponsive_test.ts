import { assertEquals, assertRejects } from "@std/assert";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { StorageError } from "../../base/error.ts";
import { describeCommand } from "../exec.ts";
import type { FreshReport } from "./client.ts";
import { Lvm } from "./client.ts";

/** Creates a machine on which reports of LVM can hang, and a client. */
function harness(...groups: string[]) {
  const machine = new FakeMachine();
  for (const name of groups) machine.addGroup(name, 1n << 30n);
  const hangs = { whole: false, group: false };
  const ends = Promise.withResolvers<void>();
  const commands: string[] = [];
  machine.fault = (command) => {
    if (command.program !== "lvm" || command.mutates) return undefined;
    const kind = command.args.includes("--devices") ? "group" : "whole";
    commands.push(kind);
    if (!hangs[kind]) return undefined;
    const completion = kind === "whole" ? ends.promise : new Promise(() => {});
    throw new StorageError("Unavailable", `${describeCommand(command)}: no answer`, { completion });
  };
  return { machine, lvm: new Lvm(machine), hangs, commands, endWhole: ends.resolve };
}

/** Returns what is wrong with each group. */
function stateOf(report: FreshReport): string[] {
  return report.map(({ name, responsive, readError = "" }) =>
    `${name} ${responsive ? "responds" : "silent"} ${readError}`
  );
}

Deno.test("a report that hangs before any group is known is not begun a second time", async () => {
  const { lvm, hangs, commands, endWhole } = harness("a");
  hangs.whole = true;
  for (let tries = 0; tries < 3; tries++) await assertRejects(() => lvm.report(), StorageError, "no answer");
  assertEquals(commands, ["whole"]);
  hangs.whole = false;
  endWhole();
  await new Promise((resolve) => setTimeout(resolve));
  assertEquals(stateOf(await lvm.report()), ["a responds "]);
});

Deno.test("while a group hangs no complete report is begun, also when the last one has ended", async () => {
  const { lvm, hangs, commands, endWhole } = harness("a");
  await lvm.report();
  hangs.whole = hangs.group = true;
  assertEquals(stateOf(await lvm.report()), ["a silent "]);
  endWhole();
  await new Promise((resolve) => setTimeout(resolve));
  for (let tries = 0; tries < 2; tries++) assertEquals(stateOf(await lvm.report()), ["a silent "]);
  assertEquals(commands, ["whole", "whole", "group"]);
});

Deno.test("a group whose disks have another group by now is shown as one that cannot be read", async () => {
  const { machine, lvm, hangs } = harness("a", "b");
  await lvm.report();
  hangs.whole = true;
  machine.groups[0]!.uuid = "another";
  const readError = "LVM finds no such volume group on these disks any more";
  assertEquals(stateOf(await lvm.report()), [`a silent ${readError}`, "b responds "]);
});
