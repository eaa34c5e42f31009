/**
 * The plugin in each case of the troubleshooting pages: the driver's controller and agents bring the case about, and the plugin must
 * name the cause as the page does, say what to do, and since when it is so.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import {
  NODE_CONDITIONS,
  type ReasonDescription,
  SNAPSHOT_CONDITIONS,
  VOLUME_CONDITIONS,
} from "../../../k8s/api/condition_reasons.ts";
import { inlineCode } from "../../meta/markdown.ts";
import { chapters } from "../../../plugin/runbooks.ts";
import { readRunbooks, runbookChapter } from "../../meta/runbooks.ts";
import { sourceFiles } from "../../meta/source_files.ts";
import type { Case, Chapter } from "./case.ts";
import { EXPANSION } from "./expansion.ts";
import { GROUP_SNAPSHOTS } from "./group_snapshots.ts";
import { LIMITS } from "./limits.ts";
import { MOUNTS } from "./mounts.ts";
import { NODES } from "./nodes.ts";
import { PENDING } from "./pending.ts";
import { SNAPSHOTS } from "./snapshots.ts";
import { type PrintedProblem, Stage, waitFor } from "./stage.ts";
import { STORAGE } from "./storage.ts";
import { TERMINATING } from "./terminating.ts";
import { sampledTests } from "../../rig/sample.ts";

/** The chapters, by their titles on the pages. */
const CHAPTERS: Readonly<Record<string, Chapter>> = {
  "Claim stays Pending": PENDING,
  "Claim does not expand": EXPANSION,
  "IO limits not applied": LIMITS,
  "VolumeSnapshot not ready": SNAPSHOTS,
  "VolumeGroupSnapshot not ready": GROUP_SNAPSHOTS,
  "Pod cannot mount its volume": MOUNTS,
  "Volume held by a move": { asks: ["status"], cases: {} }, // plugin/diagnosis/problems_test.ts
  "Volume stays Terminating": TERMINATING,
  ...STORAGE,
  ...NODES,
};

/** One in so many of the cases is simulated in `task test`; all are in `task test:crashes`. */
const caseTest = await sampledTests(3);

/** Reasons since when nothing in the cluster records. */
const WITHOUT_TIME = ["VolumeGroupFull", "ClaimLost", "NoLVMVolume", "NodeGone", "NodeWithoutAgent"];

/** What stands where reasons do, and is none: the state of an agent, and a reason for events without one. */
const NO_REASONS = ["NotReported", "Event"];

/** A case as a page has it. */
interface PageCase {
  /** A reason, or the beginning of a list item without markup, or `COMMAND: REASON`. */
  readonly key: string;
  /** The reason that the plugin names; `undefined` where nothing is wrong, or none is named. */
  readonly reason: string | undefined;
}

/** Returns the cases of a chapter: the list items that begin with bold text, and what a sentence says of the plugin. */
function casesOnPage(title: string): PageCase[] {
  const text = runbookChapter(title).replace(/```[^]*?```/g, "");
  const items = [...text.matchAll(/^- \*\*([^]*?)\*\*(?:\s+\(`(\w+)`\))?/gm)].flatMap(([, bold, named]) =>
    /^`[A-Z]\w+`(?:,\s+`[A-Z]\w+`)*$/.test(bold!) && named === undefined
      ? inlineCode(bold!).map((reason) => ({ key: reason, reason }))
      : [{ key: plain(bold!), reason: named }]
  );
  const sentences = [...text.matchAll(/`kubectl denolith ([^`]+)`\s+names\s+it\s+((?:`\w+`(?:,\s+|\s+or\s+)?)+)/g)];
  return [
    ...items,
    ...sentences.flatMap(([, command, reasons]) =>
      inlineCode(reasons!).map((reason) => ({ key: `${plain(command!)}: ${reason}`, reason }))
    ),
  ];
}

function plain(markdown: string): string {
  return markdown.replaceAll("`", "").replace(/\s+/g, " ");
}

/** Returns a case of a chapter, by its key. */
function caseOf(key: string, one: Chapter["cases"][string]): Case | undefined {
  if (typeof one === "string") return undefined;
  return "plays" in one ? one : { reason: key, plays: [one].flat() };
}

Deno.test("troubleshooting: each chapter of the pages is played", () => {
  const titles = readRunbooks().flatMap((text) => [...text.matchAll(/^## (.*)$/gm)].map(([, title]) => title!));
  assertEquals(Object.keys(CHAPTERS).sort(), titles.filter((title) => title !== "Other answers").sort());
});

Deno.test("troubleshooting: the pages name each reason that `why` and `status` give", () => {
  const sources = sourceFiles("plugin/diagnosis").map((path) => Deno.readTextFileSync(path));
  const own = sources.flatMap((text) => [...text.matchAll(/\breason(?::| =)\s*([^\n]*)/g)].map(([, value]) => value!))
    .flatMap((value) => [...value.matchAll(/"([A-Z]\w+)"/g)].map(([, reason]) => reason!));
  const conditions = [VOLUME_CONDITIONS, SNAPSHOT_CONDITIONS, NODE_CONDITIONS].flatMap((types) => Object.values(types))
    .flatMap((reasons) => Object.entries<ReasonDescription>(reasons))
    .filter(([, { remedy }]) => remedy !== undefined).map(([reason]) => reason);
  const named = new Set(readRunbooks().flatMap(inlineCode));
  assertEquals(
    [...new Set([...own, ...conditions])].filter((reason) => !named.has(reason) && !NO_REASONS.includes(reason)),
    [],
  );
});

for (const [title, { asks, cases }] of Object.entries(CHAPTERS)) {
  Deno.test(`troubleshooting: ${title}: the page has the cases that are played, and what the plugin names them`, () => {
    const onPage = casesOnPage(title);
    assertEquals(Object.keys(cases).sort(), onPage.map(({ key }) => key).sort());
    const played = onPage.filter(({ key }) => typeof cases[key] !== "string");
    assertEquals(
      played.map(({ key, reason }) => [key, reason]),
      played.map(({ key }) => [key, caseOf(key, cases[key]!)!.reason]),
    );
  });

  for (const [item, value] of Object.entries(cases)) {
    const one = caseOf(item, value);
    one?.plays.forEach((play, index) => {
      caseTest(`troubleshooting: ${title}: ${item} (${index + 1} of ${one.plays.length})`, {}, async () => {
        await using stage = new Stage();
        const now = await play(stage) ?? undefined;
        const command = one.asks ?? asks;
        let problems: readonly PrintedProblem[] = [];
        await waitFor("the answer", async () => {
          problems = await stage.problems(command, now);
          return problems[0]?.reason === one.reason || undefined;
        }).catch(() => assertEquals(problems, [{ reason: one.reason }] as never));
        if (problems[0] !== undefined) checkAnswer(problems[0]);
      });
    });
  }
}

/** Checks that an answer says what to do, since when it is so, and names a chapter that exists. */
function checkAnswer({ reason, remedy, runbook, since, severity }: PrintedProblem): void {
  assert(remedy !== undefined, "it says what to do");
  assert(severity === "info" || since !== undefined || WITHOUT_TIME.includes(reason), "it says since when");
  assert(runbook !== undefined, "it names a chapter");
  assert(chapters().has(runbook), runbook);
}
