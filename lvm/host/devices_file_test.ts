import { assertEquals } from "@std/assert";
import type { Command, Output } from "../exec.ts";
import { devicesFileSettings } from "./open_exec.ts";

/** An exec that gives one answer. */
function answering(output: Output) {
  const commands: Command[] = [];
  const run = (command: Command) => {
    commands.push(command);
    return Promise.resolve(output);
  };
  return { commands, run, idle: () => Promise.resolve() };
}

// the answers of LVM 2.03.16
const UNSET = { code: 5, stdout: "", stderr: "  Configuration node devices/use_devicesfile not found\n" };
const OFF = { code: 0, stdout: "use_devicesfile=0\n", stderr: "" };
const BROKEN = { code: 3, stdout: "", stderr: "  Parse error at byte 12 (line 1): expected a value\n" };

Deno.test("devicesFileSettings(): the host's devices file is used where no setting says whether", async () => {
  const exec = answering(UNSET);
  assertEquals(await devicesFileSettings("auto", exec), "devices/use_devicesfile=1");
  assertEquals(exec.commands.map(({ args }) => args), [[
    ...["lvmconfig", "--type", "current", "--mergedconfig", "devices/use_devicesfile"],
  ]]);
  for (const other of [OFF, BROKEN]) assertEquals(await devicesFileSettings("auto", answering(other)), undefined);
});

Deno.test("devicesFileSettings(): one that is named is used, whatever the settings say", async () => {
  const exec = answering(OFF);
  const settings = 'devices/use_devicesfile=1 devices/devicesfile="denolith.devices"';
  assertEquals([await devicesFileSettings("denolith.devices", exec), exec.commands], [settings, []]);
});
