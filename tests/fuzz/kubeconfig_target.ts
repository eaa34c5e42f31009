/**
 * Target: kubeconfig files.
 *
 * @module
 */

import { assert } from "@std/assert";
import { parseAll } from "@std/yaml";
import fc from "fast-check";
import { accessOf, type ApiServer } from "../../k8s/client/config.ts";
import { kubeconfigServer } from "../../k8s/client/kubeconfig.ts";
import { requireNoNaN } from "./expect.ts";
import { changedJson, changedText } from "./inputs.ts";
import { asTarget, type Json } from "./target.ts";

/** Fields with which a request would be made as another user, or reach another server, than without them. */
const UNSUPPORTED = {
  cluster: ["insecure-skip-tls-verify", "proxy-url", "tls-server-name"],
  user: ["exec", "auth-provider", "username", "as", "as-uid", "as-groups", "as-user-extra"],
} as const;

/** The fields of a credential of the client. */
const CREDENTIALS = {
  ca: ["cluster", "certificate-authority", "certificate-authority-data"],
  token: ["user", "token", "tokenFile"],
  certificate: ["user", "client-certificate", "client-certificate-data"],
  key: ["user", "client-key", "client-key-data"],
} as const;

/** Returns a kubeconfig with further fields of its cluster and its user. */
function config(cluster: Json = {}, user: Json = {}): Json {
  const authority = { server: "https://10.0.0.1:6443", "certificate-authority-data": "eA==" };
  const me = { "client-certificate": "me.crt", "client-key": "/me.key", token: "secret" };
  return {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "d", cluster: {} }, { name: "c", cluster: { ...authority, ...cluster as object } }],
    users: [{ name: "u", user: { ...me, ...user as object } }],
    contexts: [{ name: "x", context: { cluster: "c", user: "u", namespace: "shop" } }],
    "current-context": "x",
  };
}

const CONFIGS: readonly Json[] = [
  config(),
  config({ "certificate-authority-data": "", "certificate-authority": "ca.crt" }, { "client-key-data": "%" }),
  ...UNSUPPORTED.cluster.map((field) => config({ [field]: "x" })),
  ...UNSUPPORTED.user.map((field) => config({}, { [field]: ["x"] })),
];

const YAML = `apiVersion: v1
clusters:
- {name: c, cluster: &c {server: "https://10.0.0.1:6443"}}
users:
- name: u
  user: {tokenFile: token}
contexts:
- name: x
  context: {cluster: c, user: u}
current-context: x
`;

type Fields = Readonly<Record<string, unknown>>;

/** Reads a text as YAML. @returns the first document, or `undefined` for a text that is no YAML */
function readYaml(text: string): { readonly document: unknown } | undefined {
  try {
    return { document: (parseAll(text) as unknown[])[0] };
  } catch {
    return undefined;
  }
}

/** Reports whether a field has a value, and not an empty one. */
function isSet(value: unknown): boolean {
  return typeof value === "object" && value !== null ? Object.keys(value).length > 0 : Boolean(value);
}

/** Returns the fields of the cluster and of the user of the current context of a kubeconfig that can be used. */
function selectedParts(document: unknown): Readonly<Record<"cluster" | "user", Fields>> {
  const { clusters, users, contexts, ...rest } = document as Record<"clusters" | "users" | "contexts", Fields[]>;
  const named = (list: readonly Fields[], name: unknown) => list.find((entry) => entry.name === name)!;
  const context = (named(contexts, (rest as Fields)["current-context"]).context ?? {}) as Fields;
  const [cluster, user] = [named(clusters, context.cluster).cluster, named(users, context.user).user];
  return { cluster: (cluster ?? {}) as Fields, user: (user ?? {}) as Fields };
}

/** Checks the server of a kubeconfig that was accepted. */
function checkServer(server: ApiServer, parts: Readonly<Record<"cluster" | "user", Fields>>): void {
  requireNoNaN(server, "the server");
  assert(accessOf(server).hosts.every((host) => /:\d+$/.test(host)), server.url);
  assert(server.url === parts.cluster.server, `${server.url} is not the server of the current context`);
  assert(["string", "undefined"].includes(typeof server.namespace), "the namespace is no text");
  for (const part of ["cluster", "user"] as const) {
    const ignored = UNSUPPORTED[part].find((field) => isSet(parts[part][field]));
    assert(ignored === undefined, `${ignored} has a value, and is ignored`);
  }
  for (const [name, [part, ...fields]] of Object.entries(CREDENTIALS)) {
    const source = server[name as keyof typeof CREDENTIALS];
    assert(
      (source !== undefined) === fields.some((field) => isSet(parts[part][field])),
      `${name} is left out, or made up`,
    );
    if (source === undefined) continue;
    const [text] = Object.values(source);
    assert(
      typeof text === "string" && ("text" in source || text.startsWith("/")),
      `${name}: ${JSON.stringify(source)}`,
    );
  }
}

/** The target. */
export const KUBECONFIG_TARGET = asTarget<string>({
  name: "kubeconfig",
  description: "a kubeconfig file",
  inputs: fc.oneof(
    { weight: 4, arbitrary: changedJson(CONFIGS).map((config) => JSON.stringify(config)) },
    { weight: 1, arbitrary: changedText([YAML]) },
  ),
  testRuns: 40,
  open: async () => {
    const folder = await Deno.makeTempDir();
    const path = `${folder}/config`;
    return {
      check: async (text) => {
        await Deno.writeTextFile(path, text);
        const yaml = readYaml(text);
        let server: ApiServer;
        try {
          server = await kubeconfigServer(path);
        } catch (error) {
          const isPlain = error instanceof Error && error.constructor === Error;
          if (!isPlain || !error.message.startsWith(`reading ${path}: `)) throw error;
          // Only the reader of YAML has errors of other kinds. Others are accidents, and do not name the field.
          const isAccident = yaml !== undefined && (error.cause as Error).constructor !== Error;
          assert(!isAccident, `${error.cause}`);
          return;
        }
        checkServer(server, selectedParts(yaml!.document));
      },
      [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }),
    };
  },
});
