/**
 * A shell in the test guest, on this terminal: `deno task guest`. The checkout is in /work/src, deno on the search path, and
 * DATA_DISKS names two empty disks. Ctrl-D ends the guest, and its state is lost.
 *
 * @module
 */
import { join } from "@std/path";
import { runGuest } from "./guest.ts";
import type { PayloadFile } from "./payload.ts";
import { run } from "./process.ts";

const SCRIPT = `
ln -s /work/deno /usr/local/bin/deno
stty rows "$LINES" cols "$COLUMNS"
unset LINES COLUMNS
cd src
echo "The checkout is here, empty disks are $DATA_DISKS. Ctrl-D ends the guest."
exec bash
`;

/** Returns the files of the checkout that git tracks or would track. */
async function checkout(): Promise<Record<string, PayloadFile>> {
  const root = join(import.meta.dirname ?? ".", "../..");
  const args = ["-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
  const files: Record<string, PayloadFile> = {};
  for (const path of (await run("list the checkout's files", "git", args)).split("\0")) {
    const host = join(root, path);
    const isThere = path !== "" && await Deno.stat(host).then((info) => info.isFile, () => false);
    if (isThere) files[join("src", path)] = { host };
  }
  return files;
}

if (import.meta.main) {
  if (!Deno.stdin.isTerminal() || !Deno.stdout.isTerminal()) {
    throw new Error("open a shell in the guest: standard input and output are no terminal; run it in one");
  }
  const { columns, rows } = Deno.consoleSize();
  console.error("Booting the guest; its shell comes after about ten seconds.");
  const status = await runGuest({
    terminal: true,
    script: SCRIPT,
    files: { ...await checkout(), deno: { host: Deno.execPath() } },
    env: { TERM: Deno.env.get("TERM") ?? "linux", LINES: String(rows), COLUMNS: String(columns) },
    dataDisksGiB: [10, 10],
  });
  Deno.exit(status);
}
