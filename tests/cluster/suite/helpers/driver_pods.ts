/**
 * The driver's own pods, and what befalls them.
 *
 * @module
 */

import { Informer } from "../../../../k8s/runtime/informer.ts";
import type { HttpClient } from "../../../../k8s/client/http_client.ts";
import { type Pod, pods } from "../../../../k8s/api/objects.ts";
import type { Cluster } from "../../../rig/cluster.ts";
import type { Node } from "../../../rig/node.ts";
import { adminClient } from "./claim_tracker.ts";

/** The namespace of deploy/manifests. */
export const SYSTEM_NAMESPACE = "denolith-system";

/** The time limit for a killed pod to be ready again, in milliseconds: a start alone takes a minute and a half here. */
const READY_TIMEOUT_MS = 420_000;

/** A process of the driver. */
export type Role = "controller" | "node";

/** The driver's own pods. */
export class DriverPods implements AsyncDisposable {
  readonly #cluster: Cluster;
  readonly #client: HttpClient;
  readonly #pods: Informer<Pod>;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  private constructor(cluster: Cluster) {
    this.#cluster = cluster;
    this.#client = adminClient(cluster.controlPlane);
    this.#pods = new Informer(this.#client, pods, { namespace: SYSTEM_NAMESPACE });
    this.#running = this.#pods.start(this.#stop.signal);
  }

  /** Looks after the pods of a cluster, and waits until both work. With `controller: false`, only the agent is waited for. */
  static async open(cluster: Cluster, { controller = true } = {}): Promise<DriverPods> {
    const driver = new DriverPods(cluster);
    await driver.#pods.synced;
    await driver.waitForReady("node", { count: cluster.nodes.length });
    if (controller) await driver.waitForReady("controller");
    return driver;
  }

  /** Returns the pods of a role that are not being deleted. */
  podsOf(role: Role): Pod[] {
    return this.#pods.list().filter(({ metadata: { labels, deletionTimestamp } }) =>
      labels?.["app.kubernetes.io/component"] === role && deletionTimestamp === undefined
    );
  }

  /** Returns the containers of the ready pods of a role. Each start of a container is another one. */
  readyContainers(role: Role): string[] {
    return this.podsOf(role).flatMap(({ status }) => {
      const isReady = status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True");
      const id = status?.containerStatuses?.[0]?.containerID;
      return isReady && id ? [id] : [];
    });
  }

  /** Returns how often containers were restarted, by pod. */
  restarts(): Record<string, number> {
    const findProcesses = [...this.podsOf("controller"), ...this.podsOf("node")];
    return Object.fromEntries(
      findProcesses.map(({ metadata, status }) => [metadata.name, status?.containerStatuses?.[0]?.restartCount ?? 0]),
    );
  }

  /** Waits until `count` pods of a role are ready, none of them in `before`. @throws {Error} after the time limit */
  async waitForReady(role: Role, { count = 1, before = [] as readonly string[] } = {}): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const check = () => {
      const now = this.readyContainers(role);
      if (now.length === count && !now.some((id) => before.includes(id))) resolve(true);
    };
    const unsubscribe = this.#pods.subscribe(check);
    const timer = setTimeout(() => resolve(false), READY_TIMEOUT_MS);
    check();
    const done = await promise;
    clearTimeout(timer);
    unsubscribe();
    if (!done) {
      throw new Error(`wait for ${count} ${role}: ${JSON.stringify(this.podsOf(role).map((pod) => pod.status))}`);
    }
  }

  /** Deletes the pods of a role: at once by default, without a word to its process. */
  async deletePods(role: Role, { graceful = false } = {}): Promise<void> {
    const deletionFlags = graceful ? [] : ["--grace-period=0", "--force"];
    await this.#cluster.controlPlane.kubectl([
      ...["--namespace", SYSTEM_NAMESPACE, "delete", "pods", "--wait=false", ...deletionFlags],
      ...["--selector", `app.kubernetes.io/component=${role}`],
    ]);
  }

  /** Deletes one pod, which may end as it wants to. */
  async deletePod(name: string): Promise<void> {
    await this.#cluster.controlPlane.kubectl(["--namespace", SYSTEM_NAMESPACE, "delete", "pod", name, "--wait=false"]);
  }

  /** Kills the processes of a role, or of one pod of it, on a node, or else on all; kubelet starts the container again. */
  async killProcess(role: Role, pod?: string, nodes: readonly Node[] = this.#cluster.nodes): Promise<void> {
    const podFilter = pod === undefined ? "true" : `tr '\\0' '\\n' < /proc/$p/environ | grep -qx HOSTNAME=${pod}`;
    const findProcesses = `pgrep -f '^/usr/bin/deno run .* /usr/bin/denolith ${role} '`;
    for (const node of nodes) {
      const { code, stderr } = await node.exec(
        `for p in $(${findProcesses}); do if ${podFilter}; then kill -KILL $p; fi; done`,
      );
      if (code !== 0) throw new Error(`kill ${role} on ${node.name}: exit status ${code}: ${stderr}`);
    }
  }

  /** Reads the logs of a role's processes on the node. The API server need not answer. */
  async logs(role: Role): Promise<string> {
    const [node] = this.#cluster.nodes;
    const { stdout } = await node!.exec(`cat /var/log/pods/${SYSTEM_NAMESPACE}_denolith-${role}-*/*/*.log`);
    return stdout;
  }

  /** Says how many controllers there are to be, and waits for them. */
  async scaleController(replicas: number): Promise<void> {
    const { controlPlane } = this.#cluster;
    await controlPlane.kubectl([
      ...["--namespace", SYSTEM_NAMESPACE, "scale", "deployment/denolith-controller", `--replicas=${replicas}`],
    ]);
    await this.waitForReady("controller", { count: replicas });
  }

  /** Looks away. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new Error("looked away"));
    await this.#running;
    this.#client[Symbol.dispose]();
  }
}
