import { assertEquals } from "@std/assert";
import { connectToService } from "./client.ts";
import { serveRegistration } from "./registration.ts";
import { Registration } from "./proto/registration_pb.ts";

Deno.test("kubelet is told the driver's name and socket, and what it says of it is handed on", async () => {
  const folder = await Deno.makeTempDir();
  const statuses: (string | undefined)[] = [];
  const path = `${folder}/lvm.denolith.dev-reg.sock`;
  const server = await serveRegistration(path, {
    driver: "lvm.denolith.dev",
    endpoint: "/kubelet/plugins/lvm.denolith.dev/csi.sock",
    onStatus: (error) => statuses.push(error),
  });
  try {
    using kubelet = connectToService(path, Registration);
    const { type, name, endpoint, supportedVersions } = await kubelet.calls.getInfo();
    assertEquals(
      [type, name, endpoint, supportedVersions],
      ["CSIPlugin", "lvm.denolith.dev", "/kubelet/plugins/lvm.denolith.dev/csi.sock", ["1.0.0"]],
    );
    await kubelet.calls.notifyRegistrationStatus({ pluginRegistered: false, error: "no such node" });
    await kubelet.calls.notifyRegistrationStatus({ pluginRegistered: true });
    assertEquals(statuses, ["no such node", undefined]);
    assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
  } finally {
    await server.close(1_000);
    await Deno.remove(folder, { recursive: true });
  }
});
