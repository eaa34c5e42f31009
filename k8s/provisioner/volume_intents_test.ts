import { assert, assertEquals, assertRejects } from "@std/assert";
import { parseVolumeParameters } from "../../csi/parameters.ts";
import { volumeIdOf } from "../../base/ids.ts";
import { FakeApiServer } from "../../tests/fake/cluster/api_server.ts";
import { settingsOf } from "../../lvm/settings/settings.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { type ClassParameters, parametersWith } from "../../tests/fake/settings.ts";
import { ApiError } from "../client/client.ts";
import { HttpClient } from "../client/http_client.ts";
import { Informer } from "../runtime/informer.ts";
import { type LvmVolume, lvmVolumes, type LvmVolumeStatus } from "../api/lvm_objects.ts";
import { CLAIM_ANNOTATION, PENDING_ANNOTATION } from "../api/lvm_objects.ts";
import { intentAnnotations, volumeIntents } from "./volume_intents.ts";
import { lvmVolumeFor, requireCompatible } from "../api/volume_mapping.ts";

const DRIVER = "lvm.denolith.dev";
const CLAIM = { namespace: "shop", name: "orders", uid: "u-1" };

/** The differences of a record from one of 1 GiB of ext4 that was begun on n1. */
interface RecordFixture {
  driver?: string;
  annotations?: Record<string, string>;
  status?: LvmVolumeStatus;
  raw?: boolean;
}

function record(
  name: string,
  { driver = DRIVER, annotations = intentAnnotations(CLAIM), status, raw }: RecordFixture = {},
) {
  const object = lvmVolumeFor(namedRequest(name, 1n << 30n, raw ? { format: { state: "raw" } } : {}), {
    driver,
    nodeName: "n1",
  });
  return { ...object, metadata: { ...object.metadata, annotations }, ...(status && { status }) };
}

async function harness(...objects: LvmVolume[]) {
  const api = FakeApiServer.start({ resources: [lvmVolumes] });
  for (const object of objects) api.put(lvmVolumes, object);
  const client = new HttpClient({ url: api.url }, { userAgent: "denolith/test" });
  const stop = new AbortController();
  const volumes = new Informer(client, lvmVolumes);
  const running = volumes.start(stop.signal);
  await volumes.synced;
  return {
    api,
    client,
    volumes,
    signal: stop.signal,
    intents: volumeIntents({ client, driver: DRIVER, topologyKey: "node", volumes }),
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await running;
      client[Symbol.dispose]();
      await api[Symbol.asyncDispose]();
    },
  };
}

Deno.test("intentAnnotations() returns the claim and its uid, and nothing for a volume without a claim", () => {
  assertEquals(intentAnnotations(CLAIM), { [CLAIM_ANNOTATION]: "shop/orders", [PENDING_ANNOTATION]: "u-1" });
  assertEquals(intentAnnotations(undefined), {});
});

Deno.test("volumeIntents(): a record binds size, use and node, by the name of the request", async () => {
  const createdStatus: LvmVolumeStatus = { state: "Ready", lvUUID: "x", size: "1028Mi" };
  await using s = await harness(record("begun"), record("made", { status: createdStatus, raw: true, annotations: {} }));
  const segments = [{ node: "n1" }];
  const spec = {
    parameters: {},
    mutableParameters: {},
    requiredBytes: 1n << 30n,
    capabilities: [
      { mode: "SINGLE_NODE_MULTI_WRITER", access: { kind: "mount", fsType: "ext4", flags: [] } } as const,
    ],
    topology: { requisite: segments, preferred: segments },
  };
  const pendingIntent = { requestName: "begun", volumeId: volumeIdOf("begun") as string, pending: true, spec };
  assertEquals(s.intents.find("begun"), pendingIntent);
  const found = s.intents.find("made");
  assertEquals([found?.pending, found?.spec.requiredBytes], [false, 1028n << 20n], "the size that it really has");
  assertEquals(found?.spec.capabilities?.[0]?.access, { kind: "block" });
  assertEquals(s.intents.find("other"), undefined);
});

Deno.test("volumeIntents() returns requests for the same kind of volume as recorded, for each kind", async () => {
  const kinds: ClassParameters[] = [
    {},
    { encryption: "luks2" },
    { encryption: "luks2", thinProvision: "yes" },
    ...[...settingsOf("thin"), ...settingsOf("layout")].flatMap(([name]) => parametersWith(name)),
    { layout: "striped", stripes: "4", stripeSize: "128Ki" },
    { layout: "raid6", stripes: "4", stripeSize: "4Ki" },
  ];
  const shapeOf = (parameters: ClassParameters) => {
    const { layout, thin, encryption } = parseVolumeParameters(parameters);
    const luks = { state: "wanted" } as const;
    const format = { state: "unformatted", type: "ext4", ...(encryption === "luks2" && { luks }) } as const;
    return { layout, format, ...(thin && { thin }) };
  };
  const requests = kinds.map((parameters) => namedRequest(JSON.stringify(parameters), 1n << 30n, shapeOf(parameters)));
  const objects = requests.map((request) => lvmVolumeFor(request, { driver: DRIVER, nodeName: "n1" }));
  await using s = await harness(...objects);
  for (const [index, request] of requests.entries()) {
    const { parameters = {} } = s.intents.find(request.name)!.spec;
    const shape = shapeOf(parameters);
    assertEquals(
      [shape.layout, shape.thin, shape.format],
      [request.layout, request.thin, request.format],
      request.name,
    );
    const repeated = namedRequest(request.name, 1n << 30n, shape);
    requireCompatible(objects[index]!, repeated, ["n1"]);
  }
});

