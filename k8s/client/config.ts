/**
 * The address of the API server, and the credentials of the client.
 *
 * @module
 */

/** Text that is given, or that is in a file, which is read again when it may have changed. */
export type CredentialSource = { readonly text: string } | { readonly file: string };

/** The address of the API server, and the credentials of the client. */
export interface ApiServer {
  /** Its URL: scheme, host and port, and a path where a proxy wants one. */
  readonly url: string;
  /** The certificates, as PEM, of who may have signed the server's; those of the system, when absent. */
  readonly ca?: CredentialSource | undefined;
  /** The bearer token. */
  readonly token?: CredentialSource | undefined;
  /** The client's certificate, as PEM. */
  readonly certificate?: CredentialSource | undefined;
  /** The key of that certificate, as PEM. */
  readonly key?: CredentialSource | undefined;
  /** The namespace of who asks, where it is known. */
  readonly namespace?: string | undefined;
}

/** The directory with the token, the namespace and the API server's certificate in a pod. */
export const SERVICE_ACCOUNT_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount";

/** The variables that tell a pod where the API server is. */
export const IN_CLUSTER_ENVIRONMENT: readonly string[] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];

/** Returns the API server of the cluster that this pod runs in. @throws {Error} outside a pod */
export function inClusterServer(getVariable: (name: string) => string | undefined): ApiServer {
  const [host, port] = IN_CLUSTER_ENVIRONMENT.map(getVariable);
  if (!host || !port) {
    throw new Error(`finding the API server: not in a pod: ${IN_CLUSTER_ENVIRONMENT.join(" and ")} are not set`);
  }
  return {
    url: `https://${host.includes(":") ? `[${host}]` : host}:${port}`,
    ca: { file: `${SERVICE_ACCOUNT_DIRECTORY}/ca.crt` },
    token: { file: `${SERVICE_ACCOUNT_DIRECTORY}/token` },
  };
}

/** The hosts and files that a client of an API server needs access to. */
export interface ServerAccess {
  /** The hosts that it connects to, with their ports. */
  readonly hosts: readonly string[];
  /** The files that it reads. */
  readonly files: readonly string[];
}

/** Returns the hosts and files that a client of the server needs access to. */
export function accessOf(server: ApiServer): ServerAccess {
  const { hostname, port, protocol } = new URL(server.url);
  const sources = [server.ca, server.token, server.certificate, server.key].filter((source) => source !== undefined);
  return {
    hosts: [`${hostname}:${port || (protocol === "https:" ? "443" : "80")}`],
    files: sources.flatMap((source) => "file" in source ? [source.file] : []),
  };
}

/** Reads a credential from its source. @throws {Error} when its file cannot be read */
export async function readCredential(source: CredentialSource): Promise<string> {
  if ("text" in source) return source.text;
  return (await Deno.readTextFile(source.file)).trim();
}
