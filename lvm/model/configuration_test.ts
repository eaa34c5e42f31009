import { assertEquals, assertRejects } from "@std/assert";
import healthy from "../../tests/fixtures/doctor/lvmconfig.txt" with { type: "text" };
import lists from "../../tests/fixtures/doctor/lvmconfig_lists.txt" with { type: "text" };
import { parseConfiguration, readConfiguration } from "./configuration.ts";
import { StorageError } from "../../base/error.ts";
import type { Exec, Output } from "../exec.ts";

function execReturning(output: Output): Exec {
  return { run: () => Promise.resolve(output), idle: () => Promise.resolve() };
}

Deno.test("parseConfiguration() parses the output of lvmconfig of LVM 2.03.16", () => {
  const settings = parseConfiguration(healthy);
  assertEquals(settings.value("global/locking_type"), "1");
  assertEquals(settings.value("global/locking_dir"), "/run/lock/lvm");
  assertEquals(settings.list("devices/filter"), ["a|.*|"]);
  assertEquals(settings.list("activation/volume_list"), undefined);
});

Deno.test("parseConfiguration() parses lists, one text in place of a list, an empty list, and quotes within a text", () => {
  const settings = parseConfiguration(lists);
  assertEquals(settings.list("devices/filter"), ["r|/dev/vdd|"]);
  assertEquals(settings.list("activation/volume_list"), ["fast", '@x"y']);
  assertEquals(settings.list("activation/read_only_volume_list"), ["data"]);
  assertEquals(parseConfiguration("volume_list=[]\n").list("activation/volume_list"), []);
  assertEquals(parseConfiguration('filter=["r|/dev/sd\\\\.|"]').list("devices/filter"), ["r|/dev/sd\\.|"]);
});

Deno.test("readConfiguration() accepts that LVM does not have one of the settings, but not that it prints none", async () => {
  const stderr = "  Configuration node devices/use_devicesfile not found\n";
  const some = await readConfiguration(execReturning({ code: 5, stdout: "locking_type=1\n", stderr }));
  assertEquals([some.value("global/locking_type"), some.value("devices/use_devicesfile")], ["1", undefined]);
  const broken = { code: 4, stdout: "", stderr: "  Parse error at byte 21 (line 2): expected a value\n" };
  const error = await assertRejects(() => readConfiguration(execReturning(broken)), StorageError, "Parse error");
  assertEquals(error.kind, "CommandFailed");
});
