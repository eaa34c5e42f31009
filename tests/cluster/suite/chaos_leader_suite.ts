import { assert, assertEquals } from "@std/assert";
import { Informer } from "../../../k8s/runtime/informer.ts";
import { sidecarLeaseName } from "../../../k8s/runtime/leader.ts";
import { type Lease, leases } from "../../../k8s/api/objects.ts";
import type { Cluster } from "../../rig/cluster.ts";
import { DriverPods, SYSTEM_NAMESPACE } from "./helpers/driver_pods.ts";
import { adminClient, ClaimTracker } from "./helpers/claim_tracker.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { DRIVER } from "./helpers/objects.ts";
import { WAIT_MS } from "./helpers/object_watcher.ts";

/** The Leases of the loops. */
const LEASES = [
  sidecarLeaseName("csi-provisioner", DRIVER),
  sidecarLeaseName("csi-resizer", DRIVER),
  sidecarLeaseName("csi-snapshotter", DRIVER),
] as const;

/** The duration of a Lease, in milliseconds. */
const LEASE_MS = 15_000;

/** A retry, and what a slow machine takes for it, in milliseconds. */
const RETRY_TIMEOUT_MS = 15_000;

Deno.test("of two controllers one leads; the other takes over at once when it ends, within the lease when it is killed, and finishes its work", async (t) => {
  await using ns = await TestNamespace.open("leader");
  await using tracker = await ClaimTracker.open(ns);
  await using driver = await DriverPods.open(ns.cluster);
  await using leaseWatcher = await LeaseWatcher.open(ns.cluster);
  const className = await ns.createStorageClass("now", { volumeBindingMode: "Immediate" });
  const startClaims = async (prefix: string) => {
    const names = Array.from({ length: 4 }, (_, n) => `${prefix}-${n}`);
    const { startedCount } = tracker;
    await Promise.all(names.map((name) => tracker.createClaim(name, className)));
    await tracker.waitUntil("the creation of one more volume started", () => tracker.startedCount > startedCount);
    return names;
  };
  try {
    await driver.scaleController(2);

    await t.step("each Lease has one holder, which is one of the two", () => {
      const pods = driver.podsOf("controller").map(({ metadata }) => metadata.name);
      assertEquals(pods.length, 2);
      for (const lease of LEASES) {
        assert(pods.includes(podOf(leaseWatcher.holder(lease))), `${lease}: ${leaseWatcher.holder(lease)}`);
      }
    });

    await t.step("a leader that is terminated releases the Lease, and the other one continues", async () => {
      const names = await startClaims("end");
      const leader = leaseWatcher.holder(LEASES[0]);
      await driver.deletePod(podOf(leader));
      const ms = await leaseWatcher.waitForNewHolder(LEASES[0], leader);
      console.error(`clean end: another leads after ${Math.round(ms / 100) / 10} s`);
      const free = leaseWatcher.releasedMs(LEASES[0], leader);
      assert(free !== undefined, `${LEASES[0]} was not given back: ${JSON.stringify(leaseWatcher.history(LEASES[0]))}`);
      // The time that the leader needs for running work depends on LVM and the machine.
      assert(free < RETRY_TIMEOUT_MS, `nobody took it for ${free} ms`);
      await tracker.waitForBound(names);
      await tracker.waitForConsistency();
      await driver.waitForReady("controller", { count: 2 });
    });

    await t.step("a leader that is killed is followed within the lease and a retry", async () => {
      const names = await startClaims("kill");
      const leader = leaseWatcher.holder(LEASES[0]);
      await driver.killProcess("controller", podOf(leader));
      const ms = await leaseWatcher.waitForNewHolder(LEASES[0], leader);
      console.error(`kill: another leads after ${Math.round(ms / 100) / 10} s`);
      assertEquals(leaseWatcher.releasedMs(LEASES[0], leader), undefined, "it could not give the Lease back");
      assert(ms < LEASE_MS + RETRY_TIMEOUT_MS, `the take-over took ${ms} ms`);
      await tracker.waitForBound(names);
      await tracker.waitForConsistency();
    });
  } finally {
    await driver.scaleController(1);
  }
});

/** The holder of a Lease, and the start of its term by the clock of `performance`; no holder when it is empty. */
interface Term {
  readonly holder: string;
  readonly since: number;
}

/** Records the holders of the Leases. */
class LeaseWatcher implements AsyncDisposable {
  readonly #client;
  readonly #leases: Informer<Lease>;
  readonly #history = new Map<string, Term[]>();
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;

  private constructor(cluster: Cluster) {
    this.#client = adminClient(cluster.controlPlane);
    this.#leases = new Informer(this.#client, leases, { namespace: SYSTEM_NAMESPACE });
    this.#leases.subscribe((_key, holder) => holder && this.#record(holder));
    this.#running = this.#leases.start(this.#stop.signal);
  }

  static async open(cluster: Cluster): Promise<LeaseWatcher> {
    const leaseWatcher = new LeaseWatcher(cluster);
    await leaseWatcher.#leases.synced;
    return leaseWatcher;
  }

  #record({ metadata: { name }, spec }: Lease): void {
    const holder = spec?.holderIdentity ?? "";
    const history = this.history(name);
    if (history.at(-1)?.holder !== holder) this.#history.set(name, [...history, { holder, since: performance.now() }]);
  }

  /** Returns all terms of a Lease, the present one last. */
  history(lease: string): readonly Term[] {
    return this.#history.get(lease) ?? [];
  }

  holder(lease: string): string {
    return this.history(lease).at(-1)?.holder ?? "";
  }

  /**
   * Returns how long a Lease had no holder after one, in milliseconds; undefined when that holder did not release it.
   */
  releasedMs(lease: string, holder: string): number | undefined {
    const history = this.history(lease);
    const [free, next] = history.slice(history.findLastIndex((term) => term.holder === holder) + 1);
    return free?.holder === "" ? (next?.since ?? performance.now()) - free.since : undefined;
  }

  /** Waits until another one holds a Lease; answers the milliseconds that it took. */
  async waitForNewHolder(lease: string, from: string): Promise<number> {
    const startedAt = performance.now();
    const isOther = (holder: Lease | undefined) => ![undefined, "", from].includes(holder?.spec?.holderIdentity);
    await this.#leases.waitFor(`${SYSTEM_NAMESPACE}/${lease}`, isOther, { timeoutMs: WAIT_MS });
    return performance.now() - startedAt;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new Error("looked away"));
    await this.#running;
    this.#client[Symbol.dispose]();
  }
}

/** Returns the pod in an identity: its name, and a uuid of the process. */
function podOf(identity: string): string {
  return identity.slice(0, -37);
}
