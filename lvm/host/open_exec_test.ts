import { assertEquals } from "@std/assert";
import { HostExec } from "../exec.ts";
import { FilteredExec } from "./filtered_exec.ts";
import { isOfService, openExec, readChildStat } from "./open_exec.ts";

Deno.test("isOfService(): a service leads a session without a terminal", () => {
  const cases: [stat: string, expected: boolean][] = [
    ["12 (dd) R 1 1 1 0 -1 4194304 ", true],
    ["12 (dd) R 7 7 7 0 -1 4194304 ", true],
    ["12 (dd) R 7 7 7 34816 -1 4194304 ", false], // a container with a terminal
    ["12 (dd) R 7 7 5 34816 -1 4194304 ", false], // a command in a shell
    ["12 (dd) R 7 6 5 0 -1 4194304 ", false], // timeout(1) without a terminal
    ["12 (dd) R 7 6 ", false],
    ["", false],
  ];
  for (const [stat, expected] of cases) assertEquals(isOfService(stat), expected, stat);
});

Deno.test("readChildStat(): the child is in the session of this process, which it is asked about", async () => {
  const args = [`if=/proc/${Deno.pid}/stat`, "status=none"];
  const { stdout: own } = await new HostExec().run({ program: "dd", args, mutates: false });
  const fieldsOf = (stat: string) => stat.replace(/^\d+ \(.*\) \w /, "").split(" "); // ppid, pgrp, session
  const [parent, , session] = fieldsOf(await readChildStat());
  assertEquals([parent, session], [`${Deno.pid}`, fieldsOf(own)[2]]);
});

Deno.test("openExec(): runs commands, those of lvm with a filter", async () => {
  const exec = await openExec();
  assertEquals(exec instanceof FilteredExec, true);
  const { stdout } = await exec.run({ program: "dd", args: ["if=/dev/zero", "bs=3", "count=1"], mutates: false });
  assertEquals(stdout.length, 3);
});
