/**
 * `deno task docs:build`: builds the site of the documents, and checks it.
 *
 * @module
 */

import { dirname, join } from "@std/path";
import { parseArgs } from "@std/cli/parse-args";
import { run } from "../process.ts";
import { problemsOf } from "./check.ts";
import { copiesFor } from "./copies.ts";
import { SOURCE } from "./links.ts";
import { kindOf, ROOT, WORK } from "./repository.ts";
import { copyDocuments, installVitePress, removeDocuments, vitePressArgs } from "./vitepress.ts";

/** The folder of the site. */
const OUTPUT = join(ROOT, "dist/site");

/** Builds the site. @throws {Error} when it cannot be built, or a check of it fails */
async function build(base: string): Promise<void> {
  await installVitePress();
  await removeDocuments();
  await copyDocuments();
  await run(
    "build the site",
    Deno.execPath(),
    vitePressArgs("build", "--base", base),
    { cwd: WORK },
  );
  for (
    const [path, html] of copiesFor(
      readSite().values().filter((text) => text !== undefined),
      base,
      repository(),
    )
  ) {
    const file = join(OUTPUT, path);
    await Deno.mkdir(dirname(file), { recursive: true });
    await Deno.writeTextFile(file, html);
  }
  const files = readSite();
  const problems = problemsOf(files, base);
  if (problems.length > 0) {
    throw new Error(`check the site:\n${problems.join("\n")}`);
  }
  const html = [...files.keys()].filter((path) => path.endsWith(".html"));
  const copies = html.filter((path) => path.startsWith(`${SOURCE}/`)).length;
  console.log(`dist/site: ${html.length - copies} pages and ${copies} copies of files; all links lead somewhere`);
}

/** Returns the files of the site, with the text of those that are text. */
function readSite(folder = ""): Map<string, string | undefined> {
  return new Map(
    [...Deno.readDirSync(join(OUTPUT, folder))].flatMap(
      ({ name, isDirectory }) => {
        const path = folder + name;
        if (isDirectory) return [...readSite(`${path}/`)];
        return [[
          path,
          /\.(?:html|css)$/.test(name) ? Deno.readTextFileSync(join(OUTPUT, path)) : undefined,
        ]];
      },
    ),
  );
}

function repository() {
  return {
    kindOf,
    textOf: (path: string) => Deno.readTextFileSync(join(ROOT, path)),
    namesIn: (path: string) => [...Deno.readDirSync(join(ROOT, path))].map(({ name }) => name).sort(),
  };
}

if (import.meta.main) {
  const base = String(parseArgs(Deno.args, { string: ["base"] }).base ?? "/");
  if (!/^\/(?:.*\/)?$/.test(base)) throw new Error(`--base ${base}: must begin and end with a slash`);
  await build(base);
}
