/**
 * `kubectl denolith disks` over a fake cluster.
 *
 * @module
 */

import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { type LvmNode, lvmNodes, type NodeDisk } from "../../k8s/api/lvm_objects.ts";
import { type PersistentVolume, persistentVolumes } from "../../k8s/api/objects.ts";
import { pluginOver } from "../fake/cluster/plugin_run.ts";
import { Stage } from "./troubleshooting/stage.ts";

const SPARE: NodeDisk = {
  ...{ name: "nvme-SPARE_1", path: "/dev/nvme1n1", size: "100Gi", rotational: false },
  ...{ identity: "0123", volumeGroup: "fast", proposed: true },
};

const USED: NodeDisk = {
  ...{ name: "ata-OLD", path: "/dev/sdb", size: "4Ti", rotational: true, volumeGroup: "slow", proposed: false },
  reason: "it has a signature (xfs)",
};

Deno.test("kubectl denolith disks: what is proposed, and what speaks against the others", async () => {
  await using stage = new Stage();
  await stage.start();
  const { api } = stage.cluster;
  const plugin = pluginOver(api, { role: "viewer" });
  assertStringIncludes((await plugin(["disks"])).output, "No rule names a disk.");
  api.collection(lvmNodes).patch({ status: { disks: [SPARE, USED] } }, { name: "n1", namespace: undefined }, "status");
  const { status, output } = await plugin(["disks"]);
  assertEquals(status, 0);
  assertEquals(output.split("\n").slice(2), [
    "  NODE  DISK             SIZE  PATH          GROUP  STATE",
    "  n1    ata-OLD         4 TiB  /dev/sdb      slow   Unsuitable",
    "      it has a signature (xfs)",
    "  n1    nvme-SPARE_1  100 GiB  /dev/nvme1n1  fast   Proposed",
  ]);
  assertStringIncludes((await plugin(["disks", "--node", "n9"])).output, "No rule names a disk on node n9.");
  const { disks } = JSON.parse((await plugin(["disks", "--node", "n1", "-o", "json"])).output);
  assertEquals(disks[1], {
    ...{ node: "n1", name: "nvme-SPARE_1", path: "/dev/nvme1n1", size: 107374182400, rotational: false },
    ...{ volumeGroup: "fast", state: "Proposed" },
  });
});

/** Starts a cluster whose agent is stopped, so that the status stays as it is. */
async function startWith(stage: Stage, status: Partial<NonNullable<LvmNode["status"]>>) {
  await stage.start();
  await stage.cluster.agents.stopAgent("n1");
  const { api } = stage.cluster;
  const patch = (change: object, subresource: "" | "status") =>
    void api.collection(lvmNodes).patch(change, { name: "n1", namespace: undefined }, subresource);
  patch({ status }, "status");
  const accepted = () => api.objects(lvmNodes)[0]!.spec.acceptedDisks;
  return { plugin: pluginOver(api), accepted, patch };
}

Deno.test("kubectl denolith disks --accept: shows what becomes of a disk, asks, and accepts it as it was reported", async () => {
  await using stage = new Stage();
  const { plugin, accepted } = await startWith(stage, { disks: [SPARE, USED] });
  const shown = await plugin(["disks", "--accept", SPARE.name, "--dry-run"], { role: "viewer" });
  assertEquals([shown.status, shown.questions, accepted()], [0, [], undefined]);
  assertStringIncludes(
    shown.output,
    "Disk nvme-SPARE_1 of node n1, 100 GiB, becomes a physical volume. Volume group fast is created of it.\n" +
      "Data on it that has no signature is overwritten: make sure that it is empty.",
  );
  const refused = await plugin(["disks", "--accept", SPARE.name], { answer: false });
  assertEquals([refused.status, refused.questions.length, accepted()], [1, 1, undefined]);
  const { status, output } = await plugin(["disks", "--accept", SPARE.name], { answer: true });
  assertEquals(status, 0);
  assertMatch(
    output,
    /Disk nvme-SPARE_1 of node n1 is accepted\. See what becomes of it: kubectl denolith disks --node n1/,
  );
  assertEquals(accepted(), [{ name: SPARE.name, volumeGroup: "fast", identity: "0123" }]);
  const listed = JSON.parse((await plugin(["disks", "-o", "json"])).output).disks;
  assertEquals(listed.map((disk: { state: string }) => disk.state), ["Unsuitable", "Accepted"]);
});

