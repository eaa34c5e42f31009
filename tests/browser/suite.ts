/**
 * The page in a real Chromium, over a cluster of 200 nodes.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import axe from "axe-core";
import { lvmNodes, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { events, pathOf } from "../../k8s/api/objects.ts";
import { Chromium, type View } from "./chromium.ts";
import { SHOWN_CLAIM } from "./large_cluster.ts";
import { ServedPage } from "./served_page.ts";

const DESKTOP: View = { width: 1280, height: 900 };
/** Text of somebody who may write events, and would rather write a page. */
const HOSTILE = `<img src=x onerror="document.title='owned'"><script>alert(1)</script>`;
const PHONE: View = { width: 360, height: 740 };

/** Opens the page of a cluster, as somebody does who has the printed address. */
async function setUp({ view = DESKTOP, trouble = false, nodes = 200 } = {}) {
  const page = await ServedPage.start({ nodes, trouble });
  const browser = await Chromium.start();
  await browser.view(view);
  await browser.open(page.address);
  await browser.until(`document.querySelectorAll("#nodes > li").length === ${nodes}`);
  return {
    ...{ page, browser },
    text: (selector: string) =>
      browser.evaluate<string>(`document.querySelector(${JSON.stringify(selector)}).innerText`),
    /** Opens the volume with everything, as the mouse does. */
    async openShown() {
      await browser.evaluate(`document.querySelector('[data-focus="node worker-000"]').click()`);
      const link = `[...document.querySelectorAll("#nodes td a")].find((a) => a.textContent === "${SHOWN_CLAIM}")`;
      await browser.until(link);
      await browser.evaluate(`${link}.click()`);
      await browser.until(`document.querySelector("dialog .events")`);
    },
    /** Returns what axe finds, that something is wider than the window, and headings of one word on two lines. */
    async check() {
      const width = await browser.evaluate<string>(
        `document.documentElement.scrollWidth > innerWidth || document.querySelector("dialog").scrollWidth > innerWidth ? "too wide" : ""`,
      );
      const broken = await browser.evaluate<string[]>(
        `[...document.querySelectorAll("h1, h2, h3, h4, h5")].filter((heading) =>
          /^[\\w/]+$/.test(heading.textContent) && heading.checkVisibility() &&
          heading.getBoundingClientRect().height > 1.6 * parseFloat(getComputedStyle(heading).lineHeight))
          .map((heading) => heading.textContent + " is broken")`,
      );
      if (!await browser.evaluate("'axe' in globalThis")) await browser.evaluate(`${axe.source}; undefined`);
      const rules = { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] };
      const found = await browser.evaluate<{ id: string; html: string }[]>(
        `axe.run(document, ${JSON.stringify(rules)}).then(({ violations }) =>
          violations.flatMap(({ id, nodes }) => nodes.slice(0, 2).map(({ html, failureSummary }) => ({ id, html: html.slice(0, 200), failureSummary }))))`,
      );
      return [...found.map((one) => JSON.stringify(one)), ...(width === "" ? [] : [width]), ...broken];
    },
    async [Symbol.asyncDispose]() {
      await browser[Symbol.asyncDispose]();
      await page[Symbol.asyncDispose]();
    },
  };
}

Deno.test("the page shows 200 nodes to scale, and what is wrong first", async () => {
  await using s = await setUp();
  const { browser } = s;
  assertMatch(await s.text("#problems-summary"), /^\d+ errors, \d+ warnings$/);
  assertMatch(await s.text("#problems > li:first-child"), /^Error /);
  assert(
    await browser.evaluate(
      `document.querySelector("#problems").compareDocumentPosition(document.querySelector("#nodes")) & 4`,
    ),
  );
  // the bars of two groups differ as their sizes do
  const ratios = await browser.evaluate<number[]>(`(() => {
    const groups = [...document.querySelectorAll("#nodes .bars")].flatMap((bars) => [...bars.children]);
    const widths = groups.map((bar) => bar.getBoundingClientRect().width);
    return widths.map((width) => Math.round(10 * width / Math.min(...widths)) / 10);
  })()`);
  assertEquals(new Set(ratios), new Set([1, 2, 4]));
  // a volume of half the size has half the width
  await browser.evaluate(`document.querySelector('[data-focus="node worker-000"]').click()`);
  await browser.until(`document.querySelector(".bar.large")`);
  const perByte = await browser.evaluate<number[]>(
    `[...document.querySelectorAll(".bar.large")].slice(0, 1).flatMap((bar) =>
    [...bar.children].map((part) => part.getBoundingClientRect().width / parseFloat(part.style.width)))`,
  );
  assert(Math.max(...perByte) - Math.min(...perByte) < 0.5, `${perByte}`);
  assertEquals(browser.complaints, []);
});

