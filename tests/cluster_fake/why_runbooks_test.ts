/**
 * `kubectl denolith why` in each case of the troubleshooting pages: every symptom that they list is played, and the answer must
 * be the cause that they name.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { SNAPSHOT_CONDITIONS, VOLUME_CONDITIONS } from "../../k8s/api/condition_reasons.ts";
import { FORGOTTEN_ANNOTATION, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { SYMPTOM_CHAPTERS } from "../../k8s/diagnosis/symptoms.ts";
import { ClaimScene } from "../fake/claim_scene.ts";
import { RUNBOOK_CASES } from "../fake/runbook_cases.ts";
import { inlineCode } from "../meta/messages.ts";
import { anchors } from "../meta/markdown.ts";
import { runbookChapter } from "../meta/runbooks.ts";

const DAY_AGO = new Date(Date.now() - 86_400_000);

/** Returns the list items of a chapter that begin with bold text: that text, without markup. */
function items(title: string): string[] {
  return [...runbookChapter(title).matchAll(/^- \*\*([^]*?)\*\*/gm)].map(([, bold]) => bold!.replace(/\s+/g, " "));
}

/** Returns the messages that an item quotes, with values for `…`; none where it quotes none of the driver's. */
function messagesOf(item: string): string[] {
  const quotes = inlineCode(item).filter((quote) => / /.test(quote));
  const values = ["data", "pvc-1", "n1", "7"];
  return quotes.map((quote) => {
    let index = 0;
    return quote.replace(/…/g, () => values[index++ % values.length]!);
  });
}

for (const [title, { cases, play, target }] of Object.entries(RUNBOOK_CASES)) {
  Deno.test(`why: the test plays every case of the chapter "${title}"`, () => {
    assertEquals(Object.keys(cases), items(title).map((item) => item.replaceAll("`", "")));
  });

  for (const item of items(title)) {
    const one = cases[item.replaceAll("`", "")];
    const messages = messagesOf(item);
    for (const message of one?.play === undefined || messages.length > 0 ? messages : [""]) {
      Deno.test(`why: ${title}: ${message || item.replaceAll("`", "")}`, async () => {
        assert(one !== undefined, "the case has no row");
        await using scene = new ClaimScene(one.options);
        await (one.play ?? play)(scene, message);
        const { problems } = await scene.why(target);
        assertEquals(problems[0]?.reason, one.reason, JSON.stringify(problems, null, 2));
        if (one.reason === undefined) return;
        assert(problems[0]!.remedy !== undefined, "it says what to do");
        const runbook = problems[0]!.runbook!;
        const path = new URL(`../../docs/guides/runbooks/${runbook}`, import.meta.url);
        if (path.hash !== "") assert(anchors(await Deno.readTextFile(path.pathname)).includes(path.hash), runbook);
      });
    }
  }
}

Deno.test("why: each chapter that describes messages is played", () => {
  const played = Object.keys(RUNBOOK_CASES).map((title) => title.toLowerCase().replaceAll(" ", "-"));
  assertEquals(
    Object.values(SYMPTOM_CHAPTERS).map((chapter) => chapter.split("#")[1]!).filter((one) => !played.includes(one)),
    [],
  );
});

const CONDITIONS = Object.entries(VOLUME_CONDITIONS).flatMap(([type, reasons]) =>
  Object.entries(reasons).filter(([, { status }]) => status === "False").map(([reason]) => [type, reason] as const)
);

for (const [type, reason] of CONDITIONS) {
  Deno.test(`why: the agent says ${type} is False, since ${reason}`, async () => {
    await using scene = new ClaimScene();
    const message = `what the agent says of ${reason}`;
    scene.addBound({ conditions: [{ type, status: "False", reason: reason as never, message }] });
    const { problems } = await scene.why();
    assertEquals([problems.length, problems[0]!.reason, problems[0]!.message], [1, reason, message]);
    assertEquals(problems[0]!.severity === "info", reason === "Rebuilding");
  });
}

