/**
 * Target: the bytes on the driver's socket, from a client that breaks the rules of HTTP/2 and gRPC.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import { Buffer } from "node:buffer";
import { sleep, systemClock, withinDeadline } from "../../base/clock.ts";
import { fakeHost } from "../contract/helpers/fake_host.ts";
import { Harness } from "../contract/helpers/host.ts";
import { encodeFrames, type Frame, frame, FRAMES, grpcMessage, headerBlock, PREFACE } from "./http2.ts";
import { asTarget, type Subject, type Target } from "./target.ts";

/** What a client sends. */
export interface Attack {
  readonly [key: string]: string | number | readonly Frame[];
  /** The bytes before the frames, as text; that of HTTP/2 for a valid connection. */
  readonly preface: string;
  readonly frames: readonly Frame[];
  /** The number of times that all frames are sent, one after the other. */
  readonly rounds: number;
  /** The number of connections that send this at the same time. */
  readonly connections: number;
  /** Milliseconds for which the connections stay open. */
  readonly openMs: number;
}

/** Milliseconds in which the server must answer a well-formed call after an attack, on a loaded machine. */
const ANSWER_MS = 50_000;

/** The growth of the process's memory that is not a leak, in bytes: the client's buffers are in the same process. */
const MAX_GROWTH = 500 << 20;

const PATH = "/csi.v1.Identity/GetPluginInfo";
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");

const headers = (path: string): Frame => frame("HEADERS", { flags: 4, stream: -1, payload: base64(headerBlock(path)) });
const lastData = (message: Uint8Array): Frame =>
  frame("DATA", { flags: 1, stream: -2, payload: base64(grpcMessage(message)) });

const [HEADERS, END] = [headers(PATH), lastData(new Uint8Array())];

/** Whole calls: one that succeeds, and some that are answered with an error. */
const CALLS: readonly (readonly Frame[])[] = [
  [HEADERS, END],
  [HEADERS, lastData(Uint8Array.of(0x0a, 0xff))], // no message
  [headers("/csi.v1.Controller/DeleteVolume"), END], // without its volume
  [headers("/csi.v1.Controller/NoSuchCall"), END],
];

const payloads = fc.oneof(
  fc.uint8Array({ maxLength: 40 }),
  fc.constantFrom(
    headerBlock(PATH),
    headerBlock("/no/such"),
    headerBlock(PATH, [["grpc-timeout", "1n"], ["grpc-encoding", "gzip"]]),
    headerBlock(PATH, [["x".repeat(5_000), "y".repeat(60_000)]]),
    headerBlock(PATH).slice(0, 20),
    Uint8Array.of(0x80, 0xff, 0xff, 0xff, 0xff, 0x0f),
    grpcMessage(new Uint8Array()),
    grpcMessage(new Uint8Array(), { length: 0xffffffff }),
    grpcMessage(new Uint8Array(10), { compressed: 1 }),
    grpcMessage(Uint8Array.of(0x0a, 0xff)),
    new Uint8Array(8),
    new Uint8Array(16_384),
    new Uint8Array(20_000),
    Uint8Array.of(0, 3, 0, 0, 0, 0),
    Uint8Array.of(0, 4, 0xff, 0xff, 0xff, 0xff),
    Uint8Array.of(0x7f, 0xff, 0xff, 0xff),
  ),
).map(base64);

const frames: fc.Arbitrary<Frame> = fc.oneof(
  { weight: 2, arbitrary: fc.constantFrom(HEADERS, END, frame("SETTINGS"), frame("SETTINGS", { flags: 1 })) },
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.oneof(fc.constantFrom(...Object.values(FRAMES)), fc.integer({ min: 0, max: 255 })),
      flags: fc.oneof(fc.constantFrom(0, 1, 4, 5, 8, 0x20), fc.integer({ min: 0, max: 255 })),
      stream: fc.constantFrom(-1, -2, 0, 1, 2, 3, 0x7fffffff, 0xffffffff),
      payload: payloads,
      length: fc.oneof({ weight: 8, arbitrary: fc.constant(-1) }, {
        weight: 1,
        arbitrary: fc.constantFrom(0, 5, 16_385, 0xffffff),
      }),
      times: fc.oneof({ weight: 8, arbitrary: fc.constant(1) }, { weight: 1, arbitrary: fc.constantFrom(2, 10, 200) }),
    }),
  },
);