Deno.test("a volume's page has its claim, pod, node, layout and images, filesystem, usage, snapshots, limits and events", async () => {
  await using s = await setUp({ nodes: 3 });
  await s.openShown();
  const text = await s.text("dialog");
  for (
    const expected of [
      ...[/^shop\/db-0\n/, /Pods\s+db-0/, /Node\s+worker-000 \(agent Alive\)/, /Class\s+fast/],
      ...[/Layout\s+raid1 with 1 mirror/, /Images\s+2, each on a physical volume of its own; redundant/],
      ...[/Filesystem\s+(ext4|xfs)/, /67 GiB of 98 GiB, 68%; 41,200 of 6,553,600 inodes/],
      ...[/readIops\s+4000/, /writeBps\s+200Mi/, /FileSystemResizeSuccessful/],
    ]
  ) assertMatch(text, expected);
  const tree = await s.browser.evaluate<string[]>(
    `[...document.querySelectorAll(".tree li")].map((li) => li.parentElement.closest("li")?.querySelector("a, strong").textContent + " > " + li.querySelector("a, strong").textContent)`,
  );
  assertEquals(
    new Set(tree),
    new Set([
      ...["undefined > shop/db-0", "shop/db-0 > shop/db-0-monday", "shop/db-0 > shop/db-0-tuesday"],
      ...[
        "shop/db-0-tuesday > shop/db-restored",
        "shop/db-restored > shop/db-restored-check",
        "shop/db-0 > shop/db-staging",
      ],
    ]),
  );
});

Deno.test("all volumes are in a table that is filtered, sorted, and shown in parts", async () => {
  await using s = await setUp({ nodes: 30 });
  const { browser } = s;
  const count = () => browser.evaluate<number>(`document.querySelectorAll("#volume-rows tr").length`);
  const column = (index: number) =>
    browser.evaluate<string[]>(
      `[...document.querySelectorAll("#volume-rows tr")].map((row) => row.children[${index}].textContent)`,
    );
  const total = Number(/^(\d+) volumes$/.exec(await s.text("#volumes-found"))![1]);
  assert(total > 200, `${total}`);
  assertEquals(await count(), 100);
  await browser.evaluate(`document.querySelector("#more-volumes").click()`);
  assertEquals(await count(), 200);
  const sort = (title: string) => browser.evaluate(`document.querySelector('[data-focus="sort ${title}"]').click()`);
  await sort("Used");
  await sort("Used");
  const used = (await column(2)).map((text) => Number.parseInt(text));
  assertEquals(used, used.toSorted((a, b) => b - a));
  assertEquals(
    await browser.evaluate(`document.querySelector('[data-focus="sort Used"]').parentElement.ariaSort`),
    "descending",
  );
  assertEquals(await browser.evaluate("document.activeElement.dataset.focus"), undefined);
  const select = (id: string, value: string) =>
    browser.evaluate(
      `(() => { const list = document.querySelector("#${id}"); list.value = "${value}"; list.dispatchEvent(new Event("change")); })()`,
    );
  await select("namespace", "shop");
  await select("class", "thin");
  const claims = await column(0);
  assert(claims.length > 0 && claims.every((claim) => claim.startsWith("shop/")), claims.join());
  assert((await column(4)).every((name) => name === "thin"));
  assertMatch(await s.text("#volumes-found"), new RegExp(`^${claims.length} of ${total} volumes$`));
  await select("class", "");
  await browser.evaluate(`document.querySelector("#volume-search").focus()`);
  await browser.type("db-0");
  await browser.until(`document.querySelectorAll("#volume-rows tr").length < 20`);
  await browser.evaluate(
    `[...document.querySelectorAll("#volume-rows a")].find((link) => link.textContent === "${SHOWN_CLAIM}").click()`,
  );
  await browser.until(`document.querySelector("dialog .events")`);
  assertEquals(browser.complaints, []);
});

