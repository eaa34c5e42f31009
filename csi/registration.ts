/**
 * How kubelet learns of the driver: it finds a socket in its `plugins_registry`, asks it, and says what came of it
 * (k8s.io/kubelet, pluginregistration v1). After a restart of either it asks again.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { connectToService } from "./client.ts";
import { type RunningServer, serve } from "./server.ts";
import { Registration } from "./proto/registration_pb.ts";
import { bindService } from "./service.ts";

/** What kubelet is told. */
export interface RegistrationOptions {
  /** The driver's name. */
  readonly driver: string;
  /** The path of the driver's socket, as kubelet sees it. */
  readonly endpoint: string;
  /** Is told what kubelet made of it: an error, or `undefined` when the driver was taken in. */
  onStatus?(error: string | undefined): void;
}

/** The CSI versions that the driver speaks, as kubelet names them. */
const SUPPORTED_VERSIONS = ["1.0.0"];

const log = getLogger(["denolith", "registration"]);

/**
 * Answers kubelet on the socket.
 *
 * @throws {StorageError} `FailedPrecondition` when another process answers on it.
 */
export async function serveRegistration(path: string, options: RegistrationOptions): Promise<RunningServer> {
  const { driver, endpoint, onStatus } = options;
  const info = { type: "CSIPlugin", name: driver, endpoint, supportedVersions: SUPPORTED_VERSIONS };
  const service = bindService(Registration, {
    getInfo: () => Promise.resolve(info),
    notifyRegistrationStatus: ({ pluginRegistered, error }) => {
      if (pluginRegistered) log.info("kubelet has taken the driver in", { driver });
      else log.error("kubelet refused the driver", { driver, reason: error });
      onStatus?.(pluginRegistered ? undefined : error);
      return Promise.resolve({});
    },
  });
  return await serve(path, [service], async () => {
    using client = connectToService(path, Registration);
    await client.calls.getInfo();
  });
}
