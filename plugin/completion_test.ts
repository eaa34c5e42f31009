import { assert, assertEquals } from "@std/assert";
import { lvmNodes } from "../k8s/api/lvm_objects.ts";
import { persistentVolumeClaims } from "../k8s/api/objects.ts";
import { FakeApiServer } from "../tests/fake/cluster/api_server.ts";
import { pluginOver } from "../tests/fake/cluster/plugin_run.ts";
import { parseCommandLine } from "../cli/command_line.ts";
import { PLUGIN } from "./subcommands.ts";
import { clusterNames } from "./completion.ts";

/** A cluster with nodes and claims. */
function cluster() {
  const api = FakeApiServer.start({ resources: [lvmNodes, persistentVolumeClaims] });
  for (const name of ["worker-1", "other"]) api.put(lvmNodes, { metadata: { name }, spec: { driverName: "d" } });
  for (const [namespace, name] of [["default", "data"], ["shop", "db"]]) {
    api.put(persistentVolumeClaims, { metadata: { namespace: namespace!, name: name! }, spec: {} });
  }
  return api;
}

Deno.test("names for completion are those of the cluster, the namespace and the context of the line", async () => {
  await using api = cluster();
  const plugin = pluginOver(api, { namespace: "default" });
  const complete = async (...words: string[]) => {
    const { status, output, errors, commands } = await plugin(["__complete", ...words]);
    assertEquals([status, errors], [0, ""]);
    return { lines: output.split("\n"), commands };
  };
  assertEquals((await complete("doctor", "")).lines, ["other", "worker-1", ":4"]);
  assertEquals((await complete("why", "")).lines, ["data", ":4"]);
  const { output } = await pluginOver(api, { namespace: "shop" })(["__complete", "why", ""]);
  assertEquals(output.split("\n"), ["db", ":4"], "the namespace of the context");
  const inShop = await complete("why", "--context", "prod", "-n", "shop", "");
  assertEquals(inShop.lines, ["db", ":4"]);
  assert(inShop.commands.every((args) => args.includes("--context=prod")), inShop.commands.join("\n"));
  assertEquals((await complete("status", "--context", "")).lines, ["fake", "other", ":4"]);
});

Deno.test("completion does not pass on what the flags' checks refuse", async () => {
  await using api = cluster();
  const { output, commands } = await pluginOver(api)(["__complete", "why", "-n", "../x", "--context=-y", ""]);
  assertEquals(output.split("\n"), ["data", ":4"]);
  assert(commands.every((args) => !args.some((arg) => /\.\.\/x|-y/.test(arg))), commands.join("\n"));
});

Deno.test("a cluster that does not answer has no names", async () => {
  const never = {
    run: (_: unknown, signal?: AbortSignal) =>
      new Promise<never>((_, reject) => signal!.addEventListener("abort", () => reject(signal!.reason))),
    readLines: () => {
      throw new Error("it watches nothing");
    },
  };
  const names = clusterNames(() => never, 1);
  assertEquals(await names.names("lvmnodes", {}).catch(() => "none"), "none");
  assertEquals(await names.contexts({}).catch(() => "none"), "none");
});

Deno.test("help that was asked for is no error, and help in place of a subcommand is", async () => {
  const plugin = pluginOver({ url: "http://127.0.0.1:1" });
  const [asked, missing] = [await plugin(["--help"]), await plugin([])];
  assertEquals([asked.status, missing.status, missing.output], [0, 2, asked.output]);
});

Deno.test("short flags stand for long ones, with a value after them or in the same word", () => {
  const flagsOf = (...args: string[]) => {
    const request = parseCommandLine(PLUGIN, args);
    assert(request.kind === "run");
    return request.flags;
  };
  const expected = { CLAIM: "x", namespace: "shop", output: "json", watch: "true", "driver-name": "lvm.denolith.dev" };
  assertEquals(flagsOf("why", "x", "-n", "shop", "-o", "json", "-w"), expected);
  assertEquals(flagsOf("why", "-nshop", "x", "-ojson", "-w"), expected);
  assertEquals(flagsOf("why", "x", "--namespace=shop", "-o=json", "--watch"), expected);
});
