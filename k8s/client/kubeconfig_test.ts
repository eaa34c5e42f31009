import { assertEquals, assertRejects } from "@std/assert";
import { dirname } from "@std/path";
import { things } from "../../tests/contract/api_suite.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { HttpClient } from "./http_client.ts";
import { accessOf, readCredential } from "./config.ts";
import { kubeconfigServer } from "./kubeconfig.ts";

const TLS = new URL("../../tests/fixtures/tls/", import.meta.url).pathname;

/** Runs `body` with a kubeconfig file. */
async function withConfig(
  parts: { cluster: unknown; user: unknown; namespace?: string },
  body: (path: string) => Promise<void>,
): Promise<void> {
  const path = await Deno.makeTempFile({ suffix: ".json" });
  const { namespace = "shop", user, cluster } = parts;
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "c", cluster }],
    users: [{ name: "u", user }],
    contexts: [{ name: "x", context: { cluster: "c", user: "u", namespace } }],
    "current-context": "x",
  };
  try {
    await Deno.writeTextFile(path, JSON.stringify(config));
    await body(path);
  } finally {
    await Deno.remove(path);
  }
}

Deno.test("kubeconfigServer(): a token and files, which count from where the kubeconfig is", async () => {
  const cluster = { server: "https://10.0.0.1:6443", "certificate-authority": "ca.crt" };
  const user = { "client-certificate": "/etc/me.crt", "client-key": "/etc/me.key", token: "secret" };
  await withConfig({ cluster, user }, async (path) => {
    const server = await kubeconfigServer(path);
    assertEquals([server.url, server.namespace, server.token], ["https://10.0.0.1:6443", "shop", { text: "secret" }]);
    const files = [`${dirname(path)}/ca.crt`, "/etc/me.crt", "/etc/me.key"];
    assertEquals(accessOf(server), { hosts: ["10.0.0.1:6443"], files });
  });
});

Deno.test("kubeconfigServer(): data in the file, and a token, let one in over TLS", async () => {
  const [cert, key] = await Promise.all(["server.crt", "server.key"].map((name) => Deno.readTextFile(TLS + name)));
  await using fake = FakeApiServer.start({
    resources: [things],
    token: "secret",
    tls: { cert: cert!, key: key! },
  });
  const base64 = async (name: string) => (await Deno.readFile(TLS + name)).toBase64();
  const cluster = { server: fake.url, "certificate-authority-data": await base64("ca.crt") };
  const user = {
    "client-certificate-data": await base64("client.crt"),
    "client-key-data": await base64("client.key"),
    token: "secret",
  };
  await withConfig({ cluster, user }, async (path) => {
    const server = await kubeconfigServer(path);
    assertEquals(await readCredential(server.key!), (await Deno.readTextFile(`${TLS}client.key`)).trimEnd() + "\n");
    using client = new HttpClient(server, { userAgent: "denolith/test (kubeconfig)" });
    assertEquals((await client.list(things)).items, []);
  });
});

