/**
 * Rights, as roles grant them and as requests use them.
 *
 * @module
 */

import type { AuditEvent } from "../../rig/control_plane.ts";

/** Who asks, by the user agent, when a test asks with the token of a process: its requests are none of the process's. */
export const TRESPASSER = "trespasser";

/** What may be done to what: `list apps/deployments`, `patch persistentvolumeclaims/status`. */
export type Right = string;

/** A rule of a Role or a ClusterRole. */
export interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
}

/** An object of RBAC, as far as it says who may do what. */
export interface RbacObject {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly rules?: readonly Rule[];
  readonly roleRef?: { readonly kind: string; readonly name: string };
  readonly subjects?: readonly { readonly kind: string; readonly name: string; readonly namespace?: string }[];
}

/** What a service account may do according to manifests. */
export function grantedTo(account: string, objects: readonly RbacObject[]): Set<Right> {
  const refs = objects.filter(({ subjects }) => subjects?.some(({ name }) => name === account)).map(({ roleRef }) =>
    roleRef!
  );
  const roles = objects.filter(({ kind, metadata }) =>
    refs.some((ref) => ref.kind === kind && ref.name === metadata.name)
  );
  return new Set(roles.flatMap(({ rules = [] }) => rules.flatMap(rightsOf)));
}

function rightsOf({ apiGroups, resources, verbs }: Rule): Right[] {
  return apiGroups.flatMap((group) =>
    resources.flatMap((resource) => verbs.map((verb) => right(verb, group, resource)))
  );
}

/** What the requests of a process took; requests beyond objects, such as for health, take none. */
export function usedBy(username: string, events: readonly AuditEvent[]): Set<Right> {
  const own = events.filter(({ user, userAgent }) => user.username === username && userAgent !== TRESPASSER);
  return new Set(
    own.flatMap(({ verb, objectRef }) => {
      if (objectRef?.resource === undefined) return [];
      const { apiGroup = "", resource, subresource } = objectRef;
      return [right(verb, apiGroup, subresource === undefined ? resource : `${resource}/${subresource}`)];
    }),
  );
}

/** The requests of a process that were refused for want of rights, each kind once. */
export function refusedTo(username: string, events: readonly AuditEvent[]): Set<Right> {
  // a namespace that ends takes nothing new, from nobody
  const isForRights = ({ responseStatus: { code, message = "" } = {} }: AuditEvent) =>
    code === 403 && !message.endsWith("because it is being terminated");
  return usedBy(username, events.filter(isForRights));
}

/** The most requests that came in any one second. */
export function peakPerSecond(events: readonly AuditEvent[]): number {
  const times = events.map(({ requestReceivedTimestamp }) => Date.parse(requestReceivedTimestamp)).sort((a, b) =>
    a - b
  );
  let [most, from] = [0, 0];
  times.forEach((time, n) => {
    while (time - times[from]! >= 1000) from++;
    most = Math.max(most, n - from + 1);
  });
  return most;
}

function right(verb: string, group: string, resource: string): Right {
  return `${verb} ${group === "" ? "" : `${group}/`}${resource}`;
}
