/**
 * What the documents list, compared with what is there.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { controllerLeaseName, sidecarLeaseName } from "../../k8s/runtime/leader.ts";
import { Metrics } from "../../cli/metrics.ts";
import { subcommandFlags } from "../process/driver_command.ts";
import { anchors, chapter } from "./markdown.ts";
import { sourceFiles } from "./source_files.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

const kubernetes = await Deno.readTextFile(`${ROOT}docs/kubernetes.md`);

/** What stands in code in the first column of the tables. */
function firstColumn(text: string): string[] {
  return [...text.matchAll(/^\| `([^`]+)`/gm)].map(([, name]) => name!);
}

Deno.test("docs/kubernetes.md lists the metrics that there are, with their labels", async () => {
  const metrics = new Metrics();
  metrics.registerGroups(() => []);
  metrics.registerPools(() => [], 100n);
  metrics.registerInconsistencies({ orphans: () => 0, lost: () => 0 });
  metrics.registerLimits(() => []);
  metrics.registerReadOnlyFilesystems(() => []);
  metrics.registerCopies(() => []);
  metrics.registerCowExtensions();
  metrics.registerTrimming(() => []);
  const markdownFiles = [...(await metrics.text()).matchAll(/^# HELP (\S+)/gm)].map(([, name]) => name);
  assertEquals(firstColumn(chapter(kubernetes, "Metrics")).sort(), markdownFiles.sort());
});

Deno.test("docs/kubernetes.md lists the alerts that there are", async () => {
  const alerts = (await Deno.readTextFile(`${ROOT}deploy/chart/files/alerts.yaml`)).matchAll(/- alert: (\w+)/g);
  assertEquals(firstColumn(chapter(kubernetes, "Alerts and a dashboard")), [...alerts].map(([, name]) => name!));
});

Deno.test("docs/kubernetes.md lists the flags of both processes", async () => {
  const text = chapter(kubernetes, "Flags");
  const [shared, ofController, ofNode] = text.split(/^`denolith (?:controller|node)`:$/m);
  const common = [...shared!.matchAll(/`--([a-z-]+)/g)].map(([, flag]) => flag!);
  for (const [subcommand, table] of [["controller", ofController], ["node", ofNode]] as const) {
    const listed = firstColumn(table!).map((flag) => /^--([a-z-]+)/.exec(flag)![1]!);
    assertEquals([...new Set([...listed, ...common])].sort(), (await subcommandFlags(subcommand)).sort(), subcommand);
  }
});

Deno.test("docs/kubernetes.md names the events that are recorded, and the Leases", async () => {
  const documented = [
    ...chapter(kubernetes, "Events and conditions").matchAll(/^\| ((?:`\w+`(?:, )?)+) +\| [\w ]+\|/gm),
  ]
    .flatMap(([, markdownFiles]) => [...markdownFiles!.matchAll(/`(\w+)`/g)].map(([, name]) => name!));
  const recorded = new Set<string>();
  for (const path of sourceFiles("k8s")) {
    const source = await Deno.readTextFile(path);
    for (const [, rest] of source.matchAll(/\.record\(\w[\w.]*, "(?:Normal|Warning)", ([^,]*),/g)) {
      for (const [, reason] of rest!.matchAll(/"([A-Z]\w+)"(?!\s*\?)/g)) recorded.add(reason!);
    }
  }
  assert(recorded.size > 8, "the test sees them");
  assertEquals([...recorded].filter((reason) => !documented.includes(reason)), []);
  for (const sidecar of ["csi-provisioner", "csi-resizer", "csi-snapshotter"] as const) {
    assert(kubernetes.includes(`\`${sidecarLeaseName(sidecar, "lvm.denolith.dev")}\``), sidecar);
  }
  assert(kubernetes.includes(`\`${controllerLeaseName("capacity", "lvm.denolith.dev")}\``), "capacity");
});

Deno.test("docs/guides/standalone.md lists the flags of standalone mode", async () => {
  const text = chapter(await Deno.readTextFile(`${ROOT}docs/guides/standalone.md`), "Flags");
  const listed = firstColumn(text).map((flag) => /^--([a-z-]+)/.exec(flag)![1]!);
  assertEquals(listed.sort(), (await subcommandFlags("standalone")).sort());
});

Deno.test("README.md is short", async () => {
  assert((await Deno.stat(`${ROOT}README.md`)).size <= 8192);
});

Deno.test("links of the documents lead to files, and to headings that there are", async () => {
  const documents = ["README.md", ...markdownFiles("docs"), ...markdownFiles("deploy/examples")];
  assert(documents.length > 40, "the test sees them");
  const broken: string[] = [];
  for (const document of documents) {
    const text = await Deno.readTextFile(`${ROOT}${document}`);
    for (const [, link] of text.replace(/```[\s\S]*?```/g, "").matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^https?:/.test(link!)) continue;
      const { pathname, hash } = new URL(link!, `file://${ROOT}${document}`);
      const found = await Deno.stat(pathname).catch(() => undefined);
      if (found === undefined) broken.push(`${document}: ${link}`);
      else if (hash !== "" && !anchors(await Deno.readTextFile(pathname)).includes(hash)) {
        broken.push(`${document}: ${link}`);
      }
    }
  }
  assertEquals(broken, []);
});

/** Returns the paths of the pages in a folder and in the folders below it. */
function markdownFiles(folder: string): string[] {
  return [...Deno.readDirSync(`${ROOT}${folder}`)].flatMap(({ name, isDirectory }) =>
    isDirectory ? markdownFiles(`${folder}/${name}`) : name.endsWith(".md") ? [`${folder}/${name}`] : []
  );
}
