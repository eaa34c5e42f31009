/**
 * The contract of an API server and a client on which the controllers rely. The tests run over the fake server, and
 * over a real kube-apiserver.
 *
 * @module
 */

import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import {
  type ApiClient,
  ApiError,
  isAlreadyExists,
  isConflict,
  isGone,
  isNotFound,
  type MergePatch,
  type PatchOptions,
  type WatchEvent,
} from "../../k8s/client/client.ts";
import type { ApiServer } from "../../k8s/client/config.ts";
import { HttpClient } from "../../k8s/client/http_client.ts";
import { Informer } from "../../k8s/runtime/informer.ts";
import { type KubeObject, leases, persistentVolumeClaims, type Resource } from "../../k8s/api/objects.ts";
import { TcpProxy } from "../fake/tcp_proxy.ts";

/** An object of the custom resource that the host provides. */
export interface Thing extends KubeObject {
  /** The desired state. */
  spec?: { nodeName?: string; size?: string };
  /** The observed state. */
  status?: { phase?: string };
}

/** The custom resource: cluster-scoped, with a status endpoint, and `spec.nodeName` as a selectable field. */
export const things: Resource<Thing> = {
  group: "test.denolith.dev",
  version: "v1",
  plural: "things",
  kind: "Thing",
  namespaced: false,
};

/** An API server to run the contract on. */
export interface ApiHost {
  /** Its name in the titles of tests. */
  readonly name: string;
  /** Starts it, with {@linkcode things} and the namespace `default`; or answers one that runs. */
  start(): Promise<AsyncDisposable & { readonly server: ApiServer }>;
}

