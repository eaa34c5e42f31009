/**
 * Samples of a soak: what the driver's processes take, and what is in the cluster and in LVM.
 *
 * @module
 */

import type { Pod } from "../../../k8s/api/objects.ts";
import type { Cluster } from "../../rig/cluster.ts";
import { pidCommand } from "../../rig/driver_process.ts";
import { type Role, SYSTEM_NAMESPACE } from "../suite/helpers/driver_pods.ts";
import { listDriverLvs } from "../suite/helpers/driver_lvs.ts";

/**
 * A part of a cycle. While `kills` and `calm`, lives of volumes go on; components die during `kills` alone. At `rest`,
 * everything that was created has been deleted.
 */
export type Phase = "kills" | "calm" | "rest";

/** What a process of the driver takes. */
export interface ProcessSample {
  readonly pid: number;
  /** Resident memory, in MiB. */
  readonly rssMiB: number;
  /** Anonymous resident memory, in MiB. */
  readonly anonMiB: number;
  /** Open file descriptors. */
  readonly descriptors: number;
  /** Their numbers by what they are: `socket`, `pipe`, the path of a file, and so on. */
  readonly descriptorKinds: Readonly<Record<string, number>>;
  readonly threads: number;
  /** Keys in all work queues, of `denolith_workqueue_depth`; undefined when the process did not answer. */
  readonly queued: number | undefined;
}

/** What there is at one moment. */
export interface Sample {
  /** Seconds since the soak began. */
  readonly seconds: number;
  /** Lives of volumes that had ended. */
  readonly lives: number;
  /** The cycle, from 1; 0 before the first. */
  readonly cycle: number;
  readonly phase: Phase;
  readonly processes: Partial<Record<Role, ProcessSample>>;
  /** Logical volumes of the driver. */
  readonly lvs: number;
  /** Objects by the plural of their kind. */
  readonly objects: Readonly<Record<string, number>>;
}

/** The kinds of objects that are counted: those of volumes and snapshots. */
const COUNTED = [
  "/api/v1/persistentvolumes",
  "/api/v1/persistentvolumeclaims",
  "/apis/lvm.denolith.dev/v1alpha1/lvmvolumes",
  "/apis/lvm.denolith.dev/v1alpha1/lvmsnapshots",
  "/apis/snapshot.storage.k8s.io/v1/volumesnapshots",
  "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents",
  "/apis/storage.k8s.io/v1/volumeattachments",
  "/apis/storage.k8s.io/v1/csistoragecapacities",
] as const;

/** The ports of the driver's HTTP servers. */
const HTTP_PORTS: Readonly<Record<Role, number>> = { node: 9808, controller: 9809 };

/** Prints a process's figures and its metrics of queues, for {@linkcode parseProcess}. */
const PROCESS_SCRIPT = `
pid=$(${pidCommand("$role")}) || exit 3
echo "pid $pid"
grep -E '^(VmRSS|RssAnon|Threads):' /proc/$pid/status
for fd in /proc/$pid/fd/*; do
  kind=$(readlink $fd) || continue
  number=$(echo "$kind" | sed -n 's/^socket:\\[\\([0-9]*\\)\\]$/\\1/p')
  if [ -n "$number" ]; then
    table=$(grep -lw $number /proc/$pid/net/unix /proc/$pid/net/tcp /proc/$pid/net/tcp6 | head -1)
    kind="socket: $(basename "$table") $(grep -w $number "$table" | awk '{ print ($8 ~ /^\\// ? $8 : $3 " " $4) }')"
  fi
  echo "descriptor $(echo "$kind" | sed 's/:\\[[0-9]*\\]$//')"
done
timeout 20 busybox wget -q -O - "$url" | grep '^denolith_workqueue_depth' || true
`;

/**
 * Reads what {@linkcode PROCESS_SCRIPT} printed.
 *
 * @throws {Error} when a figure is missing
 */
export function parseProcess(text: string): ProcessSample {
  const number = (pattern: RegExp) => {
    const [, digits] = pattern.exec(text) ?? [];
    if (digits === undefined) throw new Error(`read the figures of a process: no ${pattern.source} in ${text}`);
    return Number(digits);
  };
  const kinds = [...text.matchAll(/^descriptor (.*)$/gm)].map(([, kind]) => kind!);
  if (kinds.length === 0) throw new Error(`read the figures of a process: no descriptor in ${text}`);
  const depths = [...text.matchAll(/^denolith_workqueue_depth\S* (\d+)$/gm)].map(([, depth]) => Number(depth));
  return {
    pid: number(/^pid (\d+)$/m),
    rssMiB: Math.round(number(/^VmRSS:\s+(\d+) kB$/m) / 1024),
    anonMiB: Math.round(number(/^RssAnon:\s+(\d+) kB$/m) / 1024),
    descriptors: kinds.length,
    descriptorKinds: Object.fromEntries(
      [...Map.groupBy(kinds, (kind) => kind)].map(([kind, each]) => [kind, each.length] as const).sort(),
    ),
    threads: number(/^Threads:\s+(\d+)$/m),
    queued: depths.length === 0 ? undefined : depths.reduce((sum, depth) => sum + depth, 0),
  };
}

/** Reports whether a process of the driver ran a command when a sample was taken: it has a pidfd of each (pidfd_open(2)). */
export function isRunningCommands({ processes }: Sample): boolean {
  return Object.values(processes).some(({ descriptorKinds }) => "anon_inode:[pidfd]" in descriptorKinds);
}

/** Takes samples of a cluster. */
export class Sampler {
  readonly #cluster: Cluster;
  readonly #startedAt = performance.now();

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  /** Seconds since it was created. */
  get seconds(): number {
    return Math.round((performance.now() - this.#startedAt) / 1000);
  }

  /**
   * Takes a sample. A process that does not run is left out.
   *
   * @throws {Error} when the API server, the node or LVM does not answer
   */
  async take(options: Pick<Sample, "lives" | "phase" | "cycle">): Promise<Sample> {
    const processes: Partial<Record<Role, ProcessSample>> = {};
    for (const role of ["node", "controller"] as const) {
      const sample = await this.#process(role);
      if (sample !== undefined) processes[role] = sample;
    }
    const lvs = (await Promise.all(this.#cluster.nodes.map(listDriverLvs))).flat().length;
    return { seconds: this.seconds, ...options, processes, lvs, objects: await this.#objects() };
  }

  async #process(role: Role): Promise<ProcessSample | undefined> {
    const pods = await this.#list<Pod>(`/api/v1/namespaces/${SYSTEM_NAMESPACE}/pods`);
    const isOne = ({ metadata }: Pod) => metadata.labels?.["app.kubernetes.io/component"] === role;
    const address = pods.find(isOne)?.status?.podIP;
    const url = `http://${address}:${HTTP_PORTS[role]}/metrics`;
    const { code, stdout } = await this.#cluster.nodes[0]!.exec(`role=${role} url=${url}\n${PROCESS_SCRIPT}`);
    return code === 0 ? parseProcess(stdout) : undefined;
  }

  async #objects(): Promise<Record<string, number>> {
    const counts = await Promise.all(COUNTED.map(async (path) => {
      return [path.slice(path.lastIndexOf("/") + 1), (await this.#list(path)).length] as const;
    }));
    return Object.fromEntries(counts);
  }

  async #list<T>(path: string): Promise<T[]> {
    const { status, body } = await this.#cluster.controlPlane.request(path);
    if (status !== 200) throw new Error(`list objects: GET ${path}: HTTP status ${status}: ${body}`);
    return (JSON.parse(body) as { items: T[] }).items;
  }
}
