/**
 * Comparison of the documents with the code.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { controllerLeaseName, sidecarLeaseName } from "../../k8s/runtime/leader.ts";
import { anchors } from "./markdown.ts";
import { sourceFiles } from "./source_files.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

/**
 * A resource in a command that kubectl also finds in the group local.openebs.io, which it prefers to ours: its plural, singular
 * or short names, without a group.
 */
const AMBIGUOUS_KIND =
  /(?<![\w.$-])lvm(?:(?:volume|node|snapshot)s?|vol|snap)(?![\w-])(?!\.lvm\.denolith\.dev|\.local\.openebs\.io)/;

/** Size in bytes above which a page is split; those of the reference are tables, which nobody reads to the end. */
const MAX_PAGE = { reference: 32 * 1024, others: 26 * 1024 };

/** The most pages beside the decisions, decisions, and bytes that the documents have: a new subject is a chapter of a page. */
const CEILINGS = { pages: 60, decisions: 28, bytes: 480_000 };

/** Words for features that have a guide, by the name of the guide. */
const FEATURES: Readonly<Record<string, RegExp>> = {
  backup: /changed blocks/i,
  encryption: /encrypt/i,
  expansion: /expan/i,
  import: /import|take over/i,
  layouts: /\b(?:RAID|stripes|checksums|caches?)\b/i,
  move: /\bmov(?:es?|ing)\b/i,
  snapshots: /snapshots|clones?\b/i,
  standalone: /without Kubernetes/i,
};

/** Words that deny a feature. */
const DENIAL = /\b(?:missing|no parameter|not supported|not implemented|only by hand|there (?:is|are) no(?:ne)?)\b/i;

/** Reads a page of the reference documentation. */
function reference(name: string): Promise<string> {
  return Deno.readTextFile(`${ROOT}docs/reference/${name}.md`);
}

/** Returns the code at the start of each list item. */
function terms(text: string): string[] {
  return [...text.matchAll(/^- `([^`]+)`/gm)].map(([, name]) => name!);
}

Deno.test("docs/reference/alerts.md lists all alerts", async () => {
  const alerts = (await Deno.readTextFile(`${ROOT}deploy/chart/files/alerts.yaml`)).matchAll(/- alert: (\w+)/g);
  assertEquals(terms(await reference("alerts")), [...alerts].map(([, name]) => name!));
});

Deno.test("docs/guides/official-sidecars.md names the Leases", async () => {
  const page = await Deno.readTextFile(`${ROOT}docs/guides/official-sidecars.md`);
  const leases = [
    ...(["csi-provisioner", "csi-resizer", "csi-snapshotter"] as const).map((sidecar) =>
      sidecarLeaseName(sidecar, "lvm.denolith.dev")
    ),
    controllerLeaseName("capacity", "lvm.denolith.dev"),
  ];
  assertEquals(leases.filter((lease) => !page.includes(`\`${lease}\``)), []);
});

Deno.test("no page of docs/ is too large", async () => {
  const large: string[] = [];
  for (const page of markdownFiles("docs")) {
    const max = MAX_PAGE[page.startsWith("docs/reference/") ? "reference" : "others"];
    if ((await Deno.stat(`${ROOT}${page}`)).size > max) large.push(page);
  }
  assertEquals(large, []);
});

Deno.test("the documents keep to their number of pages, and to their size", async () => {
  const paths = markdownFiles("docs");
  const decisions = paths.filter((path) => /^docs\/adr\/\d/.test(path));
  const pages = paths.filter((path) => !path.startsWith("docs/adr/"));
  const sizes = await Promise.all(paths.map(async (path) => (await Deno.stat(`${ROOT}${path}`)).size));
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  assert(pages.length > 40 && decisions.length > 20, "the test sees them");
  assert(pages.length <= CEILINGS.pages, `${pages.length} pages`);
  assert(decisions.length <= CEILINGS.decisions, `${decisions.length} decisions`);
  assert(bytes <= CEILINGS.bytes, `${bytes} bytes`);
});

