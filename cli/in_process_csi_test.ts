import { configure, type LogRecord, reset } from "@logtape/logtape";
import { assert, assertEquals, assertRejects } from "@std/assert";
import { type DescMessage, type MessageShape, toJson } from "@bufbuild/protobuf";
import { inProcessCsi } from "./in_process_csi.ts";
import {
  Controller,
  ControllerExpandVolumeRequestSchema,
  ControllerModifyVolumeRequestSchema,
  CreateSnapshotRequestSchema,
  CreateVolumeRequestSchema,
  DeleteSnapshotRequestSchema,
  DeleteVolumeRequestSchema,
  GetCapacityRequestSchema,
  Identity,
  ListSnapshotsRequestSchema,
} from "../csi/proto/csi_pb.ts";
import { connect } from "../tests/contract/helpers/csi_client.ts";
import {
  type ControllerHandlers,
  controllerHandlers,
  type ControllerVolumes,
  type CreateVolumeContext,
} from "../csi/controller.ts";
import { identityHandlers } from "../csi/identity.ts";
import { serve } from "../csi/server.ts";
import { bindService, type CompletedCall } from "../csi/service.ts";
import { TOPOLOGY_KEY } from "../csi/topology.ts";
import { CallError, type ClaimReference, Code, type CreateVolumeRequest } from "../k8s/sidecars/csi_client.ts";
import { StorageError } from "../base/error.ts";
import { volumeIdOf } from "../base/ids.ts";
import { Locks } from "../base/locks.ts";

import { currentRequestId } from "../base/request_id.ts";
import type { StoredVolume } from "../lvm/volume_service.ts";
import { volumeRequest } from "../tests/contract/helpers/host.ts";
import { waitUntil } from "../tests/fake/wait_until.ts";

const CLAIM: ClaimReference = { namespace: "shop", name: "orders", uid: "u-1" };

const REQUEST: CreateVolumeRequest = {
  name: "pvc-u-1",
  claim: CLAIM,
  parameters: { volumeGroup: "data" },
  mutableParameters: { iops: "100" },
  requiredBytes: 5n << 30n,
  capabilities: [
    { mode: "SINGLE_NODE_SINGLE_WRITER", access: { kind: "mount", fsType: "xfs", flags: ["noatime"] } },
    { mode: "SINGLE_NODE_MULTI_WRITER", access: { kind: "block" } },
  ],
  topology: { requisite: [{ node: "n1" }, { node: "n2" }], preferred: [{ node: "n2" }] },
  secrets: { key: "secret" },
};

function setUp(handlers: ControllerHandlers) {
  const answered: CompletedCall[] = [];
  const stop = new AbortController();
  const calls = inProcessCsi({ handlers, onCallCompleted: (call) => answered.push(call) });
  return { answered, stop, calls, options: { signal: stop.signal } };
}

/** Returns a handler that records its requests as JSON, and always returns the same answer. */
function recordRequests<D extends DescMessage, A>(schema: D, answer: A) {
  const requests: unknown[] = [];
  const handler = (request: MessageShape<D>) => {
    requests.push(toJson(schema, request));
    return Promise.resolve(answer);
  };
  return { requests, handler };
}

Deno.test("inProcessCsi(): a creation reaches the Controller service with all its fields, and the answer comes back", async () => {
  const volume = {
    volumeId: "v1-x",
    capacityBytes: 6n << 30n,
    volumeContext: { a: "b" },
    accessibleTopology: [{ segments: { node: "n2" } }],
  };
  const { requests, handler } = recordRequests(CreateVolumeRequestSchema, { volume });
  const { calls, answered, options } = setUp({ createVolume: handler });
  assertEquals(await calls.createVolume(REQUEST, options), {
    volumeId: "v1-x",
    capacityBytes: 6n << 30n,
    volumeContext: { a: "b" },
    topology: [{ node: "n2" }],
  });
  assertEquals(requests, [{
    name: "pvc-u-1",
    capacityRange: { requiredBytes: "5368709120" },
    volumeCapabilities: [
      { mount: { fsType: "xfs", mountFlags: ["noatime"] }, accessMode: { mode: "SINGLE_NODE_SINGLE_WRITER" } },
      { block: {}, accessMode: { mode: "SINGLE_NODE_MULTI_WRITER" } },
    ],
    parameters: { volumeGroup: "data" },
    secrets: { key: "secret" },
    accessibilityRequirements: {
      requisite: [{ segments: { node: "n1" } }, { segments: { node: "n2" } }],
      preferred: [{ segments: { node: "n2" } }],
    },
    mutableParameters: { iops: "100" },
  }]);
  assertEquals(answered.map(({ method, code }) => [method, code]), [["CreateVolume", 0]]);
});

