/**
 * Tests of the commands of the runbooks (docs/guides/runbooks/), which run unchanged but for placeholders.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import type { LvmNode, LvmVolume } from "../../../k8s/api/lvm_objects.ts";
import { runbookChapter } from "../../meta/runbooks.ts";
import { DocumentCommands } from "./helpers/document_commands.ts";
import { createTestGroup, removePool } from "./helpers/test_group.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { QUICK } from "./helpers/objects.ts";

/**
 * Creates a group on a small disk, and a disk that is not in it yet. They are files on the node, and are removed at the
 * end.
 */
async function createSmallGroup(
  ns: TestNamespace,
): Promise<{ readonly group: string; readonly spare: string } & AsyncDisposable> {
  const group = ns.namespace;
  const files = [64, 256].map((mib) => ({ mib, path: `/var/tmp/${group}-${mib}.img` }));
  const attach = files.map(({ mib, path }) => `truncate -s ${mib}M ${path} && losetup --find --show ${path}`).join(
    " && ",
  );
  const [small, spare] = (await ns.runOnNode(`modprobe loop && ${attach}`)).trim().split("\n") as [string, string];
  await ns.runOnNode(`vgcreate -qq ${group} ${small}`);
  return {
    group,
    spare,
    async [Symbol.asyncDispose]() {
      // Of volumes that were deleted, the logical volumes go soon.
      const empty = `for i in $(seq 60); do lvs --noheadings ${group} | grep -q . || break; sleep 1; done`;
      const detach = `losetup -d ${small} ${spare}; rm -f ${files.map(({ path }) => path).join(" ")}`;
      await ns.runOnNode(`${empty}; vgremove -qq --yes ${group}; status=$?; ${detach}; exit $status`);
    },
  };
}

Deno.test("a full group: the commands show how full it is and who waits, and with a disk more the claim is bound", async () => {
  await using ns = await TestNamespace.open("full");
  await using disks = await createSmallGroup(ns);
  const { group, spare } = disks;
  const parameters = { volumeGroup: group, erase: "none" };
  const cls = await ns.createStorageClass("small", { parameters, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "fits", class: cls, volumeMode: "Block" });
  const { volume } = await ns.lvOf("fits");
  await ns.createClaim({ name: "waits", class: cls, size: "128Mi", volumeMode: "Block" });
  await ns.waitForEvent(
    "PersistentVolumeClaim",
    "waits",
    "ProvisioningFailed",
    /not enough free space in .* \(.* free\)/,
  );

  const runbook = new DocumentCommands(ns, runbookChapter("Volume group full"), { GROUP: group, "/dev/sdX": spare });
  const waiting = await runbook.runBlock("get dnode");
  assertStringIncludes(waiting, `  ${group}: `);
  assertStringIncludes(waiting, "persistentvolumeclaim/waits");
  assertStringIncludes(await runbook.runBlock("--sort-by .status.size"), volume!);
  assertStringIncludes(await runbook.runBlock("lvs -o lv_name"), `denolith.volume=${volume}`);
  await runbook.runBlock("vgextend GROUP /dev/sdX");
  assertEquals((await ns.waitForBound("waits")).status?.capacity?.["storage"], "128Mi");
  for (const claim of ["waits", "fits"]) await ns.deleteAndWait("PersistentVolumeClaim", claim);
  await ns.waitForCleanup();
});

Deno.test("a claim that stays Pending: the commands show why, and a corrected class binds it", async () => {
  await using ns = await TestNamespace.open("stuck");
  const classSpec = { parameters: { ...QUICK, volumeGroup: "nowhere" }, volumeBindingMode: "Immediate" } as const;
  const cls = await ns.createStorageClass("wrong", classSpec);
  await ns.createClaim({ name: "stuck", class: cls });
  await ns.waitForEvent("PersistentVolumeClaim", "stuck", "ProvisioningFailed", /none matches nowhere; there are /);

  const runbook = new DocumentCommands(ns, runbookChapter("Claim stays Pending"), {
    CLAIM: "stuck",
    CLASS: cls,
    GROUP: "data",
  });
  assertStringIncludes(await runbook.runBlock("describe pvc"), "none matches nowhere; there are ");
  assertStringIncludes(await runbook.runBlock("involvedObject.name"), "ProvisioningFailed");
  const controller = await runbook.runBlock("get pods,leases");
  assertStringIncludes(controller, "pod/denolith-controller-");
  assertStringIncludes(controller, "lease.coordination.k8s.io/lvm-denolith-dev");
  await runbook.runBlock("replace --force");
  await ns.waitForBound("stuck");
});

