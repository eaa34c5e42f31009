/**
 * Comparison of the runbooks with the reasons of failures and the names of controllers.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { join } from "@std/path";
import { ERROR_KINDS, REASONS } from "../../base/error.ts";
import {
  NODE_CONDITIONS,
  type ReasonDescription,
  SNAPSHOT_CONDITIONS,
  VOLUME_CONDITIONS,
} from "../../k8s/api/condition_reasons.ts";
import { SYMPTOM_CHAPTERS, SYMPTOMS } from "../../plugin/diagnosis/symptoms.ts";
import { conditionProblem } from "../../plugin/problem.ts";
import { chapters } from "../../plugin/runbooks.ts";
import { inlineCode } from "./markdown.ts";
import { runbookChapter } from "./runbooks.ts";
import { sourceFiles } from "./source_files.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

/** Returns the texts of the sources in these folders. */
function readSources(...folders: readonly string[]): string {
  return folders.flatMap(sourceFiles).map((path) => Deno.readTextFileSync(path)).join("\n");
}

/** The texts of the driver, the plugin, its page and the chart, by their paths, without comments. */
const PRINTED: ReadonlyMap<string, string> = new Map(
  ["base", "cli", "csi", "k8s", "lvm", "plugin", "deploy/chart"].flatMap(filesOf)
    .filter((path) => !/_test\.ts$|_pb\.ts$|\.snap$|\.md$/.test(path)).map((path) => [path, withoutComments(path)]),
);

/** Returns the paths of all files below a folder of the project. */
function filesOf(folder: string): string[] {
  return [...Deno.readDirSync(join(ROOT, folder))].flatMap(({ name, isDirectory }) =>
    isDirectory ? filesOf(join(folder, name)) : [join(folder, name)]
  );
}

/** Returns the text of a file without comments, and without imports, which name files. */
function withoutComments(path: string): string {
  const text = Deno.readTextFileSync(join(ROOT, path));
  if (/\.(?:ts|js)$/.test(path)) return text.replace(/^ *\/\*\*?[^]*?\*\/|(?:^|\s)\/\/ .*$|^import .*$/gm, "");
  return path.endsWith(".txt") ? text : text.replace(/^\s*#.*$/gm, "");
}

Deno.test("the runbooks describe each reason in the chapters that its answer names, and a code of the driver in no others", () => {
  for (const [name, link] of Object.entries(SYMPTOM_CHAPTERS)) {
    const text = chapters().get(link)!.markdown;
    const expected = Object.entries(SYMPTOMS).filter(([, { chapters }]) => chapters.includes(name as never))
      .map(([reason]) => reason);
    assertEquals(expected.filter((reason) => !inlineCode(text).includes(reason)), [], `${link} lacks them`);
    const rows = [...text.matchAll(/^- \*\*((?:`\w+`(?:,\s+)?)+)\*\*:/gm)].flatMap(([, codes]) => inlineCode(codes!));
    const others = rows.filter((reason) => reason in SYMPTOMS && !expected.includes(reason));
    assertEquals(others, [], `${link} has them, and no answer leads there`);
  }
});

Deno.test("nothing that is printed names a file of the documents, which nobody has at hand", () => {
  assert(PRINTED.size > 300, "the test sees the files");
  const naming = [...PRINTED].flatMap(([path, text]) =>
    [...text.matchAll(/.*\bdocs\/.*/g)].map(([line]) => `${path}: ${line}`)
  );
  assertEquals(naming, []);
});

Deno.test("every chapter that is named anywhere exists", () => {
  const named = [...PRINTED].flatMap(([path, text]) =>
    [
      ...text.matchAll(/help runbook ([\w/-]+)/g),
      ...text.matchAll(/\b(?:runbook: |RUNBOOK = |chapterCommand\()"([^"]+)"/g),
    ].map(([, name]) => ({ path, name: name! }))
  );
  const described = [VOLUME_CONDITIONS, SNAPSHOT_CONDITIONS, NODE_CONDITIONS].flatMap((types) => Object.values(types))
    .flatMap((reasons: Readonly<Record<string, ReasonDescription>>) =>
      Object.keys(reasons).flatMap((reason) => {
        const { runbook: name } = conditionProblem(
          { type: "", reason, status: "False" },
          { object: "", severity: "error" },
          reasons,
        );
        return name === undefined ? [] : { path: reason, name };
      })
    );
  const all = [...named, ...described, ...Object.entries(SYMPTOM_CHAPTERS).map(([path, name]) => ({ path, name }))];
  assert(named.length > 35 && described.length > 15, `the test sees them: ${named.length}, ${described.length}`);
  assertEquals(all.filter(({ name }) => name !== "NAME" && !chapters().has(name)), []);
});

Deno.test("each reason is given where an error is made", () => {
  const sources = readSources("base", "csi", "k8s", "lvm").replace(/^export const REASONS = [^]*?\] as const;/m, "");
  assertEquals(sources.includes("export const REASONS"), false, "the table itself is left out");
  const kinds: readonly string[] = ERROR_KINDS;
  assertEquals(REASONS.filter((reason) => !kinds.includes(reason) && !sources.includes(`"${reason}"`)), []);
});

Deno.test("the runbooks name the controllers that exist", () => {
  const source = readSources("cli", "csi", "k8s", "lvm");
  const controllers = [
    ...source.matchAll(/\b(?:sidecarController|createController)\(\s*"(\w+)"/g),
    ...source.matchAll(/^ +name: "(\w+)",\n +(?:ownerKind|resource):/gm), // of contents and handovers
  ];
  const rows = runbookChapter("Reconcile failing").matchAll(/^- `(\w+)`/gm);
  const names = (matches: Iterable<RegExpExecArray>) => [...matches].map(([, name]) => name!).sort();
  assertEquals(names(rows), names(controllers));
});