Deno.test("why: a snapshot that is ready, and whose agent then says something", async () => {
  for (const [type, reasons] of Object.entries(SNAPSHOT_CONDITIONS)) {
    for (const [reason, { status }] of Object.entries(reasons)) {
      assertEquals(typeof status, "string", `${type} ${reason}`);
    }
  }
  await using scene = new ClaimScene();
  scene.addSnapshot({ readyToUse: true, boundVolumeSnapshotContentName: "content" });
  assertEquals((await scene.why("vs/cut")).problems, []);
});

Deno.test("why: a provisioner that says something of the claim is active, also without a Lease", async () => {
  await using scene = new ClaimScene({ hasController: false });
  scene.addClaim();
  scene.addEvent("ProvisioningFailed", "not enough free space in data (1 GiB free)");
  assertEquals((await scene.why()).problems.map(({ reason }) => reason), ["NoSpace"]);
  const later = await scene.why("data", new Date(Date.now() + 3_600_000));
  assertEquals(later.problems.map(({ reason }) => reason), ["NoSpace", "NoController"]);
});

Deno.test("why: the node of a Lost volume was forgotten", async () => {
  await using scene = new ClaimScene();
  scene.addBound({
    metadata: { annotations: { [FORGOTTEN_ANNOTATION]: "2026-01-01T00:00:00Z: burnt" } },
    conditions: [{ type: "Ready", status: "False", reason: "Lost", message: "Lost: node n1 was forgotten" }],
    status: { state: "Lost" },
  });
  const { problems } = await scene.why();
  assertEquals([problems[0]!.reason, problems[0]!.runbook], ["NodeForgotten", "../node-removal.md"]);
  assertMatch(problems[0]!.remedy!, /^Delete the claim and its pods/);
});

Deno.test("why: a silent agent, a node that is down, a volume without an object, and a claim without a volume", async () => {
  {
    await using scene = new ClaimScene({ seenAt: DAY_AGO });
    scene.addBound();
    assertEquals((await scene.why()).problems.map(({ reason }) => reason), ["AgentSilent"]);
  }
  {
    await using scene = new ClaimScene({ hasAgent: false });
    scene.addBound();
    assertEquals((await scene.why()).problems.map(({ reason }) => reason), ["NodeWithoutAgent"]);
  }
  {
    await using scene = new ClaimScene();
    scene.addBound();
    await scene.delete(lvmVolumes, scene.id);
    scene.api.collection(lvmVolumes).patch({ metadata: { finalizers: null } }, {
      name: scene.id,
      namespace: undefined,
    });
    assertEquals((await scene.why()).problems.map(({ reason }) => reason), ["NoLVMVolume"]);
  }
  {
    await using scene = new ClaimScene();
    scene.addClaim({ spec: { volumeName: "gone" }, status: { phase: "Lost" } });
    assertEquals((await scene.why()).problems.map(({ reason }) => reason), ["ClaimLost"]);
  }
});

Deno.test("why: a claim of another driver, without a class, and whose data is copied", async () => {
  {
    await using scene = new ClaimScene({ storageClass: { provisioner: "ebs.csi.aws.com" } });
    scene.addClaim();
    const { problems } = await scene.why();
    assertEquals([problems[0]!.reason, problems[0]!.severity], ["OtherDriver", "info"]);
    assertMatch(problems[0]!.message, /but of ebs\.csi\.aws\.com/);
  }
  for (const [storageClassName, reason] of [["", "NoClass"], [undefined, "NoDefaultClass"]]) {
    await using scene = new ClaimScene();
    scene.addClaim({ spec: { storageClassName } });
    assertEquals((await scene.why()).problems[0]!.reason, reason);
  }
  await using scene = new ClaimScene();
  scene.addClaim();
  scene.addVolume({ status: { state: "Pending", copy: { copied: "8Mi", total: "32Mi", percent: 25 } } });
  const { problems } = await scene.why();
  assertMatch(problems[0]!.message, /its data is being copied: 8Mi of 32Mi, 25 %/);
});
