/**
 * Which claims pods use, which nodes take them, and how messages list nodes.
 *
 * @module
 */

import type { Node, Pod, StatefulSet } from "./objects.ts";

/** Returns the names of the claims that a pod uses; those of its ephemeral volumes, too. */
export function claimNamesOf({ metadata, spec }: Pod): string[] {
  return (spec?.volumes ?? []).flatMap(({ name, persistentVolumeClaim, ephemeral }) =>
    persistentVolumeClaim?.claimName ?? (ephemeral ? `${metadata.name}-${name}` : [])
  );
}

/** Reports whether a pod has ended. */
export function hasEnded({ status }: Pod): boolean {
  return ["Succeeded", "Failed"].includes(status?.phase ?? "");
}

/** Returns the name of the pod of a StatefulSet that has a claim, whether it runs or not; `undefined` for other claims. */
export function podOfClaim(claim: string, { metadata: { name }, spec }: StatefulSet): string | undefined {
  for (const template of spec?.volumeClaimTemplates ?? []) {
    const prefix = `${template.metadata?.name}-`;
    const pod = claim.slice(prefix.length);
    const ordinal = pod.slice(name.length + 1);
    if (claim.startsWith(prefix) && pod.startsWith(`${name}-`) && /^\d+$/.test(ordinal)) return pod;
  }
  return undefined;
}

/** Reports whether a pod may be scheduled to a node with its taints. */
export function toleratesTaints({ spec }: Pick<Pod, "spec">, node: Node): boolean {
  const taints = node.spec?.taints?.filter(({ effect }) => effect === "NoSchedule" || effect === "NoExecute") ?? [];
  return taints.every((taint) =>
    (spec?.tolerations ?? []).some(({ key, operator = "Equal", value = "", effect }) =>
      (!effect || effect === taint.effect) &&
      (operator === "Exists" ? !key || key === taint.key : key === taint.key && value === (taint.value ?? ""))
    )
  );
}

/** Reports whether a Node is Ready. */
export function isNodeReady({ status }: Node): boolean {
  return status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;
}

/** The number of names that a message lists. */
export const MAX_LISTED_NODES = 5;

/**
 * Returns node names as a message lists them: the first five, and the number of the others.
 *
 * @param separator text between two names
 */
export function listNodeNames(names: readonly string[], separator = ", "): string {
  const listed = names.slice(0, MAX_LISTED_NODES).join(separator);
  const more = names.length - MAX_LISTED_NODES;
  return more > 0 ? `${listed} and ${more} more` : listed;
}
