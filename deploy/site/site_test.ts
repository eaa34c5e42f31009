import { assert, assertEquals, assertThrows } from "@std/assert";
import { join } from "@std/path";
import { problemsOf } from "./check.ts";
import { configOf, type SiteOptions } from "./config.ts";
import { copiesFor } from "./copies.ts";
import { anchorOf, type KindOf, pageOf, siteLink } from "./links.ts";
import { kindOf, PAGES, ROOT } from "./repository.ts";
import { sidebarOf } from "./sidebar.ts";
import { addVersion, inOrder } from "./versions.ts";
import { driverPackages } from "../sbom.ts";

const FILES: Readonly<Record<string, string>> = {
  "docs/guides/install.md": "",
  "docs/pictures/ui.png": "",
  "deploy/examples/README.md": "",
  "deploy/examples/pod/README.md": "",
  "deploy/examples/pod/pod.yaml": "kind: Pod <&>",
  "lvm/exec.ts": "",
};

/** Returns what is at a path of a small repository. */
const smallRepository: KindOf = (path) =>
  path in FILES ? "file" : Object.keys(FILES).some((file) => file.startsWith(`${path}/`)) ? "folder" : undefined;

Deno.test("pageOf() gives documents a page, and README.md that of its folder", () => {
  const pages = [
    "docs/README.md",
    "docs/adr/README.md",
    "docs/guides/install.md",
    "deploy/examples/pod/README.md",
    "deploy/chart/README.md",
  ];
  assertEquals(pages.map(pageOf), [
    "index.md",
    "adr/index.md",
    "guides/install.md",
    "examples/pod/index.md",
    "chart/index.md",
  ]);
  assertEquals(["CHANGELOG.md", "CODE_OF_CONDUCT.md", "README.md", "lvm/exec.ts"].map(pageOf), [
    "changelog.md",
    "code_of_conduct.md",
    undefined,
    undefined,
  ]);
});

Deno.test("siteLink() leads to pages, and to copies of what has none", () => {
  const from = "docs/guides/snapshots.md";
  const linkOf = (link: string) => siteLink(link, from, smallRepository);
  assertEquals(linkOf("install.md#check"), {
    href: "/guides/install.md#check",
    isPage: true,
  });
  assertEquals(linkOf("../../deploy/examples/pod/"), {
    href: "/examples/pod/index.md",
    isPage: true,
  });
  assertEquals(linkOf("../../lvm/exec.ts"), {
    href: "/source/lvm/exec.ts.html",
    isPage: false,
  });
  assertEquals(linkOf("../../lvm"), {
    href: "/source/lvm/index.html",
    isPage: false,
  });
  assertThrows(
    () => linkOf("../reference/gone.md"),
    Error,
    "docs/guides/snapshots.md: the link ../reference/gone.md",
  );
});

Deno.test("anchorOf() makes the anchors of a Git forge", () => {
  assertEquals(
    anchorOf("What `sync` does: a second, or more"),
    "what-sync-does-a-second-or-more",
  );
});

Deno.test("copiesFor() copies what pages link to, and the files of a folder", () => {
  const page =
    '<a href="/d/source/deploy/examples/pod/index.html">pod</a> <a href="/d/source/lvm/exec.ts.html#x">exec</a>';
  const copies = copiesFor([page], "/d/", {
    kindOf: smallRepository,
    textOf: (path) => FILES[path]!,
    namesIn: () => ["README.md", "pod.yaml"],
  });
  assertEquals([...copies.keys()], [
    "source/deploy/examples/pod/index.html",
    "source/lvm/exec.ts.html",
    "source/deploy/examples/pod/pod.yaml.html",
  ]);
  const [folder, , file] = [...copies.values()];
  assert(
    folder!.includes('<a href="/d/examples/pod/index.html">README.md</a>'),
    folder,
  );
  assert(
    folder!.includes(
      '<a href="/d/source/deploy/examples/pod/pod.yaml.html">pod.yaml</a>',
    ),
    folder,
  );
  assert(file!.includes("<pre>kind: Pod &lt;&amp;></pre>"), file);
});

Deno.test("problemsOf() finds links to nothing, and what is loaded from another host", () => {
  const files = new Map([
    [
      "index.html",
      '<h1 id="top">A</h1><a href="/d/guides/a.html#b">b</a><a href="https://example.com">e</a>',
    ],
    [
      "guides/a.html",
      '<a id="b" href="../">up</a><a href="/d/#top">top</a><img src="p.png"><link href="/d/s.css">',
    ],
    ["guides/p.png", undefined],
    [
      "s.css",
      "a { background: url(data:image/png;base64,AA) } @font-face { src: url(/d/f.woff2) }",
    ],
  ]);
  assertEquals(problemsOf(files, "/d/"), []);
  files.set(
    "index.html",
    '<a href="/d/guides/a.html#c"></a><a href="/guides/a.html"></a><a href="#gone"></a><script src="https://example.com/a.js"></script>',
  );
  files.set(
    "s.css",
    "@import 'https://example.com/b.css'; a { background: url(//example.com/c.png) }",
  );
  assertEquals(problemsOf(files, "/d/"), [
    "index.html: no heading is at /d/guides/a.html#c",
    "index.html: nothing is at /guides/a.html",
    "index.html: no heading is at #gone",
    "index.html loads https://example.com/a.js",
    "guides/a.html: no heading is at /d/#top",
    "s.css loads https://example.com/b.css",
    "s.css loads //example.com/c.png",
  ]);
  const beside = new Map([["index.html", '<a href="../versions.html">']]);
  assertEquals(problemsOf(beside, "/d/"), ["index.html: nothing is at ../versions.html"]);
  assertEquals(problemsOf(beside, "/d/", ["/versions.html"]), []);
});

