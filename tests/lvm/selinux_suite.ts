/**
 * Volumes on a host that enforces SELinux: mounts with contexts, and what processes with the contexts of pods may do there.
 * `deno test` runs this in the guest, as one bundle.
 *
 * @module
 */

import { assertEquals, assertMatch } from "@std/assert";
import { contractTest, mountCapability } from "../contract/helpers/host.ts";
import { seLinuxContract } from "../contract/selinux_suite.ts";
import { tearDown } from "../contract/staging_suite.ts";
import { realHost } from "./helpers/real_host.ts";

const host = await realHost("selinux");

Deno.test("the kernel enforces a policy", async () => {
  assertEquals((await Deno.readTextFile("/sys/fs/selinux/enforce")).trim(), "1");
});

seLinuxContract(host);

/** Runs a command as a process of a pod with categories. @returns its exit status and what it said */
async function runAsPod(categories: string, command: string): Promise<string> {
  const context = `system_u:system_r:container_t:s0:${categories}`;
  const script = `printf %s ${context} > /proc/self/attr/current && ${command}`;
  const { code, stdout, stderr } = await new Deno.Command("sh", { args: ["-c", script] }).output();
  return `${code} ${new TextDecoder().decode(stdout)}${new TextDecoder().decode(stderr)}`.trim();
}

contractTest(host, "a pod uses the volume that has its context, and no other pod does", async (harness) => {
  const volumeId = await harness.create();
  const capability = mountCapability("", ['context="system_u:object_r:container_file_t:s0:c1,c3"']);
  await harness.stage(volumeId, capability);
  const target = await harness.publish(volumeId, "pod", { volumeCapability: capability });
  assertEquals(
    await runAsPod("c1,c3", `echo data > ${target}/file && read line < ${target}/file && echo $line`),
    "0 data",
  );
  assertMatch(await runAsPod("c2,c4", `echo other > ${target}/file`), /^[1-9].*Permission denied$/s);
  assertMatch(await runAsPod("c2,c4", `echo other > ${target}/new`), /^[1-9].*Permission denied$/s);
  assertEquals(await Deno.readTextFile(`${target}/file`), "data\n");
  await tearDown(harness, volumeId, "pod");
});

contractTest(
  host,
  "without a context, the files of a volume have the labels that are on it, and a pod is denied",
  async (harness) => {
    const volumeId = await harness.create();
    await harness.stage(volumeId);
    const target = await harness.publish(volumeId);
    assertMatch(await runAsPod("c1,c3", `echo data > ${target}/file`), /^[1-9].*Permission denied$/s);
    await tearDown(harness, volumeId, "pod");
  },
);
