import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import type { Command, Exec, Output } from "../exec.ts";
import type { LocatedLv } from "../model/report.ts";
import { requireHiddenDevice } from "./device.ts";

const LOCATED = {
  group: { uuid: "gr-oup" },
  lv: { uuid: "l-v", devicePath: "/dev/mapper/data-snap" },
} as LocatedLv;

/** Runs dmsetup and lsblk. @param mapped the UUID and the number of the device @param node the number of its node */
function execWith(mapped: [uuid: string, number: string] | undefined, node: string | undefined): Exec {
  const ok = (stdout: string): Output => ({ code: 0, stdout, stderr: "" });
  const none = { code: 1, stdout: "", stderr: "" };
  const run = ({ program, args }: Command): Output => {
    if (program === "lsblk") {
      if (node === undefined) return { ...none, code: 32 };
      const device = { name: "data-snap-cow", "maj:min": node, size: 4096, ro: false };
      return ok(JSON.stringify({ blockdevices: [device] }));
    }
    if (args[0] === "mknodes") return ok("");
    if (mapped === undefined) return { ...none, stderr: "Device data-snap-cow not found\nCommand failed.\n" };
    return ok(`data-snap-cow|${mapped[0]}|${mapped[1]}|Active||Live\n`);
  };
  return { run: (command) => Promise.resolve(run(command)), idle: () => Promise.resolve() };
}

Deno.test("requireHiddenDevice() returns the node of a layer of the LV, and says what is wrong with another one", async () => {
  const uuid = "LVM-grouplv-cow";
  assertEquals(
    await requireHiddenDevice(execWith([uuid, "253:7"], "253:7"), LOCATED, "-cow"),
    "/dev/mapper/data-snap-cow",
  );
  const cases: [exec: Exec, reason: string][] = [
    [execWith(undefined, "253:7"), "the kernel has no such device"],
    [execWith(["LVM-another", "253:7"], "253:7"), "it is LVM-another"],
    [execWith([uuid, "253:7"], "8:0"), "its node is 8:0, not 253:7"],
    [execWith([uuid, "253:7"], undefined), "its node is missing, not 253:7"],
  ];
  for (const [exec, reason] of cases) {
    const error = await assertRejects(() => requireHiddenDevice(exec, LOCATED, "-cow"), StorageError, reason);
    assertEquals(error.kind, "FailedPrecondition");
  }
});
