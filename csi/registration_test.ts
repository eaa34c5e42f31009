import { assert, assertEquals } from "@std/assert";
import { assertSpyCallArgs, assertSpyCalls, spy, stub } from "@std/testing/mock";
import { connectToService } from "../tests/contract/helpers/csi_client.ts";
import { FakeClock } from "../tests/fake/clock.ts";
import { waitUntil } from "../tests/fake/cluster/control_plane.ts";
import { encodeFrames, frame, grpcMessage, headerBlock, PREFACE } from "../tests/fuzz/http2.ts";
import { serveRegistration } from "./registration.ts";
import { Registration } from "./proto/registration_pb.ts";

Deno.test("kubelet reads the name and the socket of the driver, and the registration status that it sends is reported", async () => {
  const folder = await Deno.makeTempDir();
  const onStatus = spy((_error: string | undefined) => {});
  const path = `${folder}/lvm.denolith.dev-reg.sock`;
  const server = await serveRegistration(path, {
    driver: "lvm.denolith.dev",
    endpoint: "/kubelet/plugins/lvm.denolith.dev/csi.sock",
    onStatus,
  });
  try {
    using kubelet = connectToService(path, Registration, encodeURIComponent(path)); // as kubelet does
    const { type, name, endpoint, supportedVersions } = await kubelet.calls.getInfo();
    assertEquals(
      [type, name, endpoint, supportedVersions],
      ["CSIPlugin", "lvm.denolith.dev", "/kubelet/plugins/lvm.denolith.dev/csi.sock", ["1.0.0"]],
    );
    await kubelet.calls.notifyRegistrationStatus({ pluginRegistered: false, error: "no such node" });
    await kubelet.calls.notifyRegistrationStatus({ pluginRegistered: true });
    assertSpyCalls(onStatus, 2);
    assertSpyCallArgs(onStatus, 0, ["no such node"]);
    assertSpyCallArgs(onStatus, 1, [undefined]);
    assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
  } finally {
    await server.close(1_000);
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("a driver that kubelet has rejected shows it another socket, later and later, until it is registered", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/reg.sock`;
  const clock = new FakeClock();
  const socket = () => {
    try {
      return String(Deno.lstatSync(path).ino);
    } catch {
      return "none";
    }
  };
  const notify = async (status: { pluginRegistered: boolean; error?: string }) => {
    using kubelet = connectToService(path, Registration);
    assertEquals((await kubelet.calls.getInfo()).name, "lvm.denolith.dev");
    await kubelet.calls.notifyRegistrationStatus(status);
  };
  const server = await serveRegistration(path, { driver: "lvm.denolith.dev", endpoint: "/csi.sock", clock });
  try {
    const waits: number[] = [];
    for (let rejections = 0; rejections < 8; rejections++) {
      const before = socket();
      await Deno.link(path, `${folder}/${rejections}`); // so that no other socket gets its inode
      await notify({ pluginRegistered: false, error: "the API server is away" });
      waits.push(clock.msUntilNextTimer);
      await clock.advance(clock.msUntilNextTimer);
      await waitUntil(() => !["none", before].includes(socket()), "another socket");
    }
    assertEquals(waits, [1_500, 3_000, 6_000, 12_000, 24_000, 48_000, 90_000, 90_000]);
    await notify({ pluginRegistered: false });
    await notify({ pluginRegistered: true }); // of itself, as kubelet also does
    assertEquals(clock.pendingTimers, 0);
    await notify({ pluginRegistered: false });
    assertEquals(clock.msUntilNextTimer, 1_500);
  } finally {
    await server.close(1_000);
    assertEquals([clock.pendingTimers, socket()], [0, "none"]);
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("the driver takes connections again after it could not take one, since it had too many files open", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/reg.sock`;
  const { listen } = Deno;
  let accepts = 0;
  using _listen = stub(
    Deno,
    "listen",
    ((options: Deno.UnixListenOptions & { transport: "unix" }) => {
      const listener = listen(options);
      const accept = listener.accept.bind(listener);
      const refuse = () => Promise.reject(new Error("Too many open files (os error 24)"));
      // not for the listener of the test's own client
      return options.transport === "unix"
        ? Object.assign(listener, { accept: () => ++accepts === 2 ? refuse() : accept() })
        : listener;
    }) as typeof Deno.listen,
  );
  const server = await serveRegistration(path, { driver: "lvm.denolith.dev", endpoint: "/csi.sock" });
  try {
    using kubelet = connectToService(path, Registration);
    assertEquals((await kubelet.calls.getInfo()).name, "lvm.denolith.dev");
    assert(accepts > 2);
  } finally {
    await server.close(1_000);
    await Deno.remove(folder, { recursive: true });
  }
});

const GET_INFO = headerBlock("/pluginregistration.Registration/GetInfo").toBase64();

/** What clients send that never end a call. */
const BEGINNINGS: Readonly<Record<string, Uint8Array>> = {
  nothing: new Uint8Array(),
  "half a preface": new TextEncoder().encode(PREFACE.slice(0, 10)),
  "another protocol": new TextEncoder().encode("GET / HTTP/1.1\r\n\r\n"),
  "a preface": Uint8Array.of(...new TextEncoder().encode(PREFACE), ...encodeFrames([frame("SETTINGS")])),
  "half a call": Uint8Array.of(
    ...new TextEncoder().encode(PREFACE),
    ...encodeFrames([frame("SETTINGS"), frame("HEADERS", { flags: 4, stream: -1, payload: GET_INFO })]),
  ),
};

/** Reads until the other side ends the connection. */
async function readToEnd(connection: Deno.Conn): Promise<void> {
  while (await connection.read(new Uint8Array(1_000)).catch(() => null) !== null);
}

Deno.test("the connections of clients that say no more are ended, and so are all that are idle when the driver stops", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/reg.sock`;
  const server = await serveRegistration(path, { driver: "lvm.denolith.dev", endpoint: "/csi.sock" });
  try {
    for (const bytes of Object.values(BEGINNINGS)) {
      using connection = await Deno.connect({ transport: "unix", path });
      if (bytes.length > 0) await connection.write(bytes);
      await connection.closeWrite();
      await readToEnd(connection);
    }
    using idle = await Deno.connect({ transport: "unix", path });
    await idle.write(BEGINNINGS["a preface"]!);
    await idle.read(new Uint8Array(1_000));
    const ended = readToEnd(idle);
    await server.close(1_000);
    await ended;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("kubelet may cancel a call before it is answered", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/reg.sock`;
  const server = await serveRegistration(path, { driver: "lvm.denolith.dev", endpoint: "/csi.sock" });
  try {
    const message = frame("DATA", { flags: 1, stream: 1, payload: grpcMessage(new Uint8Array()).toBase64() });
    const cancel = frame("RST_STREAM", { stream: 1, payload: Uint8Array.of(0, 0, 0, 8).toBase64() });
    for (const frames of [[cancel], [message, cancel]]) {
      using connection = await Deno.connect({ transport: "unix", path });
      await connection.write(Uint8Array.of(...BEGINNINGS["half a call"]!, ...encodeFrames(frames)));
      await connection.closeWrite();
      await readToEnd(connection);
    }
    using kubelet = connectToService(path, Registration);
    assertEquals((await kubelet.calls.getInfo()).name, "lvm.denolith.dev");
  } finally {
    await server.close(1_000);
    await Deno.remove(folder, { recursive: true });
  }
});
