/**
 * Names in the cluster and in the kubeconfig, for the completion of shells.
 *
 * @module
 */

import { lvmNodes, lvmSnapshots, lvmVolumes } from "../k8s/api/lvm_objects.ts";
import {
  clusterScoped,
  type KubeObject,
  persistentVolumeClaims,
  persistentVolumes,
  pods,
  type Resource,
} from "../k8s/api/objects.ts";
import { volumeGroupSnapshots, volumeSnapshotContents, volumeSnapshots } from "../k8s/api/snapshot_objects.ts";
import type { Flags, SubcommandHelp } from "../cli/command_line.ts";
import type { NameSource } from "../cli/help/completion.ts";
import { type Kubectl, type KubectlOptions, kubectlOptions } from "./kubectl.ts";
import { KubectlClient } from "./kubectl_client.ts";
import { contextOf, DEFAULT_NAMESPACE } from "./session.ts";
import { PLUGIN_COMMANDS } from "./subcommands.ts";

/** The time that a cluster has to answer, in milliseconds: who pressed a key is waiting. */
const DEADLINE_MS = 2_000;

const RESOURCES: Readonly<Record<string, Resource<KubeObject>>> = Object.fromEntries(
  [
    ...[lvmNodes, lvmVolumes, lvmSnapshots, clusterScoped("v1", "Namespace"), pods, persistentVolumeClaims],
    ...[persistentVolumes, volumeSnapshots, volumeSnapshotContents, volumeGroupSnapshots],
  ].map((resource) => [resource.plural, resource]),
);

/**
 * Returns the names that the user's kubectl finds, with the context, the kubeconfig, the user and the namespace of the
 * command line, as far as they are valid.
 *
 * @param kubectl creates what runs kubectl
 * @param deadlineMs the time after which there are no names, in milliseconds
 */
export function clusterNames(kubectl: (options: KubectlOptions) => Kubectl, deadlineMs = DEADLINE_MS): NameSource {
  const open = (flags: Flags) => {
    return { runner: kubectl(kubectlOptions(validFlags(flags))), signal: AbortSignal.timeout(deadlineMs) };
  };
  return {
    async names(plural, flags) {
      const resource = RESOURCES[plural]!;
      const { runner, signal } = open(flags);
      const namespace = resource.namespaced ? await namespaceOf(runner, flags, signal) : undefined;
      const names: string[] = [];
      const pages = new KubectlClient(runner).listPages(resource, { ...(namespace && { namespace }), signal });
      for await (const { items } of pages) names.push(...items.map(({ metadata }) => metadata.name));
      return names;
    },
    async contexts(flags) {
      const { runner, signal } = open(flags);
      const { code, stdout } = await runner.run({ verb: "contexts" }, signal);
      return code === 0 ? stdout.split(/\r?\n/).filter((name) => name !== "") : [];
    },
  };
}

async function namespaceOf(kubectl: Kubectl, flags: Flags, signal: AbortSignal): Promise<string> {
  const { namespace } = validFlags(flags);
  if (namespace !== undefined) return namespace;
  const { code, stdout } = await kubectl.run({ verb: "config" }, signal);
  return (code === 0 ? contextOf(stdout)?.namespace : undefined) ?? DEFAULT_NAMESPACE;
}

/** Returns the flags that select the cluster, without invalid ones: nothing has checked them yet. */
function validFlags(flags: Flags): Flags {
  const known: SubcommandHelp["flags"] = PLUGIN_COMMANDS.why.flags;
  return Object.fromEntries(
    Object.entries(flags).filter(([name, value]) => {
      try {
        known[name]?.check?.(value, name);
        return true;
      } catch {
        return false;
      }
    }),
  );
}