Deno.test("volumeIntents(): what failed without a rest, is going, or is another driver's does not bind", async () => {
  const failed: LvmVolumeStatus = { state: "Failed" };
  await using s = await harness(
    record("failed", { status: failed }),
    record("lost", { status: { state: "Lost", lvUUID: "x" } }),
    record("leaving"),
    record("foreign", { driver: "other.example" }),
  );
  await s.client.delete(lvmVolumes, { name: volumeIdOf("leaving") });
  await s.volumes.waitFor(volumeIdOf("leaving"), (object) => object?.metadata.deletionTimestamp !== undefined);
  const found = ["failed", "lost", "leaving", "foreign"].filter((name) => s.intents.find(name) !== undefined);
  assertEquals(found, ["lost"], "there was an LV: no other is made");
});

Deno.test("volumeIntents() lists the pending records of the driver, for garbage collection", async () => {
  const odd = record("odd");
  await using s = await harness(
    record("begun"),
    record("also-begun", { status: { state: "Failed" } }),
    record("made", { annotations: {} }),
    record("foreign", { driver: "other.example" }),
    { ...odd, metadata: { ...odd.metadata, name: "by-hand" } },
  );
  const listed = () => s.intents.listPending().map(({ requestName, pending }) => `${requestName} ${pending}`).sort();
  assertEquals(listed(), ["also-begun true", "begun true"]);
  s.api.put(lvmVolumes, record("later"));
  await s.volumes.waitFor(volumeIdOf("later"), (object) => object !== undefined);
  await s.client.delete(lvmVolumes, { name: volumeIdOf("also-begun") });
  await s.volumes.waitFor(volumeIdOf("also-begun"), (object) => object?.metadata.deletionTimestamp !== undefined);
  await s.intents.clearPending("begun", { signal: s.signal });
  await s.volumes.waitFor(volumeIdOf("begun"), (object) => !object?.metadata.annotations?.[PENDING_ANNOTATION]);
  assertEquals(listed(), ["also-begun true", "later true"], "one that is being deleted is pending until it is gone");
});

Deno.test("volumeIntents(): listing the pending records does not go through all volumes", async () => {
  await using s = await harness(record("begun"), ...["a", "b", "c"].map((name) => record(name, { annotations: {} })));
  s.volumes.list = () => {
    throw new Error("all volumes are listed");
  };
  assertEquals(s.intents.listPending().map(({ requestName }) => requestName), ["begun"]);
});

Deno.test("volumeIntents(): handing over takes the mark off, once, and keeps the claim's name", async () => {
  await using s = await harness(record("begun"));
  const { signal } = s;
  await s.intents.clearPending("begun", { signal });
  assertEquals(s.api.objects(lvmVolumes)[0]!.metadata.annotations, { [CLAIM_ANNOTATION]: "shop/orders" });
  await s.volumes.waitFor(volumeIdOf("begun"), (object) => !object?.metadata.annotations?.[PENDING_ANNOTATION]);
  assertEquals(s.intents.find("begun")?.pending, false);
  const before = s.api.requests.length;
  await s.intents.clearPending("begun", { signal });
  await s.intents.clearPending("other", { signal });
  assertEquals(s.api.requests.length, before, "there is nothing to write");
});

Deno.test("volumeIntents(): handing over what has just gone is done; what the API server refuses is not", async () => {
  await using s = await harness(record("begun"), record("refused"));
  const { signal } = s;
  s.api.faults.refuse = { status: 404, times: 1 };
  await s.intents.clearPending("begun", { signal });
  s.api.faults.refuse = { status: 500, times: 1 };
  await assertRejects(() => s.intents.clearPending("refused", { signal }), ApiError);
  assert(s.intents.find("refused")?.pending, "it stays marked");
});

Deno.test("listPending() lists all records, also when one of them is of a newer version and cannot be read", async () => {
  const newer = record("pvc-newer");
  newer.spec.source = { image: "golden" } as object;
  await using s = await harness(record("pvc-1"), newer, record("pvc-2"));
  const names = s.intents.listPending().map(({ requestName }) => requestName);
  assertEquals(names.sort(), ["pvc-1", "pvc-2", "pvc-newer"]);
});
