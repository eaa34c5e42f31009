/**
 * A client of the driver's socket, by grpc-js: an implementation of gRPC that is not the driver's.
 *
 * @module
 */

import {
  create,
  type DescMessage,
  type DescMethodUnary,
  type DescService,
  fromBinary,
  type Message,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import type { Client } from "@grpc/grpc-js";
import { Buffer } from "node:buffer";
import { Controller, Identity, Node } from "../../csi/proto/csi_pb.ts";
import { pathOf, unaryMethods } from "../../csi/service.ts";
import { grpcClient } from "./grpc_client.ts";

/** The calls of a service as async functions, which fail with the `ServiceError` of grpc-js. */
export type UnaryCalls<S extends DescService> = {
  [M in keyof S["method"]]: S["method"][M] extends DescMethodUnary<infer I, infer O>
    ? (request?: MessageInitShape<I>) => Promise<MessageShape<O>>
    : never;
};

/** A connection to a driver. */
export interface CsiClient extends Disposable {
  /** The Identity service. */
  readonly identity: UnaryCalls<typeof Identity>;
  /** The Controller service. */
  readonly controller: UnaryCalls<typeof Controller>;
  /** The Node service. */
  readonly node: UnaryCalls<typeof Node>;
}

/** Connects to the driver on a Unix socket. The connection is closed when it is disposed of. */
export function connect(path: string): CsiClient {
  const { client, [Symbol.dispose]: close } = grpcClient(path);
  return {
    identity: callsOf(client, Identity),
    controller: callsOf(client, Controller),
    node: callsOf(client, Node),
    [Symbol.dispose]: close,
  };
}

/**
 * Connects to one service on a Unix socket. The connection is closed when it is disposed of.
 *
 * @param authority the host that the requests name
 */
export function connectToService<S extends DescService>(
  path: string,
  service: S,
  authority = "localhost",
): Disposable & { readonly calls: UnaryCalls<S> } {
  const { client, [Symbol.dispose]: close } = grpcClient(path, authority);
  return { calls: callsOf(client, service), [Symbol.dispose]: close };
}

function callsOf<S extends DescService>(client: Client, service: S): UnaryCalls<S> {
  const calls = unaryMethods(service).map((method) => {
    const call = (request: Record<string, unknown> = {}): Promise<Message> =>
      new Promise((resolve, reject) => {
        client.makeUnaryRequest(
          pathOf(method),
          (request: Message) => Buffer.from(toBinary(method.input, request)),
          (bytes: Buffer) => fromBinary(method.output, bytes),
          create(method.input, request),
          (error, response) => error !== null ? reject(error) : resolve(response!),
        );
      });
    return [method.localName, call];
  });
  return Object.fromEntries(calls);
}

/**
 * Makes a call by the HTTP client of Deno. Unlike grpc-js on this Deno, it waits for its answer when the server says that it
 * takes no further calls (GOAWAY).
 *
 * @throws {Error} when the call fails
 */
export async function callOverFetch<I extends DescMessage, O extends DescMessage>(
  socket: string,
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
): Promise<MessageShape<O>> {
  using client = Deno.createHttpClient({ proxy: { transport: "unix", path: socket }, http1: false, http2: true });
  const message = toBinary(method.input, create(method.input, request));
  const body = new Uint8Array(5 + message.length);
  new DataView(body.buffer).setUint32(1, message.length);
  body.set(message, 5);
  const headers = { "content-type": "application/grpc", te: "trailers" };
  const response = await fetch(`http://localhost${pathOf(method)}`, { client, method: "POST", headers, body });
  const answer = await response.bytes();
  if (answer.length < 5) throw new Error(`${method.name}: ${response.headers.get("grpc-message")}`);
  return fromBinary(method.output, answer.subarray(5));
}
