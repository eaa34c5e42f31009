/**
 * The rights of the driver's processes on a fake API server: those that the roles in deploy/ grant.
 *
 * @module
 */

import { readObjects } from "../../../deploy/objects.ts";

/** A request, as far as it needs rights. */
export interface AuthorizedRequest {
  /** The method. */
  readonly method: string;
  /** True for a watch. */
  readonly isWatch: boolean;
  /** The group of the resource; empty for the core group. */
  readonly group: string;
  /** The plural of the resource, and its subresource, if any. */
  readonly resource: string;
  /** The namespace; absent for all namespaces, and for resources without namespaces. */
  readonly namespace?: string | undefined;
  /** The name of the object; absent for a list, a watch or a creation. */
  readonly name?: string | undefined;
}

interface Rule {
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly verbs: readonly string[];
  /** The names of the objects that it is about; all, when absent. */
  readonly resourceNames?: readonly string[];
  /** True for a rule of a Role, which is about one namespace. */
  readonly isNamespaced: boolean;
}

/** A process of the driver in a cluster, or a person who uses the plugin. */
export type ProcessRole = "node" | "controller" | "viewer" | "operator";

/** The service accounts of the processes. */
const ACCOUNTS = { node: "denolith-node", controller: "denolith-controller" } as const;

/** The ClusterRoles of people, which an administrator binds. */
const CLUSTER_ROLES = { viewer: ["denolith-view"], operator: ["denolith-view", "denolith-operate"] } as const;

/** Rules beside those of the manifests: for secrets, by an administrator, and for disks, by the chart's value diskRules. */
const ADDED_RULES: Readonly<Partial<Record<ProcessRole, readonly Rule[]>>> = {
  controller: [{ apiGroups: [""], resources: ["secrets"], verbs: ["get"], isNamespaced: true }],
  node: [{ apiGroups: ["storage.k8s.io"], resources: ["volumeattachments"], verbs: ["list"], isNamespaced: false }],
};

const VERBS: Readonly<Record<string, string>> = { POST: "create", PUT: "update", PATCH: "patch", DELETE: "delete" };

/** Returns the rules of a service account in the manifests. */
function rulesOf(account: string): Rule[] {
  const manifests = readObjects("manifests");
  const bindings = manifests.filter(({ kind, subjects }) =>
    /^(?:Cluster)?RoleBinding$/.test(kind) && subjects.some(({ name }: { name: string }) => name === account)
  );
  return bindings.flatMap(({ kind, roleRef }) =>
    manifests.filter((role) => role.kind === roleRef.kind && role.metadata.name === roleRef.name).flatMap(({ rules }) =>
      rules.map((rule: Omit<Rule, "isNamespaced">) => ({ ...rule, isNamespaced: kind === "RoleBinding" }))
    )
  );
}

/** Returns the rules of ClusterRoles in the manifests. */
function rulesOfClusterRoles(names: readonly string[]): Rule[] {
  return readObjects("manifests").filter(({ kind, metadata }) =>
    kind === "ClusterRole" && names.includes(metadata.name)
  )
    .flatMap(({ rules }) => rules.map((rule: Omit<Rule, "isNamespaced">) => ({ ...rule, isNamespaced: false })));
}

/** The rules of the processes that were asked for. A bundle of tests for a guest has no manifests beside it. */
const rules = new Map<ProcessRole, readonly Rule[]>();

/** Returns the rules of a process. It reads the manifests once. */
function rulesOfProcess(role: ProcessRole): readonly Rule[] {
  const known = rules.get(role) ??
    (role === "viewer" || role === "operator"
      ? rulesOfClusterRoles(CLUSTER_ROLES[role])
      : [...rulesOf(ACCOUNTS[role]), ...ADDED_RULES[role] ?? []]);
  rules.set(role, known);
  return known;
}

/**
 * Returns what a process of the driver asks for without a right to it, as `patch persistentvolumeclaims/status`.
 *
 * @returns `undefined` when a role allows the request
 */
export function missingPermission(role: ProcessRole, request: AuthorizedRequest): string | undefined {
  const { method, isWatch, group, resource, namespace, name } = request;
  const verb = VERBS[method] ?? (name !== undefined ? "get" : isWatch ? "watch" : "list");
  const isAllowed = rulesOfProcess(role).some((rule) =>
    rule.apiGroups.includes(group) && rule.resources.includes(resource) && rule.verbs.includes(verb) &&
    (rule.resourceNames?.includes(name ?? "") ?? true) &&
    (!rule.isNamespaced || namespace !== undefined)
  );
  const where = namespace === undefined ? "" : " in a namespace";
  return isAllowed ? undefined : `${role}: ${describePermission(verb, group, resource)}${where}`;
}

/** Splits the path of a request for objects, such as `/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME/status`. */
export function parsePath(path: string) {
  const parts = path.split("/").slice(1).map(decodeURIComponent);
  const [, group = ""] = parts[0] === "api" ? [] : parts;
  parts.splice(0, parts[0] === "api" ? 2 : 3);
  const namespace = parts[0] === "namespaces" && parts.length > 2 ? parts.splice(0, 2)[1] : undefined;
  const [plural = "", name, subresource] = parts;
  return { group, namespace, resource: subresource === undefined ? plural : `${plural}/${subresource}`, name };
}

/** Returns the permission that a request uses, as `patch persistentvolumeclaims/status`. */
export function usedPermission(
  { method, path, query }: { readonly method: string; readonly path: string; readonly query: URLSearchParams },
): string {
  const { group, resource, name } = parsePath(path);
  const verb = VERBS[method] ?? (name !== undefined ? "get" : query.has("watch") ? "watch" : "list");
  return describePermission(verb, group, resource);
}

/** Returns the permissions that a ClusterRole of the manifests grants. */
export function grantedPermissions(clusterRole: string): string[] {
  return rulesOfClusterRoles([clusterRole]).flatMap(({ apiGroups, resources, verbs }) =>
    apiGroups.flatMap((group) =>
      resources.flatMap((resource) => verbs.map((verb) => describePermission(verb, group, resource)))
    )
  ).sort();
}

function describePermission(verb: string, group: string, resource: string): string {
  return `${verb} ${group === "" ? "" : `${group}/`}${resource}`;
}

/**
 * Returns the process in a user agent such as `denolith/1.2.3 (node)` or `denolith/test (controller) mover`; `undefined`
 * for that of another client.
 */
export function roleInUserAgent(userAgent: string): ProcessRole | undefined {
  return /^denolith\/.* \((node|controller|viewer|operator)\)(?: |$)/.exec(userAgent)?.[1] as ProcessRole | undefined;
}
