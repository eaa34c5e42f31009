import { assertEquals, assertRejects } from "@std/assert";
import { dirname, join } from "@std/path";
import { elfFile } from "../../tests/fake/elf_file.ts";
import { MERGED_FOLDERS, mirrorsFrom, type UnpackedDebian } from "./debian.ts";
import { pickSystem } from "./pick.ts";

const LIBRARIES = "/usr/lib/aarch64-linux-gnu";

/** Contents of files, and targets of links, by their paths. */
const FILES: Readonly<Record<string, Uint8Array | string | { link: string }>> = {
  "/usr/sbin/tool": elfFile({ loader: "/lib/ld.so.1", libraries: ["liba.so.1"] }),
  "/usr/sbin/other": { link: "tool" },
  "/usr/bin/absolute": { link: "/sbin/tool" },
  "/usr/lib/ld.so.1": { link: "aarch64-linux-gnu/ld.so" },
  [`${LIBRARIES}/ld.so`]: elfFile({}),
  [`${LIBRARIES}/liba.so.1`]: { link: "liba.so.1.0" },
  [`${LIBRARIES}/liba.so.1.0`]: elfFile({ libraries: ["libprivate.so"], folders: ["$ORIGIN/private"] }),
  [`${LIBRARIES}/private/libprivate.so`]: elfFile({ libraries: ["liba.so.1"] }),
  [`${LIBRARIES}/libunused.so`]: elfFile({}),
  "/usr/sbin/broken": elfFile({ libraries: ["libmissing.so"] }),
  "/etc/tool.conf": "setting",
  "/etc/loop": { link: "loop" },
  "/usr/share/doc/tools/copyright": "licence of tools",
  "/usr/share/doc/libs": { link: "tools" },
  "/usr/share/doc/unused/copyright": "licence of unused",
};

/** Writes the files as packages that are unpacked. */
async function unpacked(root: string): Promise<UnpackedDebian> {
  for (const name of MERGED_FOLDERS) {
    await Deno.mkdir(join(root, "usr", name), { recursive: true });
    await Deno.symlink(`usr/${name}`, join(root, name));
  }
  for (const [path, content] of Object.entries(FILES)) {
    await Deno.mkdir(join(root, dirname(path)), { recursive: true });
    if (content instanceof Uint8Array) await Deno.writeFile(join(root, path), content, { mode: 0o755 });
    else if (typeof content === "string") await Deno.writeTextFile(join(root, path), content);
    else await Deno.symlink(content.link, join(root, path));
  }
  const owner = (path: string) => path.includes("unused") ? "unused" : path.includes(".so") ? "libs" : "tools";
  return {
    root,
    owners: new Map(Object.keys(FILES).map((path) => [path, owner(path)])),
    status: new Map(["tools", "libs", "unused"].map((name) => [name, `Package: ${name}`])),
  };
}

Deno.test("pickSystem() takes files with links, loader and libraries, and what dpkg knows of their packages", async () => {
  const temp = await Deno.makeTempDir();
  try {
    const out = join(temp, "out");
    const debian = await unpacked(join(temp, "root"));
    await Deno.chmod(join(debian.root, "usr/sbin/tool"), 0o4755); // as mount(8) in Debian
    const umask = Deno.umask(0o077);
    await pickSystem(debian, ["other", "absolute", "/etc/tool.conf"], { arch: "aarch64", out })
      .finally(() => Deno.umask(umask));
    const files = (await filesOf(out)).filter((path) => !path.startsWith("/usr/share"));
    assertEquals(files, [
      ...["/bin", "/etc/tool.conf", "/lib", "/lib64", "/sbin", "/usr/bin/absolute"],
      ...[`${LIBRARIES}/ld.so`, `${LIBRARIES}/liba.so.1`, `${LIBRARIES}/liba.so.1.0`],
      ...[`${LIBRARIES}/private/libprivate.so`, "/usr/lib/ld.so.1", "/usr/sbin/other", "/usr/sbin/tool"],
      ...["/var/lib/dpkg/status", "/var/run"],
    ]);
    assertEquals(await Deno.readLink(join(out, "usr/bin/absolute")), "/sbin/tool");
    const modes = {
      "": 0o755,
      "usr/sbin/tool": 0o755,
      "var/lib/dpkg": 0o755,
      "var/lib/dpkg/status": 0o644,
      tmp: 0o1777,
    };
    for (const [path, mode] of Object.entries(modes)) {
      assertEquals((await Deno.stat(join(out, path))).mode! & 0o7777, mode, path);
    }
    assertEquals(await Deno.readTextFile(join(out, "var/lib/dpkg/status")), "Package: libs\n\nPackage: tools\n\n");
    assertEquals(await Deno.readTextFile(join(out, "usr/share/doc/libs/copyright")), "licence of tools");
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});

Deno.test("pickSystem() says which file or library no package has", async () => {
  const temp = await Deno.makeTempDir();
  try {
    const debian = await unpacked(join(temp, "root"));
    for (const [name, missing] of [["absent", "absent"], ["broken", "libmissing.so"], ["/etc/loop", "/etc/loop"]]) {
      const out = join(temp, missing!);
      const action = () => pickSystem(debian, [name!], { arch: "aarch64", out });
      await assertRejects(action, Error, `no package has the file ${missing}`);
    }
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});

Deno.test("mirrorsFrom() takes the mirrors of Debian and its security updates from apt's sources", () => {
  const targets = [
    "https://deb.other.example/tool main",
    "http://mirror.example/debian-security main",
    "http://mirror.example/debian contrib",
    "http://mirror.example/debian/ main",
    "",
  ].join("\n");
  assertEquals(mirrorsFrom(targets, "bookworm"), [
    { address: "http://mirror.example/debian", release: "bookworm" },
    { address: "http://mirror.example/debian-security", release: "bookworm-security" },
  ]);
  assertEquals(mirrorsFrom("", "bookworm"), [
    { address: "http://deb.debian.org/debian", release: "bookworm" },
    { address: "http://deb.debian.org/debian-security", release: "bookworm-security" },
  ]);
});

/** Returns the paths of files and links below a folder, sorted. */
async function filesOf(folder: string, path = ""): Promise<string[]> {
  const found: string[] = [];
  for await (const { name, isDirectory } of Deno.readDir(join(folder, path))) {
    if (isDirectory) found.push(...await filesOf(folder, `${path}/${name}`));
    else found.push(`${path}/${name}`);
  }
  return found.sort();
}
