/**
 * Volumes on a host with AppArmor: the driver is unconfined, as in a privileged container, and pods are confined. `deno test`
 * runs this in the guest, as one bundle.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { assertFails, contractTest } from "../contract/helpers/host.ts";
import { mountsOf, tearDown } from "../contract/staging_suite.ts";
import { run } from "../demo/command.ts";
import { realHost } from "./helpers/real_host.ts";

const SECURITY = "/sys/kernel/security";

await run("mount securityfs", "mount", ["-t", "securityfs", "securityfs", SECURITY]);

/** Loads compiled profiles. A profile takes effect on the next start of a program. */
async function load(name: string): Promise<void> {
  await Deno.writeFile(`${SECURITY}/apparmor/.replace`, await Deno.readFile(`/work/${name}`), { create: false });
}

await load("apparmor.profiles");
const host = await realHost("apparmor");

/** Runs a command as a process of a pod, under its profile. @returns its exit status and what it said */
async function runAsPod(command: string): Promise<string> {
  const script = `printf "exec pod" > /proc/self/attr/apparmor/exec && exec sh -c '${command}'`;
  const { code, stdout, stderr } = await new Deno.Command("sh", { args: ["-c", script] }).output();
  return `${code} ${new TextDecoder().decode(stdout)}${new TextDecoder().decode(stderr)}`.trim();
}

contractTest(host, "pods under a profile use volumes, which the unconfined driver mounts", async (harness) => {
  assertMatch(await runAsPod("cat /proc/self/attr/current"), /^0 pod \(enforce\)$/);
  const volumeId = await harness.create();
  await harness.stage(volumeId);
  const target = await harness.publish(volumeId);
  assertEquals(await runAsPod(`echo data > ${target}/file && cat ${target}/file`), "0 data");
  assertMatch(await runAsPod(`mount --bind ${target} /mnt`), /^32 mount: .* failed/);
  await tearDown(harness, volumeId, "pod");
});

contractTest(
  host,
  "a profile that is attached to a program's path confines the unconfined driver, too",
  async (harness) => {
    const volumeId = await harness.create();
    await load("apparmor_path.profiles");
    try {
      await assertFails("FAILED_PRECONDITION", harness.stage(volumeId), "Permission denied");
      assertEquals(await mountsOf(harness), []);
      const [lv] = await harness.lvs();
      assert(lv!.tags.some((tag) => tag.startsWith("denolith.fs=wanted")), "nothing is formatted");
    } finally {
      await Deno.writeTextFile(`${SECURITY}/apparmor/.remove`, "lsblk", { create: false });
    }
    await harness.stage(volumeId);
    await tearDown(harness, volumeId);
  },
);
