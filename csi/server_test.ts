import type { ServiceError } from "@grpc/grpc-js";
import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { withinDeadline } from "../base/clock.ts";
import { StorageError } from "../base/error.ts";
import { fakeHost } from "../tests/contract/helpers/fake_host.ts";
import { assertFails, failureStatus, Harness, mountCapability, volumeRequest } from "../tests/contract/helpers/host.ts";
import { FakeMachine } from "../tests/fake/machine/machine.ts";
import { callAndBreak } from "../tests/fuzz/http2.ts";
import { callOverFetch, connect } from "../tests/contract/helpers/csi_client.ts";
import { newSocketPath, socketPath } from "./driver_options.ts";
import { randomRuns } from "../tests/rig/sample.ts";
import { listen } from "./grpc.ts";
import { Controller, Identity } from "./proto/csi_pb.ts";
import { serve } from "./server.ts";
import { bindService } from "./service.ts";
import { waitUntil } from "../tests/fake/wait_until.ts";

async function bench(): Promise<{ bench: Harness; machine: FakeMachine } & AsyncDisposable> {
  const { exec } = await fakeHost.setUp();
  const bench = await Harness.start(exec, fakeHost.groups);
  return {
    bench,
    machine: exec as FakeMachine,
    [Symbol.asyncDispose]: () => bench[Symbol.asyncDispose](),
  };
}

/** Holds lvcreate back until the gate is opened, and resolves `reached` when it is called. */
function blockLvcreate(machine: FakeMachine) {
  const gate = Promise.withResolvers<undefined>();
  const reached = Promise.withResolvers<void>();
  machine.fault = ({ args }) => {
    if (args[0] !== "lvcreate") return undefined;
    reached.resolve();
    return gate.promise;
  };
  return { gate, reached };
}

async function isListening(path: string): Promise<boolean> {
  try {
    (await Deno.connect({ transport: "unix", path })).close();
    return true;
  } catch {
    return false;
  }
}

/** Leaves a socket that nobody listens on. */
async function leaveSocket(path: string): Promise<void> {
  using _listener = Deno.listen({ transport: "unix", path: `${path}.open` });
  await Deno.link(`${path}.open`, path);
}

function exists(path: string): boolean {
  try {
    return Deno.statSync(path) !== undefined;
  } catch {
    return false;
  }
}

Deno.test("the server survives clients that make 500 calls each and close", async () => {
  // grpc-js on Unix sockets of node:net crashes here with SIGABRT
  await using here = await bench();
  const path = `${here.bench.folder}/csi.sock`;
  for (let client = 0; client < randomRuns(5, 20); client++) {
    using csi = connect(path);
    for (let batch = 0; batch < 10; batch++) {
      await Promise.all(Array.from({ length: 50 }, () => csi.identity.getPluginInfo()));
    }
  }
  assertEquals((await here.bench.csi.identity.getPluginInfo()).name, "test.denolith.dev");
});

Deno.test("the server survives calls whose clients break the connection before the answer", async () => {
  await using here = await bench();
  await callAndBreak(`${here.bench.folder}/csi.sock`);
  assertEquals((await here.bench.csi.identity.getPluginInfo()).name, "test.denolith.dev");
});

Deno.test("Identity returns the name, the capabilities, and whether LVM answers", async () => {
  await using here = await bench();
  const { identity, controller, group, node } = here.bench.csi;
  assertEquals((await identity.probe()).ready, true);
  assertEquals((await identity.getPluginCapabilities()).capabilities.length, 6);
  assertEquals((await group.groupControllerGetCapabilities()).capabilities.length, 1);
  assertEquals((await controller.controllerGetCapabilities()).capabilities.length, 13);
  assertEquals((await node.nodeGetCapabilities()).capabilities.length, 6);
  const info = await node.nodeGetInfo();
  assertEquals([info.nodeId, info.accessibleTopology?.segments], ["node-1", {
    "topology.lvm.denolith.dev/node": "node-1",
  }]);
});

Deno.test("a machine whose lvm fails is not ready, and every call says what lvm said", async () => {
  const machine = new FakeMachine();
  machine.fault = ({ program }) => program === "lvm" ? { code: 5, stdout: "", stderr: "  lvm is broken\n" } : undefined;
  await using here = await Harness.start(machine, fakeHost.groups);
  assertEquals((await here.csi.identity.probe()).ready, false);
  await assertFails("INTERNAL", here.create(), "lvm is broken");
  await assertFails("INTERNAL", here.csi.controller.deleteVolume({ volumeId: "v1-00000000000000000000000000000000" }));
});

Deno.test("an error whose message would be cut within a character is answered, and the driver goes on", async () => {
  await using here = await bench();
  const stderr = "x".repeat(999) + "💾".repeat(10);
  here.machine.fault = ({ args }) => args[0] === "lvcreate" ? { code: 5, stdout: "", stderr } : undefined;
  await assertFails("INTERNAL", here.bench.create(), "xxx…");
  assert((await here.bench.csi.identity.probe()).ready);
});

