/**
 * Rights, as roles grant them and as requests use them.
 *
 * @module
 */

import type { AuditEvent } from "../../../rig/control_plane.ts";

/** The user agent of a test that uses a process' token, so that its requests do not count as the process'. */
export const TEST_USER_AGENT = "trespasser";

/** A verb and a resource: `list apps/deployments`, `patch persistentvolumeclaims/status`. */
export type RbacPermission = string;

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

/** Returns the permissions of a service account according to manifests. */
export function grantedPermissions(account: string, objects: readonly RbacObject[]): Set<RbacPermission> {
  const refs = objects.filter(({ subjects }) => subjects?.some(({ name }) => name === account)).map(({ roleRef }) =>
    roleRef!
  );
  const roles = objects.filter(({ kind, metadata }) =>
    refs.some((ref) => ref.kind === kind && ref.name === metadata.name)
  );
  return new Set(roles.flatMap(({ rules = [] }) => rules.flatMap(permissionsOf)));
}

function permissionsOf({ apiGroups, resources, verbs }: Rule): RbacPermission[] {
  return apiGroups.flatMap((group) =>
    resources.flatMap((resource) => verbs.map((verb) => permission(verb, group, resource)))
  );
}

/**
 * Returns the permissions that the requests of a process needed. Requests without a resource, such as for health, need
 * none.
 */
export function usedPermissions(username: string, events: readonly AuditEvent[]): Set<RbacPermission> {
  const ownEvents = events.filter(({ user, userAgent }) => user.username === username && userAgent !== TEST_USER_AGENT);
  return new Set(
    ownEvents.flatMap(({ verb, objectRef }) => {
      if (objectRef?.resource === undefined) return [];
      const { apiGroup = "", resource, subresource } = objectRef;
      return [permission(verb, apiGroup, subresource === undefined ? resource : `${resource}/${subresource}`)];
    }),
  );
}

/** Returns the requests of a process that were denied, each kind once. */
export function deniedPermissions(username: string, events: readonly AuditEvent[]): Set<RbacPermission> {
  // A namespace that is being deleted accepts no new objects.
  const isDenied = ({ responseStatus: { code, message = "" } = {} }: AuditEvent) =>
    code === 403 && !message.endsWith("because it is being terminated");
  return usedPermissions(username, events.filter(isDenied));
}

/** Returns the largest number of requests within any one second. */
export function peakPerSecond(events: readonly AuditEvent[]): number {
  const times = events.map(({ requestReceivedTimestamp }) => Date.parse(requestReceivedTimestamp)).sort((a, b) =>
    a - b
  );
  let [max, from] = [0, 0];
  times.forEach((time, n) => {
    while (time - times[from]! >= 1000) from++;
    max = Math.max(max, n - from + 1);
  });
  return max;
}

function permission(verb: string, group: string, resource: string): RbacPermission {
  return `${verb} ${group === "" ? "" : `${group}/`}${resource}`;
}
