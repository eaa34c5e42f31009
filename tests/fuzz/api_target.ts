/**
 * Target: what the API server answers.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { type ApiClient, ApiError } from "../../k8s/client/client.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import type { KubeObject } from "../../k8s/api/objects.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { type Clock, withinDeadline } from "../../base/clock.ts";
import { requireNoNaN } from "./expect.ts";
import { changedJson, changedText, oddTexts, oddValues } from "./inputs.ts";
import { asTarget, type Json, type Subject, type Target } from "./target.ts";

const OBJECT = {
  apiVersion: "lvm.denolith.dev/v1alpha1",
  kind: "LVMVolume",
  metadata: { name: "v1-11111111111111111111111111111111", uid: "u", resourceVersion: "5", generation: 1 },
  spec: { driverName: "d", nodeName: "n", size: "1Gi" },
};

const STATUS = {
  kind: "Status",
  metadata: {},
  status: "Failure",
  message: "too many",
  reason: "TooManyRequests",
  details: { retryAfterSeconds: 1 },
  code: 429,
};

const BODIES: readonly Json[] = [
  OBJECT,
  { ...STATUS, message: "an object: ".padEnd(9_000, "💾"), code: 422, reason: "Invalid" },
  { kind: "LVMVolumeList", metadata: { resourceVersion: "7", continue: "" }, items: [OBJECT] },
  STATUS,
];

const EVENTS: readonly Json[] = [
  { object: { metadata: { labels: { "💾💾": "é💾" }, ...OBJECT.metadata }, spec: {} }, type: "ADDED" },
  { object: { ...OBJECT, metadata: { annotations: { "💾💾": "é" }, ...OBJECT.metadata } }, type: "DELETED" },
  { type: "BOOKMARK", object: { metadata: { resourceVersion: "9" } } },
  { type: "ERROR", object: { ...STATUS, code: 410, reason: "Expired" } },
];

/** An answer of the API server. */
interface Answer {
  readonly [key: string]: string | number;
  readonly status: number;
  readonly retryAfter: string;
  /** The body, of which a watch reads each line. */
  readonly body: string;
  /** The length of the parts in which the body comes. */
  readonly part: number;
}

/** Events of an error whose code may be of any type. */
const errorEvents = oddValues.map((code) => ({ type: "ERROR", object: { ...STATUS, code } }));

const lines = fc.array(
  fc.oneof(
    { weight: 4, arbitrary: changedJson(EVENTS, { maxChanges: 2 }).map((event) => JSON.stringify(event)) },
    { weight: 1, arbitrary: errorEvents.map((event) => JSON.stringify(event)) },
    { weight: 1, arbitrary: oddTexts },
  ),
  {
    maxLength: 5,
  },
).map((list) => list.map((line) => `${line}\n`).join(""));

/** The length of a part that has a whole body, in bytes. */
const LARGE_PART = 100_000;

const answers: fc.Arbitrary<Answer> = fc.record({
  status: fc.oneof({ weight: 3, arbitrary: fc.constant(200) }, {
    weight: 1,
    arbitrary: fc.constantFrom(201, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 599),
  }),
  retryAfter: fc.oneof({ weight: 3, arbitrary: fc.constantFrom("", "1") }, {
    weight: 1,
    arbitrary: fc.constantFrom(
      "-5",
      "1e99",
      "NaN",
      "999999999",
      "Wed, 21 Oct 2026 07:28:00 GMT",
      "99999999999999999999",
    ),
  }),
  body: fc.oneof(changedJson(BODIES).map((body) => JSON.stringify(body)), lines, changedText([JSON.stringify(OBJECT)])),
  part: fc.constantFrom(1, 7, 100, LARGE_PART),
});

/** A clock on which waits are over at once. It refuses waits that make no sense. */
const impatientClock: Clock = {
  now: () => performance.now(),
  date: () => new Date(),
  after: (ms, callback) => {
    assert(ms >= 0 && ms <= 3_600_000, `a wait of ${ms} ms`);
    const timer = setTimeout(callback, ms >= 10_000 ? ms : 0); // the longer ones are timeouts
    return () => clearTimeout(timer);
  },
  random: () => 0.5,
};

/** The number of small parts in which a body comes before the rest comes in large ones: each costs time. */
const SMALL_PARTS = 200;

function responseFor({ status, retryAfter, body, part }: Answer): Response {
  const bytes = new TextEncoder().encode(body);
  let [sent, count] = [0, 0];
  const stream = new ReadableStream<Uint8Array>({
    pull: (controller) => {
      if (sent >= bytes.length) return controller.close();
      const length = count++ < SMALL_PARTS ? part : LARGE_PART;
      controller.enqueue(bytes.slice(sent, sent += length));
    },
  });
  return new Response(stream, { status, headers: retryAfter === "" ? {} : { "retry-after": retryAfter } });
}

