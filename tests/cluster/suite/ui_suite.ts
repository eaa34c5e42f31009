/**
 * The page of `denolith ui` over the cluster, in Chromium.
 *
 * @module
 */

import { dirname } from "@std/path";
import { assert, assertEquals, assertMatch } from "@std/assert";
import { Chromium } from "../../browser/chromium.ts";
import type { ControlPlane } from "../../rig/control_plane.ts";
import { QUICK } from "./helpers/objects.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";

const ROOT = new URL("../../../", import.meta.url).pathname;

/** The time in which kubelet has measured a new volume: it does so each minute. The page reads it each half minute. */
const MEASURED_MS = 180_000;

/** Starts `denolith ui`, as an administrator does. @returns the address that it prints */
async function startPage({ kubeconfig, programs }: ControlPlane): Promise<AsyncDisposable & { address: string }> {
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      ...["run", "--quiet", "--no-prompt", "--cached-only", "-P=kubectl-denolith", `--config=${ROOT}deno.json`],
      ...[`${ROOT}plugin/main.ts`, "ui", "--kubeconfig", kubeconfig],
    ],
    env: { PATH: `${dirname(programs.kubectl)}:${Deno.env.get("PATH")}` },
    stdout: "piped",
  }).spawn();
  const lines = child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  let printed = "";
  for (let text: string | undefined = ""; text !== undefined && !printed.includes("Ctrl-C");) {
    text = (await lines.read()).value;
    printed += text ?? "";
  }
  return {
    address: /http:\S+/.exec(printed)?.[0] ?? "",
    [Symbol.asyncDispose]: async () => {
      child.kill("SIGINT");
      await lines.cancel();
      await child.status;
    },
  };
}

Deno.test("the page shows a pod's volume with its node, filesystem and usage, and follows it until it is gone", async () => {
  await using ns = await TestNamespace.open("ui");
  const cls = await ns.createStorageClass("quick", { parameters: QUICK });
  await ns.createClaim({ name: "data", class: cls });
  await ns.createPod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  await ns.waitForRunning("user");
  await using page = await startPage(ns.cluster.controlPlane);
  await using browser = await Chromium.start();
  await browser.view({ width: 1280, height: 900 });
  await browser.open(page.address);
  const claim = `${ns.namespace}/data`;
  await browser.until(`document.querySelector("#nodes > li")`);
  await browser.evaluate(`document.querySelector("#search").focus()`);
  await browser.type(claim);
  await browser.until(`document.querySelectorAll("#nodes > li").length === 1`);
  await browser.evaluate(`document.querySelector("#nodes summary").click()`);
  const link = `[...document.querySelectorAll("#nodes td a")].find((one) => one.textContent === "${claim}")`;
  await browser.until(link);
  await browser.evaluate(`${link}.click()`);
  await browser.until(`document.querySelector("dialog .facts")`);
  const text = await browser.evaluate<string>(`document.querySelector("dialog").innerText`);
  for (const fact of [/Pods\s+user/, /Layout\s+linear/, /Filesystem\s+ext4/, /ProvisioningSucceeded/]) {
    assertMatch(text, fact);
  }
  assertMatch(text, new RegExp(`Node\\s+${ns.node.name} \\(agent Alive\\)`));
  const usage =
    `[...document.querySelectorAll("dialog h3")].find((one) => one.textContent === "How full").parentElement`;
  await browser.until(`!/no running pod has it mounted/.test(${usage}.textContent)`, MEASURED_MS);
  assertMatch(await browser.evaluate<string>(`${usage}.innerText`), /\d KiB of [\d.]+ MiB, \d%; \d+ of [\d,]+ inodes/);
  assert(await browser.evaluate(`${usage}.querySelector(".gauge")`));
  await ns.deleteAndWait("Pod", "user");
  await ns.deleteAndWait("PersistentVolumeClaim", "data");
  await browser.until(
    `/no such volume any more/.test(document.querySelector("#volume-state").textContent)`,
    MEASURED_MS,
  );
  assertEquals(browser.complaints, []);
});
