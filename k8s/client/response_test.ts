import { assert, assertEquals, assertThrows } from "@std/assert";
import { lvmVolumes } from "../api/lvm_objects.ts";
import { ApiError } from "./client.ts";
import { errorFromResponse, parseEvent, parseObject, parsePage } from "./response.ts";

const request = { verb: "list", resource: lvmVolumes, name: "" };
const object = { metadata: { name: "a", resourceVersion: "1" } };

async function errorOf(body: unknown, headers: Record<string, string> = {}): Promise<ApiError> {
  return await errorFromResponse(request, new Response(JSON.stringify(body), { status: 429, headers }));
}

Deno.test("errorFromResponse() reads how long to wait, and ignores what is no number of seconds", async () => {
  assertEquals((await errorOf({ details: { retryAfterSeconds: 2 } })).retryAfter, 2000);
  assertEquals((await errorOf({}, { "retry-after": "3" })).retryAfter, 3000);
  for (const seconds of ["soon", -1, null, {}, "1e9", 1e300]) {
    assertEquals((await errorOf({ details: { retryAfterSeconds: seconds } })).retryAfter, undefined, `${seconds}`);
  }
  for (const header of ["Wed, 21 Oct 2026 07:28:00 GMT", "-5", "1e99", ""]) {
    assertEquals((await errorOf({}, { "retry-after": header })).retryAfter, undefined, header);
  }
});

Deno.test("errorFromResponse() bounds the server's message, and wants it to be a text", async () => {
  assertEquals((await errorOf({ reason: "Busy", message: "later" })).message, "list lvmvolumes: Busy: later");
  assertEquals((await errorOf({ reason: {}, message: [1] })).message, "list lvmvolumes: HTTP 429");
  assert((await errorOf({ message: "x".repeat(100_000) })).message.length < 5_000);
});

Deno.test("parsePage() reads a page of objects with names, and an empty list that Go wrote", () => {
  const metadata = { resourceVersion: "7", continue: "next" };
  assertEquals(parsePage(request, JSON.stringify({ metadata, items: [object] })), {
    ...{ items: [object], resourceVersion: "7", continue: "next" },
  });
  assertEquals(parsePage(request, '{"metadata":{"continue":""},"items":null}'), { items: [], resourceVersion: "" });
});

Deno.test.each(["", "null", "[]", "{}", '{"metadata":null}', '{"metadata":[]}'])("parseObject() refuses %j", (body) => {
  assertThrows(() => parseObject(request, body), ApiError, "not what the API server answers");
  assertThrows(() => parsePage(request, body), ApiError, "not what the API server answers");
});

Deno.test("parseObject() says nothing of a Secret that it cannot parse", () => {
  const about = { verb: "get", resource: { ...lvmVolumes, plural: "secrets" }, name: "key" };
  const body = '{"kind":"Secret","data":{"pass":"c2VjcmV0"},"metadata":nu';
  const { message } = assertThrows(() => parseObject(about, body), ApiError);
  assertEquals(message, "get secrets key: the answer is not what the API server answers");
});

Deno.test.each(['"x"', "{}", "[null]", "[1]", "[{}]", '[{"metadata":{}}]', '[{"metadata":{"name":1}}]'])(
  "parsePage() refuses the items %j",
  (items) =>
    void assertThrows(
      () => parsePage(request, `{"metadata":{},"items":${items}}`),
      ApiError,
      "not what the API server",
    ),
);

Deno.test("parseEvent() reads events, and ignores fields that it does not know", () => {
  const event = { type: "ADDED", object, newField: 1 };
  assertEquals(parseEvent(request, JSON.stringify(event)), { type: "ADDED", object } as never);
  const bookmark = { type: "BOOKMARK", object: { metadata: { resourceVersion: "9" } } };
  assertEquals(parseEvent(request, JSON.stringify(bookmark)), bookmark as never);
  const status = { code: 410, reason: "Expired", message: "too old" };
  const error = assertThrows(() => parseEvent(request, JSON.stringify({ type: "ERROR", object: status })), ApiError);
  assertEquals([error.status, error.reason], [410, "Expired"]);
});

Deno.test("parseEvent() takes an error without a code for one of the server", () => {
  for (const code of ["x", -1, 1e99, null, undefined]) {
    const line = JSON.stringify({ type: "ERROR", object: { code } });
    assertEquals(assertThrows(() => parseEvent(request, line), ApiError).status, 500);
  }
});

Deno.test.each([
  '{"type":"ADDED","object":[]}',
  '{"type":"ADDED","object":{}}',
  '{"type":"MODIFIED","object":{"metadata":{}}}',
  '{"type":"BOOKMARK","object":{}}',
  '{"type":"ERROR","object":null}',
  '{"type":"PAUSED","object":{"metadata":{"name":"a"}}}',
])("parseEvent() refuses %j", (line) => {
  const error = assertThrows(() => parseEvent(request, line), ApiError);
  assertEquals(error.reason, "Unreadable");
});

Deno.test("parseEvent() takes the code of an error, from 100 to 599", () => {
  for (const [code, expected] of [[100, 100], [599, 599], [99, 500], [600, 500]]) {
    const line = JSON.stringify({ type: "ERROR", object: { code } });
    assertEquals(assertThrows(() => parseEvent(request, line), ApiError).status, expected);
  }
});

Deno.test("parsePage() and parseEvent() leave managedFields out, and nothing that looks like them", () => {
  const fieldsV1 = { "f:status": { 'k:{"type":"Ready]"}': { ".": {} } }, 'v:"a\\\\"': {} };
  const managedFields = [{ manager: "a", fieldsV1 }, { manager: "b", subresource: "status" }];
  const annotations = {
    a: '{"name":"a","managedFields":[{"manager":"a"}]}',
    b: ',"managedFields":[',
    managedFields: "[",
  };
  const metadata = { name: "a", annotations };
  const spec = { size: "]", list: [{ managedFields: "x" }] };
  const whole = { metadata: { ...metadata, managedFields }, spec };
  const items = [whole, { metadata: { name: "b", managedFields: [] } }, { metadata: { name: "c" }, spec }];
  assertEquals<unknown>(parsePage(request, JSON.stringify({ metadata: {}, items })).items, [
    ...[{ metadata, spec }, { metadata: { name: "b" } }, { metadata: { name: "c" }, spec }],
  ]);
  const event = { type: "MODIFIED", object: whole };
  assertEquals<unknown>(parseEvent(request, JSON.stringify(event)), { type: "MODIFIED", object: { metadata, spec } });
  const nested = { metadata: { name: "d", managedFields: [{ list: ["a"], more: 1 }] } };
  assertEquals<unknown>(parsePage(request, JSON.stringify({ metadata: {}, items: [nested] })).items, [nested]);
});
