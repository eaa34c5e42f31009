import { run } from "./command.ts";
import { pause } from "./data.ts";

/** How long is waited for others to let go of a mount, in milliseconds. */
const BUSY_TIMEOUT_MS = 20_000;

/** What is mounted below a folder, the last mount first. */
export async function mountsBelow(folder: string): Promise<string[]> {
  const list = await run("list mounts", "findmnt", ["--json", "--list", "--kernel", "--output", "TARGET"]);
  const { filesystems } = JSON.parse(list) as { filesystems: { target: string }[] };
  return filesystems.map(({ target }) => target).filter((target) => target.startsWith(`${folder}/`)).reverse();
}

/**
 * Unmounts whatever is mounted below a folder.
 *
 * @param report is told what somebody else still uses, such as a shell that is in there
 * @throws {Error} when that lasts
 */
export async function unmountAll(folder: string, report: (text: string) => void): Promise<void> {
  const deadline = performance.now() + BUSY_TIMEOUT_MS;
  const reported = new Set<string>();
  for (;;) {
    const errors: unknown[] = [];
    for (const target of await mountsBelow(folder)) {
      await run(`unmount ${target}`, "umount", [target]).catch((error) => {
        errors.push(error);
        if (!reported.has(target)) report(`something still uses ${target}; waiting until it lets go`);
        reported.add(target);
      });
    }
    if (errors.length === 0) return;
    if (performance.now() > deadline) throw errors[0];
    await pause(500);
  }
}
