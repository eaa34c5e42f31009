/**
 * Registration with kubelet: kubelet finds a socket in its `plugins_registry`, asks it for the driver, and reports the
 * result (k8s.io/kubelet, pluginregistration v1). It does so again after a restart of kubelet or of the driver.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { listenByNode } from "./grpc.ts";
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
}

/** The supported versions of CSI, in the notation of kubelet. */
const SUPPORTED_VERSIONS = ["1.0.0"];

const log = getLogger(["denolith", "registration"]);

/**
 * Serves the registration of the driver on a socket.
 *
 * @param path the path of the socket
 * @throws {StorageError} `FailedPrecondition` when another process listens on it
 */
export async function serveRegistration(path: string, options: RegistrationOptions): Promise<RunningServer> {
  const { driver, endpoint, onStatus } = options;
  const info = { type: "CSIPlugin", name: driver, endpoint, supportedVersions: SUPPORTED_VERSIONS };
  const service = bindService(Registration, {
    getInfo: () => Promise.resolve(info),
    notifyRegistrationStatus: ({ pluginRegistered, error }) => {
      if (pluginRegistered) log.info("plugin registered with kubelet", { driver });
      else log.error("kubelet rejected the plugin", { driver, reason: error });
      onStatus?.(pluginRegistered ? undefined : error);
      return Promise.resolve({});
    },
  });
  // by Node.js, which accepts any `:authority`: kubelet sends the escaped path of the socket, which Deno's server refuses
  return await serve(path, [service], { firstCalls: [pathOf(Registration.method.getInfo)], listenOn: listenByNode });
}