Deno.test("inProcessCsi(): a creation names the snapshot or the volume that it copies", async () => {
  const { requests, handler } = recordRequests(CreateVolumeRequestSchema, {
    volume: { volumeId: "v1-x", capacityBytes: 1n },
  });
  const { calls, options } = setUp({ createVolume: handler });
  await calls.createVolume({ ...REQUEST, source: { kind: "snapshot", handle: "v1-s" } }, options);
  await calls.createVolume({ ...REQUEST, source: { kind: "volume", handle: "v1-v" } }, options);
  assertEquals(requests.map((request) => (request as { volumeContentSource: unknown }).volumeContentSource), [
    { snapshot: { snapshotId: "v1-s" } },
    { volume: { volumeId: "v1-v" } },
  ]);
});

Deno.test("inProcessCsi(): deletes and expands volumes", async () => {
  const deletion = recordRequests(DeleteVolumeRequestSchema, {});
  const expansion = recordRequests(ControllerExpandVolumeRequestSchema, {
    capacityBytes: 8n << 30n,
    nodeExpansionRequired: true,
  });
  const { calls, answered, options } = setUp({
    deleteVolume: deletion.handler,
    controllerExpandVolume: expansion.handler,
  });
  await calls.deleteVolume({ volumeId: "v1-x", secrets: { key: "d" } }, options);
  assertEquals(deletion.requests, [{ volumeId: "v1-x", secrets: { key: "d" } }]);
  const wanted = {
    volumeId: "v1-x",
    requiredBytes: 7n << 30n,
    capability: REQUEST.capabilities[0]!,
    secrets: { key: "e" },
  };
  assertEquals(await calls.expandVolume(wanted, options), { capacityBytes: 8n << 30n, nodeExpansionRequired: true });
  assertEquals(expansion.requests, [{
    volumeId: "v1-x",
    capacityRange: { requiredBytes: "7516192768" },
    secrets: { key: "e" },
    volumeCapability: {
      mount: { fsType: "xfs", mountFlags: ["noatime"] },
      accessMode: { mode: "SINGLE_NODE_SINGLE_WRITER" },
    },
  }]);
  assertEquals(answered.map(({ method }) => method), ["DeleteVolume", "ControllerExpandVolume"]);
});

Deno.test("inProcessCsi(): a change of attributes reaches it with its parameters", async () => {
  const { requests, handler } = recordRequests(ControllerModifyVolumeRequestSchema, {});
  const { calls, answered, options } = setUp({ controllerModifyVolume: handler });
  const wanted = { volumeId: "v1-x", mutableParameters: { readIops: "100" }, secrets: { key: "m" } };
  await calls.modifyVolume(wanted, options);
  assertEquals(requests, [wanted]);
  assertEquals(answered.map(({ method }) => method), ["ControllerModifyVolume"]);
});

Deno.test("inProcessCsi(): so do calls for snapshots", async () => {
  const creationTime = { seconds: 1_700_000_000n, nanos: 123_456_789 };
  const snapshot = { snapshotId: "v1-s", sourceVolumeId: "v1-x", creationTime, sizeBytes: 1n << 30n, readyToUse: true };
  const taken = {
    snapshotId: "v1-s",
    creationTimeNs: 1_700_000_000_123_456_789n,
    sizeBytes: 1n << 30n,
    readyToUse: true,
  };
  const creation = recordRequests(CreateSnapshotRequestSchema, { snapshot });
  const deletion = recordRequests(DeleteSnapshotRequestSchema, {});
  const list = recordRequests(ListSnapshotsRequestSchema, { entries: [{ snapshot }] });
  const { calls, answered, options } = setUp({
    createSnapshot: creation.handler,
    deleteSnapshot: deletion.handler,
    listSnapshots: list.handler,
  });
  const request = { name: "snapshot-u-1", parameters: { snapSize: "10%" }, secrets: { key: "c" } };
  assertEquals(await calls.createSnapshot({ ...request, volumeId: "v1-x" }, options), taken);
  assertEquals(creation.requests, [{ ...request, sourceVolumeId: "v1-x" }]);
  await calls.deleteSnapshot({ snapshotId: "v1-s", secrets: { key: "d" } }, options);
  assertEquals(deletion.requests, [{ snapshotId: "v1-s", secrets: { key: "d" } }]);
  assertEquals(await calls.findSnapshot({ snapshotId: "v1-s", secrets: { key: "l" } }, options), taken);
  assertEquals(list.requests, [{ snapshotId: "v1-s", secrets: { key: "l" } }]);
  assertEquals(answered.map(({ method }) => method), ["CreateSnapshot", "DeleteSnapshot", "ListSnapshots"]);
});

