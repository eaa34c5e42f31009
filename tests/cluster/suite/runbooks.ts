/**
 * The commands of docs/runbooks.md, tried as they stand there.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { dirname } from "@std/path";
import type { LvmNode, LvmVolume } from "../../../k8s/api/lvm_objects.ts";
import { chapter, shellBlocks } from "../../markdown.ts";
import { run, searchPath } from "../../rig/process.ts";
import { ownGroup, removePool } from "./own_group.ts";
import { Scene } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";

const runbooks = await Deno.readTextFile(new URL("../../../docs/runbooks.md", import.meta.url));

/** How a block for a shell on the node begins. */
const ON_THE_NODE = "# on the node\n";

/** A runbook, whose blocks are played in a scene with its names in the place of the words in capitals. */
class Runbook {
  readonly #scene: Scene;
  readonly #blocks: readonly string[];
  readonly #names: Readonly<Record<string, string>>;

  /** @param names what stands for the words in capitals, and for /dev/sdX */
  constructor(scene: Scene, title: string, names: Readonly<Record<string, string>>) {
    this.#scene = scene;
    // In a list, blocks are indented.
    this.#blocks = shellBlocks(chapter(runbooks, title).replace(/^ {3}/gm, ""));
    this.#names = { NAMESPACE: scene.namespace, NODE: scene.node.name, ...names };
  }

  /** Plays the block that a text is in; answers what it printed. @throws {Error} when it fails, or leaves a word as it is */
  async play(part: string): Promise<string> {
    const [block, ...more] = this.#blocks.filter((lines) => lines.includes(part));
    assert(block !== undefined && more.length === 0, `there is one block with ${part}`);
    const words = new RegExp(`(?<!\\w)(?:${Object.keys(this.#names).join("|")})(?!\\w)`, "g");
    const lines = block.replace(ON_THE_NODE, "").replace(words, (word) => this.#names[word]!);
    const left = /(?<![\w/.-])(?:[A-Z]{2,}|\/dev\/sd[XY])(?![\w.])/.exec(lines);
    assertEquals(left, null, `nothing of ${lines} is left to be replaced`);
    return block.startsWith(ON_THE_NODE) ? await this.#scene.onNode(lines) : await this.#here(lines);
  }

  async #here(lines: string): Promise<string> {
    const { kubeconfig, programs } = this.#scene.cluster.controlPlane;
    const env = { KUBECONFIG: kubeconfig, PATH: `${dirname(programs.kubectl)}:${searchPath()}` };
    return await run("play a runbook", "/bin/sh", ["-ec", lines], { env });
  }
}

/** A group of its own, on a small disk, and a disk that is not in it yet. They are files on the node, and go at the end. */
async function smallGroup(scene: Scene): Promise<{ readonly group: string; readonly spare: string } & AsyncDisposable> {
  const group = scene.namespace;
  const files = [64, 256].map((mib) => ({ mib, path: `/var/tmp/${group}-${mib}.img` }));
  const attach = files.map(({ mib, path }) => `truncate -s ${mib}M ${path} && losetup --find --show ${path}`).join(
    " && ",
  );
  const [small, spare] = (await scene.onNode(`modprobe loop && ${attach}`)).trim().split("\n") as [string, string];
  await scene.onNode(`vgcreate -qq ${group} ${small}`);
  return {
    group,
    spare,
    async [Symbol.asyncDispose]() {
      // Of volumes that were deleted, the logical volumes go soon.
      const empty = `for i in $(seq 60); do lvs --noheadings ${group} | grep -q . || break; sleep 1; done`;
      const detach = `losetup -d ${small} ${spare}; rm -f ${files.map(({ path }) => path).join(" ")}`;
      await scene.onNode(`${empty}; vgremove -qq --yes ${group}; status=$?; ${detach}; exit $status`);
    },
  };
}

Deno.test("a full group: the commands show how full it is and who waits, and with a disk more the claim is bound", async () => {
  await using scene = await Scene.open("full");
  await using disks = await smallGroup(scene);
  const { group, spare } = disks;
  const parameters = { volumeGroup: group, erase: "none" };
  const cls = await scene.storageClass("small", { parameters, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "fits", class: cls, volumeMode: "Block" });
  const { volume } = await scene.lvOf("fits");
  await scene.claim({ name: "waits", class: cls, size: "128Mi", volumeMode: "Block" });
  await scene.event("PersistentVolumeClaim", "waits", "ProvisioningFailed", /no room in .* \(.* free\)/);

  const runbook = new Runbook(scene, "A full group", { GROUP: group, "/dev/sdX": spare });
  const waiting = await runbook.play("get lvmnodes");
  assertStringIncludes(waiting, `  ${group}: `);
  assertStringIncludes(waiting, "persistentvolumeclaim/waits");
  assertStringIncludes(await runbook.play("--sort-by .status.size"), volume!);
  assertStringIncludes(await runbook.play("lvs -o lv_name"), `denolith.volume=${volume}`);
  await runbook.play("vgextend GROUP /dev/sdX");
  assertEquals((await scene.bound("waits")).status?.capacity?.["storage"], "128Mi");
  for (const claim of ["waits", "fits"]) await scene.delete("PersistentVolumeClaim", claim);
  await scene.settled();
});

