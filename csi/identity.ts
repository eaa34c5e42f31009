/**
 * The Identity service.
 *
 * @module
 */

import {
  type Identity,
  PluginCapability_Service_Type as Service,
  PluginCapability_VolumeExpansion_Type as Expansion,
} from "./proto/csi_pb.ts";
import { invalidArgument, quote } from "./request.ts";
import type { Handlers } from "./service.ts";

/** What the Identity service tells. */
export interface IdentityOptions {
  /** The driver's name, a domain name of at most 63 characters. */
  readonly driver: string;
  /** The driver's version. */
  readonly version: string;
  /** Whether the machine can do its work now; from a cache or quick, since it is asked often. */
  ready(): Promise<boolean>;
}

/** The calls of the Identity service. */
export function identityHandlers(options: IdentityOptions): Handlers<typeof Identity> {
  return {
    getPluginInfo: () => Promise.resolve({ name: options.driver, vendorVersion: options.version }),
    getPluginCapabilities: () =>
      Promise.resolve({
        capabilities: [
          { type: { case: "service", value: { type: Service.CONTROLLER_SERVICE } } },
          { type: { case: "service", value: { type: Service.VOLUME_ACCESSIBILITY_CONSTRAINTS } } },
          { type: { case: "service", value: { type: Service.SNAPSHOT_ACCESSIBILITY_CONSTRAINTS } } },
          { type: { case: "volumeExpansion", value: { type: Expansion.ONLINE } } },
        ],
      }),
    probe: async () => ({ ready: await options.ready() }),
  };
}

/** The driver's name. @throws {StorageError} `InvalidArgument` (CSI spec, GetPluginInfoResponse.name). */
export function requireDriverName(name: string): string {
  if (/^(?=.{1,63}$)[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(name)) return name;
  throw invalidArgument(`--driver-name ${quote(name)}: must be a domain name of at most 63 characters`);
}
