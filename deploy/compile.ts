/**
 * `deno task compile`: builds the driver as one executable file, with checksums and a software bill of materials.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import { join } from "@std/path";
import { ARTIFACT_FILES, makeArtifact } from "./artifact.ts";
import { type Architecture, ARCHITECTURES } from "./runtime.ts";
import { refuseArgument, runTool, UsageError } from "./tool.ts";

const HELP = `Usage: deno task compile [--arch ARCH]

Builds dist/${ARTIFACT_FILES.program}, one executable file, with ${ARTIFACT_FILES.sums} and ${ARTIFACT_FILES.sbom},
and dist/${ARTIFACT_FILES.plugin}, the kubectl plugin: the same file under another name. dist/${ARTIFACT_FILES.share}
has manual pages and completion scripts, dist/${ARTIFACT_FILES.pluginCompletion} the completion of kubectl.

Flags:
  --arch ARCH  ${ARCHITECTURES.join(" or ")} (default: this machine's)
  -h, --help   show this help`;

async function main(args: readonly string[]): Promise<void> {
  const parsed = parseArgs(args, {
    string: ["arch"],
    boolean: ["help"],
    alias: { help: "h" },
    unknown: refuseArgument,
  });
  if (parsed.help === true) return console.log(HELP);
  const folder = join(import.meta.dirname!, "../dist");
  await makeArtifact({ arch: architecture(parsed.arch ?? Deno.build.arch), folder, log: console.error });
  console.log((await Deno.readTextFile(join(folder, ARTIFACT_FILES.sums))).trimEnd());
}

function architecture(name: unknown): Architecture {
  const known = ARCHITECTURES.find((arch) => arch === name);
  if (known === undefined) throw new UsageError(`--arch ${name}: must be ${ARCHITECTURES.join(" or ")}`);
  return known;
}

if (import.meta.main) await runTool("compile", main);
