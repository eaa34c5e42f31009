/**
 * A kubectl over a fake API server: it takes the arguments that the plugin passes, and prints what kubectl prints. Started as
 * a program, it has the URL of the server in the variable FAKE_API_SERVER.
 *
 * @module
 */

import { parseArgs } from "@std/cli/parse-args";
import {
  type Kubectl,
  kubectlArguments,
  type KubectlCommand,
  type KubectlLines,
  type KubectlOptions,
  type KubectlOutput,
} from "../../../plugin/kubectl.ts";
import { readLines } from "../../../k8s/client/response.ts";

/** Options of a {@linkcode FakeKubectl}. */
export interface FakeKubectlOptions {
  /** The URL of the API server. */
  readonly url: string;
  /** The role whose rights the user has; a cluster administrator by default. */
  readonly role?: "viewer" | "operator" | "administrator" | undefined;
  /** The namespace of the context. */
  readonly namespace?: string;
  /** The flags that select the cluster, as the plugin passes them on. */
  readonly flags?: KubectlOptions;
}

/** A kubectl in this process. */
export class FakeKubectl implements Kubectl {
  /** The arguments of all commands so far. */
  readonly commands: string[][] = [];
  readonly #options: FakeKubectlOptions;

  /** Creates it. */
  constructor(options: FakeKubectlOptions) {
    this.#options = options;
  }

  /** Implements {@linkcode Kubectl}. */
  async run(command: KubectlCommand): Promise<KubectlOutput> {
    const args = kubectlArguments(command, this.#options.flags);
    this.commands.push(args);
    return await fakeKubectl(args, "body" in command ? JSON.stringify(command.body) : "", this.#options);
  }

  /** Implements {@linkcode Kubectl}. */
  readLines(path: string, signal?: AbortSignal): KubectlLines {
    this.commands.push(kubectlArguments({ verb: "get", path }, this.#options.flags));
    const { promise, resolve } = Promise.withResolvers<KubectlOutput>();
    const options = this.#options;
    async function* lines() {
      const response = await fetch(options.url + path, { headers: headersOf(options), signal: signal ?? null });
      if (!response.ok) return resolve({ code: 1, stdout: "", stderr: errorText(await response.text()) });
      try {
        yield* readLines(response.body!);
      } finally {
        resolve({ code: 0, stdout: "", stderr: "" });
      }
    }
    return { lines: lines(), output: promise };
  }
}

function headersOf({ role }: FakeKubectlOptions): Record<string, string> {
  return { "user-agent": `denolith/test (${role ?? "administrator"})` };
}

/** The paths of the resources that are patched, by their qualified names. */
function patchPath(resource: string, name: string, namespace: string | undefined): string {
  const [plural, version, ...group] = resource.split(".");
  const root = group.join(".") === "" ? `/api/${version}` : `/apis/${group.join(".")}/${version}`;
  return `${root}${namespace === undefined ? "" : `/namespaces/${namespace}`}/${plural}/${name}`;
}

/** Runs a command. @throws {Error} for one that the plugin must not run */
export async function fakeKubectl(
  args: readonly string[],
  stdin: string,
  options: FakeKubectlOptions,
): Promise<KubectlOutput> {
  const parsed = parseArgs([...args], {
    string: ["raw", "filename", "type", "patch", "output", "namespace", "subresource", "context", "kubeconfig", "as"],
    boolean: ["minify"],
  });
  const [verb, ...rest] = parsed._.map(String);
  const { context = "fake", raw } = parsed as Record<string, string | undefined>;
  switch (verb) {
    case "config": {
      if (rest[0] === "get-contexts") return { code: 0, stdout: "fake\nother\n", stderr: "" };
      const contexts = [{ name: context, context: { namespace: options.namespace ?? "default" } }];
      return { code: 0, stdout: JSON.stringify({ "current-context": context, contexts }), stderr: "" };
    }
    case "get":
      // what kubelet measures: a right that none of the roles has
      if (raw!.endsWith("/proxy/stats/summary") && options.role !== undefined) return forbidden("nodes/proxy");
      if (/\/log\?/.test(raw!)) return logOf(options, raw!);
      if (raw === "/version") return { code: 0, stdout: `{"gitVersion":"v1.36.0"}`, stderr: "" };
      return await send(options, "GET", raw!);
    case "create":
      return await send(options, "POST", raw!, { body: stdin });
    case "replace":
      return await send(options, "PUT", raw!, { body: stdin });
    case "delete":
      return await send(options, "DELETE", raw!, { body: stdin });
    case "patch": {
      const path = patchPath(rest[0]!, rest[1]!, parsed.namespace as string | undefined);
      const subresource = parsed.subresource === undefined ? "" : `/${parsed.subresource}`;
      const type = "application/merge-patch+json";
      const read = await send(options, "GET", path + subresource); // kubectl reads what it patches
      if (read.code !== 0) return read;
      return await send(options, "PATCH", path + subresource, { body: parsed.patch as string, type });
    }
    default:
      throw new Error(`the plugin runs kubectl ${args.join(" ")}`);
  }
}

async function send(
  options: FakeKubectlOptions,
  method: string,
  path: string,
  { body, type = "application/json" }: { body?: string; type?: string } = {},
): Promise<KubectlOutput> {
  const headers = { ...headersOf(options), ...(body === undefined ? {} : { "content-type": type }) };
  const response = await fetch(options.url + path, { method, headers, ...(body === undefined ? {} : { body }) });
  const text = await response.text();
  return response.ok ? { code: 0, stdout: text, stderr: "" } : { code: 1, stdout: "", stderr: errorText(text) };
}

/** Returns a log: neither of the roles has the right to read it. A container that was not started again has no earlier one. */
function logOf({ role }: FakeKubectlOptions, path: string): KubectlOutput {
  if (role !== undefined && role !== "administrator") return forbidden("pods/log");
  if (path.includes("previous=true")) return { code: 1, stdout: "", stderr: "Error from server (BadRequest): none\n" };
  return { code: 0, stdout: `log of ${path.split("?")[0]}: volume of shop/db on n1, 10.0.0.7\n`, stderr: "" };
}

function forbidden(resource: string): KubectlOutput {
  const stderr = `Error from server (Forbidden): User "fake" cannot get resource "${resource}" at the cluster scope\n`;
  return { code: 1, stdout: "", stderr };
}

/** Returns what kubectl prints for a Status. */
function errorText(text: string): string {
  const { reason, message } = JSON.parse(text) as { reason: string; message: string };
  return `Error from server (${reason}): ${message}\n`;
}

if (import.meta.main) {
  const url = Deno.env.get("FAKE_API_SERVER")!;
  const stdin = Deno.args.includes("-") ? await new Response(Deno.stdin.readable).text() : "";
  const { code, stdout, stderr } = await fakeKubectl(Deno.args, stdin, { url });
  await Deno.stdout.write(new TextEncoder().encode(stdout));
  await Deno.stderr.write(new TextEncoder().encode(stderr));
  Deno.exit(code);
}
