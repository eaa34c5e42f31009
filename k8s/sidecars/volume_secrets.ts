/**
 * The secrets that a PersistentVolume names for calls about its volume, as the official sidecars write and read them.
 *
 * @module
 */

import type { KubeObject, PersistentVolume } from "../api/objects.ts";
import type { ClassParameters, SecretReference } from "./class_parameters.ts";

const DELETION_SECRET_ANNOTATION = "volume.kubernetes.io/provisioner-deletion-secret";
const MODIFY_SECRET_ANNOTATION = "volume.kubernetes.io/controller-modify-secret";

/** The annotations of a PersistentVolume that name secrets. */
export const SECRET_ANNOTATIONS: readonly string[] = [DELETION_SECRET_ANNOTATION, MODIFY_SECRET_ANNOTATION].flatMap(
  (prefix) => [`${prefix}-name`, `${prefix}-namespace`],
);

/**
 * Returns the annotations of a PersistentVolume that name the secrets of its class for deletion and modification.
 *
 * The secret for deletion is always written, with empty names where there is none: otherwise the official provisioner looks
 * for it in the class.
 */
export function secretAnnotations({ secrets }: ClassParameters): Record<string, string> {
  const { provisioner, "controller-modify": modify } = secrets;
  return {
    [`${DELETION_SECRET_ANNOTATION}-name`]: provisioner?.name ?? "",
    [`${DELETION_SECRET_ANNOTATION}-namespace`]: provisioner?.namespace ?? "",
    ...(modify === undefined ? {} : {
      [`${MODIFY_SECRET_ANNOTATION}-name`]: modify.name,
      [`${MODIFY_SECRET_ANNOTATION}-namespace`]: modify.namespace,
    }),
  };
}

/** Returns the secret that two annotations of an object name, or `undefined` when one of them is missing or empty. */
export function secretAt({ annotations }: KubeObject["metadata"], prefix: string): SecretReference | undefined {
  const name = annotations?.[`${prefix}-name`];
  const namespace = annotations?.[`${prefix}-namespace`];
  return name && namespace ? { name, namespace } : undefined;
}

/** Returns the secret for the deletion of a volume, or `undefined` when its PersistentVolume names none. */
export function deletionSecretOf({ metadata }: PersistentVolume): SecretReference | undefined {
  return secretAt(metadata, DELETION_SECRET_ANNOTATION);
}

/**
 * Returns the secret for changing the attributes of a volume: its own, or else the one for expansion, as csi-resizer does.
 *
 * @returns the secret, or `undefined` when the PersistentVolume names none
 */
export function modifySecretOf(volume: PersistentVolume): SecretReference | undefined {
  return secretAt(volume.metadata, MODIFY_SECRET_ANNOTATION) ?? expandSecretOf(volume);
}

/** Returns the secret for the expansion of a volume, or `undefined` when its PersistentVolume names none. */
export function expandSecretOf({ spec }: PersistentVolume): SecretReference | undefined {
  const { name, namespace } = spec?.csi?.controllerExpandSecretRef ?? {};
  return name && namespace ? { name, namespace } : undefined;
}
