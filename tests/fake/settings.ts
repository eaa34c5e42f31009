/**
 * Requests for volumes with the settings of lvm/settings/settings.ts, as the Controller service parses them.
 *
 * @module
 */

import { create } from "@bufbuild/protobuf";
import { controllerHandlers, type ControllerVolumes } from "../../csi/controller.ts";
import { CreateVolumeRequestSchema } from "../../csi/proto/csi_pb.ts";
import type { NamedVolumeRequest } from "../../k8s/api/volume_mapping.ts";
import { Locks } from "../../base/locks.ts";
import { type Setting, type SettingName, SETTINGS } from "../../lvm/settings/settings.ts";

/** Parameters of a StorageClass. */
export type ClassParameters = Readonly<Record<string, string>>;

/** Returns the entry of a setting. */
export function settingOf(name: SettingName): Setting {
  return SETTINGS[name];
}

/** Returns the parameters without which a setting is not accepted. */
export function parametersWithout(name: SettingName): ClassParameters {
  return settingOf(name).requires ?? {};
}

/** Returns the parameters that give a setting each of its listed values except the default. */
export function parametersWith(name: SettingName): ClassParameters[] {
  const { values, default: defaultValue } = settingOf(name);
  const listed = "form" in values ? values.examples : values;
  return listed.filter((value) => value !== defaultValue).map((value) => ({
    ...parametersWithout(name),
    [name]: value,
  }));
}

/** Returns the request that the Controller service makes of a CreateVolume call with the parameters. */
export async function requestWith(parameters: ClassParameters): Promise<NamedVolumeRequest> {
  const requests: NamedVolumeRequest[] = [];
  const volumes: Pick<ControllerVolumes, "create"> = {
    create: (request) => {
      requests.push(request);
      return Promise.resolve({ id: request.id, size: request.range.required, content: "raw", nodeId: "n1" });
    },
  };
  const handlers = controllerHandlers({ volumes: volumes as ControllerVolumes, locks: new Locks() });
  await handlers.createVolume!(create(CreateVolumeRequestSchema, {
    name: "settings",
    capacityRange: { requiredBytes: 1n << 30n },
    volumeCapabilities: [{ accessMode: { mode: 1 }, accessType: { case: "mount", value: {} } }],
    parameters: { ...parameters },
  }));
  return requests[0]!;
}
