import { assert, assertEquals, assertRejects } from "@std/assert";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { ApiError, isNotFound } from "../client/client.ts";
import { HttpClient } from "../client/http_client.ts";
import { readSecret, secrets } from "./secrets.ts";

const { signal } = new AbortController();
const KEY = { name: "key", namespace: "team" };

function harness() {
  const api = FakeApiServer.start({ resources: [secrets] });
  const client = new HttpClient({ url: api.url }, { userAgent: "denolith/test" });
  return {
    api,
    client,
    [Symbol.asyncDispose]: async () => {
      client[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

Deno.test("readSecret() reads only the named secret, and sends no request if none is named", async () => {
  await using s = harness();
  s.api.put(secrets, { metadata: KEY, data: { pass: btoa("word") } });
  assertEquals(await readSecret(s.client, KEY, { signal }), { pass: "word" });
  assertEquals(await readSecret(s.client, undefined, { signal }), {});
  assertEquals(s.api.requests.map(({ method, path }) => `${method} ${path}`), [
    "GET /api/v1/namespaces/team/secrets/key",
  ]);
});

Deno.test("readSecret() names the remedy when it is forbidden, and when it does not exist", async () => {
  await using s = harness();
  const missing = await assertRejects(() => readSecret(s.client, KEY, { signal }));
  assert(
    isNotFound(missing) && missing.message.includes("it does not exist: create key in namespace team"),
    missing.message,
  );
  const broken = new Error("no answer");
  const client = { ...s.client, get: () => Promise.reject(broken) } as unknown as typeof s.client;
  assertEquals(await assertRejects(() => readSecret(client, KEY, { signal })), broken);
  s.api.faults.refuse = { status: 403, times: 1 };
  const error = await assertRejects(() => readSecret(s.client, KEY, { signal }), ApiError);
  assertEquals(error.status, 403);
  assert(error.message.includes("allow it to get key by a Role in namespace team"), error.message);
  assert(error.message.length < 1024, "an event takes no longer message");
});
