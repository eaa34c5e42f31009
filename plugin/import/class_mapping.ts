/**
 * What a StorageClass of another driver becomes: each of its parameters is mapped, or named as lost.
 *
 * @module
 */

import { OPENEBS_PARAMETERS, OPENEBS_REFUSED_PARAMETERS } from "../../lvm/settings/openebs_names.ts";
import type { StorageClass } from "../../k8s/api/objects.ts";
import { type Origin, type OriginDescription, ORIGINS } from "../../k8s/handover/imports.ts";

/** A parameter that has no counterpart, and why. */
export interface LostParameter {
  /** Its name, as the class has it. */
  readonly name: string;
  /** Its value. */
  readonly value: string;
  /** Why it is lost, or what to use instead. */
  readonly why: string;
}

/** What a class becomes. */
export interface ClassMapping {
  /** Its parameters. */
  readonly parameters: Readonly<Record<string, string>>;
  /** Its allowed topologies, with the driver's label. */
  readonly allowedTopologies?: NonNullable<StorageClass["allowedTopologies"]>;
  /** The parameters without a counterpart. */
  readonly lost: readonly LostParameter[];
}

/** Where the volumes of a class are, which the class of some drivers does not say. */
export interface ClassPlace {
  /** The volume group. */
  readonly volumeGroup: string;
  /** The thin pool of thin volumes; absent for thick ones, and for the group's own pool. */
  readonly thinPool?: string;
  /** The label of a node that is its topology. */
  readonly topologyKey: string;
}

/** What becomes of one parameter. */
type Mapped = Readonly<Record<string, string>> | { readonly why: string };

/** Parameters that Kubernetes' own programs read. */
const RESERVED = "csi.storage.k8s.io/";

/** The parameters whose values say the same to the driver, by their names in lower case. */
const SAME_MEANING = new Map(
  Object.entries(OPENEBS_PARAMETERS).map(([name, parameter]) => [
    name.toLowerCase(),
    "settings" in parameter ? parameter.settings : [name],
  ]),
);

const REFUSED = new Map(
  Object.entries(OPENEBS_REFUSED_PARAMETERS).map(([name, remedy]) => [name.toLowerCase(), remedy]),
);

/** Returns what a class becomes. */
export function mapClass(origin: Origin, storageClass: StorageClass, place: ClassPlace): ClassMapping {
  const parameters: Record<string, string> = {};
  const lost: LostParameter[] = [];
  for (const [name, value] of Object.entries(storageClass.parameters ?? {})) {
    const mapped = mapParameter(origin, name, value, place);
    if ("why" in mapped) lost.push({ name, value, why: mapped.why! });
    else Object.assign(parameters, mapped);
  }
  if (origin === "OpenEBS") parameters.shared ??= "no"; // which is its default
  if (origin === "TopoLVM") {
    parameters.volumeGroup = place.volumeGroup;
    if (place.thinPool !== undefined) Object.assign(parameters, { thinProvision: "yes", thinPool: place.thinPool });
  }
  const { allowedTopologies } = storageClass;
  return {
    parameters,
    lost,
    ...(allowedTopologies && { allowedTopologies: mapTopologies(origin, allowedTopologies, place.topologyKey) }),
  };
}

function mapParameter(origin: Origin, name: string, value: string, place: ClassPlace): Mapped {
  if (name.startsWith(RESERVED)) {
    return name === `${RESERVED}fstype` ? { [name]: value } : { why: "the driver reads no secrets for it" };
  }
  return origin === "OpenEBS" ? mapOpenEbs(name.toLowerCase(), value) : mapTopoLvm(name, place);
}

function mapOpenEbs(name: string, value: string): Mapped {
  if (name === "storage") return {}; // lvm, and nothing else
  if (name === "scheduler" && value !== "") {
    return value.toLowerCase() === "spaceweighted"
      ? { volumeGroupPreference: "mostFree" }
      : { why: "the driver chooses a node by its free space alone" };
  }
  const settings = SAME_MEANING.get(name);
  if (settings === undefined) return { why: REFUSED.get(name) ?? "it has no meaning here" };
  if (value === "") return {};
  return Object.fromEntries(settings.map((setting) => [setting, value]));
}

function mapTopoLvm(name: string, { volumeGroup }: ClassPlace): Mapped {
  if (/^topolvm\.(?:io|cybozu\.com)\/device-class$/.test(name)) return { volumeGroup };
  if (/\/lvcreate-option-class$/.test(name)) return { why: "use layout, stripes, stripeSize and mirrors" };
  return { why: "it has no meaning here" };
}

function mapTopologies(
  origin: Origin,
  allowedTopologies: NonNullable<StorageClass["allowedTopologies"]>,
  topologyKey: string,
): NonNullable<StorageClass["allowedTopologies"]> {
  const { topologyKeys }: OriginDescription = ORIGINS[origin];
  return allowedTopologies.map(({ matchLabelExpressions = [] }) => ({
    matchLabelExpressions: matchLabelExpressions.map(({ key, values }) => ({
      key: topologyKeys.includes(key) ? topologyKey : key,
      values,
    })),
  }));
}