const attacks: fc.Arbitrary<Attack> = fc.record({
  preface: fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(PREFACE + text(frame("SETTINGS"))) },
    {
      weight: 1,
      arbitrary: fc.constantFrom("", PREFACE, PREFACE.slice(0, 10), "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01"),
    },
  ),
  frames: fc.array(
    fc.oneof({ weight: 2, arbitrary: frames.map((one) => [one]) }, {
      weight: 1,
      arbitrary: fc.constantFrom(...CALLS),
    }),
    { maxLength: 8 },
  ).map((list) => list.flat()),
  rounds: fc.constantFrom(1, 1, 1, 5),
  connections: fc.constantFrom(1, 1, 1, 3),
  openMs: fc.constantFrom(0, 5),
});

/** Returns a frame as text with one character for each byte. */
function text(one: Frame): string {
  return Buffer.from(encodeFrames([one])).toString("latin1");
}

/** Connects. The kernel refuses it for a moment while too many clients wait for the server (listen(2), backlog). */
async function connectWhenPossible(path: string): Promise<Deno.UnixConn> {
  for (const end = Date.now() + ANSWER_MS;;) {
    try {
      return await Deno.connect({ transport: "unix", path });
    } catch (error) {
      if (!(error instanceof Deno.errors.WouldBlock) || Date.now() > end) throw error;
      await sleep(systemClock, 20);
    }
  }
}

/** Opens a connection, sends everything that the server accepts, and reads what it answers for a while. */
async function attackOnce(path: string, bytes: Uint8Array, openMs: number): Promise<void> {
  using connection = await connectWhenPossible(path);
  const read = (async () => {
    const buffer = new Uint8Array(65_536);
    while (await connection.read(buffer).catch(() => null) !== null);
  })();
  const write = (async () => {
    for (let sent = 0; sent < bytes.length;) {
      const written = await connection.write(bytes.subarray(sent)).catch(() => undefined);
      if (written === undefined) return; // the server closed the connection
      sent += written;
    }
  })();
  await withinDeadline(write, ANSWER_MS);
  await withinDeadline(read, openMs);
}

async function openServer(): Promise<Subject<Attack>> {
  const { exec } = await fakeHost.setUp();
  const harness = await Harness.start(exec, fakeHost.groups);
  const failures: unknown[] = [];
  const listener = (event: PromiseRejectionEvent | ErrorEvent) => {
    if (event.defaultPrevented) return; // the driver has seen it
    event.preventDefault();
    failures.push("reason" in event ? event.reason : event.error);
  };
  globalThis.addEventListener("unhandledrejection", listener);
  globalThis.addEventListener("error", listener);
  const memory = Deno.memoryUsage().rss;
  return {
    check: async ({ preface, frames, rounds, connections, openMs }) => {
      const bytes = Buffer.concat([
        Buffer.from(preface, "latin1"),
        encodeFrames(Array.from({ length: rounds }, () => frames).flat()),
      ]);
      const path = `${harness.folder}/csi.sock`;
      await Promise.all(Array.from({ length: connections }, () => attackOnce(path, bytes, openMs)));
      const answer = await withinDeadline(harness.csi.identity.getPluginInfo(), ANSWER_MS);
      assertEquals(answer?.name, harness.driverName, "no answer to a well-formed call");
      if (failures.length > 0) throw new Error("an error ended no call", { cause: failures.shift() });
      const growth = Deno.memoryUsage().rss - memory;
      assert(growth < MAX_GROWTH, `the process has grown by ${growth >> 20} MiB`);
    },
    [Symbol.asyncDispose]: async () => {
      await harness[Symbol.asyncDispose]();
      globalThis.removeEventListener("unhandledrejection", listener);
      globalThis.removeEventListener("error", listener);
    },
  };
}

/** The target. */
export const SOCKET_TARGET: Target = asTarget<Attack>({
  name: "socket",
  description: "bytes on the socket that break the rules of HTTP/2 and gRPC",
  inputs: attacks,
  testRuns: 10,
  open: openServer,
});