Deno.test("a text of the request is quoted in the message at most in part", async () => {
  await using here = await bench();
  const long = "é".repeat(100_000);
  const { controller } = here.bench.csi;
  const volumeCapabilities = [mountCapability("ext4", [long])];
  const messages = await Promise.all([
    failureStatus(controller.listVolumes({ startingToken: long })),
    failureStatus(controller.createVolume({ ...volumeRequest(), volumeCapabilities })),
    failureStatus(controller.createVolume({ ...volumeRequest(), parameters: { [long]: long } })),
  ]);
  assertEquals(messages.map(({ code }) => code), ["ABORTED", "INVALID_ARGUMENT", "INVALID_ARGUMENT"]);
  for (const { details } of messages) assert(details.length < 500, `${details.length} characters`);
});

Deno.test("a failure has its reason in the message and in the details", async () => {
  await using here = await bench();
  const request = { ...volumeRequest(), parameters: { volumeGroup: "none", [`x${"é".repeat(20)}`]: "" } };
  const wrong = await assertRejects(() => here.bench.csi.controller.createVolume(request));
  const { details, metadata } = wrong as ServiceError;
  assertMatch(details, / \[WrongParameter\]$/);
  const [bytes] = metadata.get("grpc-status-details-bin");
  assertStringIncludes(new TextDecoder().decode(bytes as Uint8Array), "google.rpc.ErrorInfo");
  assertStringIncludes(new TextDecoder().decode(bytes as Uint8Array), details);
});

Deno.test("calls that the driver does not have are UNIMPLEMENTED", async () => {
  await using here = await bench();
  const { controller } = here.bench.csi;
  await assertFails("UNIMPLEMENTED", controller.controllerUnpublishVolume(), "ControllerUnpublishVolume");
  await assertFails("UNIMPLEMENTED", controller.controllerPublishVolume());
});

Deno.test("a second operation on a volume is ABORTED at once, and the first one ends well", async () => {
  await using here = await bench();
  const { gate, reached } = blockLvcreate(here.machine);
  const request = volumeRequest();
  const first = here.bench.create(request);
  await reached.promise;
  await assertFails("ABORTED", here.bench.create(request), "creation");
  gate.resolve(undefined);
  const volumeId = await first;
  assertEquals(await here.bench.create(request), volumeId);
});

Deno.test("stopping lets a call under way end, takes no further ones, and leaves no socket", async () => {
  await using here = await bench();
  const { gate, reached } = blockLvcreate(here.machine);
  const first = callOverFetch(`${here.bench.folder}/csi.sock`, Controller.method.createVolume, volumeRequest());
  await reached.promise;
  using client = connect(`${here.bench.folder}/csi.sock`);
  await client.identity.probe(); // its connection stays open
  const stopped = here.bench.stop();
  await waitUntil(async () => !await isListening(`${here.bench.folder}/csi.sock`), "the end of the socket");
  await assertFails("UNAVAILABLE", client.identity.probe(), "the driver is stopping");
  gate.resolve(undefined);
  assert((await first).volume !== undefined);
  await stopped;
  assert(!exists(`${here.bench.folder}/csi.sock`));
});

Deno.test("a volume that is filled from another one is being created until then: a second request is aborted at once", async () => {
  await using here = await bench();
  const { controller } = here.bench.csi;
  const volumeId = await here.bench.create();
  const gate = Promise.withResolvers<undefined>();
  const reached = Promise.withResolvers<void>();
  here.machine.fault = ({ program, mutates }) => {
    if (program !== "dd" || !mutates) return undefined;
    reached.resolve();
    return gate.promise;
  };
  const source = { type: { case: "volume", value: { volumeId } } } as const;
  const request = { ...volumeRequest(), name: "copy", volumeContentSource: source };
  const first = controller.createVolume(request);
  await reached.promise;
  await assertFails("ABORTED", controller.createVolume(request), "creation");
  here.machine.fault = undefined;
  gate.resolve(undefined);
  assert((await first).volume !== undefined);
});

Deno.test("a driver that stops late leaves the socket of its successor", async () => {
  await using here = await bench();
  const { folder } = here.bench;
  const path = `${folder}/csi.sock`;
  const { gate, reached } = blockLvcreate(here.machine);
  const last = callOverFetch(path, Controller.method.createVolume, volumeRequest());
  await reached.promise;
  const stopped = here.bench.stop();
  await waitUntil(async () => !await isListening(path), "the end of the socket");
  const successor = await Harness.serve(here.machine, fakeHost.groups, folder);
  gate.resolve(undefined);
  await last;
  await stopped;
  assert(await isListening(path));
  await successor.stop(1000);
  assert(!exists(path));
});

Deno.test("a socket that a crash left is replaced, but not one on which a process answers", async () => {
  await using here = await bench();
  const { folder } = here.bench;
  const serveAgain = () => Harness.serve(here.machine, fakeHost.groups, folder);
  assertEquals((await assertRejects(serveAgain, StorageError, "another process answers")).kind, "FailedPrecondition");
  await here.bench.csi.identity.getPluginInfo();

  const stale = `${folder}/stale.sock`;
  await leaveSocket(stale);
  await leaveSocket(newSocketPath(stale));
  const driver = await Harness.serve(here.machine, fakeHost.groups, folder, { socket: "stale.sock" });
  assertEquals((await Deno.stat(stale)).mode! & 0o777, 0o600);
  await driver.stop(1000);
  assert(!exists(stale));
});

