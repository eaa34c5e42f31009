import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../error.ts";
import { canonicalizePath, isBelow, withRealPaths } from "./mounts.ts";

/** Creates a directory with a subdirectory and a link to it. */
async function createLinkedFolder() {
  const folder = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-mounts-" }));
  await Deno.mkdir(`${folder}/real`);
  await Deno.symlink("real", `${folder}/link`);
  return { folder, [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }) };
}

Deno.test("isBelow() compares whole names, and a directory is not below itself", () => {
  const below = (path: string) => isBelow(path, ["/mnt", "/var/lib/kubelet"]);
  assertEquals(["/mnt/a", "/var/lib/kubelet/pods/x"].map(below), [true, true]);
  assertEquals(["/mnt", "/mnt-2/a", "/var/lib", "/", "/a/mnt/b"].map(below), [false, false, false, false, false]);
});

Deno.test("withRealPaths() adds the targets of links, keeps missing directories, and refuses a link to the root", async () => {
  await using here = await createLinkedFolder();
  const { folder } = here;
  assertEquals(await withRealPaths([`${folder}/link`, `${folder}/absent`]), [
    `${folder}/link`,
    `${folder}/absent`,
    `${folder}/real`,
  ]);
  await Deno.symlink("/", `${folder}/everything`);
  await assertRejects(() => withRealPaths([`${folder}/everything`]), StorageError, "root directory");
});

Deno.test("canonicalizePath() follows a root that is a link, and keeps missing parts unchanged", async () => {
  await using here = await createLinkedFolder();
  const { folder } = here;
  const roots = await withRealPaths([`${folder}/link`, `${folder}/absent`]);
  assertEquals(await canonicalizePath(`${folder}/link/a/b`, roots), `${folder}/real/a/b`);
  assertEquals(await canonicalizePath(`${folder}/absent/a/b`, roots), `${folder}/absent/a/b`);
  await assertRejects(() => canonicalizePath(`${folder}/link/a`, [`${folder}/link`]), StorageError, "not below");
  await assertRejects(() => canonicalizePath(`${folder}/other/a`, roots), StorageError, "not below");
});