Deno.test("a claim that stays Pending: the commands show why, and a corrected class binds it", async () => {
  await using scene = await Scene.open("stuck");
  const wish = { parameters: { ...QUICK, volumeGroup: "nowhere" }, volumeBindingMode: "Immediate" } as const;
  const cls = await scene.storageClass("wrong", wish);
  await scene.claim({ name: "stuck", class: cls });
  await scene.event("PersistentVolumeClaim", "stuck", "ProvisioningFailed", /none is called nowhere; there are /);

  const runbook = new Runbook(scene, "When a claim stays Pending", { CLAIM: "stuck", CLASS: cls, GROUP: "data" });
  assertStringIncludes(await runbook.play("describe pvc"), "none is called nowhere; there are ");
  assertStringIncludes(await runbook.play("involvedObject.name"), "ProvisioningFailed");
  const controller = await runbook.play("get pods,leases");
  assertStringIncludes(controller, "pod/denolith-controller-");
  assertStringIncludes(controller, "lease.coordination.k8s.io/lvm-denolith-dev");
  await runbook.play("replace --force");
  await scene.bound("stuck");
});

Deno.test("a claim that does not grow: the commands show why, and asking for less recovers", async () => {
  await using scene = await Scene.open("small");
  const cls = await scene.storageClass("now", { parameters: QUICK, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "data", class: cls, volumeMode: "Block" });
  await scene.bound("data");
  await scene.patch("PersistentVolumeClaim", "data", { spec: { resources: { requests: { storage: "100Gi" } } } });
  await scene.event("PersistentVolumeClaim", "data", "VolumeResizeFailed", /free/);
  const isInfeasible = "ControllerResizeInfeasible";
  await scene.wait(
    "PersistentVolumeClaim",
    "data",
    (claim) => claim?.status?.allocatedResourceStatuses?.["storage"] === isInfeasible,
    "is infeasible",
  );

  const runbook = new Runbook(scene, "When a claim does not grow", { CLAIM: "data", "20Gi": "24Mi" });
  const state = await runbook.play("allocatedResourceStatuses");
  assertStringIncludes(state, isInfeasible);
  assertStringIncludes(state, "VolumeResizeFailed");
  await runbook.play("patch pvc");
  await scene.wait("PersistentVolumeClaim", "data", (claim) => {
    const { capacity, allocatedResourceStatuses: states } = claim?.status ?? {};
    return capacity?.["storage"] === "24Mi" || states?.["storage"] === "NodeResizePending";
  }, "has grown to 24Mi");
  assertEquals((await scene.lvOf("data")).size, 24 << 20);
});

/** What LVM says of a pool, in MiB or percent. */
async function poolField(scene: Scene, path: string, field: string): Promise<number> {
  return Number(await scene.onNode(`lvs --noheadings --units m --nosuffix -o ${field} ${path}`));
}

Deno.test("a thin pool that fills: the commands show it, and with a disk more it grows, so that what waits is written", async () => {
  await using scene = await Scene.open("pool");
  await using disks = await smallGroup(scene);
  const { group, spare } = disks;
  const name = `${group}_thinpool`;
  const path = `${group}/${name}`;
  const parameters = { volumeGroup: group, thinProvision: "yes", thinPoolSize: "100%" };
  const cls = await scene.storageClass("thin", { parameters, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "first", class: cls, size: "16Mi", volumeMode: "Block" });
  await scene.bound("first");
  const size = await poolField(scene, path, "lv_size");
  await scene.onNode(`lvchange --addtag denolith.overcommit=2 ${path}`);
  await scene.claim({ name: "data", class: cls, size: `${size + 16}Mi`, volumeMode: "Block" });
  await scene.bound("data");
  await scene.pod({ name: "writer", claims: [{ name: "data", devicePath: "/raw" }] });
  await scene.running("writer");
  const filling = `dd if=/dev/urandom of=/raw bs=1M count=${size - 4} oflag=direct conv=fsync 2>/dev/null`;
  await scene.exec("writer", filling);
  const isTold = (node: LvmNode | undefined) =>
    node?.status?.conditions?.some(({ type, status, message }) =>
      type === "ThinPoolsFilling" && status === "True" && message.includes(path)
    ) ?? false;
  await scene.wait("LVMNode", scene.node.name, isTold, "has a pool that fills");

  const runbook = new Runbook(scene, "A thin pool that fills", { GROUP: group, POOL: name, "/dev/sdX": spare });
  assertMatch(await runbook.play("get lvmnodes"), new RegExp(`  ${name}: data \\d+ %, metadata \\d+ %, may promise `));
  assertStringIncludes(await runbook.play("lv_health_status"), "denolith.pool=made");
  assertStringIncludes(await runbook.play("--select pool_lv"), "vol-");
  await runbook.play("vgextend GROUP /dev/sdX");
  const grown = `lvs --noheadings --units m --nosuffix -o lv_size ${path}`;
  await scene.onNode(`until [ "$(${grown} | cut -d. -f1 | tr -d ' ')" -gt ${size} ]; do sleep .5; done`);
  await scene.exec("writer", `dd if=/dev/urandom of=/raw bs=1M count=8 seek=${size - 4} oflag=direct 2>/dev/null`);
  await scene.wait("LVMNode", scene.node.name, (node) => !isTold(node), "has room in its pool");
  await scene.delete("Pod", "writer");
  for (const claim of ["first", "data"]) await scene.delete("PersistentVolumeClaim", claim);
  await scene.settled();
  await removePool(scene, group);
});

