/**
 * Clients of grpc-js for Unix sockets.
 *
 * @module
 */

import { type ChannelOptions, Client, credentials } from "@grpc/grpc-js";

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
  const forward = async (from: Deno.Conn) => {
    connections.add(from);
    try {
      const to = await Deno.connect({ transport: "unix", path });
      connections.add(to);
      const open = { preventClose: true, preventAbort: true, preventCancel: true };
      const pipe = (source: Deno.Conn, target: Deno.Conn) => source.readable.pipeTo(target.writable, open);
      await Promise.race([pipe(from, to), pipe(to, from)]).finally(() => close(to));
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
