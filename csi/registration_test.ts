import { assert, assertEquals } from "@std/assert";
import { assertSpyCallArgs, assertSpyCalls, spy, stub } from "@std/testing/mock";
import { connectToService } from "../tests/contract/csi_client.ts";
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
