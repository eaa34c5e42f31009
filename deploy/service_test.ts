import { assert, assertEquals } from "@std/assert";

const unit = (await Deno.readTextFile(new URL("denolith.service", import.meta.url))).split("\n");

const settings = new Map(
  unit.filter((line) => /^[A-Z]/.test(line)).map((line) => line.split(/=(.*)/) as [string, string]),
);

/**
 * Prefixes of the settings that give a unit mounts of its own, or deny it devices: systemd.exec(5),
 * systemd.resource-control(5).
 */
const SEPARATING_SETTINGS =
  /^(?:Protect|Private|ReadOnly|ReadWrite|Inaccessible|NoExec|ExecPaths|Bind|Temporary|Root|Mount|DynamicUser|Device)/;

Deno.test("the unit leaves the driver the host's mounts and devices", () => {
  const chosen = [...settings.keys()];
  assert(chosen.includes("ExecStart"), "the test sees the settings");
  assertEquals(chosen.filter((name) => SEPARATING_SETTINGS.test(name)), []);
});

Deno.test("the unit kills no command of LVM, and gives the driver time to end", () => {
  assertEquals(settings.get("KillMode"), "process");
  assert(Number(settings.get("TimeoutStopSec")) >= 120);
});
