/**
 * Clients of the driver's socket: by grpc-js, an implementation of gRPC that is not the driver's, and by Deno's `fetch`.
 *
 * @module
 */

import {
  create,
  type DescMessage,
  type DescMethodServerStreaming,
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
import { Controller, GroupController, Identity, Node, SnapshotMetadata } from "../../../csi/proto/csi_pb.ts";
import { pathOf, streamingMethods, unaryMethods } from "../../../csi/service.ts";
import { grpcClient } from "./grpc_client.ts";

/** The calls of a service as async functions, which fail with the `ServiceError` of grpc-js. */
export type UnaryCalls<S extends DescService> = {
  [M in keyof S["method"]]: S["method"][M] extends DescMethodUnary<infer I, infer O>
    ? (request?: MessageInitShape<I>) => Promise<MessageShape<O>>
    : never;
};

/** The calls of a service with a stream of responses, as generators, which fail with the `ServiceError` of grpc-js. */
export type StreamingCalls<S extends DescService> = {
  [M in keyof S["method"]]: S["method"][M] extends DescMethodServerStreaming<infer I, infer O>
    ? (request?: MessageInitShape<I>) => AsyncGenerator<MessageShape<O>, void>
    : never;
};

/** A connection to a driver. */
export interface CsiClient extends Disposable {
  /** The Identity service. */
  readonly identity: UnaryCalls<typeof Identity>;
  /** The Controller service. */
  readonly controller: UnaryCalls<typeof Controller>;
  /** The GroupController service. */
  readonly group: UnaryCalls<typeof GroupController>;
  /** The Node service. */
  readonly node: UnaryCalls<typeof Node>;
}

/** A connection to a driver by grpc-js. */
export interface FullCsiClient extends CsiClient {
  /** The SnapshotMetadata service. */
  readonly snapshotMetadata: StreamingCalls<typeof SnapshotMetadata>;
}

/** Connects to the driver on a Unix socket. The connection is closed when it is disposed of. */
export function connect(path: string): FullCsiClient {
  const { client, [Symbol.dispose]: close } = grpcClient(path);
  return {
    ...services(sendByGrpcJs(client)),
    snapshotMetadata: streamsOf(client, SnapshotMetadata),
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
  return { calls: callsOf(sendByGrpcJs(client), service), [Symbol.dispose]: close };
}

/** Makes a call. @returns the bytes of the response */
type SendCall = (path: string, request: Uint8Array<ArrayBuffer>) => Promise<Uint8Array>;

function services(send: SendCall) {
  return {
    identity: callsOf(send, Identity),
    controller: callsOf(send, Controller),
    group: callsOf(send, GroupController),
    node: callsOf(send, Node),
  };
}

function callsOf<S extends DescService>(send: SendCall, service: S): UnaryCalls<S> {
  const calls = unaryMethods(service).map((method) => {
    const call = async (request: Record<string, unknown> = {}): Promise<Message> =>
      fromBinary(method.output, await send(pathOf(method), toBinary(method.input, create(method.input, request))));
    return [method.localName, call];
  });
  return Object.fromEntries(calls);
}

function streamsOf<S extends DescService>(client: Client, service: S): StreamingCalls<S> {
  const same = (bytes: Uint8Array) => Buffer.from(bytes);
  const calls = streamingMethods(service).map((method) => {
    async function* call(request: Record<string, unknown> = {}): AsyncGenerator<Message, void> {
      const bytes = toBinary(method.input, create(method.input, request));
      const stream = client.makeServerStreamRequest(pathOf(method), same, same, bytes);
      try {
        for await (const message of stream) yield fromBinary(method.output, message);
      } finally {
        stream.cancel();
      }
    }
    return [method.localName, call];
  });
  return Object.fromEntries(calls);
}

function sendByGrpcJs(client: Client): SendCall {
  const same = (bytes: Uint8Array) => Buffer.from(bytes);
  return (path, request) =>
    new Promise((resolve, reject) => {
      client.makeUnaryRequest(path, same, same, request, (error, response) =>
        error !== null ? reject(error) : resolve(response!));
    });
}

/**
 * Connects to the driver on a Unix socket by the HTTP client of Deno, which is faster than grpc-js, and knows no codes of
 * errors. The connection is closed when it is disposed of.
 */
export function connectByFetch(path: string): CsiClient {
  const client = fetchClient(path);
  return { ...services(sendByFetch(client)), [Symbol.dispose]: () => client.close() };
}

function fetchClient(path: string): Deno.HttpClient {
  return Deno.createHttpClient({ proxy: { transport: "unix", path }, http1: false, http2: true });
}

/** Returns a function that makes calls. It fails with the message of the driver. */
function sendByFetch(client: Deno.HttpClient): SendCall {
  return async (path, request) => {
    const body = new Uint8Array(5 + request.length);
    new DataView(body.buffer).setUint32(1, request.length);
    body.set(request, 5);
    const headers = { "content-type": "application/grpc", te: "trailers" };
    const response = await fetch(`http://localhost${path}`, { client, method: "POST", headers, body });
    const answer = await response.bytes();
    if (answer.length < 5) throw new Error(`${path}: ${response.headers.get("grpc-message")}`);
    return answer.subarray(5);
  };
}

/**
 * Makes a call by the HTTP client of Deno, on a connection of its own. Unlike grpc-js on this Deno, it waits for its answer
 * when the server says that it takes no further calls (GOAWAY).
 *
 * @throws {Error} when the call fails
 */
export async function callOverFetch<I extends DescMessage, O extends DescMessage>(
  socket: string,
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
): Promise<MessageShape<O>> {
  using client = fetchClient(socket);
  const bytes = toBinary(method.input, create(method.input, request));
  return fromBinary(method.output, await sendByFetch(client)(pathOf(method), bytes));
}
