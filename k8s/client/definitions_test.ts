import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { FakeClock, flushPromises } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { lvmNodes, lvmSnapshots, lvmVolumes } from "../api/lvm_objects.ts";
import { lvmMoves } from "../handover/moves.ts";
import { clusterScoped, persistentVolumes, type Resource } from "../api/objects.ts";
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

const VOLUMES = "lvmvolumes.lvm.denolith.dev";

/** A cluster whose definitions have the present version, but for some. @param versions those of others, by name */
function harness(versions: Readonly<Record<string, string | undefined>> = {}) {
  const api = FakeApiServer.start({ resources: [customResourceDefinitions, lvmVolumes] });
  for (const name of DEFINITIONS) {
    const version = name in versions ? versions[name] : `${SCHEMA_VERSION}`;
    api.put(customResourceDefinitions, {
      metadata: { name, annotations: version === undefined ? {} : { [SCHEMA_ANNOTATION]: version } },
    });
  }
  const client = new HttpClient({ url: api.url }, { userAgent: "denolith/test (node)" });
  const clock = new FakeClock();
  const definitions = new Definitions(client, clock);
  const end = new AbortController();
  let isOver = false;
  const running = () => void definitions.run(end.signal).then(() => isOver = true);
  return {
    ...{ api, client, clock, definitions, running },
    isOver: () => isOver,
    setVersion: (name: string, version: string) => {
      const merge = { metadata: { annotations: { [SCHEMA_ANNOTATION]: version } } };
      api.collection(customResourceDefinitions).patch(merge, { name, namespace: undefined });
    },
    [Symbol.asyncDispose]: async () => {
      end.abort();
      await flushPromises();
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
    s.running();
    await waitUntil(s.isOver, "the end");
    assertEquals(s.definitions.outdated, undefined);
    assertEquals(s.definitions.condition().status, "False");
    await s.definitions.requireFor(request(lvmVolumes, { spec: {} }));
    await s.clock.advance(3_600_000);
    assertEquals([s.api.requests.length, s.definitions.mended.aborted], [DEFINITIONS.length, false]);
  },
);

Deno.test.each([undefined, "", `${SCHEMA_VERSION - 1}`, "newest"])(
  "definitions of the version %j are too old until they have another one, and are read again until then",
  async (version: string | undefined) => {
    const nodes = "lvmnodes.lvm.denolith.dev";
    await using s = harness({ [VOLUMES]: version, [nodes]: version });
    s.running();
    await waitUntil(() => s.definitions.outdated !== undefined, "what is too old");
    const { outdated } = s.definitions;
    assertEquals(DEFINITIONS.filter((name) => outdated!.includes(name)), [nodes, VOLUMES]);
    assertStringIncludes(outdated!, "kubectl apply -f deploy/crds");
    assertEquals(s.definitions.condition().message, outdated);
    s.setVersion(nodes, `${SCHEMA_VERSION}`);
    await s.clock.advance(10_000);
    await waitUntil(() => s.definitions.outdated !== outdated, "what is still too old");
    assertEquals([s.definitions.outdated!.includes(nodes), s.definitions.outdated!.includes(VOLUMES)], [false, true]);
    assertEquals([s.isOver(), s.definitions.mended.aborted], [false, false]);
    s.setVersion(VOLUMES, `${SCHEMA_VERSION}`);
    await s.clock.advance(10_000);
    await waitUntil(s.isOver, "the end");
    assertEquals([s.definitions.outdated, s.definitions.mended.aborted], [undefined, true]);
  },
);

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

Deno.test("definitions are read again after the API server did not answer", async () => {
  await using s = harness({ [VOLUMES]: undefined });
  s.api.faults.refuse = { status: 500, times: DEFINITIONS.length };
  s.running();
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
