/**
 * `kubectl denolith why` of each condition, and of objects that were lost or belong to others.
 *
 * @module
 */

import { assertEquals, assertMatch } from "@std/assert";
import { SNAPSHOT_CONDITIONS, VOLUME_CONDITIONS } from "../../k8s/api/condition_reasons.ts";
import { FORGOTTEN_ANNOTATION, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { ClaimHarness } from "../fake/cluster/claim_harness.ts";

const DAY_AGO = new Date(Date.now() - 86_400_000);

const CONDITIONS = Object.entries(VOLUME_CONDITIONS).flatMap(([type, reasons]) =>
  Object.entries(reasons).filter(([, { status }]) => status === "False").map(([reason]) => [type, reason] as const)
);

for (const [type, reason] of CONDITIONS) {
  Deno.test(`why: the agent says ${type} is False, since ${reason}`, async () => {
    await using harness = new ClaimHarness();
    const message = `what the agent says of ${reason}`;
    harness.addBound({ conditions: [{ type, status: "False", reason: reason as never, message }] });
    const { problems } = await harness.why();
    assertEquals([problems.length, problems[0]!.reason, problems[0]!.message], [1, reason, message]);
    const isNote = type === "Imported" || ["Rebuilding", "InUse", "KeyChangeRunning"].includes(reason);
    assertEquals(problems[0]!.severity === "info", isNote);
  });
}

Deno.test("why: a snapshot that is ready, and whose agent then says something", async () => {
  for (const [type, reasons] of Object.entries(SNAPSHOT_CONDITIONS)) {
    for (const [reason, { status }] of Object.entries(reasons)) {
      assertEquals(typeof status, "string", `${type} ${reason}`);
    }
  }
  await using harness = new ClaimHarness();
  harness.addSnapshot({ readyToUse: true, boundVolumeSnapshotContentName: "content" });
  assertEquals((await harness.why("vs/cut")).problems, []);
});

Deno.test("why: a provisioner that says something of the claim is active, also without a Lease", async () => {
  await using harness = new ClaimHarness({ hasController: false });
  harness.addClaim();
  harness.addEvent("ProvisioningFailed", "not enough free space in data (1 GiB free) [NoSpace]");
  assertEquals((await harness.why()).problems.map(({ reason }) => reason), ["NoSpace"]);
  const later = await harness.why("data", new Date(Date.now() + 3_600_000));
  assertEquals(later.problems.map(({ reason }) => reason), ["NoSpace", "NoController"]);
});

Deno.test("why: the node of a Lost volume was forgotten", async () => {
  await using harness = new ClaimHarness();
  harness.addBound({
    metadata: { annotations: { [FORGOTTEN_ANNOTATION]: "2026-01-01T00:00:00Z: burnt" } },
    conditions: [{ type: "Ready", status: "False", reason: "Lost", message: "Lost: node n1 was forgotten" }],
    status: { state: "Lost" },
  });
  const { problems } = await harness.why();
  assertEquals([problems[0]!.reason, problems[0]!.runbook], [
    "NodeForgotten",
    "node-maintenance/remove-a-dead-node",
  ]);
  assertMatch(problems[0]!.remedy!, /^Delete the claim and its pods/);
});

Deno.test("why: a silent agent, a node that is down, a volume without an object, and a claim without a volume", async () => {
  {
    await using harness = new ClaimHarness({ seenAt: DAY_AGO });
    harness.addBound();
    assertEquals((await harness.why()).problems.map(({ reason }) => reason), ["AgentSilent"]);
  }
  {
    await using harness = new ClaimHarness({ hasAgent: false });
    harness.addBound();
    assertEquals((await harness.why()).problems.map(({ reason }) => reason), ["NodeWithoutAgent"]);
  }
  {
    await using harness = new ClaimHarness();
    harness.addBound();
    await harness.delete(lvmVolumes, harness.id);
    harness.api.collection(lvmVolumes).patch({ metadata: { finalizers: null } }, {
      name: harness.id,
      namespace: undefined,
    });
    assertEquals((await harness.why()).problems.map(({ reason }) => reason), ["NoLVMVolume"]);
  }
  {
    await using harness = new ClaimHarness();
    harness.addClaim({ spec: { volumeName: "gone" }, status: { phase: "Lost" } });
    assertEquals((await harness.why()).problems.map(({ reason }) => reason), ["ClaimLost"]);
  }
});

Deno.test("why: a claim of another driver, without a class, and whose data is copied", async () => {
  {
    await using harness = new ClaimHarness({ storageClass: { provisioner: "ebs.csi.aws.com" } });
    harness.addClaim();
    const { problems } = await harness.why();
    assertEquals([problems[0]!.reason, problems[0]!.severity], ["OtherDriver", "info"]);
    assertMatch(problems[0]!.message, /but of ebs\.csi\.aws\.com/);
  }
  for (const [storageClassName, reason] of [["", "NoClass"], [undefined, "NoDefaultClass"]]) {
    await using harness = new ClaimHarness();
    harness.addClaim({ spec: { storageClassName } });
    assertEquals((await harness.why()).problems[0]!.reason, reason);
  }
  await using harness = new ClaimHarness();
  harness.addClaim();
  harness.addVolume({ status: { state: "Pending", copy: { copied: "8Mi", total: "32Mi", percent: 25 } } });
  const { problems } = await harness.why();
  assertMatch(problems[0]!.message, /its data is being copied: 8Mi of 32Mi, 25 %/);
});
