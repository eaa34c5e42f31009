/**
 * Where the LV of a volume of another driver is: its node, its volume group, its name.
 *
 * @module
 */

import type { LvmNode } from "../../k8s/api/lvm_objects.ts";
import type { PersistentVolume } from "../../k8s/api/objects.ts";
import { nodeOfVolume } from "../../k8s/handover/persistent_volume.ts";
import { type OpenEbsVolume, type OriginDescription, ORIGINS, type TopoLvmVolume } from "../../k8s/handover/imports.ts";
import type { ImportOptions, ImportSources } from "./sources.ts";
import { defined } from "../../base/defined.ts";

/** Where an LV is. What is not known is absent, and a refusal says so. */
export interface Place {
  /** The node. */
  readonly node?: string;
  /** The name of the volume group. */
  readonly group?: string;
  /** Its UUID. */
  readonly groupUuid?: string;
  /** The name of the LV. */
  readonly lvName?: string;
  /** Whether it is thin. */
  readonly isThin: boolean;
  /** The name of its pool, if it is not the group's own. */
  readonly thinPool?: string;
  /** Why the LV is not found. */
  readonly refusals: readonly string[];
}

/** What the objects of a driver say about an LV. */
interface Hints {
  readonly node: string | undefined;
  readonly group: string | undefined;
  readonly lvName: string | undefined;
  readonly isThin?: boolean;
  /** What to do where the group is not known. */
  readonly groupRemedy?: string;
}

/** The paths of LVs: `/dev/GROUP/NAME` and `/dev/mapper/GROUP-NAME`, with hyphens in the names doubled. */
const [LINK, MAPPER] = [
  /^\/dev\/(?!mapper\/|disk\/)([^/]+)\/([^/]+)$/,
  /^\/dev\/mapper\/((?:[^/\-]|--)+)-((?:[^/\-]|--)+)$/,
];

/** Returns where an LV is, by the objects, and by what the administrator says. */
export function placeOf(
  sources: Omit<ImportSources, "claim">,
  options: Pick<ImportOptions, "volumeGroup" | "thinPool">,
): Place {
  const { persistentVolume, lvmNodes, origin } = sources;
  const hints = hintsOf(sources);
  const { node, lvName } = hints;
  const groups = lvmNodes.find(({ metadata }) => metadata.name === node)?.status?.volumeGroups ?? [];
  const groupName = options.volumeGroup ?? hints.group;
  const group = groups.find(({ name }) => name === groupName);
  const known = groups.map(({ name }) => name).join(", ") || "none";
  const refusals = [
    node === undefined &&
    `the node affinity of PersistentVolume ${persistentVolume.metadata.name} names no single node`,
    node !== undefined && nodeByAffinity(origin, persistentVolume, lvmNodes) !== node &&
    `the node affinity of PersistentVolume ${persistentVolume.metadata.name} is not to node ${node} alone`,
    node !== undefined && !lvmNodes.some(({ metadata }) => metadata.name === node) &&
    `node ${node} has no agent of the driver`,
    lvName === undefined && "its path is not that of a logical volume: /dev/GROUP/NAME",
    groupName === undefined ? hints.groupRemedy : groups.length > 0 && group === undefined &&
      `node ${node} does not report volume group ${groupName}, but ${known}`,
  ].filter((refusal) => typeof refusal === "string");
  const { thinPool } = options;
  const isThin = hints.isThin === true || thinPool !== undefined;
  return defined({ node, lvName, group: groupName, groupUuid: group?.uuid, isThin, thinPool, refusals });
}

function hintsOf(sources: Omit<ImportSources, "claim">): Hints {
  const { persistentVolume, object, origin, lvmNodes } = sources;
  const handle = persistentVolume.spec?.csi?.volumeHandle;
  switch (origin) {
    case "OpenEBS": {
      const { spec } = (object ?? {}) as Partial<OpenEbsVolume>;
      const node = spec?.ownerNodeID ?? nodeByAffinity(origin, persistentVolume, lvmNodes);
      const group = spec?.volGroup ?? persistentVolume.spec?.csi?.volumeAttributes?.["openebs.io/volgroup"];
      return { node, group, lvName: handle, isThin: spec?.thinProvision === "yes" };
    }
    case "TopoLVM": {
      const { spec } = (object ?? {}) as Partial<TopoLvmVolume>;
      const node = spec?.nodeName ?? nodeByAffinity(origin, persistentVolume, lvmNodes);
      const deviceClass = spec?.deviceClass ?? "";
      const hasGroup = lvmNodes.some(({ metadata, status }) =>
        metadata.name === node && status?.volumeGroups?.some(({ name }) => name === deviceClass)
      );
      return {
        node,
        group: hasGroup ? deviceClass : undefined,
        lvName: handle,
        groupRemedy:
          `no object says which volume group the device class ${deviceClass || "(default)"} is: see lvmd's ` +
          "configuration, and name it with --volume-group",
      };
    }
    case "Local": {
      const path = persistentVolume.spec?.local?.path ?? "";
      const [, group, lvName] = LINK.exec(path) ?? MAPPER.exec(path)?.map((part) => part.replaceAll("--", "-")) ?? [];
      return { node: nodeByAffinity(origin, persistentVolume, lvmNodes), group, lvName };
    }
  }
}

function nodeByAffinity(
  origin: ImportSources["origin"],
  persistentVolume: PersistentVolume,
  lvmNodes: readonly LvmNode[],
): string | undefined {
  const { topologyKeys }: OriginDescription = ORIGINS[origin];
  const named = topologyKeys.map((key) => nodeOfVolume(persistentVolume, key)).find((node) => node !== undefined);
  // the label kubernetes.io/hostname usually has the name of the node, but for its domain
  return lvmNodes.find(({ metadata: { name } }) => name === named || name.split(".")[0] === named)?.metadata.name ??
    named;
}
