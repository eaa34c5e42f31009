/**
 * `deno task screenshots`: takes the pictures of the documents, in docs/pictures.
 *
 * @module
 */

import { Chromium, type View } from "./chromium.ts";
import { ensureChromium } from "./install.ts";
import { SHOWN_CLAIM } from "./large_cluster.ts";
import { ServedPage } from "./served_page.ts";

const FOLDER = new URL("../../docs/pictures/", import.meta.url);

/** The maximum of all pictures together, in bytes. */
const MAX_BYTES = 1_000_000;

const DESKTOP = { width: 1280, height: 860 };
const PHONE = { width: 390, height: 844 };

/** The pictures: what is shown, how, and what is done before. */
const PICTURES: readonly { name: string; view: View; before?: string }[] = [
  { name: "ui", view: DESKTOP },
  { name: "ui-dark", view: { ...DESKTOP, scheme: "dark" } },
  { name: "ui-node", view: DESKTOP, before: `location.hash = "#/node/worker-000"` },
  { name: "ui-volume", view: { width: 900, height: 1250 }, before: `openShown()` },
  { name: "ui-volumes", view: { width: 1280, height: 520 }, before: `location.hash = "#volumes-title"` },
  { name: "ui-phone", view: PHONE },
  { name: "ui-phone-node", view: PHONE, before: `location.hash = "#/node/worker-000"` },
  { name: "ui-phone-volume", view: PHONE, before: `openShown()` },
];

/** A function of the page that opens the volume of a claim. */
export const OPEN_SHOWN = `function openShown() {
  document.querySelector('[data-focus="node worker-000"]').click();
  setTimeout(() => [...document.querySelectorAll("#nodes td a")].find((a) => a.textContent === "${SHOWN_CLAIM}").click(), 100);
}`;

async function main(): Promise<void> {
  await ensureChromium();
  await Deno.mkdir(FOLDER, { recursive: true });
  await using browser = await Chromium.start();
  let bytes = 0;
  for (const { name, view, before } of PICTURES) {
    await using page = await ServedPage.start({ nodes: 200, trouble: false });
    await browser.view(view);
    await browser.open(page.address);
    await browser.until(`document.querySelectorAll("#nodes > li").length === 200`);
    if (before !== undefined) {
      await browser.evaluate(`${OPEN_SHOWN}; ${before}; undefined`);
      const isOpen = before.includes("node/")
        ? `document.querySelector("details .body")`
        : before.includes("volumes")
        ? `document.querySelector("#volume-rows tr")`
        : `document.querySelector(".events")`;
      await browser.until(isOpen);
    }
    const picture = await browser.picture();
    bytes += picture.length;
    await Deno.writeFile(new URL(`${name}.png`, FOLDER), picture);
    console.log(`docs/pictures/${name}.png: ${picture.length} bytes`);
  }
  if (bytes > MAX_BYTES) throw new Error(`the pictures have ${bytes} bytes, more than ${MAX_BYTES}`);
}

if (import.meta.main) await main();