Deno.test("a claim that does not grow: the commands show why, and asking for less recovers", async () => {
  await using ns = await TestNamespace.open("small");
  const cls = await ns.createStorageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "data", class: cls, volumeMode: "Block" });
  await ns.waitForBound("data");
  await ns.patch("PersistentVolumeClaim", "data", { spec: { resources: { requests: { storage: "100Gi" } } } });
  await ns.waitForEvent("PersistentVolumeClaim", "data", "VolumeResizeFailed", /free/);
  const isInfeasible = "ControllerResizeInfeasible";
  await ns.waitFor(
    "PersistentVolumeClaim",
    "data",
    (claim) => claim?.status?.allocatedResourceStatuses?.["storage"] === isInfeasible,
    "is infeasible",
  );

  const runbook = new DocumentCommands(ns, runbookChapter("Claim does not expand"), { CLAIM: "data", "20Gi": "24Mi" });
  const state = await runbook.runBlock("allocatedResourceStatuses");
  assertStringIncludes(state, isInfeasible);
  assertStringIncludes(state, "VolumeResizeFailed");
  await runbook.runBlock("patch pvc");
  await ns.waitFor("PersistentVolumeClaim", "data", (claim) => {
    const { capacity, allocatedResourceStatuses: states } = claim?.status ?? {};
    return capacity?.["storage"] === "24Mi" || states?.["storage"] === "NodeResizePending";
  }, "has grown to 24Mi");
  assertEquals((await ns.lvOf("data")).size, 24 << 20);
});

/** Returns a field of a pool from LVM, in MiB or percent. */
async function poolField(ns: TestNamespace, path: string, field: string): Promise<number> {
  return Number(await ns.runOnNode(`lvs --noheadings --units m --nosuffix -o ${field} ${path}`));
}

Deno.test("a thin pool that fills: the commands show it, and with a disk more it grows, so that what waits is written", async () => {
  await using ns = await TestNamespace.open("pool");
  await using disks = await createSmallGroup(ns);
  const { group, spare } = disks;
  const name = `${group}_thinpool`;
  const path = `${group}/${name}`;
  const parameters = { volumeGroup: group, thinProvision: "yes", thinPoolSize: "100%" };
  const cls = await ns.createStorageClass("thin", { parameters, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "first", class: cls, size: "16Mi", volumeMode: "Block" });
  await ns.waitForBound("first");
  const size = await poolField(ns, path, "lv_size");
  await ns.runOnNode(`lvchange --addtag denolith.overcommit=2 ${path}`);
  await ns.createClaim({ name: "data", class: cls, size: `${size + 16}Mi`, volumeMode: "Block" });
  await ns.waitForBound("data");
  await ns.createPod({ name: "writer", claims: [{ name: "data", devicePath: "/raw" }] });
  await ns.waitForRunning("writer");
  const filling = `dd if=/dev/urandom of=/raw bs=1M count=${size - 4} oflag=direct conv=fsync 2>/dev/null`;
  await ns.exec("writer", filling);
  const isReported = (node: LvmNode | undefined) =>
    node?.status?.conditions?.some(({ type, status, message }) =>
      type === "ThinPoolsNearFull" && status === "True" && message.includes(path)
    ) ?? false;
  await ns.waitFor("LVMNode", ns.node.name, isReported, "has a pool that fills");

  const runbook = new DocumentCommands(ns, runbookChapter("Thin pool near full"), {
    GROUP: group,
    POOL: name,
    "/dev/sdX": spare,
  });
  assertMatch(
    await runbook.runBlock("get dnode"),
    new RegExp(`  ${name}: data \\d+ %, metadata \\d+ %, available `),
  );
  assertStringIncludes(await runbook.runBlock("lv_health_status"), "denolith.pool=made");
  assertStringIncludes(await runbook.runBlock("--select pool_lv"), "vol-");
  await runbook.runBlock("vgextend GROUP /dev/sdX");
  const sizeCommand = `lvs --noheadings --units m --nosuffix -o lv_size ${path}`;
  await ns.runOnNode(`until [ "$(${sizeCommand} | cut -d. -f1 | tr -d ' ')" -gt ${size} ]; do sleep .5; done`);
  await ns.exec("writer", `dd if=/dev/urandom of=/raw bs=1M count=8 seek=${size - 4} oflag=direct 2>/dev/null`);
  await ns.waitFor("LVMNode", ns.node.name, (node) => !isReported(node), "has free space in its pool");
  await ns.deleteAndWait("Pod", "writer");
  for (const claim of ["first", "data"]) await ns.deleteAndWait("PersistentVolumeClaim", claim);
  await ns.waitForCleanup();
  await removePool(ns, group);
});

