import { assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { FakeClock, flushPromises } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { lvmNodes, lvmSnapshots, lvmVolumes } from "../api/lvm_objects.ts";
import { lvmMoves } from "../handover/moves.ts";
import { clusterScoped, persistentVolumeClaims, persistentVolumes, type Resource } from "../api/objects.ts";
import { ApiError, isTransient } from "./client.ts";
import {
  customResourceDefinitions,
  DEFINITIONS,
  Definitions,
  SCHEMA_ANNOTATION,
  SCHEMA_VERSION,
  strictPath,
} from "./definitions.ts";
import { HttpClient } from "./http_client.ts";
import { Informer } from "../runtime/informer.ts";

const VOLUMES = "lvmvolumes.lvm.denolith.dev";
const NODES = "lvmnodes.lvm.denolith.dev";

/** A cluster whose definitions have the present version, but for some. @param versions those of others, by name */
function harness(versions: Readonly<Record<string, string | undefined>> = {}) {
  const api = FakeApiServer.start({ resources: [customResourceDefinitions, lvmVolumes, persistentVolumeClaims] });
  for (const name of DEFINITIONS) {
    const version = name in versions ? versions[name] : `${SCHEMA_VERSION}`;
    api.put(customResourceDefinitions, {
      metadata: { name, annotations: version === undefined ? {} : { [SCHEMA_ANNOTATION]: version } },
    });
  }
  const clock = new FakeClock();
  const onWatchEnd = (resource: Resource) => definitions.onWatchEnd(resource);
  const client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (controller)", onWatchEnd });
  const definitions = new Definitions(client, clock);
  const told: (string | undefined)[] = [];
  definitions.subscribe((outdated) => told.push(outdated));
  const end = new AbortController();
  let running: Promise<void> | undefined;
  return {
    ...{ api, client, clock, definitions, told, end },
    start: () => running = definitions.run(end.signal),
    reads: () => api.requests.filter(({ path }) => path.includes(customResourceDefinitions.plural)).length,
    setVersion: (name: string, version: string, more: Record<string, string> = {}) => {
      const merge = { metadata: { annotations: { [SCHEMA_ANNOTATION]: version, ...more } } };
      api.collection(customResourceDefinitions).patch(merge, { name, namespace: undefined });
    },
    [Symbol.asyncDispose]: async () => {
      end.abort();
      await running;
      client[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

const request = (resource: Resource, body: object, verb = "create") => ({ verb, resource, name: "v", body });

Deno.test.each([`${SCHEMA_VERSION}`, `${SCHEMA_VERSION + 1}`])(
  "definitions of the version %s are read once",
  async (version: string) => {
    await using s = harness({ [VOLUMES]: version });
    s.start();
    await s.definitions.requireFor(request(lvmVolumes, { spec: {} }));
    assertEquals(s.definitions.outdated, undefined);
    assertEquals(s.definitions.condition().status, "False");
    await s.clock.advance(3_600_000);
    await s.definitions.requireFor(request(lvmVolumes, { spec: {} }));
    assertEquals([s.reads(), s.told], [DEFINITIONS.length, []]);
    for (const { headers } of s.api.requests) assertStringIncludes(headers.get("accept")!, "as=PartialObjectMetadata");
  },
);

Deno.test.each([undefined, "", `${SCHEMA_VERSION - 1}`, "newest"])(
  "definitions of the version %j are too old until they have another one, and are read again until then",
  async (version: string | undefined) => {
    await using s = harness({ [VOLUMES]: version, [NODES]: version });
    s.start();
    await waitUntil(() => s.told.length > 0, "what is too old");
    const { outdated } = s.definitions;
    assertEquals(s.told, [outdated]);
    assertEquals(DEFINITIONS.filter((name) => outdated!.includes(name)), [NODES, VOLUMES]);
    assertMatch(outdated!, /: kubectl apply -f deploy\/crds$/);
    assertEquals(s.definitions.condition().message, outdated);
    s.setVersion(NODES, `${SCHEMA_VERSION}`);
    await s.clock.advance(10_000);
    await waitUntil(() => s.told.length > 1, "what is still too old");
    assertEquals([s.told[1]!.includes(NODES), s.told[1]!.includes(VOLUMES)], [false, true]);
    s.setVersion(VOLUMES, `${SCHEMA_VERSION}`);
    await s.clock.advance(10_000);
    await waitUntil(() => s.told.length > 2, "the end of the problem");
    assertEquals([s.definitions.outdated, s.told[2]], [undefined, undefined]);
    assertEquals(s.reads(), DEFINITIONS.length + 3, "only what was too old is read again");
  },
);

Deno.test("definitions that Helm manages are to be upgraded by Helm", async () => {
  await using s = harness();
  const annotations = { "meta.helm.sh/release-name": "lvm", "meta.helm.sh/release-namespace": "storage" };
  s.setVersion(VOLUMES, `${SCHEMA_VERSION - 1}`, annotations);
  await s.definitions.read();
  assertMatch(
    s.definitions.outdated!,
    /: helm upgrade lvm CHART --namespace storage --reset-then-reuse-values --set crds\.enabled=true$/,
  );
});

Deno.test("definitions that stay too old are read less and less often", async () => {
  await using s = harness({ [VOLUMES]: undefined });
  s.start();
  await waitUntil(() => s.told.length > 0, "what is too old");
  for (let reads = 1; reads < 10; reads++) {
    const { msUntilNextTimer } = s.clock;
    assertEquals(msUntilNextTimer, 0.75 * Math.min(10_000 * 2 ** (reads - 1), 120_000));
    await s.clock.advance(msUntilNextTimer);
    await waitUntil(() => s.reads() === DEFINITIONS.length + reads && s.clock.pendingTimers === 1, "a reading");
  }
});

Deno.test("the delays begin anew after definitions were current, however often they were read", async () => {
  await using s = harness();
  s.start();
  await waitUntil(() => s.reads() === DEFINITIONS.length, "the first reading");
  for (let ends = 1; ends <= 6; ends++) {
    s.definitions.onWatchEnd(lvmVolumes);
    await waitUntil(() => s.reads() === DEFINITIONS.length + ends, "a reading");
    await flushPromises();
  }
  s.api.faults.refuse = { status: 500, times: 1 };
  s.definitions.onWatchEnd(lvmVolumes);
  await waitUntil(() => s.clock.pendingTimers > 0 && s.api.faults.refuse.times === 0, "the failure");
  await waitUntil(() => s.clock.pendingTimers === 1, "the wait after it");
  assertEquals(s.clock.msUntilNextTimer, 7_500);
});

Deno.test("a definition is read again when a watch of its kind ends, as after a change of its schema", async () => {
  await using s = harness();
  s.start();
  const volumes = new Informer(s.client, lvmVolumes);
  const claims = new Informer(s.client, persistentVolumeClaims);
  const informers = [volumes, claims].map((informer) => informer.start(s.end.signal));
  await waitUntil(() => s.reads() === DEFINITIONS.length && s.api.watchCount === 2, "the watches");
  s.setVersion(VOLUMES, `${SCHEMA_VERSION - 1}`);
  s.api.endWatches();
  await waitUntil(() => s.told.length === 1, "what is too old");
  assertStringIncludes(s.told[0]!, VOLUMES);
  await assertRejects(() => s.definitions.requireFor(request(lvmVolumes, { spec: {} })), ApiError);
  s.setVersion(VOLUMES, `${SCHEMA_VERSION}`);
  await waitUntil(() => s.api.watchCount === 2, "the next watches");
  s.api.endWatches();
  await waitUntil(() => s.told.length === 2, "the end of the problem");
  assertEquals(s.told[1], undefined);
  assertEquals(s.reads(), DEFINITIONS.length + 2);
  s.end.abort();
  await Promise.all(informers);
});

Deno.test("with definitions that are too old, no volume and no snapshot is requested, and all else is written", async () => {
  await using s = harness({ [VOLUMES]: undefined });
  const { definitions } = s;
  for (const resource of [lvmVolumes, lvmSnapshots]) {
    for (const verb of ["create", "patch"]) {
      const asked = definitions.requireFor(request(resource, { metadata: {}, spec: {} }, verb));
      const refused = await assertRejects(() => asked, ApiError, `${verb} ${resource.plural} v: Custom`);
      assertEquals([refused.status, refused.reason, isTransient(refused)], [403, "DefinitionsOutdated", false]);
    }
  }
  await definitions.requireFor(request(lvmVolumes, { status: { state: "Ready" } }, "patch"));
  await definitions.requireFor(request(lvmVolumes, { metadata: { finalizers: [] } }, "patch"));
  await definitions.requireFor(request(lvmNodes, { metadata: {}, spec: {} }));
  const accepted = definitions.requireFor(request(lvmNodes, { spec: { acceptedDisks: [] } }, "patch"));
  await assertRejects(() => accepted, ApiError, "patch lvmnodes v: Custom");
  await definitions.requireFor(request(persistentVolumes, { metadata: {}, spec: {} }));
  await definitions.requireFor(request(clusterScoped("local.openebs.io/v1alpha1", "LVMVolume"), { spec: {} }));
});

Deno.test("before definitions were read, a request waits for that, and fails when the API server does not answer", async () => {
  await using s = harness({ [VOLUMES]: undefined });
  s.api.faults.refuse = { status: 500, times: DEFINITIONS.length };
  const ask = () => s.definitions.requireFor(request(lvmVolumes, { spec: {} }));
  assertEquals(isTransient(await assertRejects(ask, ApiError)), true);
  assertEquals((await assertRejects(ask, ApiError)).reason, "DefinitionsOutdated");
});

Deno.test("a request waits for definitions that are being read, at the start and again", async () => {
  await using s = harness({ [VOLUMES]: undefined });
  const ask = () => s.definitions.requireFor(request(lvmVolumes, { spec: {} }));
  s.start();
  assertEquals((await assertRejects(ask, ApiError)).reason, "DefinitionsOutdated");
  s.setVersion(VOLUMES, `${SCHEMA_VERSION}`);
  s.definitions.onWatchEnd(lvmVolumes);
  await ask();
});

Deno.test("definitions are read again after the API server did not answer", async () => {
  await using s = harness({ [VOLUMES]: undefined });
  s.api.faults.refuse = { status: 500, times: DEFINITIONS.length };
  s.start();
  await waitUntil(() => s.clock.pendingTimers > 0 && s.api.faults.refuse.times === 0, "the failure");
  await flushPromises();
  assertEquals(s.definitions.outdated, undefined);
  await s.clock.advance(10_000);
  await waitUntil(() => s.definitions.outdated !== undefined, "what is too old");
});

Deno.test("definitions that may not be read, as under older roles, or that are not there, refuse nothing", async () => {
  {
    await using s = harness({ [VOLUMES]: undefined });
    s.api.faults.forbidden.add("customresourcedefinitions");
    await s.definitions.requireFor(request(lvmVolumes, { spec: {} }));
  }
  await using s = harness();
  s.api.removeResource(customResourceDefinitions);
  await s.definitions.requireFor(request(lvmVolumes, { spec: {} }));
});

Deno.test("the API server is to refuse writes of records that it would drop a part of", () => {
  assertEquals(strictPath(lvmMoves, "/m/status"), "/m/status?fieldValidation=Strict");
  for (const resource of [lvmNodes, persistentVolumes]) assertEquals(strictPath(resource, "/p"), "/p");
});
