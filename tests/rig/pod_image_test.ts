import { assertEquals } from "@std/assert";
import { imageArchive } from "./pod_image.ts";
import { run } from "./process.ts";
import { TempFolder } from "./temp_folder.ts";

/** Creates a folder with two files, written in this order. */
async function layer(temp: TempFolder, name: string, order: readonly string[]): Promise<string> {
  const folder = temp.file(name);
  await Deno.mkdir(folder);
  for (const file of order) {
    await Deno.writeTextFile(`${folder}/${file}`, file);
    await Deno.utime(`${folder}/${file}`, Math.random() * 1e9, 5);
  }
  return folder;
}

Deno.test("imageArchive() makes the same archive of the same files, whatever their times and order", async () => {
  await using temp = await TempFolder.create("/tmp", "denolith-image-");
  const make = async (name: string, order: readonly string[]) => {
    const layers = [await layer(temp, name, order)];
    const config = { Cmd: ["/a"] };
    await imageArchive(temp, temp.file(`${name}.tar`), { names: ["example.test/one:1"], layers, config });
    const digest = await run("hash", "sha256sum", [temp.file(`${name}.tar`)]);
    return digest.split(" ")[0];
  };
  assertEquals(await make("one", ["a", "b"]), await make("two", ["b", "a"]));
});

Deno.test("imageArchive() names each layer by the digest of its archive", async () => {
  await using temp = await TempFolder.create("/tmp", "denolith-image-");
  const layers = [await layer(temp, "low", ["a"]), await layer(temp, "high", ["b"])];
  await imageArchive(temp, temp.file("image.tar"), { names: ["example.test/one:1"], layers, config: {} });
  await Deno.mkdir(temp.file("out"));
  await run("unpack", "tar", ["-C", temp.file("out"), "-xf", temp.file("image.tar")]);
  const [manifest] = JSON.parse(await Deno.readTextFile(temp.file("out/manifest.json")));
  const config = JSON.parse(await Deno.readTextFile(temp.file(`out/${manifest.Config}`)));
  const digests = [];
  for (const file of manifest.Layers) {
    digests.push(`sha256:${(await run("hash", "sha256sum", [temp.file(`out/${file}`)])).split(" ")[0]}`);
  }
  assertEquals(config.rootfs.diff_ids, digests);
});
