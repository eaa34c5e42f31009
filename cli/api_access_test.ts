import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { apiAccess, clusterAccess, httpAddress } from "./api_access.ts";
import { UsageError } from "./command_line.ts";
import { IN_CLUSTER_ENVIRONMENT } from "../k8s/client/config.ts";
import { kubeconfigOf } from "../tests/fake/cluster/kubeconfig.ts";

Deno.test("httpAddress() reads addresses, and `off`", () => {
  const cases: [string, ReturnType<typeof httpAddress>][] = [
    [":9808", { hosts: ["::", "0.0.0.0"], port: 9808 }],
    ["127.0.0.1:9808", { hosts: ["127.0.0.1"], port: 9808 }],
    ["0.0.0.0:9808", { hosts: ["0.0.0.0"], port: 9808 }],
    ["node-1.example:80", { hosts: ["node-1.example"], port: 80 }],
    ["[::1]:65535", { hosts: ["::1"], port: 65535 }],
    ["[::]:0", { hosts: ["::"], port: 0 }],
    ["off", undefined],
  ];
  for (const [text, address] of cases) assertEquals(httpAddress({ "http-address": text }), address, text);
});

Deno.test("httpAddress() refuses what is no address", () => {
  for (const text of ["9808", "host", "::1:9808", "[::1]", ":65536", ":123456", ":-1", "a b:1", "http://a:1", "on"]) {
    assertThrows(() => httpAddress({ "http-address": text }), UsageError, "must be HOST:PORT");
  }
});

/** Runs `body` with the environment variables of a pod. */
async function inPod(values: readonly [string, string], body: () => Promise<void>): Promise<void> {
  const before = IN_CLUSTER_ENVIRONMENT.map((name) => Deno.env.get(name));
  const set = (name: string, value: string | undefined) =>
    value === undefined ? Deno.env.delete(name) : Deno.env.set(name, value);
  IN_CLUSTER_ENVIRONMENT.forEach((name, index) => set(name, values[index]));
  try {
    await body();
  } finally {
    IN_CLUSTER_ENVIRONMENT.forEach((name, index) => set(name, before[index]));
  }
}

Deno.test("clusterAccess() in a pod includes the API server's service, the files of the account, and two variables", async () => {
  await inPod(["fd00::1", "443"], async () => {
    assertEquals(await clusterAccess({ "http-address": ":9808" }), {
      hosts: ["[fd00::1]:443", "[::]:9808", "0.0.0.0:9808"],
      variables: ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"],
      files: [
        "/var/run/secrets/kubernetes.io/serviceaccount",
        "/run/secrets/kubernetes.io/serviceaccount",
      ],
    });
  });
});

Deno.test("clusterAccess() outside a pod and without a kubeconfig includes no API server", async () => {
  await inPod(["", ""], async () => {
    await assertRejects(() => clusterAccess({ "http-address": "off" }), Error, "not in a pod");
  });
});

Deno.test("clusterAccess() with a kubeconfig includes its server and the files that it names, and no variables", async () => {
  const folder = await Deno.makeTempDir();
  const kubeconfig = `${folder}/config`;
  try {
    const cluster = { server: "https://api.example:6443", "certificate-authority": "ca.crt" };
    await Deno.writeTextFile(kubeconfig, kubeconfigOf(cluster, { tokenFile: "/etc/denolith/token" }));
    const files = [kubeconfig, `${folder}/ca.crt`, "/etc/denolith/token"];
    assertEquals(await clusterAccess({ kubeconfig, "http-address": "[::1]:9808" }), {
      hosts: ["api.example:6443", "[::1]:9808"],
      variables: [],
      files,
    });
    const api = { hosts: ["api.example:6443"], variables: [], files };
    assertEquals(await clusterAccess({ kubeconfig, "http-address": "off" }), api);
    assertEquals(await apiAccess({ kubeconfig }), api);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