/** Registers all tests of the contract on an API server. */
export function apiContract(host: ApiHost): void {
  function test(name: string, body: (client: ApiClient, unique: string) => Promise<void>): void {
    Deno.test(`${host.name}: ${name}`, async () => {
      await using running = await host.start();
      using client = new HttpClient(running.server, { userAgent: "denolith/test (contract)", pageSize: 2 });
      await body(client, `c${crypto.randomUUID().slice(0, 8)}`);
    });
  }

  test("create() gives an object its identity, and refuses a second one of the same name", async (client, name) => {
    const made = await client.create(things, { metadata: { name }, spec: { size: "1Gi" } });
    assertEquals([made.kind, made.apiVersion, made.spec?.size], ["Thing", "test.denolith.dev/v1", "1Gi"]);
    assertMatch(made.metadata.uid ?? "", /^[0-9a-f-]{36}$/);
    assertMatch(made.metadata.creationTimestamp ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    const error = await assertRejects(() => client.create(things, { metadata: { name } }), ApiError);
    assert(isAlreadyExists(error) && !isConflict(error));
    assertMatch(error.message, new RegExp(`^create things ${name}: AlreadyExists: .*${name}.* already exists$`));
    await client.delete(things, { name });
  });

  test("create() completes a generateName", async (client, unique) => {
    const { metadata } = await client.create(things, { metadata: { generateName: `${unique}-` } });
    assertMatch(metadata.name, new RegExp(`^${unique}-\\w{5}$`));
    await client.delete(things, metadata);
  });

  test("every call for an absent object fails with NotFound", async (client, name) => {
    const thing: Thing = { metadata: { name, resourceVersion: "1" } };
    for (
      const call of [
        () => client.get(things, { name }),
        () => client.replace(things, thing),
        () => client.patch(things, { name }, { merge: { spec: { size: "1" } } }),
        () => client.delete(things, { name }),
      ]
    ) {
      const error = await assertRejects(call, ApiError);
      assert(isNotFound(error), error.message);
      assert(error.message.includes(`things ${name}: NotFound: `), error.message);
    }
  });

  test(
    "a lease is not there for patch(), but replace() makes it, unless it is to be one that was",
    async (client, name) => {
      const at = { name, namespace: "default" };
      const merge = { spec: { leaseDurationSeconds: 1 } };
      assert(isNotFound(await assertRejects(() => client.patch(leases, at, { merge }))));
      const made = await client.replace(leases, { metadata: { ...at }, spec: { holderIdentity: "a" } });
      assertEquals(made.spec?.holderIdentity, "a");
      await client.delete(leases, at);
      const error = await assertRejects(() => client.replace(leases, made), ApiError);
      assert(isConflict(error), error.message);
      assert(isNotFound(await assertRejects(() => client.get(leases, at))));
    },
  );

  test("replace() and patch() of an old revision conflict, and change nothing", async (client, name) => {
    const first = await client.create(things, { metadata: { name }, spec: { size: "1Gi" } });
    const second = await client.replace(things, { ...first, spec: { size: "2Gi" } });
    assert(second.metadata.resourceVersion !== first.metadata.resourceVersion);
    const { resourceVersion } = first.metadata;
    assert(isConflict(await assertRejects(() => client.replace(things, { ...first, spec: { size: "3Gi" } }))));
    const patch = () => client.patch(things, { name }, { merge: { spec: { size: "3Gi" } }, resourceVersion });
    assert(isConflict(await assertRejects(patch)));
    assertEquals((await client.get(things, { name })).spec, { size: "2Gi" });
    await client.delete(things, { name });
  });

  test("patch() merges, removes what is null, and writes nothing when nothing changes", async (client, name) => {
    const labels = { a: "1", b: "2" };
    await client.create(things, { metadata: { name, labels }, spec: { size: "1Gi", nodeName: "n" } });
    const merge = { metadata: { labels: { a: null, c: "3" } }, spec: { nodeName: null } };
    const changed = await client.patch(things, { name }, { merge });
    assertEquals([changed.metadata.labels, changed.spec], [{ b: "2", c: "3" }, { size: "1Gi" }]);
    assertEquals(
      (await client.patch(things, { name }, { merge })).metadata.resourceVersion,
      changed.metadata.resourceVersion,
    );
    await client.delete(things, { name });
  });

  test(
    "a status is changed by its own endpoint only, and only changes of the spec count as generations",
    async (client, name) => {
      const made = await client.create(things, { metadata: { name }, spec: { size: "1" }, status: { phase: "Sent" } });
      assertEquals([made.status, made.metadata.generation], [undefined, 1]);
      const both = { spec: { size: "2" }, status: { phase: "Ready" } };
      const wanted = await client.patch(things, { name }, { merge: both });
      assertEquals([wanted.spec?.size, wanted.status, wanted.metadata.generation], ["2", undefined, 2]);
      const merge = { spec: { size: "3" }, status: { phase: "Ready" } };
      const updated = await client.patch(things, { name }, { merge, subresource: "status" });
      assertEquals([updated.spec?.size, updated.status, updated.metadata.generation], ["2", { phase: "Ready" }, 2]);
      const kept = await client.replace(things, { ...updated, spec: { size: "4" }, status: {} });
      assertEquals([kept.spec?.size, kept.status, kept.metadata.generation], ["4", { phase: "Ready" }, 3]);
      const replaced = await client.replace(things, { ...kept, status: { phase: "Gone" } }, { subresource: "status" });
      assertEquals([replaced.status, replaced.metadata.generation], [{ phase: "Gone" }, 3]);
      await client.delete(things, { name });
    },
  );

  test(
    "a patch with another uid is Invalid, and one of a status only conflicts by the revision",
    async (client, name) => {
      const { metadata } = await client.create(things, { metadata: { name }, spec: { size: "1" } });
      const uid = crypto.randomUUID();
      const patch = (merge: MergePatch<Thing>, options: Omit<PatchOptions<Thing>, "merge">): Promise<Thing> =>
        client.patch(things, { name }, { merge: { metadata: { uid }, ...merge }, ...options });
      const refused = await assertRejects(() => patch({ spec: { size: "2" } }, {}), ApiError);
      assertEquals([refused.status, refused.reason], [422, "Invalid"]);
      const status = { phase: "Ready" };
      // kube-apiserver takes nothing but the status from such a patch, so that the uid guards nothing
      const written = await patch({ metadata: { uid, labels: { a: "1" } }, status }, { subresource: "status" });
      assertEquals([written.metadata.uid, written.metadata.labels, written.status], [metadata.uid, undefined, status]);
      const { resourceVersion } = metadata;
      assert(isConflict(await assertRejects(() => patch({ status }, { subresource: "status", resourceVersion }))));
      const replaced = { ...written, metadata: { ...written.metadata, uid } };
      assert(isConflict(await assertRejects(() => client.replace(things, replaced))));
      await client.delete(things, { name });
    },
  );

  test("a claim's status is apart as well", async (client, name) => {
    const at = { name, namespace: "default" };
    const spec = {
      accessModes: ["ReadWriteOnce"],
      resources: { requests: { storage: "1Gi" } },
      storageClassName: "none",
    };
    await client.create(persistentVolumeClaims, { metadata: at, spec, status: { phase: "Bound" } });
    const condition = { type: "Resizing", status: "True" };
    const merge = { status: { conditions: [condition] } };
    const ignored = await client.patch(persistentVolumeClaims, at, { merge });
    assertEquals([ignored.status?.conditions, ignored.status?.phase === "Bound"], [undefined, false]);
    const updated = await client.patch(persistentVolumeClaims, at, {
      merge: { ...merge, metadata: { annotations: { a: "1" } } },
      subresource: "status",
    });
    assertEquals(updated.status?.conditions?.map(({ type }) => type), ["Resizing"]);
    assertEquals(updated.metadata.annotations, { a: "1" }); // unlike those of a custom resource
    const uid = crypto.randomUUID();
    const refused = await assertRejects(
      () => client.patch(persistentVolumeClaims, at, { merge: { metadata: { uid } }, subresource: "status" }),
      ApiError,
    );
    assertEquals(refused.status, 422);
    await client.patch(persistentVolumeClaims, at, { merge: { metadata: { finalizers: null } } });
    await client.delete(persistentVolumeClaims, at);
  });

  test(
    "delete() waits for finalizers, keeps its conditions, and refuses new finalizers meanwhile",
    async (client, name) => {
      const { metadata } = await client.create(things, { metadata: { name, finalizers: ["test.denolith.dev/hold"] } });
      for (const condition of [{ uid: crypto.randomUUID() }, { resourceVersion: "1" }]) {
        assert(isConflict(await assertRejects(() => client.delete(things, { name }, condition))));
      }
      await client.delete(things, { name }, { uid: metadata.uid, resourceVersion: metadata.resourceVersion });
      const held = await client.get(things, { name });
      assert(held.metadata.deletionTimestamp !== undefined);
      await client.delete(things, { name });
      const finalizers = ["test.denolith.dev/hold", "test.denolith.dev/more"];
      const late = await assertRejects(
        () => client.patch(things, { name }, { merge: { metadata: { finalizers } } }),
        ApiError,
      );
      assertEquals([late.status, late.reason], [422, "Invalid"]);
      await client.patch(things, { name }, { merge: { metadata: { finalizers: null } } });
      assert(isNotFound(await assertRejects(() => client.get(things, { name }))));
    },
  );

  test("list() pages, selects by label and field, and says which kind its objects are of", async (client, unique) => {
    const names = [..."abcde"].map((letter) => `${unique}-${letter}`);
    for (const name of names) {
      const nodeName = name.endsWith("c") ? `${unique}-n2` : `${unique}-n1`;
      await client.create(things, {
        metadata: { name, labels: { of: unique, last: name.slice(-1) } },
        spec: { nodeName },
      });
    }
    const list = async (selection: { labelSelector?: string; fieldSelector?: string }) =>
      (await client.list(things, selection)).items.map(({ metadata }) => metadata.name);
    assertEquals(await list({ labelSelector: `of=${unique}` }), names);
    assertEquals(await list({ labelSelector: `of=${unique},last in (a,c)` }), [names[0]!, names[2]!]);
    assertEquals(await list({ labelSelector: `of=${unique},last notin (a,c),last!=b` }), names.slice(3));
    assertEquals(await list({ fieldSelector: `metadata.name=${names[1]}` }), [names[1]!]);
    assertEquals(await list({ fieldSelector: `spec.nodeName=${unique}-n2` }), [names[2]!]);
    const { items } = await client.list(things, { labelSelector: `of=${unique}` });
    assertEquals([items[0]?.kind, items[0]?.apiVersion], ["Thing", "test.denolith.dev/v1"]);
    for (const name of names) await client.delete(things, { name });
  });

  test(
    "watch() sends what happened since a revision, in order, also what enters and leaves the selection",
    async (client, name) => {
      const { resourceVersion } = await client.list(things);
      const labelSelector = `of=${name}`;
      await client.create(things, { metadata: { name, labels: { of: name } } });
      await client.patch(things, { name }, { merge: { spec: { size: "2" } } });
      await client.patch(things, { name }, { merge: { metadata: { labels: { of: null } } } });
      await client.patch(things, { name }, { merge: { metadata: { labels: { of: name } } } });
      await client.delete(things, { name });
      const events = await takeEvents(client.watch(things, { resourceVersion, labelSelector }), 5);
      assertEquals(events.map(({ type }) => type), ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]);
      assertEquals(events.map(({ object }) => object.metadata.name), Array(5).fill(name));
      const revisions = events.map(({ object }) => Number(object.metadata.resourceVersion));
      assertEquals(revisions, revisions.toSorted((a, b) => a - b));
    },
  );

  test("watch() sends what happens while it is open, and ends with its signal", async (client, name) => {
    const { resourceVersion } = await client.list(things);
    const stop = new AbortController();
    const fieldSelector = `metadata.name=${name}`;
    const watch = client.watch(things, { resourceVersion, fieldSelector, signal: stop.signal })[Symbol.asyncIterator]();
    const first = watch.next();
    await client.create(things, { metadata: { name } });
    assertEquals((await first).value?.type, "ADDED");
    await client.delete(things, { name });
    assertEquals((await watch.next()).value?.type, "DELETED");
    const next = watch.next();
    stop.abort(new Error("enough"));
    await assertRejects(() => next, Error, "enough");
  });

  test("watch() from a revision that is too old is Gone", async (client) => {
    const open = client.watch(things, { resourceVersion: "1" });
    const error = await assertRejects(() => takeEvents(open, 1), ApiError);
    assert(isGone(error), error.message);
  });
}

