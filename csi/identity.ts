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
import type { Handlers } from "./service.ts";

/** Options of {@linkcode identityHandlers}. */
export interface IdentityOptions {
  /** Name of the driver, a domain name of at most 63 characters. */
  readonly driver: string;
  /** Version of the driver. */
  readonly version: string;
  /** Whether the driver serves the GroupController service; false by default. */
  readonly hasGroupSnapshots?: boolean;
  /** Reports whether the driver is ready. Called often, so it must be fast or cached. */
  ready(): Promise<boolean>;
  /** True if the driver has the SnapshotMetadata service; false by default. */
  readonly hasSnapshotMetadata?: boolean;
}

/** Creates the handlers of the Identity service. */
export function identityHandlers(options: IdentityOptions): Handlers<typeof Identity> {
  return {
    getPluginInfo: () => Promise.resolve({ name: options.driver, vendorVersion: options.version }),
    getPluginCapabilities: () =>
      Promise.resolve({
        capabilities: [
          { type: { case: "service", value: { type: Service.CONTROLLER_SERVICE } } },
          { type: { case: "service", value: { type: Service.VOLUME_ACCESSIBILITY_CONSTRAINTS } } },
          { type: { case: "service", value: { type: Service.SNAPSHOT_ACCESSIBILITY_CONSTRAINTS } } },
          ...(options.hasGroupSnapshots
            ? [{ type: { case: "service" as const, value: { type: Service.GROUP_CONTROLLER_SERVICE } } }]
            : []),
          ...(options.hasSnapshotMetadata
            ? [{ type: { case: "service", value: { type: Service.SNAPSHOT_METADATA_SERVICE } } } as const]
            : []),
          { type: { case: "volumeExpansion", value: { type: Expansion.ONLINE } } },
        ],
      }),
    probe: async () => ({ ready: await options.ready() }),
  };
}
