import { assertEquals } from "@std/assert";
// @ts-types="npm:@types/ssh2@1.15.6"
import ssh2 from "ssh2";
import { generateKeys, NodeSsh } from "./node_ssh.ts";

Deno.test("a command reaches the node through the bastion, with its status, and only with the key", async () => {
  const commands: string[] = [];
  const exec = (command: string) => {
    commands.push(command.split("\n").at(-1)!);
    return Promise.resolve({ code: 3, stdout: "out", stderr: "err" });
  };
  using server = await NodeSsh.start({ exec });
  const [host, port] = server.address.split(":") as [string, string];
  const bastion = await connect({ host, port: Number(port), privateKey: server.key });
  const sock = await new Promise<ssh2.ClientChannel>((resolve, reject) =>
    bastion.forwardOut("127.0.0.1", 1, "10.0.2.15", 22, (error, channel) => error ? reject(error) : resolve(channel))
  );
  const client = await connect({ sock, privateKey: server.key });
  assertEquals(await run(client, "systemctl stop kubelet"), { code: 3, stdout: "out", stderr: "err" });
  assertEquals(commands, ["systemctl stop kubelet"]);
  client.end();
  bastion.end();
  const { private: privateKey } = generateKeys();
  const [own, other] = [server.key, privateKey].map((key) => ssh2.utils.parseKey(key) as ssh2.ParsedKey);
  // who shows the public key without the private one cannot sign
  const forged = Object.create(other!, { getPublicSSH: { value: () => own!.getPublicSSH() } });
  const authHandler = [{ type: "publickey", username: "root", key: forged }] as const;
  for (const credentials of [{ privateKey }, { authHandler: [...authHandler] }]) {
    const refused = await connect({ host, port: Number(port), ...credentials }).catch((error) => error.message);
    assertEquals(refused, "All configured authentication methods failed");
  }
});

function connect(config: ssh2.ConnectConfig): Promise<ssh2.Client> {
  const client = new ssh2.Client();
  return new Promise((resolve, reject) =>
    client.on("ready", () => resolve(client)).on("error", reject).connect({ ...config, username: "root" })
  );
}

function run(client: ssh2.Client, command: string): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve, reject) =>
    client.exec(command, (error, channel) => {
      if (error) return reject(error);
      const result = { code: -1, stdout: "", stderr: "" };
      channel.on("data", (data: Uint8Array) => result.stdout += new TextDecoder().decode(data));
      channel.stderr.on("data", (data: Uint8Array) => result.stderr += new TextDecoder().decode(data));
      channel.on("exit", (code: number) => result.code = code);
      channel.on("close", () => resolve(result));
    })
  );
}
