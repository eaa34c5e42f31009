/**
 * A client of the driver's socket.
 *
 * @module
 */

import {
  create,
  type DescMethodUnary,
  type DescService,
  type Message,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { Client, credentials } from "@grpc/grpc-js";
import { Controller, Identity, Node } from "./proto/csi_pb.ts";
import { methodDefinition, unaryMethods } from "./service.ts";

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
  const client = new Client(`unix://${path}`, credentials.createInsecure());
  return {
    identity: callsOf(client, Identity),
    controller: callsOf(client, Controller),
    node: callsOf(client, Node),
    [Symbol.dispose]: () => client.close(),
  };
}

/** Connects to one service on a Unix socket. The connection is closed when it is disposed of. */
export function connectToService<S extends DescService>(
  path: string,
  service: S,
): Disposable & { readonly calls: UnaryCalls<S> } {
  const client = new Client(`unix://${path}`, credentials.createInsecure());
  return { calls: callsOf(client, service), [Symbol.dispose]: () => client.close() };
}

function callsOf<S extends DescService>(client: Client, service: S): UnaryCalls<S> {
  const calls = unaryMethods(service).map((method) => {
    const { path, requestSerialize, responseDeserialize } = methodDefinition(method);
    const call = (request: Record<string, unknown> = {}): Promise<Message> =>
      new Promise((resolve, reject) => {
        client.makeUnaryRequest(
          path,
          requestSerialize,
          responseDeserialize,
          create(method.input, request),
          (error, response) => error !== null ? reject(error) : resolve(response!),
        );
      });
    return [method.localName, call];
  });
  return Object.fromEntries(calls);
}
