/**
 * Clients of grpc-js for Unix sockets.
 *
 * @module
 */

import { type ChannelOptions, Client, credentials } from "@grpc/grpc-js";

/** The type of a frame of HTTP/2 that says that the server takes no further calls (RFC 9113, section 6.8). */
const GOAWAY = 7;

/** A client of grpc-js, and what it holds. */
export interface GrpcClient extends Disposable {
  /** The client. */
  readonly client: Client;
}

/**
 * Returns a client of a Unix socket. It speaks to the socket through a port of loopback: the Unix sockets of `node:net`, which
 * grpc-js uses, close each descriptor twice in this Deno, and by then the number may belong to a file that another thread has
 * just opened.
 *
 * @param authority the host that the requests name
 */
export function grpcClient(path: string, authority = "localhost", options: ChannelOptions = {}): GrpcClient {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const connections = new Set<Deno.Conn>();
  const close = (connection: Deno.Conn) => {
    connections.delete(connection);
    try {
      connection.close();
    } catch {
      // its streams closed it, because the other side had
    }
  };
  const forward = async (from: Deno.TcpConn) => {
    from.setNoDelay(); // an answer would wait for 40 ms until the client's kernel says that it has the one before
    connections.add(from);
    try {
      const to = await Deno.connect({ transport: "unix", path });
      connections.add(to);
      const open = { preventClose: true, preventAbort: true, preventCancel: true };
      const requests = from.readable.pipeTo(to.writable, open);
      const answers = to.readable.pipeThrough(withoutGoaway(), { preventCancel: true }).pipeTo(from.writable, open);
      await Promise.race([requests, answers]).finally(() => close(to));
    } catch {
      // nobody listens, or one side broke the connection: its end of the connection is closed below
    } finally {
      close(from);
    }
  };
  const accept = async () => {
    for await (const connection of listener) forward(connection);
  };
  accept();
  const client = new Client(`127.0.0.1:${(listener.addr as Deno.NetAddr).port}`, credentials.createInsecure(), {
    ...options,
    "grpc.default_authority": authority,
    "grpc.enable_http_proxy": 0,
  });
  return {
    client,
    [Symbol.dispose]: () => {
      client.close();
      listener.close();
      for (const connection of connections) close(connection);
    },
  };
}

/**
 * Leaves GOAWAY out of the frames of a server: a client of `node:http2` in this Deno, to which one comes after some calls, ends
 * the process. The server closes the connection in any case.
 */
function withoutGoaway(): TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>> {
  let rest = new Uint8Array();
  return new TransformStream({
    transform: (chunk, controller) => {
      const bytes = new Uint8Array(rest.length + chunk.length);
      bytes.set(rest);
      bytes.set(chunk, rest.length);
      let start = 0;
      while (bytes.length - start >= 9) {
        const length = 9 + (new DataView(bytes.buffer, start).getUint32(0) >>> 8);
        if (bytes.length - start < length) break;
        if (bytes[start + 3] !== GOAWAY) controller.enqueue(bytes.slice(start, start + length));
        start += length;
      }
      rest = bytes.slice(start);
    },
  });
}