Deno.test("kubectl denolith disks: accepts and withdraws a disk although its LVMNode changes while the user reads", async () => {
  await using stage = new Stage();
  const { plugin, accepted, patch } = await startWith(stage, { disks: [SPARE, USED] });
  const other = { name: "nvme-OTHER", volumeGroup: "fast", identity: "1" };
  let isChanged = false;
  const onPrint = () => {
    if (isChanged) return;
    isChanged = true;
    patch({ spec: { acceptedDisks: [other] } }, "");
  };
  const { status, errors } = await plugin(["disks", "--accept", SPARE.name], { answer: true, onPrint });
  assertEquals([status, errors, accepted()?.map(({ name }) => name)], [0, "", [other.name, SPARE.name]]);
  const withdrawn = await plugin(["disks", "--withdraw", SPARE.name], {
    get answer() {
      patch({ status: { disks: [USED] } }, "status");
      return true;
    },
  });
  assertEquals([withdrawn.status, accepted()], [0, [other]]);
});

Deno.test("kubectl denolith disks --accept: names the group that is there by its UUID", async () => {
  await using stage = new Stage();
  const { plugin, accepted } = await startWith(stage, { disks: [{ ...SPARE, volumeGroup: "data" }] });
  const { output } = await plugin(["disks", "--accept", SPARE.name, "--yes", "-o", "json"]);
  const { uuid } = stage.cluster.api.objects(lvmNodes)[0]!.status!.volumeGroups!.find(({ name }) => name === "data")!;
  assertEquals(accepted(), [{ name: SPARE.name, volumeGroup: "data", identity: "0123", volumeGroupUUID: uuid }]);
  assertEquals(JSON.parse(output).creates, false);
});

Deno.test("kubectl denolith disks --accept: refuses what is not proposed, not known, or on two nodes", async () => {
  await using stage = new Stage();
  const { identity: _, ...old } = SPARE;
  const { plugin, accepted } = await startWith(stage, { disks: [USED, { ...old, name: "nvme-OLD" }] });
  const errors = async (...args: string[]) => {
    const { status, errors } = await plugin(["disks", ...args, "--yes"]);
    assertEquals([status, accepted()], [1, undefined]);
    return errors;
  };
  assertStringIncludes(await errors("--accept", USED.name), "it is not proposed: it has a signature (xfs)");
  assertStringIncludes(await errors("--accept", "nvme-OLD"), "its agent is of an older version");
  assertStringIncludes(await errors("--accept", "nvme-NONE"), "no agent names a disk nvme-NONE");
  assertStringIncludes(await errors("--withdraw", USED.name), "it is not accepted");
});

Deno.test("kubectl denolith disks --accept: refuses a disk that a local PersistentVolume names", async () => {
  await using stage = new Stage();
  const { plugin, accepted } = await startWith(stage, { disks: [SPARE] });
  const put = (name: string, path: string, host: string) =>
    stage.cluster.api.put<PersistentVolume>(persistentVolumes, {
      metadata: { name },
      spec: {
        ...{ capacity: { storage: "1Gi" }, accessModes: ["ReadWriteOnce"], local: { path } },
        nodeAffinity: {
          required: {
            nodeSelectorTerms: [{
              matchExpressions: [{ key: "kubernetes.io/hostname", operator: "In", values: [host] }],
            }],
          },
        },
      },
    });
  put("elsewhere", SPARE.path, "n2");
  put("here", `/dev/disk/by-id/${SPARE.name}`, "n1");
  const { status, errors } = await plugin(["disks", "--accept", SPARE.name, "--yes"]);
  assertEquals([status, accepted()], [1, undefined]);
  assertStringIncludes(errors, `PersistentVolume here names it (/dev/disk/by-id/${SPARE.name})`);
  stage.cluster.api.collection(persistentVolumes).delete({ name: "here", namespace: undefined });
  assertEquals((await plugin(["disks", "--accept", SPARE.name, "--yes"])).status, 0);
});

Deno.test("kubectl denolith disks --withdraw: says what becomes of a disk that is taken", async () => {
  await using stage = new Stage();
  const { plugin, accepted, patch } = await startWith(stage, { disks: [SPARE] });
  await plugin(["disks", "--accept", SPARE.name, "--yes"]);
  const outcome = {
    name: SPARE.name,
    volumeGroup: "fast",
    state: "Taken",
    physicalVolumeUUID: "p",
    volumeGroupUUID: "v",
  };
  patch({ status: { acceptedDisks: [outcome] } }, "status");
  const again = await plugin(["disks", "--accept", SPARE.name, "--yes"]);
  assertStringIncludes(again.errors, "it is accepted already, and Taken");
  const { status, output } = await plugin(["disks", "--withdraw", SPARE.name], { answer: true });
  assertEquals([status, accepted()], [0, []]);
  assertStringIncludes(output, "stays in volume group fast. To take it out: vgreduce(8) on the node.");
  assertMatch((await plugin(["disks"])).output, /nvme-SPARE_1 +100 GiB +\/dev\/nvme1n1 +fast +Taken$/m);
});