Deno.test("a thin pool of somebody else: its data and its metadata are grown by hand, and it is checked when it is activated", async () => {
  await using scene = await Scene.open("other");
  await using group = await ownGroup(scene, 256);
  const path = `${group.name}/theirs`;
  await scene.onNode(`lvcreate -qq --type thin-pool --size 32M --poolmetadatasize 4M --name theirs ${group.name}`);
  const names = { GROUP: group.name, POOL: "theirs", "10G": "32M", "64M": "4M" };
  const runbook = new Runbook(scene, "A thin pool that fills", names);
  await runbook.play("lvextend --size");
  await runbook.play("lvextend --poolmetadatasize");
  assertEquals([await poolField(scene, path, "lv_size"), await poolField(scene, path, "lv_metadata_size")], [64, 8]);
  await runbook.play("lvchange --activate y");
  await scene.onNode(`lvchange --activate n ${path}`);
  await runbook.play("lvconvert --repair");
  assertStringIncludes(await scene.onNode(`lvs --noheadings -o lv_name ${group.name}`), "theirs_meta0");
  await scene.onNode(`lvremove --yes ${path} ${group.name}/theirs_meta0`);
});

Deno.test("a missing disk: what was on it is back with it; without it the commands free the group, and its volume is Lost", async () => {
  await using scene = await Scene.open("disk");
  await using disks = await smallGroup(scene);
  const { group, spare } = disks;
  const parameters = { volumeGroup: group, erase: "none" };
  const cls = await scene.storageClass("two", { parameters, volumeBindingMode: "Immediate" });
  await scene.claim({ name: "stays", class: cls, volumeMode: "Block" });
  await scene.bound("stays");
  await scene.onNode(`vgextend -qq ${group} ${spare}`);
  await scene.claim({ name: "goes", class: cls, size: "128Mi", volumeMode: "Block" });
  const { name, volume } = await scene.lvOf("goes");
  const file = (await scene.onNode(`losetup --noheadings --output BACK-FILE ${spare}`)).trim();
  const takeAway = `lvchange --activate n ${group}/${name} && losetup --detach ${spare}`;
  const isHealthy = (object: LvmVolume | undefined, status: string) =>
    object?.status?.conditions?.some((one) => one.type === "Healthy" && one.status === status) ?? false;

  await scene.onNode(takeAway);
  await scene.wait("LVMVolume", volume!, (object) => isHealthy(object, "False"), "has a group without a disk");
  const runbook = new Runbook(scene, "A missing disk", { CLAIM: "goes", GROUP: group });
  assertMatch(await runbook.play("pv_missing"), new RegExp(`missing[^]*${name} +partial +\\[unknown\\]`));
  await scene.onNode(`losetup ${spare} ${file}`);
  await scene.wait("LVMVolume", volume!, (object) => isHealthy(object, "True"), "has all of its group");

  await scene.onNode(takeAway);
  await runbook.play("vgreduce --removemissing --force --test");
  await scene.wait("LVMVolume", volume!, (object) => object?.status?.state === "Lost", "is Lost");
  const lost = await runbook.play("grep Lost");
  assert(lost.includes(volume!) && lost.includes('persistentvolumeclaim "goes" deleted'), lost);
  await scene.gone("LVMVolume", volume!);
  await scene.claim({ name: "new", class: cls, volumeMode: "Block" });
  await scene.bound("new");
  for (const claim of ["new", "stays"]) await scene.delete("PersistentVolumeClaim", claim);
  await scene.settled();
});
