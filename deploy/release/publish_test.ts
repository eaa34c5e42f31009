import { assertEquals, assertRejects } from "@std/assert";
import { join } from "@std/path";
import { run } from "../process.ts";
import { OCI_TYPES, OciLayout } from "./oci.ts";

const SCRIPT = new URL("publish.sh", import.meta.url).pathname;

/** Records its copies, and prints what the only entry of a layout is, whatever its digest, as skopeo does. */
const SKOPEO = `#!/bin/sh
[ "$1" = inspect ] || exec echo "$@" >> FOLDER/copies
layout=\${3#oci:} layout=\${layout%:*}
exec cat "$layout/blobs/sha256/$(sed 's/.*"digest":"sha256:\\([^"]*\\)".*/\\1/' "$layout/index.json")"
`;

/** Makes a release of an image and a chart, and a skopeo that records its copies. */
async function harness() {
  const temp = await Deno.makeTempDir();
  const digests: Record<string, string> = {};
  for (const name of ["image", "chart"]) {
    const layout = await OciLayout.create(join(temp, name));
    const manifest = await layout.addManifest({ config: await layout.add({ name }, OCI_TYPES.manifest), layers: [] });
    await layout.finish(manifest, "1.0.0");
    digests[name] = manifest.digest;
  }
  await Deno.writeTextFile(join(temp, "digests.json"), JSON.stringify(digests, null, 2));
  await Deno.writeTextFile(join(temp, "skopeo"), SKOPEO.replace("FOLDER", temp), { mode: 0o755 });
  const path = `PATH=${temp}:${Deno.env.get("PATH")}`;
  return {
    ...{ temp, digests },
    publish: () => run("publish", "env", [path, "sh", SCRIPT, temp, "registry.example"]),
    copies: () => Deno.readTextFile(join(temp, "copies")).catch(() => ""),
    [Symbol.asyncDispose]: () => Deno.remove(temp, { recursive: true }),
  };
}

Deno.test("publish.sh copies image and chart, and prints their names with digests", async () => {
  await using s = await harness();
  assertEquals((await s.publish()).trimEnd().split("\n"), [
    `registry.example/denolith:1.0.0@${s.digests.image}`,
    `registry.example/charts/denolith:1.0.0@${s.digests.chart}`,
  ]);
  assertEquals((await s.copies()).trimEnd().split("\n"), [
    `copy --all --quiet oci:${s.temp}/image:1.0.0 docker://registry.example/denolith:1.0.0`,
    `copy --all --quiet oci:${s.temp}/chart:1.0.0 docker://registry.example/charts/denolith:1.0.0`,
  ]);
});

Deno.test("publish.sh copies nothing when image or chart is not that of digests.json, which has a checksum", async (t) => {
  await t.step("its entry is another one", async () => {
    await using s = await harness();
    const layout = await OciLayout.create(join(s.temp, "other"));
    await layout.finish(await layout.add({}, OCI_TYPES.manifest), "1.0.0");
    await Deno.rename(join(s.temp, "chart"), join(s.temp, "before"));
    await Deno.rename(join(s.temp, "other"), join(s.temp, "chart"));
    await assertRejects(() => s.publish(), Error, "chart is not that of digests.json");
    assertEquals(await s.copies(), "");
  });
  await t.step("the content of its entry is another one, which skopeo does not see", async () => {
    await using s = await harness();
    const path = join(s.temp, "image/blobs/sha256", s.digests.image!.replace("sha256:", ""));
    await Deno.writeTextFile(path, " ", { append: true });
    await assertRejects(() => s.publish(), Error, "image is not that of digests.json");
    assertEquals(await s.copies(), "");
  });
});
