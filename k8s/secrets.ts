/**
 * Secrets, read only where a class or a volume names one.
 *
 * @module
 */

import type { ApiClient } from "./client.ts";
import type { SecretReference } from "./class_parameters.ts";
import type { KubeObject, Resource } from "./objects.ts";

/** A Secret. */
interface Secret extends KubeObject {
  /** What it says, in base64. */
  readonly data?: Readonly<Record<string, string>>;
}

/** Secrets. */
export const secrets: Resource<Secret> = {
  group: "",
  version: "v1",
  plural: "secrets",
  kind: "Secret",
  namespaced: true,
};

/** What a secret says; nothing, where none is named. @throws {ApiError} */
export async function readSecret(
  client: ApiClient,
  reference: SecretReference | undefined,
  options: { signal: AbortSignal },
): Promise<Record<string, string>> {
  if (reference === undefined) return {};
  const { data = {} } = await client.get(secrets, reference, options);
  const text = (base64: string) => new TextDecoder().decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
  return Object.fromEntries(Object.entries(data).map(([key, value]) => [key, text(value)]));
}
