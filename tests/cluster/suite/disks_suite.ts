/**
 * Disks of a node that nobody uses: they are proposed, accepted with the plugin, and carry a claim. One that gets a filesystem in
 * between is refused.
 *
 * @module
 */

import { assertEquals, assertMatch } from "@std/assert";
import type { LvmNode } from "../../../k8s/api/lvm_objects.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { QUICK } from "./helpers/objects.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

const GROUP = "spare";

/** Gives the disks without a volume group names. @returns them */
async function nameDisks(ns: TestNamespace): Promise<string[]> {
  const found = await ns.runOnNode(
    "for disk in $(lsblk --noheadings --nodeps --paths --output NAME,FSTYPE | awk 'NF == 1 && /ubd/ { print $1 }'); do " +
      'wipefs --no-act "$disk" | grep -q . || basename "$disk"; done',
  );
  const disks = found.trim().split("\n");
  assertEquals(disks.length, 2, found);
  const rule = `KERNEL=="${disks.join("|")}", SYMLINK+="disk/by-id/test-%k"`;
  await ns.runOnNode(
    `echo '${rule}' > /etc/udev/rules.d/99-test.rules && udevadm control --reload && udevadm trigger --settle ${
      disks.map((disk) => `/dev/${disk}`).join(" ")
    }`,
  );
  return disks.map((disk) => `test-${disk}`);
}

/** Reads the LVMNode until it is as expected. */
async function waitForNode(ns: TestNamespace, action: string, isDone: (node: LvmNode) => boolean): Promise<LvmNode> {
  let node: LvmNode | undefined;
  await pollUntil(async () => {
    node = JSON.parse(await ns.kubectl("get", "lvmnode", ns.node.name, "--output=json")) as LvmNode;
    return isDone(node);
  }, { action, timeoutMs: 240_000 });
  return node!;
}

const outcomeOf = ({ status }: LvmNode, name: string) => status?.acceptedDisks?.find((one) => one.name === name);

/** Accepts a disk as it is reported, as `kubectl denolith disks --accept` does. */
async function accept(ns: TestNamespace, name: string): Promise<void> {
  const node = await waitForNode(
    ns,
    `see ${name} proposed`,
    ({ status }) => status?.disks?.some((disk) => disk.name === name && disk.proposed) === true,
  );
  const { identity, volumeGroup } = node.status!.disks!.find((disk) => disk.name === name)!;
  const group = node.status!.volumeGroups!.find((one) => one.name === volumeGroup);
  const accepted = { name, volumeGroup, identity, ...(group && { volumeGroupUUID: group.uuid }) };
  const merge = { spec: { acceptedDisks: [...node.spec.acceptedDisks ?? [], accepted] } };
  await ns.kubectl("patch", "lvmnode", ns.node.name, "--type=merge", `--patch=${JSON.stringify(merge)}`);
}

Deno.test("disks are proposed, accepted and taken, and carry a claim; one that gets a filesystem in between is refused", async () => {
  await using ns = await TestNamespace.open("disks");
  const [first, second] = await nameDisks(ns) as [string, string];
  await accept(ns, first);
  const taken = await waitForNode(ns, "see the disk taken", (node) => outcomeOf(node, first)?.state === "Taken");
  const { volumeGroupUUID } = outcomeOf(taken, first)!;
  await ns.waitForEvent("LVMNode", ns.node.name, "DiskTaken", new RegExp(`disk ${first} .* of volume group ${GROUP}`));
  const pvs = await ns.runOnNode(`vgs --noheadings -o vg_uuid,pv_count ${GROUP}`);
  assertEquals(pvs.trim().split(/\s+/), [volumeGroupUUID!, "1"]);

  const cls = await ns.createStorageClass("spare", { parameters: { ...QUICK, volumeGroup: GROUP } });
  await ns.createClaim({ name: "data", class: cls, size: "256Mi" });
  await ns.createPod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("user");
  await ns.exec("user", "echo here > /data/file");

  const { identity } = taken.status!.disks!.find((disk) => disk.name === second)!;
  await ns.runOnNode(`mke2fs -q -t ext4 /dev/disk/by-id/${second}`);
  const before = await ns.runOnNode(`sha256sum /dev/disk/by-id/${second}`);
  // the list as an administrator would write it who saw the disk before
  const order = { name: second, volumeGroup: GROUP, volumeGroupUUID, identity };
  const merge = { spec: { acceptedDisks: [...taken.spec.acceptedDisks!, order] } };
  await ns.kubectl("patch", "lvmnode", ns.node.name, "--type=merge", `--patch=${JSON.stringify(merge)}`);
  const refused = await waitForNode(ns, "see the disk refused", (node) => outcomeOf(node, second)?.state === "Refused");
  assertMatch(outcomeOf(refused, second)!.message!, /it has a signature \(ext4\)/);
  await ns.waitForEvent("LVMNode", ns.node.name, "DiskRefused", new RegExp(`disk ${second} was accepted .*ext4`));
  assertEquals(await ns.runOnNode(`sha256sum /dev/disk/by-id/${second}`), before, "nothing was written");

  await ns.runOnNode(`wipefs --quiet --all /dev/disk/by-id/${second}`);
  await waitForNode(ns, "see the second disk taken", (node) => outcomeOf(node, second)?.state === "Taken");
  assertEquals((await ns.runOnNode(`vgs --noheadings -o pv_count ${GROUP}`)).trim(), "2");
  assertEquals(await ns.exec("user", "cat /data/file"), "here\n");
  await ns.deleteAndWait("Pod", "user");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await ns.waitForCleanup();
});