Deno.test("a foreign thin pool: its data and metadata are extended by hand, and it is checked when it is activated", async () => {
  await using ns = await TestNamespace.open("other");
  await using group = await createTestGroup(ns, 256);
  const path = `${group.name}/theirs`;
  await ns.runOnNode(`lvcreate -qq --type thin-pool --size 32M --poolmetadatasize 4M --name theirs ${group.name}`);
  const names = { GROUP: group.name, POOL: "theirs", "10G": "32M", "64M": "4M" };
  const runbook = new DocumentCommands(ns, runbookChapter("Thin pool near full"), names);
  await runbook.runBlock("lvextend --size");
  await runbook.runBlock("lvextend --poolmetadatasize");
  assertEquals([await poolField(ns, path, "lv_size"), await poolField(ns, path, "lv_metadata_size")], [64, 8]);
  await runbook.runBlock("lvchange --activate y");
  await ns.runOnNode(`lvchange --activate n ${path}`);
  await runbook.runBlock("lvconvert --repair");
  assertStringIncludes(await ns.runOnNode(`lvs --noheadings -o lv_name ${group.name}`), "theirs_meta0");
  await ns.runOnNode(`lvremove --yes ${path} ${group.name}/theirs_meta0`);
});

Deno.test("a missing disk: what was on it is back with it; without it the commands free the group, and its volume is Lost", async () => {
  await using ns = await TestNamespace.open("disk");
  await using disks = await createSmallGroup(ns);
  const { group, spare } = disks;
  const parameters = { volumeGroup: group, erase: "none" };
  const cls = await ns.createStorageClass("two", { parameters, volumeBindingMode: "Immediate" });
  await ns.createClaim({ name: "stays", class: cls, volumeMode: "Block" });
  await ns.waitForBound("stays");
  await ns.runOnNode(`vgextend -qq ${group} ${spare}`);
  await ns.createClaim({ name: "goes", class: cls, size: "128Mi", volumeMode: "Block" });
  const { name, volume } = await ns.lvOf("goes");
  const file = (await ns.runOnNode(`losetup --noheadings --output BACK-FILE ${spare}`)).trim();
  const detachCommand = `lvchange --activate n ${group}/${name} && losetup --detach ${spare}`;
  const isHealthy = (object: LvmVolume | undefined, status: string) =>
    object?.status?.conditions?.some((one) => one.type === "Healthy" && one.status === status) ?? false;

  await ns.runOnNode(detachCommand);
  await ns.waitFor("LVMVolume", volume!, (object) => isHealthy(object, "False"), "has a group without a disk");
  const runbook = new DocumentCommands(ns, runbookChapter("Missing physical volume"), { CLAIM: "goes", GROUP: group });
  assertMatch(await runbook.runBlock("pv_missing"), new RegExp(`missing[^]*${name} +partial +\\[unknown\\]`));
  await ns.runOnNode(`losetup ${spare} ${file}`);
  await ns.waitFor("LVMVolume", volume!, (object) => isHealthy(object, "True"), "has all of its group");

  await ns.runOnNode(detachCommand);
  await runbook.runBlock("vgreduce --removemissing --force --test");
  await ns.waitFor("LVMVolume", volume!, (object) => object?.status?.state === "Lost", "is Lost");
  const lost = await runbook.runBlock("grep Lost");
  assert(lost.includes(volume!) && lost.includes('persistentvolumeclaim "goes" deleted'), lost);
  await ns.waitForDeletion("LVMVolume", volume!);
  await ns.createClaim({ name: "new", class: cls, volumeMode: "Block" });
  await ns.waitForBound("new");
  for (const claim of ["new", "stays"]) await ns.deleteAndWait("PersistentVolumeClaim", claim);
  await ns.waitForCleanup();
});
