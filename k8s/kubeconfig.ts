/**
 * Where the API server is by a kubeconfig file, read by the official client, which is loaded for it alone.
 *
 * @module
 */

import type { ApiServer, Source } from "./config.ts";

/**
 * The server of a kubeconfig file and who asks, by the context that is current in it, or the one that is named. Tokens,
 * certificates and programs that answer a token are known; a program is run again when its token is over.
 *
 * @throws {Error} when the file or the context cannot be used
 */
export async function kubeconfigServer(path: string, context?: string): Promise<ApiServer> {
  const { KubeConfig } = await import("@kubernetes/client-node/dist/config.js");
  const config = new KubeConfig();
  const failure = (why: string) => new Error(`reading ${path}: ${why}`);
  try {
    config.loadFromFile(path);
  } catch (cause) {
    throw new Error(`reading ${path}: ${cause instanceof Error ? cause.message : cause}`, { cause });
  }
  if (context !== undefined) config.setCurrentContext(context);
  const [cluster, user] = [config.getCurrentCluster(), config.getCurrentUser()];
  if (!cluster) throw failure(`there is no context ${config.getCurrentContext() ?? ""}, or no cluster in it`);
  if (cluster.skipTLSVerify) throw failure("insecure-skip-tls-verify is refused; name the certificate-authority");
  if (cluster.proxyUrl) throw failure("proxy-url is not supported");
  if (user?.username) throw failure("username and password are not supported; the API server takes none either");
  const asked = user?.exec !== undefined && user.exec !== null || user?.authProvider;
  const ask = async () => {
    const request: Parameters<typeof config.applyToHTTPSOptions>[0] = {};
    await config.applyToHTTPSOptions(request);
    const headers = request.headers as Record<string, unknown> | undefined;
    return String(headers?.["Authorization"] ?? "").replace(/^Bearer /, "");
  };
  return {
    url: cluster.server,
    ca: source(cluster.caFile, cluster.caData),
    token: user?.token ? { text: user.token } : asked ? { ask, program: user?.exec?.command } : undefined,
    certificate: source(user?.certFile, user?.certData),
    key: source(user?.keyFile, user?.keyData),
    namespace: config.getContextObject(config.getCurrentContext())?.namespace,
  };
}

/** Data wins over a file, as in kubectl. */
function source(file: string | undefined, data: string | undefined): Source | undefined {
  if (data) return { text: new TextDecoder().decode(Uint8Array.fromBase64(data)) };
  return file ? { file } : undefined;
}
