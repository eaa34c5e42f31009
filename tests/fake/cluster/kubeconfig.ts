/** Returns a kubeconfig that names one server and one user. */
export function kubeconfigOf(cluster: { server: string } & Record<string, string>, user: Record<string, string> = {}) {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "c", cluster }],
    users: [{ name: "u", user }],
    contexts: [{ name: "x", context: { cluster: "c", user: "u" } }],
    "current-context": "x",
  });
}
