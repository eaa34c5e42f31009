/**
 * The gRPC server on a Unix socket. It removes the socket when it is closed.
 *
 * @module
 */

import { dirname } from "@std/path";
import type { SocketState } from "../lvm/doctor/finding.ts";
import { StorageError } from "../base/error.ts";
import { withinDeadline } from "../base/clock.ts";
import { newSocketPath, OWN_HOST } from "./driver_options.ts";
import { type BoundAnswer, type BoundMethod, listen } from "./grpc.ts";
import { Identity } from "./proto/csi_pb.ts";
import { type BoundService, pathOf } from "./service.ts";
import { status } from "./status.ts";

/** The calls that a driver makes to itself before it says that it serves. */
const FIRST_CALLS: readonly string[] = [pathOf(Identity.method.getPluginInfo), pathOf(Identity.method.probe)];

/** The time in which the answers of the last calls are sent when the server is closed, in milliseconds. */
const FLUSH_MS = 1_000;

/** A running server. */
export interface RunningServer {
  /** Path of the socket. */
  readonly path: string;
  /**
   * Takes no further calls, waits for those in progress, and removes the socket.
   *
   * @param graceMs how long calls in progress may take, in milliseconds
   * @returns whether they completed in that time
   */
  close(graceMs: number): Promise<boolean>;
}

/**
 * Serves services on a Unix socket that only its owner can use, and resolves when the socket answers.
 *
 * The first call of a process compiles the code on its path, which takes up to 1.5 s on a slow machine. kubelet gives a
 * registration one second, so the first call is made here.
 *
 * @param options `firstCalls` are the paths of the calls that are made here, with empty requests
 * @throws {StorageError} `FailedPrecondition` when another process listens on the path
 */
export async function serve(
  path: string,
  services: readonly BoundService[],
  { firstCalls = FIRST_CALLS }: { firstCalls?: readonly string[] } = {},
): Promise<RunningServer> {
  await removeStaleSocket(path);
  const calls = new RunningCalls();
  const methods = services.flatMap((service) =>
    [...service].map(([path, call]) => [path, calls.counted(call)] as const)
  );
  // Deno removes the path when it stops listening, where the socket of a successor may be then
  const newPath = newSocketPath(path);
  await removeStaleSocket(newPath);
  const listener = await listen(newPath, new Map(methods));
  try {
    await Deno.chmod(newPath, 0o600);
    await Deno.link(newPath, path); // unlike a rename, it replaces nothing: another process may have started, too
    await Deno.remove(newPath);
  } catch (error) {
    await listener.abort();
    throw error;
  }
  const created = await Deno.lstat(path);
  await callSelf(path, firstCalls);
  const close = async (graceMs: number) => {
    await removeSocket({ path, created });
    const drained = await calls.end(graceMs);
    await withinDeadline(drained ? listener.shutdown() : listener.abort(), FLUSH_MS);
    return drained;
  };
  return { path, close };
}

/** The calls in progress. */
class RunningCalls {
  #count = 0;
  #isEnding = false;
  readonly #ended = Promise.withResolvers<true>();

  /** Returns a call that is counted while it is in progress, and refused when no further ones are taken. */
  counted(call: BoundMethod): BoundMethod {
    return async (request) => {
      if (this.#isEnding) return { failure: { code: status.UNAVAILABLE, details: "the driver is stopping" } };
      this.#count++;
      let answer: BoundAnswer | undefined;
      try {
        answer = await call(request);
      } finally {
        if (answer === undefined || !("messages" in answer)) this.#uncount();
      }
      return "messages" in answer ? { messages: this.#countedStream(answer.messages) } : answer;
    };
  }

  /** Returns a stream that is in progress until it has ended, or the client has gone. */
  #countedStream<T>(messages: AsyncIterator<T, void>): AsyncIterator<T, void> {
    let isCounted = true;
    const end = () => {
      if (isCounted) this.#uncount();
      isCounted = false;
    };
    return {
      next: async () => {
        try {
          const next = await messages.next();
          if (next.done) end();
          return next;
        } catch (error) {
          end();
          throw error;
        }
      },
      return: async () => {
        end();
        await messages.return?.();
        return { done: true, value: undefined };
      },
    };
  }

  #uncount(): void {
    this.#count--;
    if (this.#isEnding) this.#resolveIfEnded();
  }

  /** Takes no further calls, and waits for those in progress. @returns whether they ended in this time, in milliseconds */
  async end(graceMs: number): Promise<boolean> {
    this.#isEnding = true;
    this.#resolveIfEnded();
    return await withinDeadline(this.#ended.promise, graceMs) ?? false;
  }

  #resolveIfEnded(): void {
    if (this.#count === 0) this.#ended.resolve(true);
  }
}

/**
 * Removes a socket that nobody listens on, which a crash left.
 *
 * @throws {StorageError} `FailedPrecondition` when another process listens on it, or when it is no socket
 */
async function removeStaleSocket(path: string): Promise<void> {
  await Deno.mkdir(dirname(path), { recursive: true });
  const fail = (reason: string) => new StorageError("FailedPrecondition", `listening on ${path}: ${reason}`);
  const state = await probeSocket(path);
  if (state === "listening") throw fail("another process answers there; stop it first");
  if (state === "absent") return;
  // connect(2) refuses any other file as it refuses such a socket
  if (!(await Deno.lstat(path)).isSocket) throw fail("there is a file that is no socket; remove it");
  await Deno.remove(path);
}

/** Reports whether a socket is absent, stale (nobody listens on it), or in use. */
export async function probeSocket(path: string): Promise<SocketState> {
  try {
    (await Deno.connect({ transport: "unix", path })).close();
    return "listening";
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return "absent";
    if (error instanceof Deno.errors.ConnectionRefused) return "stale";
    throw error;
  }
}

/** Makes calls with empty requests, one after the other. Their outcomes do not matter. */
async function callSelf(path: string, calls: readonly string[]): Promise<void> {
  using client = Deno.createHttpClient({ proxy: { transport: "unix", path }, http1: false, http2: true });
  for (const call of calls) {
    const headers = { "content-type": "application/grpc", te: "trailers" };
    const response = await fetch(`http://${OWN_HOST}${call}`, {
      client,
      method: "POST",
      headers,
      body: new Uint8Array(5),
    });
    await response.bytes();
  }
}

/** A socket that this process created. */
interface Socket {
  readonly path: string;
  /** The file, when it was created. */
  readonly created: Deno.FileInfo;
}

/** Removes a socket, unless another process has replaced it: nobody answers there any more while calls end. */
async function removeSocket({ path, created }: Socket): Promise<void> {
  try {
    const { ino, mtime } = await Deno.lstat(path);
    // a filesystem gives the number of a removed file to the next one
    if (ino === created.ino && mtime?.getTime() === created.mtime?.getTime()) await Deno.remove(path);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
  }
}
