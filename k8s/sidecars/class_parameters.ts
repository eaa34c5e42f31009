/**
 * The parameters of a class that are Kubernetes' own: the filesystem, and secrets.
 *
 * @module
 */

import type { Cause } from "../../base/error.ts";
import type { PersistentVolumeClaim } from "../api/objects.ts";

const PREFIX = "csi.storage.k8s.io/";

/** The parameter that names the filesystem. */
export const FS_TYPE = `${PREFIX}fstype`;

/** Calls that may have a secret of their own. */
const SECRET_USES = [
  "provisioner",
  "controller-publish",
  "controller-expand",
  "controller-modify",
  "node-stage",
  "node-publish",
  "node-expand",
] as const;

/** Calls about snapshots that may have a secret of their own, those about groups of them included. */
const SNAPSHOT_SECRET_USES = ["snapshotter", "snapshotter-list", "group-snapshotter", "group-snapshotter-get"];

const NAMESPACE = /^(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
const OBJECT_NAME = /^(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

/** A call that may have a secret of its own. */
export type SecretUse = (typeof SECRET_USES)[number];

/** A reference to a Secret. */
export interface SecretReference {
  /** Its name. */
  readonly name: string;
  /** Its namespace. */
  readonly namespace: string;
}

/** The parameters of a class, read. */
export interface ClassParameters {
  /** The filesystem; empty when none is named. */
  readonly fsType: string;
  /** The secrets. */
  readonly secrets: Readonly<Partial<Record<SecretUse, SecretReference>>>;
  /** Everything else: the driver's. */
  readonly parameters: Readonly<Record<string, string>>;
}

/** The kinds of those for whom snapshots are taken. */
export type SnapshotOwnerKind = "VolumeSnapshot" | "VolumeGroupSnapshot";

/** The parameters of a VolumeSnapshotClass or VolumeGroupSnapshotClass, read. */
export interface SnapshotClassParameters {
  /** The secret for looking for what was taken. Those for taking and deleting it are in the content. */
  readonly lookupSecret: SecretReference | undefined;
  /** Everything else: the driver's. */
  readonly parameters: Readonly<Record<string, string>>;
}

/** An error in a claim or a class, which somebody has to correct before a volume or a snapshot can be created. */
export class ClaimError extends Error {
  /** The name of the error class, for code that cannot use `instanceof`. */
  override readonly name = "ClaimError";

  /** Creates the error. @param reason the cause as a code, where somebody can act on a particular one */
  constructor(message: string, readonly reason?: Cause) {
    super(message);
  }
}

/**
 * Reads the parameters of a class for a claim. A parameter `fsType`, in any case, is the driver's and names the filesystem, too.
 *
 * @throws {ClaimError} for a key with the reserved prefix that is not known, and for a secret that is named by halves
 */
export function readClassParameters(
  classParameters: Readonly<Record<string, string>>,
  claim: PersistentVolumeClaim,
  { volumeName }: { volumeName: string },
): ClassParameters {
  const parameters = driverParameters(classParameters, [FS_TYPE, ...["", ...SECRET_USES].flatMap(secretKeys)]);
  const types = Object.entries(classParameters).filter(([key]) => key === FS_TYPE || key.toLowerCase() === "fstype");
  if (types.length > 1) {
    throw new ClaimError(`parameters ${types.map(([key]) => key).join(" and ")}: the filesystem is named twice`);
  }
  const tokens = templateTokens(claim, volumeName);
  const secrets: Partial<Record<SecretUse, SecretReference>> = {};
  for (const use of SECRET_USES) {
    const reference = secretReference(classParameters, use, tokens) ?? secretReference(classParameters, "", tokens);
    if (reference !== undefined) secrets[use] = reference;
  }
  return { fsType: types[0]?.[1] ?? "", secrets, parameters };
}

/**
 * Reads the parameters of a VolumeSnapshotClass or VolumeGroupSnapshotClass for the content of a name.
 *
 * @throws {ClaimError} for a key with the reserved prefix that is not known, and for a secret that is named by halves
 */
export function readSnapshotClassParameters(
  classParameters: Readonly<Record<string, string>>,
  { contentName, ownerKind }: { contentName: string; ownerKind: SnapshotOwnerKind },
): SnapshotClassParameters {
  const tokens = new Map([[`${ownerKind.toLowerCase()}content.name`, contentName]]);
  const lookup = ownerKind === "VolumeSnapshot" ? "snapshotter-list" : "group-snapshotter-get";
  return {
    parameters: driverParameters(classParameters, SNAPSHOT_SECRET_USES.flatMap(secretKeys)),
    lookupSecret: secretReference(classParameters, lookup, { namespace: tokens, name: tokens }),
  };
}

/**
 * Returns the parameters without Kubernetes' own.
 *
 * @throws {ClaimError} for an unknown parameter with Kubernetes' prefix
 */
function driverParameters(
  classParameters: Readonly<Record<string, string>>,
  reservedKeys: readonly string[],
): Record<string, string> {
  const unknown = Object.keys(classParameters).find((key) => key.startsWith(PREFIX) && !reservedKeys.includes(key));
  if (unknown !== undefined) throw new ClaimError(`parameter ${unknown}: there is no such key under ${PREFIX}`);
  return Object.fromEntries(Object.entries(classParameters).filter(([key]) => !key.startsWith(PREFIX)));
}

function secretKeys(use: string): [string, string] {
  const start = use === "" ? PREFIX : `${PREFIX}${use}-`;
  return [`${start}secret-name`, `${start}secret-namespace`];
}

/** The tokens of templates. In a namespace there is none that the owner of a claim can choose freely. */
interface TemplateTokens {
  readonly namespace: ReadonlyMap<string, string>;
  readonly name: ReadonlyMap<string, string>;
}

function templateTokens({ metadata }: PersistentVolumeClaim, volumeName: string): TemplateTokens {
  const namespace = new Map([["pv.name", volumeName], ["pvc.namespace", metadata.namespace ?? ""]]);
  const annotations = Object.entries(metadata.annotations ?? {}).map(([key, value]) =>
    [`pvc.annotations['${key}']`, value] as const
  );
  return { namespace, name: new Map([...namespace, ["pvc.name", metadata.name], ...annotations]) };
}

function secretReference(
  classParameters: Readonly<Record<string, string>>,
  use: string,
  tokens: TemplateTokens,
): SecretReference | undefined {
  const [nameKey, namespaceKey] = secretKeys(use);
  const [name, namespace] = [classParameters[nameKey], classParameters[namespaceKey]];
  if (name === undefined && namespace === undefined) return undefined;
  if (!name || !namespace) throw new ClaimError(`parameters ${nameKey} and ${namespaceKey}: one of them is missing`);
  return {
    name: resolveTemplate(nameKey, name, { tokens: tokens.name, allowed: OBJECT_NAME }),
    namespace: resolveTemplate(namespaceKey, namespace, { tokens: tokens.namespace, allowed: NAMESPACE }),
  };
}

function resolveTemplate(
  key: string,
  template: string,
  { tokens, allowed }: { tokens: ReadonlyMap<string, string>; allowed: RegExp },
): string {
  const value = template.replace(/\$\{([^}]*)\}/g, (_, token: string) => {
    const replacement = tokens.get(token);
    if (replacement === undefined) throw new ClaimError(`parameter ${key}: \${${token}} is not known here`);
    return replacement;
  });
  if (allowed.test(value)) return value;
  throw new ClaimError(`parameter ${key}: ${JSON.stringify(value)} is not a valid name`);
}
