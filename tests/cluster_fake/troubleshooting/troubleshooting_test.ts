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
import { inlineCode } from "../../meta/messages.ts";
import { anchors } from "../../meta/markdown.ts";
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

/** Reasons since when nothing in the cluster records. */
const WITHOUT_TIME = ["VolumeGroupFull", "ClaimLost", "NoLVMVolume", "NodeGone", "NodeWithoutAgent"];

/** What stands where reasons do, and is none: the state of an agent, and a reason for events without one. */
const NO_REASONS = ["NotReported", "Event"];

/** A case as a page has it. */
interface PageCase {
  /** The beginning of a list item, without markup; or `COMMAND: REASON`. */
  readonly key: string;
  /** The reason that the plugin names; `undefined` where nothing is wrong, or none is named. */
  readonly reason: string | undefined;
  /** The messages that it quotes. */
  readonly quotes: readonly string[];
}

/** Returns the cases of a chapter: the list items that begin with bold text, and what a sentence says of the plugin. */
function casesOnPage(title: string): PageCase[] {
  const text = runbookChapter(title).replace(/```[^]*?```/g, "");
  const items = [...text.matchAll(/^- \*\*([^]*?)\*\*(?:\s+\(`(\w+)`\))?/gm)].map(([, bold, named]) => {
    const codes = inlineCode(bold!);
    const reason = named ??
      (/^`[A-Z]\w+`/.test(bold!) && /^[A-Z][a-z]+(?:[A-Z]\w+)?$/.test(codes[0]!) ? codes[0] : undefined);
    return { key: plain(bold!), reason, quotes: codes.filter((code) => code.includes("…")) };
  });
  const sentences = [...text.matchAll(/`kubectl denolith ([^`]+)`\s+names\s+it\s+((?:`\w+`(?:,\s+|\s+or\s+)?)+)/g)];
  return [
    ...items,
    ...sentences.flatMap(([, command, reasons]) =>
      inlineCode(reasons!).map((reason) => ({ key: `${plain(command!)}: ${reason}`, reason, quotes: [] }))
    ),
  ];
}

function plain(markdown: string): string {
  return markdown.replaceAll("`", "").replace(/\s+/g, " ");
}

/** Reports whether a message has the parts of a quote in their order. */
function hasQuote(message: string, quote: string): boolean {
  const parts = quote.split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(parts.join("[^]*")).test(message);
}

Deno.test("troubleshooting: each chapter of the pages is played", () => {
  const titles = readRunbooks().flatMap((text) => [...text.matchAll(/^## (.*)$/gm)].map(([, title]) => title!));
  assertEquals(Object.keys(CHAPTERS).sort(), titles.filter((title) => title !== "Other answers").sort());
});

Deno.test("troubleshooting: the pages name each reason that `why` and `status` give", () => {
  const sources = sourceFiles("plugin/diagnosis")
    .map((path) => Deno.readTextFileSync(path));
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
    const played = onPage.filter(({ key }) => typeof cases[key] === "object");
    assertEquals(
      played.map(({ key, reason }) => [key, reason]),
      played.map(({ key }) => [key, (cases[key] as Case).reason]),
    );
    const unplayed = played.flatMap(({ key, quotes }) =>
      quotes.filter((quote) => !(quote in (cases[key] as Case).plays))
    );
    assertEquals(unplayed, []);
  });

  for (const [item, one] of Object.entries(cases)) {
    if (typeof one === "string") continue;
    const plays = Object.entries(one.plays).flatMap(([quote, play]) => [play].flat().map((play) => ({ quote, play })));
    plays.forEach(({ quote, play }, index) => {
      Deno.test(`troubleshooting: ${title}: ${item} (${index + 1} of ${plays.length})`, async () => {
        await using stage = new Stage();
        const now = await play(stage) ?? undefined;
        const command = one.asks ?? asks;
        let problems: readonly PrintedProblem[] = [];
        const isRight = () =>
          problems[0]?.reason === one.reason && (quote === "" || hasQuote(problems[0]!.message, quote));
        await waitFor("the answer", async () => {
          problems = await stage.problems(command, now);
          return isRight() || undefined;
        }).catch(() => assertEquals(problems, [{ reason: one.reason, message: quote }] as never));
        if (problems[0] !== undefined) await checkAnswer(problems[0]);
      });
    });
  }
}

/** Checks that an answer says what to do, since when it is so, and names a chapter that exists. */
async function checkAnswer({ reason, remedy, runbook, since, severity }: PrintedProblem): Promise<void> {
  assert(remedy !== undefined, "it says what to do");
  assert(severity === "info" || since !== undefined || WITHOUT_TIME.includes(reason), "it says since when");
  assert(runbook !== undefined, "it names a chapter");
  const path = new URL(`../../../docs/guides/runbooks/${runbook}`, import.meta.url);
  const headings = anchors(await Deno.readTextFile(path.pathname));
  assert(path.hash === "" || headings.includes(path.hash), runbook);
}
