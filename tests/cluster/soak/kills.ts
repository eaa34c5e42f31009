/**
 * Kills of components during a soak.
 *
 * @module
 */

import type { Cluster } from "../../rig/cluster.ts";
import { DriverPods, type Role } from "../suite/helpers/driver_pods.ts";
import type { RandomSource } from "../../rig/seeded_random.ts";
import type { SnapshotTestNamespace } from "../suite/helpers/snapshot_test_namespace.ts";

/** The time for which the API server is away, in milliseconds. */
const OUTAGE_MS = 20_000;

/** The longest pause between two kills, in milliseconds. */
const MAX_PAUSE_MS = 45_000;

/** Kills components one after the other. */
export class Kills implements AsyncDisposable {
  /** How often each kind of kill occurred. */
  readonly counts = new Map<string, number>();
  readonly #cluster: Cluster;
  readonly #driver: DriverPods;
  readonly #kinds: readonly (readonly [string, () => Promise<void>])[];
  readonly #random: RandomSource;
  #next = 0;

  private constructor(cluster: Cluster, driver: DriverPods, snapshots: SnapshotTestNamespace, random: RandomSource) {
    this.#cluster = cluster;
    this.#driver = driver;
    this.#random = random;
    const [node] = cluster.nodes;
    this.#kinds = [
      ["the agent's process is killed", () => this.#kill("node", () => driver.killProcess("node"))],
      ["the controller's process is killed", () => this.#kill("controller", () => driver.killProcess("controller"))],
      ["the agent's pod is deleted", () => this.#kill("node", () => driver.deletePods("node", { graceful: true }))],
      ["the API server is away", () => this.#outage("stopApi", "startApi")],
      [
        "the controller's pod is deleted by force",
        () => this.#kill("controller", () => driver.deletePods("controller")),
      ],
      ["kubelet is restarted", () => node!.restartKubelet()],
      ["the snapshot-controller is killed", () => snapshots.restartSnapshotController()],
      ["the API server freezes", () => this.#outage("pauseApi", "resumeApi")],
      ["the node loses its power", () => this.#powerCycle()],
    ];
  }

  /** Prepares the kills of a cluster's components. */
  static async open(cluster: Cluster, snapshots: SnapshotTestNamespace, random: RandomSource): Promise<Kills> {
    return new Kills(cluster, await DriverPods.open(cluster), snapshots, random);
  }

  /**
   * Kills components in turn, with random pauses, until `isOver`. Every component works again when it returns.
   *
   * @throws {Error} when a component does not come back
   */
  async run(isOver: () => boolean, log: (line: string) => void): Promise<void> {
    while (!isOver()) {
      // The moment is random: a kill at any moment must do no harm.
      await new Promise((resolve) => setTimeout(resolve, this.#random() * MAX_PAUSE_MS));
      const [name, die] = this.#kinds[this.#next++ % this.#kinds.length]!;
      const startedAt = performance.now();
      await die();
      this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
      log(`${name}; back after ${Math.round((performance.now() - startedAt) / 1000)} s`);
    }
    for (const role of ["node", "controller"] as const) await this.#driver.waitForReady(role);
  }

  async #kill(role: Role, kill: () => Promise<void>): Promise<void> {
    const before = this.#driver.readyContainers(role);
    await kill();
    await this.#driver.waitForReady(role, { before });
  }

  async #outage(begin: "stopApi" | "pauseApi", end: "startApi" | "resumeApi"): Promise<void> {
    await this.#cluster.controlPlane[begin]();
    try {
      await new Promise((resolve) => setTimeout(resolve, OUTAGE_MS));
    } finally {
      await this.#cluster.controlPlane[end]();
    }
  }

  async #powerCycle(): Promise<void> {
    const before = [...this.#driver.readyContainers("node"), ...this.#driver.readyContainers("controller")];
    await this.#cluster.nodes[0]!.powerCycle();
    for (const role of ["node", "controller"] as const) await this.#driver.waitForReady(role, { before });
  }

  /** Looks away. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#driver[Symbol.asyncDispose]();
  }
}