Deno.test("inProcessCsi(): a snapshot that is not listed does not exist, and fields that are not set are unknown", async () => {
  const { calls, options } = setUp({
    createSnapshot: () => Promise.resolve({ snapshot: { snapshotId: "v1-s" } }),
    listSnapshots: () => Promise.resolve({}),
  });
  const request = { name: "snapshot-u-1", volumeId: "v1-x", parameters: {}, secrets: {} };
  const unknown = { snapshotId: "v1-s", creationTimeNs: 0n, sizeBytes: 0n, readyToUse: false };
  assertEquals(await calls.createSnapshot(request, options), unknown);
  assertEquals(await calls.findSnapshot({ snapshotId: "v1-s", secrets: {} }, options), undefined);
});

Deno.test("inProcessCsi(): reads the capacity of a node for a class and its filesystem", async () => {
  const { requests, handler } = recordRequests(GetCapacityRequestSchema, {
    availableCapacity: 9n << 30n,
    maximumVolumeSize: 5n << 30n,
    minimumVolumeSize: 4n << 20n,
  });
  const { calls, answered, options } = setUp({ getCapacity: handler });
  const request = { parameters: { volumeGroup: "data" }, fsType: "xfs", topology: { node: "n1" } };
  assertEquals(await calls.getCapacity(request, options), {
    available: 9n << 30n,
    largest: 5n << 30n,
    smallest: 4n << 20n,
  });
  assertEquals(requests, [{
    parameters: { volumeGroup: "data" },
    volumeCapabilities: [{ mount: { fsType: "xfs" }, accessMode: { mode: "SINGLE_NODE_MULTI_WRITER" } }],
    accessibleTopology: { segments: { node: "n1" } },
  }]);
  assertEquals(answered.map(({ method, code }) => [method, code]), [["GetCapacity", 0]]);
  const full = setUp({ getCapacity: () => Promise.resolve({ availableCapacity: 0n }) });
  assertEquals(await full.calls.getCapacity(request, full.options), { available: 0n, largest: 0n, smallest: 0n });
});

Deno.test("inProcessCsi(): failures keep the code that a caller on the socket would see", async () => {
  const cases: [unknown, number][] = [
    [new StorageError("NoSpace", "no free space"), Code.ResourceExhausted],
    [new StorageError("Busy", "no free space"), Code.Aborted],
    [new StorageError("InUse", "no free space"), Code.FailedPrecondition],
    [new TypeError("no free space"), Code.Internal],
  ];
  for (const [failure, code] of cases) {
    const { calls, answered, options } = setUp({ createVolume: () => Promise.reject(failure) });
    const error = await assertRejects(() => calls.createVolume(REQUEST, options), CallError, "no free space");
    assertEquals([error.code, answered[0]?.code], [code, code]);
  }
});

/** Returns a Controller service over volumes whose creation waits. It records the claim of each call. */
function waitingCreations() {
  const claims: CreateVolumeContext["claim"][] = [];
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const create = async ({ name }: { name: string }, _: unknown, context?: CreateVolumeContext) => {
    await released;
    claims.push(context?.claim);
    const volume: StoredVolume = { id: volumeIdOf(name), size: 5n << 30n, content: "xfs", nodeId: "n1" };
    return volume;
  };
  const volumes = { create } as unknown as ControllerVolumes;
  return { claims, release, handlers: controllerHandlers({ volumes, locks: new Locks() }) };
}

const ON_N1 = { ...REQUEST, capabilities: REQUEST.capabilities.slice(0, 1), parameters: {}, mutableParameters: {} };
const CREATION: CreateVolumeRequest = { ...ON_N1, topology: { requisite: [{ [TOPOLOGY_KEY]: "n1" }], preferred: [] } };

