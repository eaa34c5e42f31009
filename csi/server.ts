/**
 * The gRPC server on a Unix socket. It removes the socket when it is closed.
 *
 * @module
 */

import { Server, ServerCredentials } from "@grpc/grpc-js";
import { getLogger } from "@logtape/logtape";
import { dirname } from "@std/path";
import type { SocketState } from "../lvm/doctor/leftovers.ts";
import { handledErrors, StorageError } from "../lvm/error.ts";
import { withinDeadline } from "../lvm/clock.ts";
import { connect } from "./client.ts";
import type { BoundService } from "./service.ts";

const log = getLogger(["denolith", "csi"]);

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
 * @param warmUp makes the first call
 * @throws {StorageError} `FailedPrecondition` when another process listens on the path
 */
export async function serve(
  path: string,
  services: readonly BoundService[],
  warmUp: (path: string) => Promise<void> = callIdentity,
): Promise<RunningServer> {
  await removeStaleSocket(path);
  const server = new Server();
  for (const { definition, implementation } of services) server.addService(definition, implementation);
  const endGuard = ignoreGoneClients(); // a client may connect as soon as the socket is there
  try {
    await new Promise<void>((resolve, reject) => {
      server.bindAsync(
        `unix://${path}`,
        ServerCredentials.createInsecure(),
        (error) => error ? reject(error) : resolve(),
      );
    });
    await Deno.chmod(path, 0o600);
    const created = await Deno.lstat(path);
    await warmUp(path);
    const close = async (graceMs: number) => {
      try {
        return await closeServer(server, { path, created }, graceMs);
      } finally {
        endGuard();
      }
    };
    return { path, close };
  } catch (error) {
    endGuard();
    throw error;
  }
}

/**
 * Ignores the errors of answers to clients that broke the connection. grpc-js answers some calls, as those of methods that it
 * does not know, without looking whether their stream is still open. No call has such an error, so it would end the process.
 *
 * @returns a function that ends this
 */
function ignoreGoneClients(): () => void {
  const listener = (event: ErrorEvent) => {
    if ((event.error as { code?: unknown } | undefined)?.code !== "ERR_HTTP2_INVALID_STREAM") return;
    event.preventDefault();
    handledErrors.add(event.error);
    log.debug("a client has gone before its answer", { error: event.error });
  };
  globalThis.addEventListener("error", listener);
  return () => globalThis.removeEventListener("error", listener);
}

/**
 * Removes a socket that nobody listens on, which a crash left.
 *
 * @throws {StorageError} `FailedPrecondition` when another process listens on it
 */
async function removeStaleSocket(path: string): Promise<void> {
  await Deno.mkdir(dirname(path), { recursive: true });
  const state = await probeSocket(path);
  if (state === "stale") await Deno.remove(path);
  if (state !== "listening") return;
  throw new StorageError("FailedPrecondition", `listening on ${path}: another process answers there; stop it first`);
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

async function callIdentity(path: string): Promise<void> {
  using client = connect(path);
  await client.identity.getPluginInfo();
  await client.identity.probe();
}

/** A socket that this process created. */
interface Socket {
  readonly path: string;
  /** The file, when it was created. */
  readonly created: Deno.FileInfo;
}

async function closeServer(server: Server, socket: Socket, graceMs: number): Promise<boolean> {
  const shutdown = new Promise<boolean>((resolve) => server.tryShutdown((error) => resolve(error === undefined)));
  const drained = await withinDeadline(shutdown, graceMs) ?? false;
  if (!drained) server.forceShutdown();
  await removeSocket(socket);
  return drained;
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