Deno.test("space by namespace leads to the volumes of one", async () => {
  await using s = await setUp({ nodes: 9 });
  const name = await s.browser.evaluate<string>(
    `(() => { const button = document.querySelector("#namespace-rows button"); button.click(); return button.textContent; })()`,
  );
  const row = await s.text("#namespace-rows tr");
  const [, volumes] = /(\d+) volumes/.exec(row)!;
  assertMatch(await s.text("#volumes-found"), new RegExp(`^${volumes} of `));
  const namespaces = await s.browser.evaluate<string[]>(
    `[...document.querySelectorAll("#volume-rows a")].map((link) => link.textContent.split("/")[0])`,
  );
  assertEquals(new Set(namespaces), new Set([name]));
});

Deno.test("what waits and what is under way is shown, with its progress and commands", async () => {
  await using s = await setUp({ nodes: 3 });
  assertMatch(await s.text("#waiting"), /^NoSpace data\/warehouse 20 TiB of class fast/);
  const work = await s.text("#under-way");
  assertMatch(work, /Move shop\/db-0 from worker-000 to worker-002[^]*41%/);
  assertMatch(work, /kubectl denolith move db-0 --namespace shop --cancel --context prod/);
  assertMatch(work, /Import shop\/orders from OpenEBS to worker-001/);
  assertMatch(
    await s.text("#disks"),
    /^Proposed nvme-SAMSUNG_\S+ worker-001[^]*disks --accept nvme-SAMSUNG_MZ7LH960_S45NNC0R --node worker-001/,
  );
  assertMatch(await s.text("#space"), /being erased/);
  assert(await s.browser.evaluate(`document.querySelector(".part.erasing") !== null`));
  await s.browser.evaluate(`document.querySelector("#waiting a").click()`);
  await s.browser.until(`document.querySelector("dialog .events")`);
  assertMatch(
    await s.text("dialog"),
    /^data\/warehouse\n[^]*NoSpace[^]*kubectl denolith why warehouse --namespace data/,
  );
});

Deno.test("of many waiting claims the first ones are shown, and all at a click", async () => {
  await using s = await setUp({ nodes: 9, trouble: true });
  const count = () => s.browser.evaluate<number>(`document.querySelectorAll("#waiting > li").length`);
  assertEquals([await count(), await s.text("#waiting-count"), await s.text("#waiting-all")], [5, "7", "Show all 7"]);
  await s.browser.evaluate(`document.querySelector("#waiting-all").click()`);
  assertEquals(await count(), 7);
  assert(await s.browser.evaluate(`document.querySelector("#waiting-all").hidden`));
});

Deno.test("a command is copied by its button, or the page says that it may not", async () => {
  await using s = await setUp({ nodes: 3 });
  await s.browser.evaluate(`Object.defineProperty(navigator, "clipboard", { configurable: true, value: {
    writeText: (text) => text.includes("finish") ? Promise.reject(new Error("no")) : Promise.resolve(globalThis.copied = text) } })`);
  const click = (text: string) =>
    s.browser.evaluate(
      `[...document.querySelectorAll("#under-way .command")].find((line) => line.textContent.includes("${text}")).querySelector("button").click()`,
    );
  await click("move db-0");
  await s.browser.until(`globalThis.copied === "kubectl denolith move db-0 --namespace shop --cancel --context prod"`);
  assertMatch(await s.text("#under-way"), /Copied/);
  await click("--finish");
  await s.browser.until(`document.querySelector("#under-way").innerText.includes("Copying is not allowed")`);
});

