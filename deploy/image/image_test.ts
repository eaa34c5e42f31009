import { assert, assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path";
import { PROGRAMS } from "../../lvm/exec.ts";
import { DENO_VERSION } from "../runtime.ts";
import { LAUNCH_FLAGS } from "../launch.ts";
import { sha256OfFile } from "../self_extracting.ts";
import { IMAGE } from "./archive.ts";
import { DRIVER_FOLDER, IMAGE_START, SHEBANG, writeDriver } from "./driver.ts";
import { DEBIAN_RELEASE, readPackages } from "./system.ts";
import { makeTar } from "../process.ts";

const dockerfile = await Deno.readTextFile(new URL("Dockerfile", import.meta.url));

Deno.test("the image has every program of the closed list", () => {
  const files = [...readPackages().values()].flat();
  assertEquals(PROGRAMS.filter((program) => !files.includes(program)), []);
  assertEquals(files.length, new Set(files).size);
});

Deno.test("readPackages() joins the lines of a package, and refuses what it does not understand", () => {
  assertEquals(
    readPackages("# a\nkmod: modinfo\n\nkmod: modprobe /etc/x\n"),
    new Map([["kmod", ["modinfo", "modprobe", "/etc/x"]]]),
  );
  for (const line of ["kmod", "kmod:", "kmod:modinfo", " kmod: modinfo"]) {
    assertThrows(() => readPackages(line), Error, line);
  }
});

Deno.test("the image's Dockerfile is of the same parts as its archive", () => {
  assert(dockerfile.includes(`debian:${DEBIAN_RELEASE}-slim AS system\n`));
  assert(dockerfile.includes(`ARG DENO=denoland/deno:bin-${DENO_VERSION}\n`));
  assert(dockerfile.includes(`--tag ${IMAGE} `));
  assert(dockerfile.includes(`\nENV ${IMAGE_START.Env.join(" ")}\n`));
  assert(dockerfile.includes(`\nENTRYPOINT ${JSON.stringify(IMAGE_START.Entrypoint)}\n`));
});

Deno.test("the kernel reads the whole line that starts the driver", () => {
  assert(new TextEncoder().encode(SHEBANG).length <= 255, SHEBANG);
});

Deno.test("the driver in the image has the permission set, and starts itself", async () => {
  const temp = await Deno.makeTempDir();
  try {
    await writeDriver(temp);
    const folder = join(temp, DRIVER_FOLDER);
    const { permissions } = JSON.parse(await Deno.readTextFile(join(folder, "deno.json")));
    assert(permissions.denolith.run.includes("/usr/sbin/lvm"));
    const module = join(folder, "main.js");
    assert((await Deno.stat(join(folder, "worker.js"))).isFile);
    assert((await Deno.readTextFile(module)).startsWith(SHEBANG));
    assertEquals((await Deno.stat(module)).mode! & 0o777, 0o755);
    const link = join(temp, "usr/bin/denolith");
    assertEquals(await Deno.realPath(link), await Deno.realPath(module));
    const args = [...LAUNCH_FLAGS, `--config=${folder}/deno.json`, link, "doctor", "--json"];
    const { stdout, stderr } = await new Deno.Command(Deno.execPath(), { args, env: { NO_COLOR: "1" } }).output();
    assertEquals(new TextDecoder().decode(stderr), "");
    assert(JSON.parse(new TextDecoder().decode(stdout)).checks.length > 0, "the worker says so");
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});

Deno.test("makeTar() makes the same of the same content, whenever and by whom it was written", async () => {
  const temp = await Deno.makeTempDir();
  try {
    const checksums: string[] = [];
    for (const [index, names] of [["a", "b"], ["b", "a"]].entries()) {
      const folder = join(temp, String(index));
      await Deno.mkdir(folder);
      for (const name of names) await Deno.writeTextFile(join(folder, name), `content of ${name}`);
      await Deno.utime(join(folder, "a"), index * 1000, index * 1000);
      await makeTar(folder, `${folder}.tar`);
      checksums.push(await sha256OfFile(`${folder}.tar`));
    }
    assertEquals(checksums[0], checksums[1]);
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});
