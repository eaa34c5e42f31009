/**
 * Secrets, each read by its name, where a class or a volume names one, and never listed: so a controller may be allowed those
 * and no others (docs/adr/0012).
 *
 * @module
 */

import { withReason } from "../../base/error.ts";
import { getLogger } from "@logtape/logtape";
import { type ApiClient, ApiError, isTransient } from "../client/client.ts";
import type { SecretReference } from "./class_parameters.ts";
import { type KubeObject, namespaced, type Resource } from "../api/objects.ts";

/** A Secret. */
interface Secret extends KubeObject {
  /** Its values, in base64. */
  readonly data?: Readonly<Record<string, string>>;
}

/** Secrets. */
export const secrets: Resource<Secret> = namespaced("v1", "Secret");

/**
 * Reads the values of a secret, decoded; none when no secret is named.
 *
 * @throws {ApiError} with a remedy when reading is forbidden, or there is no such secret
 */
export async function readSecret(
  client: ApiClient,
  reference: SecretReference | undefined,
  options: { signal: AbortSignal },
): Promise<Record<string, string>> {
  if (reference === undefined) return {};
  const { data = {} } = await client.get(secrets, reference, options).catch((error) => {
    throw error instanceof ApiError ? withRemedy(error, reference) : error;
  });
  const decodeBase64 = (base64: string) =>
    new TextDecoder().decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
  return Object.fromEntries(Object.entries(data).map(([key, value]) => [key, decodeBase64(value)]));
}

/**
 * Reads the values of a secret for a deletion; none when the server refuses them. With the namespace of a claim, the
 * secret and the right to read it may be deleted before the volume, and the driver deletes it without.
 *
 * @throws {ApiError} when the server does not answer
 */
export async function readSecretIfAllowed(
  client: ApiClient,
  reference: SecretReference | undefined,
  options: { signal: AbortSignal },
): Promise<Record<string, string>> {
  return await readSecret(client, reference, options).catch((error) => {
    if (!(error instanceof ApiError) || isTransient(error)) throw error;
    getLogger(["denolith", "secrets"]).info("deleting without a secret, which cannot be read", { ...reference, error });
    return {};
  });
}

function withRemedy(cause: ApiError, { name, namespace }: SecretReference): ApiError {
  const { status, reason, message } = cause;
  const remedy = status === 403
    ? `the controller may not read it: allow it to get ${name} by a Role in namespace ${namespace} ` +
      "(kubectl denolith help runbook security/secrets), or"
    : status === 404
    ? `it does not exist: create ${name} in namespace ${namespace}, or`
    : undefined;
  if (remedy === undefined) return cause;
  const text =
    `${message}. A class names this secret, but ${remedy} remove it from the class, since the driver uses none. ` +
    "A PersistentVolume keeps the secrets that its class named when it was created";
  return new ApiError(withReason(text, status === 403 ? "SecretForbidden" : "NoSuchSecret"), { status, reason, cause });
}