Deno.test("names and messages from objects are text, never HTML", async () => {
  await using s = await setUp({ nodes: 3 });
  const [node] = s.page.api.objects(lvmNodes);
  const name = `<b id="owned">x</b>`;
  s.page.api.restore(lvmNodes, { ...node!, metadata: { ...node!.metadata, name } });
  await s.browser.until(`document.querySelector("#nodes").innerText.includes('<b id="owned">')`);
  const [event] = s.page.api.objects(events);
  s.page.api.restore(events, { ...event!, message: HOSTILE });
  await s.openShown();
  assert((await s.text("dialog .events")).includes(HOSTILE));
  assertEquals(await s.browser.evaluate(`document.querySelectorAll("#owned, dialog img, dialog script").length`), 0);
  assert(await s.browser.evaluate(`document.title !== "owned"`));
  // and the browser would refuse to make HTML of text
  const refused =
    `(() => { try { document.body.innerHTML = "<i>x</i>"; return "" } catch (error) { return error.message } })()`;
  assertMatch(await s.browser.evaluate<string>(refused), /TrustedHTML/);
});

Deno.test("the page asks its own address only, keeps no token, and runs nothing else", async () => {
  await using s = await setUp({ nodes: 3 });
  await s.openShown();
  const origin = new URL(s.page.address).origin;
  const asked = s.browser.requests.filter((url) => url !== "about:blank");
  assert(asked.length > 5 && asked.every((url) => url.startsWith(`${origin}/`)), asked.join("\n"));
  assertEquals(await s.browser.evaluate("location.search + document.cookie"), "");
  assertEquals(await s.browser.evaluate("history.length"), 3); // about:blank, the page, the volume: no address with a token
  assertEquals(
    await s.browser.evaluate(`fetch("https://example.com/").then(() => "sent", () => "refused")`),
    "refused",
  );
  await s.browser.open(s.page.address);
  assertEquals(await s.browser.evaluate("location.pathname + location.search"), "/"); // this browser knows the cookie
  await using other = await Chromium.start();
  await other.open(s.page.address);
  assertMatch(await other.evaluate<string>("document.body.innerText"), /This address was used already/);
});

Deno.test("the page follows the cluster by itself, keeps what is open, and the focus", async () => {
  await using s = await setUp({ nodes: 3 });
  const { browser, page } = s;
  await browser.evaluate(`document.querySelector('[data-focus="node worker-001"]').click()`);
  await browser.until(`document.querySelector("#nodes td a")`);
  const first = `document.querySelector("#nodes td a")`;
  const claim = await browser.evaluate<string>(`${first}.focus(), ${first}.textContent`);
  const volume = page.api.objects(lvmVolumes).find(({ metadata }) =>
    Object.values(metadata.annotations ?? {}).includes(claim)
  )!;
  page.api.restore(lvmVolumes, { ...volume, status: { ...volume.status, state: "Failed" } });
  await browser.until(`document.querySelector("#nodes table").innerText.includes("Failed")`);
  assertEquals(await browser.evaluate("document.activeElement.textContent"), claim);
  // an LVMNode that goes leaves a node that has volumes, and no agent
  const deleted = await fetch(page.api.url + pathOf(lvmNodes, { name: "worker-002" }), { method: "DELETE" });
  await deleted.body?.cancel();
  await browser.until(`document.querySelector("#nodes").innerText.includes("NodeWithoutAgent")`);
});

Deno.test("there may be more tabs than a browser has connections to one host: hidden ones have none", async () => {
  await using s = await setUp({ nodes: 3 });
  await s.openShown();
  const volume = await s.browser.evaluate<string>("location.href");
  for (const _ of Array(4)) {
    await s.browser.newTab();
    await s.browser.open(volume);
    await s.browser.until(`document.querySelector("dialog .events") && document.querySelector("#nodes > li")`);
  }
  const hidden = `Object.defineProperty(document, "hidden", { value: true, configurable: true })`;
  await s.browser.evaluate(`${hidden}; document.dispatchEvent(new Event("visibilitychange"))`);
  const [node] = s.page.api.objects(lvmNodes);
  s.page.api.restore(lvmNodes, { ...node!, metadata: { ...node!.metadata, name: "worker-new" } });
  await s.browser.evaluate(`delete document.hidden; document.dispatchEvent(new Event("visibilitychange"))`);
  await s.browser.until(`document.querySelector("#nodes").innerText.includes("worker-new")`);
  assertEquals(s.browser.complaints, []);
});