Deno.test("kubeconfigServer(): a file in YAML, with a file for the token", async () => {
  const path = await Deno.makeTempFile();
  try {
    await Deno.writeTextFile(
      path,
      `apiVersion: v1
kind: Config
clusters: [{ name: c, cluster: { server: "http://127.0.0.1:1" } }]
users:
- name: u
  user:
    tokenFile: token # beside this file
contexts: [{ name: x, context: { cluster: c, user: u } }]
current-context: x
`,
    );
    const { token, ca } = await kubeconfigServer(path);
    assertEquals([token, ca], [{ file: `${dirname(path)}/token` }, undefined]);
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("kubeconfigServer(): what cannot be used is said so", async () => {
  const insecure = { server: "https://10.0.0.1", "insecure-skip-tls-verify": true };
  await withConfig({ cluster: insecure, user: {} }, async (path) => {
    await assertRejects(() => kubeconfigServer(path), Error, "insecure-skip-tls-verify is not supported");
    await assertRejects(() => kubeconfigServer(path, "other"), Error, `reading ${path}: there is no context other`);
  });
  const exec = { command: "echo", args: [], apiVersion: "client.authentication.k8s.io/v1" };
  await withConfig({ cluster: { server: "https://10.0.0.1" }, user: { exec } }, async (path) => {
    await assertRejects(() => kubeconfigServer(path), Error, "exec is not supported");
  });
  await assertRejects(() => kubeconfigServer("/nowhere/config"), Error, "reading /nowhere/config: No such file");
});

Deno.test("kubeconfigServer(): refuses to act as another user than the kubeconfig names, or to expect another server name", async () => {
  const server = "https://10.0.0.1";
  const token = "secret";
  for (
    const [field, parts] of [
      ["as", { cluster: { server }, user: { token, as: "jane" } }],
      ["as-uid", { cluster: { server }, user: { token, "as-uid": "1" } }],
      ["as-groups", { cluster: { server }, user: { token, "as-groups": ["ops"] } }],
      ["as-user-extra", { cluster: { server }, user: { token, "as-user-extra": { reason: ["test"] } } }],
      ["tls-server-name", { cluster: { server, "tls-server-name": "kubernetes" }, user: { token } }],
    ] as const
  ) {
    await withConfig(parts, async (path) => {
      await assertRejects(() => kubeconfigServer(path), Error, `reading ${path}: ${field} is not supported; use `);
    });
  }
  const empty = { token, as: "", "as-groups": [], "as-user-extra": {}, exec: null };
  await withConfig({ cluster: { server, "tls-server-name": "" }, user: empty }, async (path) => {
    assertEquals((await kubeconfigServer(path)).token, { text: token });
  });
});

Deno.test("kubeconfigServer(): a file with a token takes precedence over a token, as in kubectl", async () => {
  const user = { token: "old", tokenFile: "/var/run/token" };
  await withConfig({ cluster: { server: "https://10.0.0.1" }, user }, async (path) => {
    assertEquals((await kubeconfigServer(path)).token, { file: "/var/run/token" });
  });
});

Deno.test("kubeconfigServer() names the file and the field that it cannot read", async () => {
  const server = "https://10.0.0.1:6443";
  const cases: [string, { cluster: unknown; user: unknown }][] = [
    ["must be a URL", { cluster: {}, user: {} }],
    ["must be a URL", { cluster: { server: "10.0.0.1:6443" }, user: {} }],
    ["must be a URL", { cluster: { server: "https://" }, user: {} }],
    ["server: must be a text", { cluster: { server: [server] }, user: {} }],
    ["certificate-authority-data: must be base64", {
      cluster: { server, "certificate-authority-data": "%" },
      user: {},
    }],
    ["token: must be a text", { cluster: { server }, user: { token: { a: 1 } } }],
    ["cluster: must be an object", { cluster: "x", user: {} }],
  ];
  for (const [words, parts] of cases) {
    await withConfig(parts, async (path) => {
      const error = await assertRejects(() => kubeconfigServer(path), Error, words);
      assertEquals([error.message.startsWith(`reading ${path}: `), error.constructor], [true, Error]);
    });
  }
});

Deno.test("kubeconfigServer() refuses a file that is no kubeconfig", async () => {
  const path = await Deno.makeTempFile();
  try {
    for (const text of ["", "[]", "x", "{", "clusters: 0", "contexts: [1]\ncurrent-context: x"]) {
      await Deno.writeTextFile(path, text);
      const error = await assertRejects(() => kubeconfigServer(path), Error, `reading ${path}: `);
      assertEquals(error.message.includes("the output of a program"), false, error.message);
    }
  } finally {
    await Deno.remove(path);
  }
});

Deno.test("kubeconfigServer(): the URL of the server must be one of HTTP", async () => {
  for (const server of ["10.0.0.1", "ftp://10.0.0.1", "https://"]) {
    await withConfig({ cluster: { server }, user: {} }, async (path) => {
      await assertRejects(
        () => kubeconfigServer(path),
        Error,
        `server ${JSON.stringify(server)}: must be a URL that begins`,
      );
    });
  }
});
