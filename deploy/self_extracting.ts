import { createHash } from "node:crypto";
import { PLUGIN_SUBCOMMANDS } from "../cli/subcommands.ts";
import head from "./head.sh" with { type: "text" };
import type { DriverModules } from "./bundle.ts";
import {
  LAUNCH_ENV,
  MODULE,
  PERMISSION_SET,
  PLUGIN_MODULE,
  PLUGIN_PERMISSION_SET,
  RUN_FLAGS,
  WORKER_MODULE,
} from "./launch.ts";
import type { Architecture } from "./runtime.ts";

/** Parts of a self-extracting file. */
export interface SelfExtractingParts {
  readonly version: string;
  readonly arch: Architecture;
  /** Path of the deno binary. */
  readonly runtime: string;
  /** Paths of the bundled driver. */
  readonly modules: DriverModules;
  /** Path of the bundled kubectl plugin. */
  readonly plugin: string;
  /** Configuration for starting the driver, as JSON. */
  readonly config: string;
}

/** Space for the script at the start of the file, in bytes. */
const HEAD_BYTES = 8192;

/** Alignment of the deno binary in the file, in bytes, and the block size with which dd copies it. */
const BLOCK_BYTES = 65_536;

/**
 * Writes one executable file that consists of a script, the driver and the deno binary. On its first start, it unpacks the two
 * to a folder named after its content. It then runs deno with the driver; see head.sh. The same parts give the same file.
 *
 * @throws {Error} when a part cannot be read, or the file cannot be written
 */
export async function writeSelfExtracting(
  output: string,
  { version, arch, ...parts }: SelfExtractingParts,
): Promise<void> {
  const files = [
    { part: "MAIN", name: MODULE, bytes: await Deno.readFile(parts.modules.main) },
    { part: "WORKER", name: WORKER_MODULE, bytes: await Deno.readFile(parts.modules.worker) },
    { part: "PLUGIN", name: PLUGIN_MODULE, bytes: await Deno.readFile(parts.plugin) },
    { part: "CONFIG", name: "deno.json", bytes: new TextEncoder().encode(parts.config) },
  ];
  let end = HEAD_BYTES;
  const places = files.flatMap(({ part, bytes: { length } }) => {
    end += length;
    return [[`${part}_BYTES`, length], [`${part}_END`, end]];
  });
  const runtimeBlock = Math.ceil(end / BLOCK_BYTES);
  const moduleSums = files.map(({ name, bytes }) => `${sha256(bytes)}  ${name}`);
  const sums = [...moduleSums, `${await sha256OfFile(parts.runtime)}  deno`].join("\n");
  const script = fillPlaceholders("head.sh", head, {
    VERSION: version,
    ARCH: arch,
    // the script is part of the key, because it determines the layout of the folder
    KEY: sha256(new TextEncoder().encode(head + sums)).slice(0, 32),
    ...Object.fromEntries(places),
    BLOCK_BYTES,
    RUNTIME_BLOCK: runtimeBlock,
    SIZES: [...files.map(({ bytes }) => bytes.length), (await Deno.stat(parts.runtime)).size].join("\n"),
    SUMS: sums,
    ENV: LAUNCH_ENV.join(" "),
    FLAGS: RUN_FLAGS.join(" "),
    PLUGIN_SUBCOMMANDS: PLUGIN_SUBCOMMANDS.map((name) => `*/${name}`).join(" | "),
    ...{ SET: PERMISSION_SET, PLUGIN_SET: PLUGIN_PERMISSION_SET, MODULE, PLUGIN_MODULE },
  });
  using file = await Deno.open(output, { write: true, create: true, truncate: true });
  for (const part of [padScript(script), ...files.map(({ bytes }) => bytes)]) await writeAll(file, part);
  await file.seek(runtimeBlock * BLOCK_BYTES, Deno.SeekMode.Start);
  using runtime = await Deno.open(parts.runtime);
  await runtime.readable.pipeTo(file.writable, { preventClose: true });
  await Deno.chmod(output, 0o755); // whatever the umask
}

/** Returns the SHA-256 of a file's content, in hexadecimal. */
export async function sha256OfFile(path: string): Promise<string> {
  const hash = createHash("sha256");
  using file = await Deno.open(path);
  for await (const chunk of file.readable) hash.update(chunk);
  return hash.digest("hex");
}

/** Returns the SHA-256 of bytes, in hexadecimal. */
export function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}

/** Replaces the words between `@` of a script by their values. @throws {Error} when one has none */
export function fillPlaceholders(
  name: string,
  script: string,
  values: Readonly<Record<string, string | number>>,
): string {
  return script.replace(/@([A-Z_]+)@/g, (_, word: string) => {
    const value = values[word];
    if (value === undefined) throw new Error(`fill in ${name}: nothing is known of @${word}@`);
    return String(value);
  });
}

/** Pads the script with empty lines. The shell never reads them, because the script ends with `exec`. */
function padScript(script: string): Uint8Array {
  const bytes = new TextEncoder().encode(script);
  if (bytes.length > HEAD_BYTES) throw new Error(`make the script: ${bytes.length} bytes are more than ${HEAD_BYTES}`);
  const paddedBytes = new Uint8Array(HEAD_BYTES).fill("\n".charCodeAt(0));
  paddedBytes.set(bytes);
  return paddedBytes;
}

async function writeAll(file: Deno.FsFile, bytes: Uint8Array): Promise<void> {
  for (let written = 0; written < bytes.length;) written += await file.write(bytes.subarray(written));
}