Deno.test("everything can be reached and left by keyboard", async () => {
  await using s = await setUp({ nodes: 3 });
  const { browser } = s;
  const focused = () =>
    browser.evaluate<string>(`document.activeElement.dataset.focus ?? document.activeElement.id ?? ""`);
  const tabTo = async (wanted: RegExp) => {
    for (let tabs = 0; tabs < 60; tabs++) {
      await browser.press("Tab");
      if (wanted.test(await focused())) return await focused();
    }
    throw new Error(`no Tab leads to ${wanted}`);
  };
  await browser.press("Tab");
  assertEquals(await browser.evaluate("document.activeElement.className"), "skip");
  await tabTo(/^search$/);
  await browser.type("db-0");
  await browser.until(`document.querySelectorAll("#nodes > li").length < 3`);
  await tabTo(/^node worker-000$/);
  await browser.press("Enter");
  const link = await tabTo(/^volume /);
  await browser.press("Enter");
  await browser.until(`document.querySelector("dialog[open] h3")`);
  assertEquals(await focused(), "volume-title");
  await browser.press("Escape");
  await browser.until(`!document.querySelector("dialog[open]")`);
  assertEquals([await focused(), await browser.evaluate("location.hash")], [link, ""]);
  await browser.press("Tab", { shift: true });
});

for (const scheme of ["light", "dark"] as const) {
  for (const [device, size] of [["desktop", DESKTOP], ["phone", PHONE]] as const) {
    Deno.test(`axe finds nothing, and nothing is wider than the window: ${device}, ${scheme}`, async () => {
      await using s = await setUp({ view: { ...size, scheme }, trouble: true, nodes: 9 });
      await s.browser.evaluate(`document.querySelectorAll("#problems summary").forEach((summary) => summary.click())`);
      await s.browser.evaluate(`document.querySelector("#all-problems").click()`);
      await s.browser.evaluate(
        `document.querySelectorAll("#nodes summary").forEach((summary, index) => index > 3 || summary.click())`,
      );
      await s.browser.until(`document.querySelectorAll("#nodes .body").length > 3`);
      await s.browser.evaluate(`document.querySelector('[data-focus="sort Used"]').click()`);
      assertEquals(await s.check(), []);
      await s.browser.evaluate(`document.querySelector('[data-focus^="node "]').scrollIntoView()`);
      const isOpen = await s.browser.evaluate(`document.querySelector('details[data-mark="node worker-000"]').open`);
      if (isOpen) await s.browser.evaluate(`document.querySelector('[data-focus="node worker-000"]').click()`);
      await s.openShown();
      assertEquals(await s.check(), []);
    });
  }
}

Deno.test("a problem leads to the chapter of the runbooks, which the page's own server has", async () => {
  await using s = await setUp({ trouble: true, nodes: 9 });
  await s.browser.evaluate(`document.querySelectorAll("#problems summary").forEach((summary) => summary.click())`);
  await s.browser.until(`document.querySelector('#problems a[target="_blank"]')`);
  const missing = await s.browser.evaluate<string[]>(
    `Promise.all([...document.querySelectorAll('#problems a[target="_blank"]')].map(async ({ href, textContent }) =>
      (await (await fetch(href)).text()).startsWith("#") ? [] : [textContent])).then((links) => links.flat())`,
  );
  assertEquals(missing, []);
});

Deno.test("the page says that denolith ui has ended", async () => {
  await using browser = await Chromium.start();
  {
    await using page = await ServedPage.start({ nodes: 1, trouble: false });
    await browser.open(page.address);
    await browser.until(`document.querySelector("#connection").textContent === "Live"`);
  }
  await browser.until(`/No answer from denolith ui/.test(document.querySelector("#connection").textContent)`);
});
