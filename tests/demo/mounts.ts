import { run } from "./command.ts";
import { pause } from "./data.ts";

/** The time to wait until a busy mount can be unmounted, in milliseconds. */
const BUSY_TIMEOUT_MS = 20_000;

/** Returns the mount points below a folder, the last mount first. */
export async function mountsBelow(folder: string): Promise<string[]> {
  const list = await run("list mounts", "findmnt", ["--json", "--list", "--kernel", "--output", "TARGET"]);
  const { filesystems } = JSON.parse(list) as { filesystems: { target: string }[] };
  return filesystems.map(({ target }) => target).filter((target) => target.startsWith(`${folder}/`)).reverse();
}

/**
 * Unmounts all filesystems below a folder.
 *
 * @param report called when a process still uses a mount, such as a shell in it @throws {Error} when that lasts
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