Deno.test("README.md names all guides, and each row of its table a page of what the driver does", async () => {
  const readme = await Deno.readTextFile(`${ROOT}README.md`);
  const named = links("README.md").map(({ pathname }) => pathname.slice(ROOT.length));
  assertEquals(markdownFiles("docs/guides").filter((path) => !named.includes(path) && !/runbooks\//.test(path)), []);
  const rows = [...readme.matchAll(/^\| ([^|]*[^|\s-][^|]*) \| ([^|]*) \|/gm)].map(([, title, ours]) => ({
    title,
    ours,
  }));
  assert(rows.length > 10, "the test sees them");
  const wrong = rows.filter(({ title, ours }) =>
    title!.trim() !== "maturity" && !/\]\(docs\/(?:guides|reference)\//.test(title!) ||
    /^(?:no\b|missing|–|not )/.test(ours!)
  );
  assertEquals(wrong, []);
});

Deno.test("no page denies a feature that has a guide", async () => {
  for (const guide of Object.keys(FEATURES)) await Deno.stat(`${ROOT}docs/guides/${guide}.md`);
  const wrong: string[] = [];
  for (
    const page of [
      "README.md",
      ...["comparison", "limitations"].map((name) => `docs/explanation/${name}.md`),
      "docs/faq.md",
    ]
  ) {
    const text = (await Deno.readTextFile(`${ROOT}${page}`)).split(/^## (?:OpenEBS|TopoLVM|Others)/m)[0]!; // what others do
    const statements = text.split(/(?<=[.?!:])\s|\n(?:\n|- |\|)/).filter((statement) => DENIAL.test(statement));
    for (const statement of statements) {
      if (Object.values(FEATURES).some((words) => words.test(statement))) wrong.push(`${page}: ${statement}`);
    }
  }
  assertEquals(wrong, []);
});

Deno.test("README.md is short", async () => {
  assert((await Deno.stat(`${ROOT}README.md`)).size <= 8192);
});

Deno.test("links of the documents lead to files and headings that exist", async () => {
  const documents = [
    ...[...Deno.readDirSync(ROOT)].map(({ name }) => name).filter((name) => name.endsWith(".md")),
    "deploy/chart/README.md",
    ...markdownFiles("docs"),
    ...markdownFiles("deploy/examples"),
  ];
  assert(documents.length > 40, "the test sees them");
  const broken: string[] = [];
  for (const document of documents) {
    for (const { link, pathname, hash } of links(document)) {
      const found = await Deno.stat(pathname).catch(() => undefined);
      if (found === undefined) broken.push(`${document}: ${link}`);
      else if (hash !== "" && !anchors(await Deno.readTextFile(pathname)).includes(hash)) {
        broken.push(`${document}: ${link}`);
      }
    }
  }
  assertEquals(broken, []);
});

Deno.test("every page of docs/ can be reached by links from README.md", () => {
  const reached = new Set(["README.md"]);
  for (const page of reached) {
    for (const { pathname } of links(page)) if (pathname.endsWith(".md")) reached.add(pathname.slice(ROOT.length));
  }
  assertEquals(markdownFiles("docs").filter((page) => !reached.has(page)), []);
});

Deno.test("commands for kubectl mean the driver's kinds also beside those of the same names that OpenEBS has", async () => {
  const texts = [
    ...["README.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/chart/README.md", "deploy/chart/templates/NOTES.txt"],
    ...["deploy/chart/values.yaml", "deploy/chart/files/alerts.yaml"],
    ...[...markdownFiles("docs"), ...markdownFiles("deploy/examples")].filter((page) => !page.startsWith("docs/adr/")),
    ...["base", "cli", "csi", "k8s", "lvm", "plugin"].flatMap(sourceFiles).map((path) => path.slice(ROOT.length)),
  ];
  const ambiguous: string[] = [];
  for (const path of texts) {
    const text = (await Deno.readTextFile(`${ROOT}${path}`)).replace(/\\\n\s*/g, " ");
    const commands = [...text.matchAll(/kubectl (?!denolith)[^\n`|;#]*/g)].map(([command]) => command);
    ambiguous.push(
      ...commands.filter((command) => AMBIGUOUS_KIND.test(command)).map((command) => `${path}: ${command}`),
    );
  }
  assertEquals(ambiguous, []);
});

/** Returns the links of a document to files of the repository, with the path and the heading that each leads to. */
function links(document: string): { readonly link: string; readonly pathname: string; readonly hash: string }[] {
  const text = Deno.readTextFileSync(`${ROOT}${document}`).replace(/```[\s\S]*?```/g, "");
  const targets = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link]) => link!);
  return targets.filter((link) => !/^https?:/.test(link)).map((link) => {
    const { pathname, hash } = new URL(link, `file://${ROOT}${document}`);
    return { link, pathname, hash };
  });
}

/** Returns the paths of the pages in a folder and in the folders below it. */
function markdownFiles(folder: string): string[] {
  return [...Deno.readDirSync(`${ROOT}${folder}`)].flatMap(({ name, isDirectory }) =>
    isDirectory ? markdownFiles(`${folder}/${name}`) : name.endsWith(".md") ? [`${folder}/${name}`] : []
  );
}
