/**
 * SSH to a node, as Kubernetes' own tests use it to stop and start kubelet: a bastion on loopback, behind which each address
 * leads to the node.
 *
 * @module
 */

// @ts-types="npm:@types/ssh2@1.15.6"
import ssh2, { type Connection } from "ssh2";
import type { AddressInfo, Socket } from "node:net";
import type { Node } from "./node.ts";

/** Makes a pair of keys. One in two hundred that ssh2 makes is malformed. */
export function generateKeys(): ReturnType<typeof ssh2.utils.generateKeyPairSync> {
  while (true) {
    const keys = ssh2.utils.generateKeyPairSync("ed25519");
    if (!(ssh2.utils.parseKey(keys.private) instanceof Error)) return keys;
  }
}

/** The commands that the node lacks, as shell functions: no service manager runs there, and everybody is root. */
const PRELUDE = `
sudo() {
  case "$*" in
    --version) echo "Sudo version 1";;
    *) "$@";;
  esac
}
systemctl() {
  case "$*" in
    "show kubelet --property ActiveState --value")
      if kill -0 "$(cat /run/kubelet.pid)" 2>/dev/null; then echo active; else echo inactive; fi;;
    "stop kubelet")
      kill "$(cat /run/kubelet.pid)"
      while kill -0 "$(cat /run/kubelet.pid)" 2>/dev/null; do sleep .1; done;;
    "start kubelet") sh /work/node/start_kubelet.sh;;
    *) echo "systemctl $*: unknown" >&2; return 1;;
  esac
}
`;

/** Serves SSH to a node until it is disposed of. */
export class NodeSsh implements Disposable {
  /** The private key of clients, in the notation of OpenSSH. */
  readonly key: string;
  readonly #bastion: ssh2.Server;
  #port = 0;

  /** Starts to serve. */
  static async start(node: Pick<Node, "exec">): Promise<NodeSsh> {
    const server = new NodeSsh(node);
    await new Promise<void>((resolve) =>
      server.#bastion.listen(0, "127.0.0.1", () => {
        server.#port = (server.#bastion.address() as AddressInfo).port;
        resolve();
      })
    );
    return server;
  }

  private constructor(node: Pick<Node, "exec">) {
    const client = generateKeys();
    const hostKeys = [generateKeys().private];
    this.key = client.private;
    const allowed = ssh2.utils.parseKey(client.public) as ssh2.ParsedKey;
    const accept = (connection: Connection) => {
      connection.on("authentication", (context) => {
        return isSignedBy(allowed, context) ? context.accept() : context.reject(["publickey"]);
      });
      connection.on("error", () => {}); // a client that has gone
    };
    const target = new ssh2.Server({ hostKeys }, (connection) => {
      accept(connection);
      connection.on(
        "session",
        (acceptSession) =>
          acceptSession().on("exec", async (acceptExec, _reject, { command }) => {
            const channel = acceptExec();
            const { code, stdout, stderr } = await node.exec(PRELUDE + command).catch((error) => ({
              code: 255,
              stdout: "",
              stderr: String(error),
            }));
            channel.write(stdout);
            channel.stderr.write(stderr);
            channel.exit(code);
            channel.end();
          }),
      );
    });
    this.#bastion = new ssh2.Server({ hostKeys }, (connection) => {
      accept(connection);
      connection.on("tcpip", (acceptChannel) => target.injectSocket(acceptChannel() as unknown as Socket));
    });
  }

  /** The address of the bastion. */
  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  [Symbol.dispose](): void {
    this.#bastion.close();
  }
}

/** Reports whether a client has a key: it shows the public part, and then signs. */
function isSignedBy(key: ssh2.ParsedKey, context: ssh2.AuthContext): boolean {
  if (context.method !== "publickey" || !context.key.data.equals(key.getPublicSSH())) return false;
  return context.signature === undefined || key.verify(context.blob!, context.signature, context.hashAlgo) === true;
}
