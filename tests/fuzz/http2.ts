/**
 * Raw frames of HTTP/2 (RFC 9113), valid or not.
 *
 * @module
 */

import { Buffer } from "node:buffer";

/** The bytes with which a client begins a connection. */
export const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/** Types of frames (RFC 9113, section 6). */
export const FRAMES = {
  DATA: 0,
  HEADERS: 1,
  PRIORITY: 2,
  RST_STREAM: 3,
  SETTINGS: 4,
  PUSH_PROMISE: 5,
  PING: 6,
  GOAWAY: 7,
  WINDOW_UPDATE: 8,
  CONTINUATION: 9,
} as const;

/** A frame, or several equal ones. */
export interface Frame {
  readonly [key: string]: string | number;
  readonly type: number;
  readonly flags: number;
  /** The stream; 0 for the connection, -1 for a new stream with each frame, -2 for the stream of the frame before. */
  readonly stream: number;
  /** The payload as base64. */
  readonly payload: string;
  /** The length that the frame claims to have; -1 for that of the payload. */
  readonly length: number;
  /** The number of times that it is sent. */
  readonly times: number;
}

/** Makes a frame; by default an empty one of the connection. */
export function frame(type: keyof typeof FRAMES, fields: Partial<Frame> = {}): Frame {
  return { flags: 0, stream: 0, payload: "", length: -1, times: 1, ...fields, type: FRAMES[type] };
}

/** Returns the bytes of frames. */
export function encodeFrames(frames: readonly Frame[]): Uint8Array {
  const parts: Uint8Array[] = [];
  let last = -1;
  for (const { type, flags, stream, payload, length, times } of frames) {
    const body = Buffer.from(payload, "base64");
    for (let count = 0; count < times; count++) {
      if (stream === -1) last += 2;
      const head = Buffer.alloc(9);
      head.writeUIntBE((length < 0 ? body.length : length) & 0xffffff, 0, 3);
      head.writeUInt8(type & 0xff, 3);
      head.writeUInt8(flags & 0xff, 4);
      head.writeUInt32BE((stream < 0 ? Math.max(last, 1) : stream) >>> 0, 5);
      parts.push(head, body);
    }
  }
  return Buffer.concat(parts);
}

/** Returns the header block of a gRPC call: literals without indexing and without Huffman codes (RFC 7541, 6.2.2). */
export function headerBlock(path: string, more: readonly (readonly [string, string])[] = []): Uint8Array {
  const fields = [
    ...[[":method", "POST"], [":scheme", "http"], [":path", path], [":authority", "localhost"]],
    ...[["te", "trailers"], ["content-type", "application/grpc"]],
    ...more,
  ];
  return Buffer.concat(fields.flatMap(([name, value]) => [Buffer.from([0]), literal(name!), literal(value!)]));
}

/** Returns a string literal of HPACK, without a Huffman code. */
function literal(text: string): Uint8Array {
  const bytes = Buffer.from(text);
  if (bytes.length < 127) return Buffer.concat([Buffer.from([bytes.length]), bytes]);
  const length: number[] = [127];
  let rest = bytes.length - 127;
  for (; rest >= 128; rest = Math.floor(rest / 128)) length.push(rest % 128 + 128);
  return Buffer.concat([Buffer.from([...length, rest]), bytes]);
}

/** Returns the payload of a DATA frame with one gRPC message. */
export function grpcMessage(bytes: Uint8Array, { compressed = 0, length = bytes.length } = {}): Uint8Array {
  const head = Buffer.alloc(5);
  head.writeUInt8(compressed, 0);
  head.writeUInt32BE(length >>> 0, 1);
  return Buffer.concat([head, bytes]);
}

/** Makes calls that grpc-js refuses, and breaks the connection of each before the answer. @param path of the socket */
export async function callAndBreak(path: string): Promise<void> {
  const settings = frame("SETTINGS");
  const unexpectedAnswer = frame("SETTINGS", { flags: 1 }); // a second one ends the connection
  const end = frame("DATA", { flags: 1, stream: -2, payload: grpcMessage(new Uint8Array()).toBase64() });
  for (
    const block of [headerBlock("/csi.v1.Node/NoSuchCall"), headerBlock("/csi.v1.Node/X", [["content-type", "a"]])]
  ) {
    const headers = frame("HEADERS", { flags: 4, stream: -1, payload: block.toBase64() });
    using connection = await Deno.connect({ transport: "unix", path });
    const frames = encodeFrames([settings, unexpectedAnswer, headers, end, unexpectedAnswer]);
    await connection.write(Uint8Array.of(...new TextEncoder().encode(PREFACE), ...frames));
    while (await connection.read(new Uint8Array(1_000)).catch(() => null) !== null);
  }
}

/** Makes a call after an answer to a PING that nobody sent, which ends the connection, in one write. @param path of the socket */
export async function callAfterPing(path: string): Promise<void> {
  using connection = await Deno.connect({ transport: "unix", path });
  const frames = encodeFrames([
    frame("SETTINGS"),
    frame("PING", { flags: 1, payload: new Uint8Array(8).toBase64() }),
    frame("HEADERS", { flags: 4, stream: -1, payload: headerBlock("/csi.v1.Node/NoSuchCall").toBase64() }),
    frame("DATA", { flags: 1, stream: -2, payload: grpcMessage(new Uint8Array()).toBase64() }),
  ]);
  await connection.write(Uint8Array.of(...new TextEncoder().encode(PREFACE), ...frames));
  while (await connection.read(new Uint8Array(1_000)).catch(() => null) !== null);
}
