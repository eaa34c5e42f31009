/**
 * Targets: kubeconfig files, and what the API server answers.
 *
 * @module
 */

import { assert } from "@std/assert";
import fc from "fast-check";
import { type ApiClient, ApiError } from "../../k8s/client/client.ts";
import { accessOf } from "../../k8s/client/config.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { kubeconfigServer } from "../../k8s/client/kubeconfig.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import type { KubeObject } from "../../k8s/api/objects.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import type { Clock } from "../../lvm/clock.ts";
import { requireNoNaN } from "./expect.ts";
import { changedJson, changedText, oddTexts } from "./inputs.ts";
import { asTarget, type Json, type Subject, type Target } from "./target.ts";

const CONFIG = {
  apiVersion: "v1",
  kind: "Config",
  clusters: [{ name: "c", cluster: { server: "https://10.0.0.1:6443", "certificate-authority-data": "eA==" } }],
  users: [{ name: "u", user: { "client-certificate": "me.crt", "client-key": "/me.key", token: "secret" } }],
  contexts: [{ name: "x", context: { cluster: "c", user: "u", namespace: "shop" } }],
  "current-context": "x",
};

const YAML = `apiVersion: v1
clusters:
- {name: c, cluster: &c {server: "https://10.0.0.1:6443"}}
users:
- name: u
  user: {tokenFile: token}
contexts:
- name: x
  context: {cluster: c, user: u}
current-context: x
`;

/** The target of kubeconfig files. */
const KUBECONFIG_TARGET = asTarget<string>({
  name: "kubeconfig",
  description: "a kubeconfig file",
  inputs: fc.oneof(changedJson([CONFIG]).map((config) => JSON.stringify(config)), changedText([YAML])),
  testRuns: 40,
  open: async () => {
    const folder = await Deno.makeTempDir();
    const path = `${folder}/config`;
    return {
      check: async (text) => {
        await Deno.writeTextFile(path, text);
        try {
          const server = await kubeconfigServer(path);
          assert(accessOf(server).hosts.every((host) => /:\d+$/.test(host)));
          requireNoNaN(server, "the server");
        } catch (error) {
          const isPlain = error instanceof Error && error.constructor === Error;
          if (!isPlain || !error.message.startsWith(`reading ${path}: `)) throw error;
        }
      },
      [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }),
    };
  },
});

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
  { kind: "LVMVolumeList", metadata: { resourceVersion: "7", continue: "" }, items: [OBJECT] },
  STATUS,
];

const EVENTS: readonly Json[] = [
  { type: "ADDED", object: OBJECT },
  { type: "DELETED", object: OBJECT },
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

const lines = fc.array(
  fc.oneof(changedJson(EVENTS, { maxChanges: 2 }).map((event) => JSON.stringify(event)), oddTexts),
  {
    maxLength: 5,
  },
).map((list) => list.map((line) => `${line}\n`).join(""));

const answers: fc.Arbitrary<Answer> = fc.record({
  status: fc.oneof({ weight: 3, arbitrary: fc.constant(200) }, {
    weight: 1,
    arbitrary: fc.constantFrom(201, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 599),
  }),
  retryAfter: fc.oneof({ weight: 3, arbitrary: fc.constantFrom("", "1") }, {
    weight: 1,
    arbitrary: fc.constantFrom("-5", "1e99", "NaN", "Wed, 21 Oct 2026 07:28:00 GMT", "99999999999999999999"),
  }),
  body: fc.oneof(changedJson(BODIES).map((body) => JSON.stringify(body)), lines, changedText([JSON.stringify(OBJECT)])),
  part: fc.constantFrom(1, 7, 100, 100_000),
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

function responseFor({ status, retryAfter, body, part }: Answer): Response {
  const bytes = new TextEncoder().encode(body);
  let sent = 0;
  const stream = new ReadableStream<Uint8Array>({
    pull: (controller) => {
      if (sent >= bytes.length) controller.close();
      else controller.enqueue(bytes.slice(sent, sent += part));
    },
  });
  return new Response(stream, { status, headers: retryAfter === "" ? {} : { "retry-after": retryAfter } });
}

/** Waits for a request, which may only fail as the client says. */
async function requestFails(request: Promise<unknown>): Promise<void> {
  try {
    await request;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    requireNoNaN({ ...error }, "the error");
    assert(Number.isInteger(error.status) && error.status >= 0 && error.status <= 999, `status ${error.status}`);
    assert(error.message.length < 10_000, `a message of ${error.message.length} characters`);
  }
}

async function readWatch(client: ApiClient): Promise<void> {
  for await (const { object } of client.watch(lvmVolumes, { resourceVersion: "1" })) {
    assert(typeof object.metadata === "object" && object.metadata !== null, "an event without metadata");
  }
}

/** Lets an informer read the answer, and then valid ones. Whatever came before, it has the object of these then. */
async function checkInformer(client: ApiClient, answerNext: () => void): Promise<void> {
  const stop = new AbortController();
  const informer = new Informer<KubeObject>(client, lvmVolumes as never, { clock: impatientClock });
  const seen = Promise.withResolvers<void>();
  informer.subscribe((key) => {
    if (key === "valid") seen.resolve();
  });
  const running = informer.start(stop.signal);
  answerNext();
  await seen.promise;
  stop.abort();
  await running;
}

async function openClient(): Promise<Subject<Answer>> {
  const originalFetch = globalThis.fetch;
  const client = new HttpClient({ url: "http://localhost:1" }, { userAgent: "fuzz", clock: impatientClock });
  const object = { metadata: { name: "valid", uid: "v", resourceVersion: "8" } };
  const list = { metadata: { resourceVersion: "8" }, items: [object] };
  const valid = (body: unknown): Answer => ({ status: 200, retryAfter: "", body: JSON.stringify(body), part: 1_000 });
  return await Promise.resolve({
    check: async (answer) => {
      let left = Infinity;
      globalThis.fetch = (input) => {
        const isSecondPage = String(input).includes("continue=");
        const isWatch = String(input).includes("watch=true");
        if (left-- > 0 && !isSecondPage) return Promise.resolve(responseFor(answer));
        const answered = valid(isWatch ? { type: "ADDED", object } : list);
        return Promise.resolve(responseFor(isWatch ? { ...answered, body: `${answered.body}\n` } : answered));
      };
      await requestFails(client.get(lvmVolumes, { name: "x" }));
      await requestFails(
        client.list(lvmVolumes).then(({ items }) => {
          for (const { metadata } of items) assert(typeof metadata.name === "string", "an object without a name");
        }),
      );
      await requestFails(readWatch(client));
      await checkInformer(client, () => left = 4);
    },
    [Symbol.asyncDispose]: () => {
      globalThis.fetch = originalFetch;
      client[Symbol.dispose]();
      return Promise.resolve();
    },
  });
}

/** The targets. */
export const API_TARGETS: readonly Target[] = [
  KUBECONFIG_TARGET,
  asTarget<Answer>({
    name: "api-answers",
    description: "what the API server answers to a get, a list and a watch, and an informer that reads it",
    inputs: answers,
    testRuns: 15,
    open: openClient,
  }),
];
