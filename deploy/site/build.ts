/**
 * `deno task docs:build`: builds the site of the documents, and checks it. See {@linkcode HELP}.
 *
 * @module
 */

import { dirname, join, resolve } from "@std/path";
import { parseArgs } from "@std/cli/parse-args";
import { defined } from "../../base/defined.ts";
import manifest from "../../deno.json" with { type: "json" };
import { run } from "../process.ts";
import { refuseArgument, runTool, UsageError } from "../tool.ts";
import { problemsOf } from "./check.ts";
import { copiesFor } from "./copies.ts";
import { SOURCE, VERSIONS_PAGE } from "./links.ts";
import { kindOf, ROOT, WORK } from "./repository.ts";
import { addVersion, redirectTo } from "./versions.ts";
import { copyDocuments, installVitePress, removeDocuments, vitePressArgs } from "./vitepress.ts";

/** The folder of the site. */
const OUTPUT = join(ROOT, "dist/site");

const HELP = `Usage: deno task docs:build [flags]

Builds the site of the documents in dist/site, and checks that all its links lead somewhere.

Flags:
  --base PATH     path of the site on its web server, with slashes at both ends (default: /)
  --edit URL      each page leads to its file there, such as https://github.com/OWNER/denolith/edit/main
  --version NAME  name of the version (default: ${manifest.version})
  --publish DIR   put the site into DIR/NAME, beside those of other versions, which DIR/${VERSIONS_PAGE} lists; DIR
                  is what the web server has at --base
  -h, --help      show this help`;

/** What the command line asks for. */
interface Request {
  /** The path of the folder of all versions on the web server, if there is one, or else of the site. */
  readonly base: string;
  readonly edit: string | undefined;
  readonly version: string;
  /** The folder of all versions. */
  readonly folder: string | undefined;
}

async function main(args: readonly string[]): Promise<void> {
  const parsed = parseArgs(args, {
    string: ["base", "edit", "version", "publish"],
    boolean: ["help"],
    alias: { help: "h" },
    default: { base: "/", version: manifest.version },
    unknown: refuseArgument,
  });
  if (parsed.help === true) return console.log(HELP);
  const [base, version] = [parsed.base as string, parsed.version as string];
  const [edit, folder] = [parsed.edit, parsed.publish] as (string | undefined)[];
  if (!/^\/(?:.*\/)?$/.test(base)) throw new UsageError(`--base ${base}: must begin and end with a slash`);
  if (!/^\w[\w.-]*$/.test(version)) throw new UsageError(`--version ${version}: must be the name of a folder`);
  if (edit !== undefined && !/^https?:\/\/\S*[^\s/]$/.test(edit)) {
    throw new UsageError(`--edit ${edit}: must be a URL, without a slash at the end`);
  }
  await build({ base, edit, version, folder: folder && resolve(folder) });
}

/** Builds the site. @throws {Error} when it cannot be built, or a check of it fails */
async function build({ base: root, edit, version, folder }: Request): Promise<void> {
  const hasVersions = folder !== undefined;
  const base = hasVersions ? `${root}${version}/` : root;
  await installVitePress({ base, version, hasVersions, ...defined({ edit }) });
  await removeDocuments();
  await copyDocuments();
  await run("build the site", Deno.execPath(), vitePressArgs("build"), { cwd: WORK });
  const pages = readSite().values().filter((text) => text !== undefined);
  for (const [path, html] of copiesFor(pages, base, repository())) {
    const file = join(OUTPUT, path);
    await Deno.mkdir(dirname(file), { recursive: true });
    await Deno.writeTextFile(file, html);
  }
  if (hasVersions) {
    await Deno.writeTextFile(join(OUTPUT, VERSIONS_PAGE), redirectTo(`../${VERSIONS_PAGE}`, "All versions"));
  }
  const files = readSite();
  const problems = problemsOf(files, base, hasVersions ? [`${root}${VERSIONS_PAGE}`] : []);
  if (problems.length > 0) throw new Error(`check the site:\n${problems.join("\n")}`);
  const html = [...files.keys()].filter((path) => path.endsWith(".html"));
  const copies = html.filter((path) => path.startsWith(`${SOURCE}/`)).length;
  console.log(`dist/site: ${html.length - copies} pages and ${copies} copies of files; all links lead somewhere`);
  if (hasVersions) await addVersion(OUTPUT, folder, version);
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

if (import.meta.main) await runTool("docs:build", main);
