import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { createMountPoint, removeMountPoint } from "./mounts.ts";

Deno.test("createMountPoint() creates a file or a directory, and leaves what is there as it is", async () => {
  const folder = await Deno.makeTempDir();
  try {
    for (const isFile of [true, false]) {
      const target = `${folder}/${isFile ? "file" : "directory"}`;
      assertEquals([await createMountPoint(target, isFile), await createMountPoint(target, isFile)], [true, false]);
      assertEquals((await Deno.stat(target)).isFile, isFile);
    }
    await Deno.writeTextFile(`${folder}/file`, "data");
    assertEquals(await createMountPoint(`${folder}/file`, true), false);
    assertEquals(await Deno.readTextFile(`${folder}/file`), "data");
    const error = await assertRejects(() => createMountPoint(`${folder}/none/file`, true), StorageError);
    assertEquals(error.kind, "FailedPrecondition");
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("removeMountPoint() removes what is empty, and refuses anything else", async () => {
  const folder = await Deno.makeTempDir();
  try {
    await createMountPoint(`${folder}/file`, true);
    await removeMountPoint(`${folder}/file`);
    await removeMountPoint(`${folder}/file`);
    await Deno.writeTextFile(`${folder}/data`, "data");
    await Deno.symlink(folder, `${folder}/link`);
    for (const name of ["data", "link"]) {
      assertEquals(
        (await assertRejects(() => removeMountPoint(`${folder}/${name}`), StorageError)).kind,
        "FailedPrecondition",
      );
    }
    assertEquals([...Deno.readDirSync(folder)].map(({ name }) => name).sort(), ["data", "link"]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
