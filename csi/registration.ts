/**
 * Registration with kubelet: kubelet finds a socket in its `plugins_registry`, asks it for the driver, and reports the
 * result (k8s.io/kubelet, pluginregistration v1). It does so again after a restart of kubelet or of the driver.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type Backoff, backoffMs, type Clock, systemClock } from "../base/clock.ts";
import { type RunningServer, serve } from "./server.ts";
import { Registration } from "./proto/registration_pb.ts";
import { bindService, pathOf } from "./service.ts";

/** Options of {@linkcode serveRegistration}. */
export interface RegistrationOptions {
  /** The driver's name. */
  readonly driver: string;
  /** The path of the driver's socket, as kubelet sees it. */
  readonly endpoint: string;
  /** Called with the error of kubelet, or with `undefined` after kubelet registered the driver. */
  onStatus?(error: string | undefined): void;
  /** Time. */
  readonly clock?: Clock | undefined;
}

/** The supported versions of CSI, in the notation of kubelet. */
const SUPPORTED_VERSIONS = ["1.0.0"];

/** How long the socket stays as it is after kubelet has rejected the driver. */
const BACKOFF: Backoff = { startMs: 2_000, capMs: 120_000 };

const log = getLogger(["denolith", "registration"]);

/**
 * Serves the registration of the driver on a socket. When kubelet rejects the driver, as while the API server is away, it may not
 * try again before it sees another socket (kubernetes#133725). So the socket is replaced after a while, until it succeeds.
 *
 * @param path the path of the socket
 * @throws {StorageError} `FailedPrecondition` when another process listens on it
 */
export async function serveRegistration(
  path: string,
  { driver, endpoint, onStatus, clock = systemClock }: RegistrationOptions,
): Promise<Pick<RunningServer, "close">> {
  const info = { type: "CSIPlugin", name: driver, endpoint, supportedVersions: SUPPORTED_VERSIONS };
  let [failures, isClosed, cancel] = [0, false, () => {}];
  const service = bindService(Registration, {
    getInfo: () => Promise.resolve(info),
    notifyRegistrationStatus: ({ pluginRegistered, error }) => {
      cancel();
      if (pluginRegistered) {
        failures = 0;
        log.info("plugin registered with kubelet", { driver });
      } else {
        log.error("kubelet rejected the plugin", { driver, reason: error });
        replaceLater();
      }
      onStatus?.(pluginRegistered ? undefined : error);
      return Promise.resolve({});
    },
  });
  const listen = () => serve(path, [service], { firstCalls: [pathOf(Registration.method.getInfo)] });
  let server: Promise<RunningServer | undefined> = listen();
  const replaceLater = () => {
    cancel = clock.after(backoffMs(BACKOFF, ++failures, clock), () => server = replace(server));
  };
  const replace = async (old: typeof server): Promise<RunningServer | undefined> => {
    await (await old)?.close(0);
    if (isClosed) return undefined;
    return await listen().catch((error) => {
      log.error("kubelet cannot reach the plugin: its socket was not opened again", { driver, error });
      replaceLater();
      return undefined;
    });
  };
  await server;
  return {
    close: async (graceMs) => {
      isClosed = true;
      cancel();
      return await (await server)?.close(graceMs) ?? true;
    },
  };
}