/** The limit of the length of an error's message, in characters: that of the server's text, with the request. */
const MAX_MESSAGE_LENGTH = 4_500;

/** Waits for a request, which may only fail as the client says. @returns its value; `undefined` when it failed */
async function settled<T>(request: Promise<T>): Promise<T | undefined> {
  try {
    return await request;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // Each request is answered, so an error without an answer is an accident of the reader.
    if (error.reason === "Unreachable") throw error.cause;
    requireNoNaN({ ...error }, "the error");
    assert(Number.isInteger(error.status) && error.status >= 0 && error.status <= 999, `status ${error.status}`);
    assert(error.message.length < MAX_MESSAGE_LENGTH, `a message of ${error.message.length} characters`);
    return undefined;
  }
}

/** Reads a watch to its end. @returns the events */
async function readWatch(client: ApiClient): Promise<string[]> {
  const events: string[] = [];
  for await (const event of client.watch(lvmVolumes, { resourceVersion: "1" })) {
    const { metadata } = event.object;
    assert(typeof metadata === "object" && metadata !== null, "an event without metadata");
    events.push(JSON.stringify(event));
  }
  return events;
}

/** Milliseconds in which an informer must have what the server has, on a loaded machine. */
const INFORMER_MS = 20_000;

/** Lets an informer read the answer, and then valid ones. Whatever came before, it has the object of these alone then. */
async function checkInformer(client: ApiClient, answerNext: () => void): Promise<void> {
  const stop = new AbortController();
  const informer = new Informer<KubeObject>(client, lvmVolumes as never, { clock: impatientClock });
  const watched = Promise.withResolvers<void>();
  const keys = new Set<string>();
  informer.subscribe((key, now, before) => {
    if (now === undefined) keys.delete(key);
    else keys.add(key);
    if (key === "valid" && before !== undefined) watched.resolve();
  });
  const running = informer.start(stop.signal);
  answerNext();
  const outcome = await withinDeadline(watched.promise.then(() => "watched"), INFORMER_MS);
  stop.abort();
  await running;
  assertEquals(outcome, "watched", "the informer does not have what the server has");
  assertEquals(informer.list().map(({ metadata }) => metadata.name), ["valid"]);
  assertEquals([...keys], ["valid"], "what the listeners received");
}

async function openClient(): Promise<Subject<Answer>> {
  const originalFetch = globalThis.fetch;
  const client = new HttpClient({ url: "http://localhost:1" }, { userAgent: "fuzz", clock: impatientClock });
  const object = { metadata: { name: "valid", uid: "v", resourceVersion: "800" } };
  const valid = (body: unknown): Answer => ({
    ...{ status: 200, retryAfter: "", part: LARGE_PART },
    body: `${JSON.stringify(body)}\n`,
  });
  const list = valid({ metadata: { resourceVersion: "800" }, items: [object] });
  const event = valid({ type: "ADDED", object: { metadata: { ...object.metadata, resourceVersion: "801" } } });
  const goneToken = { ...valid({ ...STATUS, code: 410, reason: "Expired" }), status: 410 };
  const expired = valid({ type: "ERROR", object: { ...STATUS, code: 410, reason: "Expired" } });
  return await Promise.resolve({
    check: async (given) => {
      let [left, answer] = [Infinity, given];
      globalThis.fetch = (input) => {
        const { searchParams } = new URL(String(input));
        if (searchParams.has("continue")) return Promise.resolve(responseFor(goneToken)); // no server gave it
        if (left-- > 0) return Promise.resolve(responseFor(answer));
        if (!searchParams.has("watch")) return Promise.resolve(responseFor(list));
        // only the versions that it has named are known to a server
        const isKnown = ["800", "801"].includes(searchParams.get("resourceVersion") ?? "");
        return Promise.resolve(responseFor(isKnown ? event : expired));
      };
      const { metadata } = await settled(client.get(lvmVolumes, { name: "x" })) ?? object;
      assert(typeof metadata === "object" && metadata !== null, "an object without metadata");
      for (const { metadata } of (await settled(client.list(lvmVolumes)))?.items ?? []) {
        assert(typeof metadata.name === "string", "an object without a name");
      }
      const events = await settled(readWatch(client));
      answer = { ...given, part: LARGE_PART };
      assertEquals(await settled(readWatch(client)), events, "the events depend on the parts in which they come");
      answer = given;
      await checkInformer(client, () => left = 4);
    },
    [Symbol.asyncDispose]: () => {
      globalThis.fetch = originalFetch;
      client[Symbol.dispose]();
      return Promise.resolve();
    },
  });
}

/** The target. */
export const API_TARGET: Target = asTarget<Answer>({
  name: "api-answers",
  description: "what the API server answers to a get, a list and a watch, and an informer that reads it",
  inputs: answers,
  testRuns: 15,
  open: openClient,
});