/** Registers what an informer has to survive on an API server that listens on 127.0.0.1. */
export function networkContract(host: ApiHost): void {
  const faults: [
    string,
    (network: TcpProxy, detected: { silence: Promise<unknown>; failure: Promise<unknown> }) => Promise<void>,
  ][] = [
    ["a closed connection", (network) => Promise.resolve(network.resetConnections())],
    ["a connection that swallows everything silently", async (network, detected) => {
      network.freeze();
      await detected.silence;
      network.thaw();
    }],
    ["a server that is away", async (network, detected) => {
      network.refuse();
      await detected.failure;
      network.allow();
    }],
  ];
  for (const [fault, inject] of faults) {
    Deno.test(`${host.name}: an informer survives ${fault}, and misses nothing`, async () => {
      const name = `c${crypto.randomUUID().slice(0, 8)}`;
      await using running = await host.start();
      await using network = new TcpProxy(running.server.url);
      const [silence, failure] = [Promise.withResolvers<string>(), Promise.withResolvers<void>()];
      const onRequest = (_: string, __: string, status: number) => status === 0 && failure.resolve();
      const userAgent = "denolith/test (network)";
      const pings = { readIdleTimeoutMs: 100, pingTimeoutMs: 1_000, onReconnect: silence.resolve, onRequest };
      using direct = new HttpClient(running.server, { userAgent });
      using client = new HttpClient({ ...running.server, url: network.urlThrough(running.server.url) }, {
        userAgent,
        ...pings,
      });
      await direct.create(things, { metadata: { name }, spec: { size: "1" } });
      const informer = new Informer(client, things, { backoff: { startMs: 10, capMs: 50 } });
      const stop = new AbortController();
      const informing = informer.start(stop.signal);
      const waitForSize = (size?: string) =>
        informer.waitFor(name, (thing) => thing?.spec?.size === size, { timeoutMs: 20_000 });
      await waitForSize("1");
      await direct.patch(things, { name }, { merge: { spec: { size: "2" } } });
      await waitForSize("2");
      const injecting = inject(network, { silence: silence.promise, failure: failure.promise });
      await direct.patch(things, { name }, { merge: { spec: { size: "3" } } });
      await Promise.all([injecting, waitForSize("3")]);
      await direct.delete(things, { name });
      await informer.waitFor(name, (thing) => thing === undefined, { timeoutMs: 20_000 });
      stop.abort();
      await informing;
    });
  }
}

async function takeEvents<T>(events: AsyncIterable<WatchEvent<T>>, count: number): Promise<WatchEvent<T>[]> {
  const taken: WatchEvent<T>[] = [];
  for await (const event of events) {
    if (event.type !== "BOOKMARK") taken.push(event);
    if (taken.length === count) break;
  }
  return taken;
}
