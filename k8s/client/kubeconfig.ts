/**
 * The API server of a kubeconfig file. The reader of the official client needs the whole environment and the whole
 * client (docs/adr/0009), so this module reads only what a process without a user needs.
 *
 * @module
 */

import { dirname, join } from "@std/path";
import { parseAll } from "@std/yaml";
import { quote } from "../../base/error.ts";
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

/** An object of a kubeconfig. */
type Fields = Readonly<Record<string, unknown>>;

/**
 * Reads the server and the credentials of a context of a kubeconfig file: of the current context, or of the one that is
 * named. Tokens and certificates may be in the file or in files beside it.
 *
 * @throws {Error} when the file or the context cannot be used, and for fields that are not supported
 */
export async function kubeconfigServer(path: string, context?: string): Promise<ApiServer> {
  try {
    const [config] = parseAll(await Deno.readTextFile(path)) as unknown[];
    return serverOf(requireFields(config, "the file"), { folder: dirname(path), context });
  } catch (cause) {
    throw new Error(`reading ${path}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}

/** Returns the server of a context. @param folder where relative paths begin */
function serverOf(
  config: Fields,
  { folder, context }: { readonly folder: string; readonly context: string | undefined },
): ApiServer {
  const name = context ?? config["current-context"];
  const selected = findNamed(config, "contexts", name, "context");
  const cluster = selected && findNamed(config, "clusters", selected.cluster, "cluster");
  const user = selected && findNamed(config, "users", selected.user, "user");
  if (!selected || !cluster || !user) {
    const described = isSet(name) ? ` ${textOf({ "current-context": name }, "current-context")}` : "";
    throw new Error(`there is no context${described}, or no cluster or user in it`);
  }
  for (const [part, fields] of [[cluster, UNSUPPORTED.cluster], [user, UNSUPPORTED.user]] as const) {
    for (const [field, remedy] of Object.entries(fields)) {
      if (isSet(part[field])) throw new Error(`${field} is not supported; ${remedy}`);
    }
  }
  const token = textOf(user, "token");
  return {
    url: requireUrl(textOf(cluster, "server")),
    ca: credentialIn(cluster, "certificate-authority", folder),
    token: fileIn(user, "tokenFile", folder) ?? (token === undefined ? undefined : { text: token }),
    certificate: credentialIn(user, "client-certificate", folder),
    key: credentialIn(user, "client-key", folder),
    namespace: textOf(selected, "namespace"),
  };
}

/** Returns a part of the entry of a list that has a name; `undefined` when there is none. */
function findNamed(config: Fields, list: string, name: unknown, part: string): Fields | undefined {
  const entries = config[list] ?? [];
  if (!Array.isArray(entries)) throw new Error(`${list}: must be a list`);
  const found = entries.map((entry) => requireFields(entry, `an entry of ${list}`)).find((entry) =>
    entry.name === name
  );
  return found && requireFields(found[part] ?? {}, part);
}

function requireFields(value: unknown, what: string): Fields {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Fields;
  throw new Error(`${what}: must be an object`);
}

/** Returns a text; `undefined` when it is absent or empty. YAML reads a text of digits alone as a number. */
function textOf(fields: Fields, name: string): string | undefined {
  const value = fields[name];
  if (!isSet(value)) return undefined;
  if (typeof value === "string" || typeof value === "number") return String(value);
  throw new Error(`${name}: must be a text`);
}

function requireUrl(text: string | undefined): string {
  if (text !== undefined && /^https?:/.test(text) && URL.canParse(text)) return text;
  throw new Error(`server ${quote(text ?? "")}: must be a URL that begins with https:// or http://`);
}

/** Data wins over a file, as in kubectl. */
function credentialIn(part: Fields, field: string, folder: string): CredentialSource | undefined {
  const data = textOf(part, `${field}-data`);
  if (data === undefined) return fileIn(part, field, folder);
  try {
    return { text: new TextDecoder().decode(Uint8Array.fromBase64(data)) };
  } catch {
    throw new Error(`${field}-data: must be base64`);
  }
}

/** Files count from where the kubeconfig is. */
function fileIn(part: Fields, field: string, folder: string): CredentialSource | undefined {
  const file = textOf(part, field);
  return file === undefined ? undefined : { file: file.startsWith("/") ? file : join(folder, file) };
}

/** Reports whether a field has a value that is not empty, as Go's `omitempty` writes it. */
function isSet(value: unknown): boolean {
  if (typeof value === "object" && value !== null) return Object.keys(value).length > 0;
  return Boolean(value);
}