Deno.test("inProcessCsi(): a creation names its claim, also when a second one of the same name ends first", async () => {
  const { claims, release, handlers } = waitingCreations();
  const { calls, options } = setUp(handlers);
  const first = calls.createVolume(CREATION, options);
  const error = await assertRejects(() => calls.createVolume(CREATION, options), CallError);
  assertEquals([error.code, claims.length], [Code.Aborted, 0]);
  release();
  assertEquals((await first).volumeId, volumeIdOf(CREATION.name));
  assertEquals(claims, [CLAIM]);
});

Deno.test("inProcessCsi(): a request on the socket names no claim, whatever its parameters say", async () => {
  const { claims, release, handlers } = waitingCreations();
  release();
  const folder = await Deno.makeTempDir();
  const identity = identityHandlers({ driver: "d", version: "1", ready: () => Promise.resolve(true) });
  const services = [bindService(Identity, identity), bindService(Controller, handlers)];
  const server = await serve(`${folder}/csi.sock`, services);
  {
    using csi = connect(`${folder}/csi.sock`);
    const claimKeys = { "csi.storage.k8s.io/pvc/name": "orders", "csi.storage.k8s.io/pvc/namespace": "shop" };
    await csi.controller.createVolume({ ...volumeRequest(), parameters: claimKeys });
  }
  assertEquals(claims, [undefined]);
  await server.close(1_000);
  await Deno.remove(folder, { recursive: true });
});

Deno.test("inProcessCsi(): an aborted signal ends the waiting, while the call continues", async () => {
  const { claims, release, handlers } = waitingCreations();
  const { calls, answered, stop, options } = setUp(handlers);
  const call = calls.createVolume(CREATION, options);
  stop.abort();
  const error = await assertRejects(() => call, CallError, "the call goes on");
  assertEquals([error.code, answered.map(({ code }) => code)], [Code.Canceled, [Code.Canceled]]);
  release();
  await waitUntil(() => claims.length > 0, "the claim");
  assertEquals([claims, answered.length], [[CLAIM], 1], "its end is not reported twice");
});

Deno.test("inProcessCsi(): calls leave no listener on a signal that is used for long", async () => {
  const { calls, stop, options } = setUp({ deleteVolume: () => Promise.resolve({}) });
  let listeners = 0;
  const { signal } = stop;
  const [add, remove] = [signal.addEventListener, signal.removeEventListener].map((one) => one.bind(signal)) as [
    typeof signal.addEventListener,
    typeof signal.removeEventListener,
  ];
  signal.addEventListener = (...args: Parameters<typeof add>) => (listeners++, add(...args));
  signal.removeEventListener = (...args: Parameters<typeof remove>) => (listeners--, remove(...args));
  for (const volumeId of ["v1-x", "v1-y"]) await calls.deleteVolume({ volumeId, secrets: {} }, options);
  assertEquals(listeners, 0);
});

Deno.test("inProcessCsi(): logs a call in one line with its id, which the handler can read, and without secrets", async () => {
  const records: LogRecord[] = [];
  await configure({
    reset: true,
    sinks: { memory: (record) => void records.push(record) },
    loggers: [
      { category: ["denolith"], sinks: ["memory"], lowestLevel: "info" },
      { category: ["logtape", "meta"], sinks: [], lowestLevel: "error" },
    ],
  });
  const ids: (string | undefined)[] = [];
  const { calls, options } = setUp({
    createVolume: () => {
      ids.push(currentRequestId());
      return Promise.resolve({ volume: { volumeId: "v", capacityBytes: 1n } });
    },
    deleteVolume: () => {
      ids.push(currentRequestId());
      return Promise.reject(new StorageError("InUse", "deleting volume v: it is mounted"));
    },
  });
  await calls.createVolume(REQUEST, options);
  await assertRejects(() => calls.deleteVolume({ volumeId: "v", secrets: { key: "secret" } }, options), CallError);
  await reset();
  assertEquals(
    records.map(({ level, rawMessage, properties: { requestId, method, code } }) => [
      level,
      rawMessage,
      requestId,
      method,
      code,
    ]),
    [["info", "response", ids[0], "CreateVolume", undefined], ["warning", "error", ids[1], "DeleteVolume", 9]],
  );
  assertEquals(new Set(ids).size, 2);
  assert(!JSON.stringify(records.map(({ properties }) => properties)).includes('"secret"'), "a secret was logged");
});
