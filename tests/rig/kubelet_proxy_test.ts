import { assertEquals } from "@std/assert";
import { portOf, serveKubeletProxy } from "./kubelet_proxy.ts";
import { GUEST_ADDRESS } from "./uml_network.ts";

Deno.test("portOf() takes guests only", () => {
  assertEquals(portOf(`CONNECT ${GUEST_ADDRESS}:4711 HTTP/1.1\r\n\r\n`), 4711);
  for (const other of ["CONNECT 127.0.0.1:22 HTTP/1.1\r\n", `GET ${GUEST_ADDRESS}:4711 HTTP/1.1\r\n`, ""]) {
    assertEquals(portOf(other), undefined);
  }
});

Deno.test("serveKubeletProxy() leads to the port of this machine, in both directions", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/socket`;
  const kubelet = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const listener = Deno.listen({ transport: "unix", path });
  const serving = serveKubeletProxy(listener);
  const ask = async (address: string, text: string) => {
    using connection = await Deno.connect({ transport: "unix", path });
    const say = (what: string) => connection.write(new TextEncoder().encode(what));
    const hear = async () => {
      const buffer = new Uint8Array(1_000);
      return new TextDecoder().decode(buffer.subarray(0, await connection.read(buffer) ?? 0));
    };
    await say(`CONNECT ${address} HTTP/1.1\r\nHost: x\r\n\r\n`);
    const [status] = (await hear()).split("\r\n");
    if (!status!.includes("200")) return [status];
    await say(text);
    return [status, await hear()];
  };
  const echo = kubelet.accept().then((connection) => connection.readable.pipeTo(connection.writable));
  const { port } = kubelet.addr;
  assertEquals(await ask(`${GUEST_ADDRESS}:${port}`, "hello"), ["HTTP/1.1 200 Connection established", "hello"]);
  await echo;
  assertEquals(await ask(`example.com:${port}`, ""), ["HTTP/1.1 502 Bad Gateway"]);
  kubelet.close();
  assertEquals(await ask(`${GUEST_ADDRESS}:${port}`, ""), ["HTTP/1.1 502 Bad Gateway"]);
  listener.close();
  await serving.catch(() => {});
  await Deno.remove(folder, { recursive: true });
});
