/**
 * The API server of a kubeconfig file. The reader of the official client needs the whole environment and the whole
 * client (docs/adr/0009), so this module reads only what a process without a user needs.
 *
 * @module
 */

import { dirname, join } from "@std/path";
import { parseAll } from "@std/yaml";
import { asArray, asObject } from "../../lvm/json.ts";
import type { ApiServer, CredentialSource } from "./config.ts";

/** Credentials that need a program, a password or a proxy. */
const UNSUPPORTED = {
  cluster: ["insecure-skip-tls-verify", "proxy-url"],
  user: ["exec", "auth-provider", "username"],
} as const;

/**
 * Reads the server and the credentials of a context of a kubeconfig file: of the current context, or of the one that is
 * named. Tokens and certificates may be in the file or in files beside it.
 *
 * @throws {Error} when the file or the context cannot be used
 */
export async function kubeconfigServer(path: string, context?: string): Promise<ApiServer> {
  const failure = (why: string, cause?: unknown) => new Error(`reading ${path}: ${why}`, { cause });
  const config = await Deno.readTextFile(path).then((text) => asObject(parseAll(text)[0])).catch((cause) => {
    throw failure(cause instanceof Error ? cause.message : String(cause), cause);
  });
  const findNamed = (list: string, name: unknown, part: string): Record<string, unknown> | undefined => {
    const found = asArray(config[list] ?? []).map(asObject).find((entry) => entry.name === name);
    return found && asObject(found[part] ?? {});
  };
  const name = context ?? config["current-context"];
  const selected = findNamed("contexts", name, "context");
  const cluster = selected && findNamed("clusters", selected.cluster, "cluster");
  const user = selected && findNamed("users", selected.user, "user");
  if (!selected || !cluster || !user) throw failure(`there is no context ${name ?? ""}, or no cluster or user in it`);
  for (const [part, fields] of [[cluster, UNSUPPORTED.cluster], [user, UNSUPPORTED.user]] as const) {
    const unsupported = fields.find((field) => part[field]);
    if (unsupported !== undefined) {
      throw failure(`${unsupported} is not supported; use a certificate-authority, a token or a certificate`);
    }
  }
  /** Data wins over a file, as in kubectl; files count from where the kubeconfig is. */
  const credentialIn = (part: Record<string, unknown>, field: string): CredentialSource | undefined => {
    const data = part[`${field}-data`];
    if (data) return { text: new TextDecoder().decode(Uint8Array.fromBase64(String(data))) };
    const file = part[field];
    if (!file) return undefined;
    return { file: String(file).startsWith("/") ? String(file) : join(dirname(path), String(file)) };
  };
  return {
    url: String(cluster.server ?? ""),
    ca: credentialIn(cluster, "certificate-authority"),
    token: user.token ? { text: String(user.token) } : credentialIn({ file: user.tokenFile }, "file"),
    certificate: credentialIn(user, "client-certificate"),
    key: credentialIn(user, "client-key"),
    namespace: selected.namespace === undefined ? undefined : String(selected.namespace),
  };
}
