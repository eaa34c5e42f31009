/**
 * Pods that write volume groups on their block volumes, under a real kubelet.
 *
 * @module
 */

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { HOST_PATTERN } from "../../../lvm/host/stacked_devices.ts";
import { SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import { createEncryptedClass, newPassphrase, setSecret } from "./helpers/encryption_helpers.ts";
import { QUICK } from "./helpers/objects.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

const DEVICE = "/dev/tenant";

/** Runs denolith in the agent's container. */
async function runAgent(ns: TestNamespace, ...args: readonly string[]): Promise<string> {
  const agent = ["--namespace", SYSTEM_NAMESPACE, "exec", "daemonset/denolith-node", "--", "/usr/bin/denolith"];
  return await ns.cluster.controlPlane.kubectl([...agent, ...args]);
}

/** Returns the names of all groups that the agent's LVM shows. */
async function agentGroups(ns: TestNamespace): Promise<string[]> {
  const { groups } = JSON.parse(await runAgent(ns, "status", "--volume-groups", "/.*/", "--json"));
  return (groups as { name: string }[]).map(({ name }) => name).sort();
}

/** Returns the names of all groups that the host's own LVM shows, with their physical volumes. */
async function hostGroups(ns: TestNamespace): Promise<string[]> {
  const text = await ns.runOnNode("vgs --noheadings -o vg_name,pv_name 2>/dev/null");
  return text.trim().split("\n").map((line) => line.trim().replace(/\s+/, " ")).sort();
}

/** Makes a volume group as a tenant has it from elsewhere: LVM of the node does not read the disk meanwhile. @returns its first MiB, in base64 */
async function groupImage(ns: TestNamespace, name: string): Promise<string> {
  const folder = `/var/tmp/${ns.namespace}/volumeDevices`;
  return await ns.runOnNode(
    `mkdir -p ${folder} && truncate -s 64M ${folder}/image && loop=$(losetup -f --show ${folder}/image) && ` +
      `vgcreate -qq --yes --config 'devices/dir="${folder}"' --devices $loop ${name} $loop && dd if=$loop bs=1M count=1 2>/dev/null | gzip | base64 -w 0; ` +
      `losetup -d $loop; rm -r /var/tmp/${ns.namespace}`,
  );
}

for (const kind of ["plain", "encrypted"] as const) {
  for (const name of ["aaa-tenant", "data"]) {
    Deno.test(`a pod that writes the volume group ${name} on a block volume, ${kind}, gives the node no group, and takes none`, async () => {
      await using ns = await TestNamespace.open("stacked");
      const named = await ns.createStorageClass("named", { parameters: QUICK });
      const any = await ns.createStorageClass("any", { parameters: { erase: "none" } });
      if (kind === "encrypted") await setSecret(ns, "tenant", { passphrase: newPassphrase() });
      const tenantClass = kind === "plain" ? named : await createEncryptedClass(ns, QUICK);
      await ns.createClaim({ name: "before", class: named });
      await ns.createClaim({ name: "tenant", class: tenantClass, volumeMode: "Block", size: "64Mi" });
      await ns.createPod({ name: "tenant", claims: [{ name: "tenant", devicePath: DEVICE }] });
      await ns.createPod({ name: "before", claims: [{ name: "before", path: "/data" }] });
      await Promise.all(["tenant", "before"].map((pod) => ns.waitForRunning(pod)));
      const [groups, hosts] = [await agentGroups(ns), await hostGroups(ns)];
      assertEquals(groups, ["data", "small"]);

      const image = await groupImage(ns, name);
      await ns.exec("tenant", `echo ${image} | base64 -d | gunzip | dd of=${DEVICE} bs=1M conv=fsync 2>/dev/null`);
      const loops = await ns.runOnNode("losetup --list --noheadings --output NAME,BACK-FILE,BACK-MAJ:MIN");
      console.error(`loop devices:\n${loops}`);
      assertMatch(loops, /\/kubernetes\.io\/csi\/volumeDevices\//);
      const added = (await hostGroups(ns)).filter((group) => !hosts.includes(group));
      assertEquals(added.length > 0 && added.every((group) => group.startsWith(`${name} `)), true, added.join());

      assertEquals(await agentGroups(ns), groups);
      await ns.createClaim({ name: "other", class: any });
      await ns.createClaim({ name: "after", class: named });
      const claims = ["other", "after"].map((claim) => ({ name: claim, path: `/${claim}` }));
      await ns.createPod({ name: "after", claims });
      await ns.waitForRunning("after");
      const onNode = await ns.runOnNode("lsblk --noheadings --list --output NAME,TYPE");
      for (const claim of ["other", "after", "before"]) {
        const { device } = await ns.lvOf(claim);
        assertStringIncludes(onNode, device.replace("/dev/mapper/", ""));
        assertMatch(device, /^\/dev\/mapper\/(?:data|small)-/);
      }
      await ns.deleteAndWait("Pod", "before");
      await ns.deleteAndWait("PersistentVolumeClaim", "before");
      const { spec } = await ns.waitFor("LVMNode", ns.node.name, (node) => node !== undefined, "is there");
      assertEquals(spec.driverName.length > 0, true);

      const { findings } = JSON.parse(await runAgent(ns, "doctor", "--json").catch((error) => String(error)));
      // udev does not read a loop device again when a pod writes on the volume under it: then it is a note
      const [told] = (findings as { message: string; remedy?: string }[])
        .filter(({ remedy }) => remedy?.includes(HOST_PATTERN));
      const filter = /global_filter = (.*) in the section/.exec(told!.remedy!)![1]!;
      assertEquals(filter, `["${HOST_PATTERN}"]`);
      const conf = "/etc/lvm/lvmlocal.conf";
      await ns.runOnNode(`printf 'devices {\\n\\tglobal_filter = ${filter}\\n}\\n' > ${conf}`);
      assertEquals(
        await hostGroups(ns),
        hosts,
        "with the filter that the doctor says, the host's LVM does not read it",
      );
      await ns.runOnNode(`rm ${conf}`);
      await Promise.all(["after", "tenant"].map((pod) => ns.deleteAndWait("Pod", pod)));
      for (const claim of ["other", "after", "tenant"]) await ns.deleteAndWait("PersistentVolumeClaim", claim);
      await ns.waitForCleanup();
    });
  }
}