Deno.test("sidebarOf() makes a group of each chapter, with its links, and without its pictures", () => {
  const text =
    "# All\n\n## Guides\n\n- [install it](guides/install.md), [denolith x](../lvm)\n\n![ui](pictures/ui.png)\n";
  assertEquals(sidebarOf(text, "docs/README.md", smallRepository), [{
    text: "Guides",
    collapsed: false,
    items: [
      { text: "Install it", link: "/guides/install.md" },
      { text: "denolith x", link: "/source/lvm/index.html" },
    ],
  }]);
});

Deno.test("the sidebar has the links of docs/README.md", () => {
  const groups = sidebarOf(
    Deno.readTextFileSync(`${ROOT}docs/README.md`),
    "docs/README.md",
    kindOf,
  );
  const items = groups.flatMap(({ items }) => items);
  assert(
    items.some(({ text, link }) => text === "Sizing" && link === "/guides/sizing.md"),
  );
  assertEquals(
    new Set(items.map(({ link }) => link)).size,
    items.length,
    "no page is in it twice",
  );
});

const SITE: SiteOptions = { base: "/d/main/", version: "main", hasVersions: false };

/** Returns the address and the target that a link of a page gets on a site. */
function rewritten(options: SiteOptions, href: string): (string | undefined)[] {
  const attributes = new Map([["href", href]]);
  const link = {
    ...{ type: "link_open", children: null },
    attrGet: (name: string) => attributes.get(name) ?? null,
    attrSet: (name: string, value: string) => void attributes.set(name, value),
  };
  const tokens = [{ ...link, type: "inline", children: [link] }];
  const env = { path: join(PAGES, "docs/guides/install.md") };
  configOf(options).markdown.config({ core: { ruler: { push: (_, rule) => rule({ tokens, env }) } } });
  return ["href", "target"].map((name) => attributes.get(name));
}

Deno.test("configOf() makes links of pages to those of the site, with its path where VitePress does not add it", () => {
  assertEquals(rewritten(SITE, "upgrade.md#versions"), ["/guides/upgrade.md#versions", undefined]);
  assertEquals(rewritten(SITE, "../../lvm/exec.ts"), ["/d/main/source/lvm/exec.ts.html", "_self"]);
  assertEquals(rewritten({ ...SITE, base: "/" }, "../../lvm/exec.ts"), ["/source/lvm/exec.ts.html", "_self"]);
  assertEquals(rewritten(SITE, "https://deno.com"), ["https://deno.com", undefined]);
});

Deno.test("configOf() names the version, and lets readers edit pages and find other versions where there are addresses", () => {
  const entry = ({ themeConfig: { nav } }: ReturnType<typeof configOf>) => nav.at(-1);
  const changelog = { text: "Changelog", link: "/changelog" };
  assertEquals(entry(configOf(SITE)), { text: "main", items: [changelog] });
  assertEquals(configOf(SITE).themeConfig.editLink, undefined);
  const whole = configOf({ ...SITE, hasVersions: true, edit: "https://git.example/o/denolith/edit/main" });
  const others = { text: "Other versions", link: "/versions.html", target: "_self" };
  assertEquals(entry(whole), { text: "main", items: [changelog, others] });
  assertEquals(whole.themeConfig.editLink, {
    pattern: "https://git.example/o/denolith/edit/main/:path",
    text: "Edit this page",
  });
});

Deno.test("inOrder() lists releases before others, and newer ones first", () => {
  const versions = ["main", "0.9.0", "0.10.0", "1.0.0-rc.1", "0.10.1"];
  assertEquals(inOrder(versions), ["0.10.1", "0.10.0", "0.9.0", "main", "1.0.0-rc.1"]);
});

Deno.test("addVersion() replaces a version, keeps the others, lists all, and leads to the newest", async () => {
  const temp = await Deno.makeTempDir();
  try {
    const [site, folder] = [join(temp, "site"), join(temp, "pages")];
    const write = async (text: string) => {
      await Deno.mkdir(join(site, "guides"), { recursive: true });
      await Deno.writeTextFile(join(site, "guides", `${text}.html`), text);
    };
    await write("old");
    await addVersion(site, folder, "main");
    await Deno.mkdir(join(folder, ".git"));
    await Deno.remove(site, { recursive: true });
    await write("new");
    for (const version of ["0.2.0", "main", "0.1.0"]) await addVersion(site, folder, version);
    const files = ["0.1.0", "0.2.0", "main"].map((version) =>
      [...Deno.readDirSync(join(folder, version, "guides"))].map(({ name }) => name)
    );
    assertEquals(files, [["new.html"], ["new.html"], ["new.html"]]);
    const list = await Deno.readTextFile(join(folder, "versions.html"));
    assertEquals([...list.matchAll(/href="([^"]*)\/"/g)].map(([, version]) => version), ["0.2.0", "0.1.0", "main"]);
    assert((await Deno.readTextFile(join(folder, "index.html"))).includes('content="0; url=0.2.0/"'));
    assert((await Deno.stat(join(folder, ".git"))).isDirectory);
  } finally {
    await Deno.remove(temp, { recursive: true });
  }
});

Deno.test("VitePress and its packages are not among those of the driver", async () => {
  const { dependencies } = JSON.parse(
    Deno.readTextFileSync(`${ROOT}deploy/site/vitepress/package.json`),
  );
  assertEquals(Object.keys(dependencies), ["vitepress", "vue"]);
  const names = [...(await driverPackages()).packages.values()].map(({ name }) => name);
  assertEquals(
    names.filter((name) => /^(?:vitepress|vue|vite|rollup|htmlparser2|@vue\/.*)$/.test(name)),
    [],
  );
});
