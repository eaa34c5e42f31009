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

const IMPERSONATION_REMEDY = "use the credentials of the user that the requests are made as";
const CREDENTIALS_REMEDY = "use a token or a client-certificate";

/**
 * Fields of a kubeconfig that change who makes a request or whom it reaches, and that are not supported, with a remedy.
 * They are refused, because without them a request would be made as another user, or fail without a reason.
 */
const UNSUPPORTED = {
  cluster: {
    "insecure-skip-tls-verify": "use a certificate-authority",
    "proxy-url": "use a server that is reached without a proxy",
    "tls-server-name": "use a server whose certificate contains its name",
  },
  user: {
    exec: CREDENTIALS_REMEDY,
    "auth-provider": CREDENTIALS_REMEDY,
    username: CREDENTIALS_REMEDY,
    as: IMPERSONATION_REMEDY,
    "as-uid": IMPERSONATION_REMEDY,
    "as-groups": IMPERSONATION_REMEDY,
    "as-user-extra": IMPERSONATION_REMEDY,
  },
} as const;

/**
 * Reads the server and the credentials of a context of a kubeconfig file: of the current context, or of the one that is
 * named. Tokens and certificates may be in the file or in files beside it.
 *
 * @throws {Error} when the file or the context cannot be used, and for fields that are not supported
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
    for (const [field, remedy] of Object.entries(fields)) {
      if (isSet(part[field])) throw failure(`${field} is not supported; ${remedy}`);
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
    token: credentialIn({ file: user.tokenFile }, "file") ?? (user.token ? { text: String(user.token) } : undefined),
    certificate: credentialIn(user, "client-certificate"),
    key: credentialIn(user, "client-key"),
    namespace: selected.namespace === undefined ? undefined : String(selected.namespace),
  };
}

/** Reports whether a field has a value that is not empty, as Go's `omitempty` writes it. */
function isSet(value: unknown): boolean {
  if (typeof value === "object" && value !== null) return Object.keys(value).length > 0;
  return Boolean(value);
}