Deno.test("a file at the path of the socket, or where it is made, is not removed", async () => {
  await using here = await bench();
  const { folder } = here.bench;
  for (const path of [`${folder}/file.sock`, newSocketPath(`${folder}/file.sock`)]) {
    const fails = async () => {
      const start = () => Harness.serve(here.machine, fakeHost.groups, folder, { socket: "file.sock" });
      assertStringIncludes((await assertRejects(start, StorageError)).message, "no socket");
    };
    await Deno.writeTextFile(path, "data");
    await fails();
    assertEquals(await Deno.readTextFile(path), "data");
    await Deno.remove(path);
    await Deno.mkdir(path);
    await fails();
    await Deno.remove(path);
  }
});

Deno.test("of drivers that start at once on the same path, one serves", async () => {
  await using here = await bench();
  const { machine, bench: { folder } } = here;
  for (let round = 0; round < 10; round++) {
    const socket = `both-${round}.sock`;
    const starts = Array.from({ length: 4 }, () => Harness.serve(machine, fakeHost.groups, folder, { socket }));
    const drivers = (await Promise.allSettled(starts)).filter((start) => start.status === "fulfilled");
    assertEquals(drivers.length, 1);
    assert(await isListening(`${folder}/${socket}`));
    await drivers[0]!.value.stop(1000);
  }
});

Deno.test("a call with a long path is answered", async () => {
  await using here = await bench();
  using client = Deno.createHttpClient({
    proxy: { transport: "unix", path: `${here.bench.folder}/csi.sock` },
    ...{ http1: false, http2: true },
  });
  const headers = { "content-type": "application/grpc" };
  const answer = await fetch(`http://localhost/${"x".repeat(12_000)}`, { client, method: "POST", headers });
  await answer.bytes();
  assertEquals(answer.headers.get("grpc-status"), "12");
});

Deno.test("socketPath() takes what CSI_ENDPOINT may be, and refuses the rest", async () => {
  assertEquals(["unix:///a/b.sock", "unix:/a/b.sock", "/a/b.sock"].map((endpoint) => socketPath(endpoint)), [
    "/a/b.sock",
    "/a/b.sock",
    "/a/b.sock",
  ]);
  for (
    const bad of [
      "",
      "tcp://1.2.3.4:5",
      "unix://a.sock",
      "a.sock",
      "/a/b",
      "/a.sock",
      "/../a.sock",
      `/${"a".repeat(110)}.sock`,
    ]
  ) {
    await assertRejects(() => Promise.resolve().then(() => socketPath(bad)), StorageError);
  }
});

Deno.test("the server answers calls and failures", async () => {
  const folder = await Deno.makeTempDir();
  const service = bindService(Identity, {
    getPluginInfo: () => Promise.resolve({ name: "a".repeat(100_000) }),
    getPluginCapabilities: () => Promise.resolve({}),
    // as long as a message can be: it is sent in headers, whose size is limited, and again in the details
    probe: () => Promise.reject(new StorageError("FailedPrecondition", `not ready – no LVM${"–".repeat(5_000)}`)),
  });
  const server = await serve(`${folder}/csi.sock`, [service], { firstCalls: [] });
  try {
    using client = connect(server.path);
    for (let n = 0; n < 3; n++) assertEquals((await client.identity.getPluginInfo()).name.length, 100_000);
    await assertFails("FAILED_PRECONDITION", client.identity.probe(), "not ready – no LVM");
    await assertFails("UNIMPLEMENTED", client.controller.getCapacity(), "does not implement the method");
  } finally {
    await server.close(1_000);
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("the server ends the connections that it has accepted while it stops", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/csi.sock`;
  for (const end of ["shutdown", "abort"] as const) {
    const listener = await listen(path, new Map());
    const connections = await Promise.all(Array.from({ length: 5 }, () => Deno.connect({ transport: "unix", path })));
    await listener[end]();
    for (const connection of connections) {
      const ended = (async () => {
        while (await connection.read(new Uint8Array(100)).catch(() => null) !== null);
        return "ended";
      })();
      assertEquals(await withinDeadline(ended, 2_000), "ended", end);
      connection.close();
    }
  }
  await Deno.remove(folder, { recursive: true });
});

Deno.test("the server leaves a socket that is opened at its path when it has ended", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/csi.sock`;
  for (const end of ["shutdown", "abort"] as const) {
    const listener = await listen(path, new Map());
    await new Promise((resolve) => setTimeout(resolve)); // it waits for connections
    await listener[end]();
    try {
      Deno.removeSync(path); // at once, when Deno has not removed it
    } catch {
      // it has
    }
    using _next = Deno.listen({ transport: "unix", path });
    await new Promise((resolve) => setTimeout(resolve, 10));
    assert((await Deno.lstat(path)).isSocket, end);
  }
  await Deno.remove(folder, { recursive: true });
});
