import { assert, assertEquals } from "@std/assert";
import { Informer } from "../../../k8s/runtime/informer.ts";
import { officialLeaseName } from "../../../k8s/runtime/leader.ts";
import { type Lease, leases } from "../../../k8s/api/objects.ts";
import type { Cluster } from "../../rig/cluster.ts";
import { DriverPods, SYSTEM } from "./driver_pods.ts";
import { administrator, Ledger } from "./ledger.ts";
import { Scene } from "./scene.ts";
import { DRIVER } from "./scene_objects.ts";
import { WAIT_MS } from "./scene_watch.ts";

/** The Leases of the loops. */
const LEASES = [
  officialLeaseName("csi-provisioner", DRIVER),
  officialLeaseName("csi-resizer", DRIVER),
  officialLeaseName("csi-snapshotter", DRIVER),
] as const;

/** How long a holder's word is good, in milliseconds. */
const LEASE_MS = 15_000;

/** A retry, and what a slow machine takes for it, in milliseconds. */
const RETRY_MS = 15_000;

Deno.test("of two controllers one leads; its end hands over at once, its death within the lease, and work under way is finished", async (t) => {
  await using scene = await Scene.open("leader");
  await using ledger = await Ledger.open(scene);
  await using driver = await DriverPods.open(scene.cluster);
  await using holders = await Holders.open(scene.cluster);
  const className = await scene.storageClass("now", { volumeBindingMode: "Immediate" });
  const begin = async (prefix: string) => {
    const names = Array.from({ length: 4 }, (_, n) => `${prefix}-${n}`);
    const { begun } = ledger;
    await Promise.all(names.map((name) => ledger.claim(name, className)));
    await ledger.when("one more volume is begun", () => ledger.begun > begun);
    return names;
  };
  try {
    await driver.scaleController(2);

    await t.step("each Lease has one holder, which is one of the two", () => {
      const pods = driver.list("controller").map(({ metadata }) => metadata.name);
      assertEquals(pods.length, 2);
      for (const lease of LEASES) assert(pods.includes(podOf(holders.now(lease))), `${lease}: ${holders.now(lease)}`);
    });

    await t.step("a leader that is asked to end gives the Lease back, and the other goes on", async () => {
      const names = await begin("end");
      const leader = holders.now(LEASES[0]);
      await driver.deletePod(podOf(leader));
      const ms = await holders.changed(LEASES[0], leader);
      console.error(`clean end: another leads after ${Math.round(ms / 100) / 10} s`);
      const free = holders.freeAfter(LEASES[0], leader);
      assert(free !== undefined, `${LEASES[0]} was not given back: ${JSON.stringify(holders.history(LEASES[0]))}`);
      // How long the leader takes for what is under way is LVM's affair, and the machine's.
      assert(free < RETRY_MS, `nobody took it for ${free} ms`);
      await ledger.bound(names);
      await ledger.balanced();
      await driver.back("controller", { count: 2 });
    });

    await t.step("a leader that is killed is followed within the lease and a retry", async () => {
      const names = await begin("kill");
      const leader = holders.now(LEASES[0]);
      await driver.killProcess("controller", podOf(leader));
      const ms = await holders.changed(LEASES[0], leader);
      console.error(`kill: another leads after ${Math.round(ms / 100) / 10} s`);
      assertEquals(holders.freeAfter(LEASES[0], leader), undefined, "it could not give the Lease back");
      assert(ms < LEASE_MS + RETRY_MS, `the take-over took ${ms} ms`);
      await ledger.bound(names);
      await ledger.balanced();
    });
  } finally {
    await driver.scaleController(1);
  }
});

/** Who holds a Lease, and since when, by the clock of `performance`; nobody, where it is empty. */
interface Term {
  readonly holder: string;
  readonly since: number;
}

/** Who held the Leases, one after the other. */
class Holders implements AsyncDisposable {
  readonly #client;
  readonly #leases: Informer<Lease>;
  readonly #history = new Map<string, Term[]>();
  readonly #end = new AbortController();
  readonly #running: Promise<void>;

  private constructor(cluster: Cluster) {
    this.#client = administrator(cluster.controlPlane);
    this.#leases = new Informer(this.#client, leases, { namespace: SYSTEM });
    this.#leases.subscribe((_key, now) => now && this.#note(now));
    this.#running = this.#leases.start(this.#end.signal);
  }

  static async open(cluster: Cluster): Promise<Holders> {
    const holders = new Holders(cluster);
    await holders.#leases.synced;
    return holders;
  }

  #note({ metadata: { name }, spec }: Lease): void {
    const holder = spec?.holderIdentity ?? "";
    const history = this.history(name);
    if (history.at(-1)?.holder !== holder) this.#history.set(name, [...history, { holder, since: performance.now() }]);
  }

  /** All terms of a Lease, the present one last. */
  history(lease: string): readonly Term[] {
    return this.#history.get(lease) ?? [];
  }

  now(lease: string): string {
    return this.history(lease).at(-1)?.holder ?? "";
  }

  /** How long a Lease was nobody's after a holder, in milliseconds; undefined when that did not give it back. */
  freeAfter(lease: string, holder: string): number | undefined {
    const history = this.history(lease);
    const [free, next] = history.slice(history.findLastIndex((term) => term.holder === holder) + 1);
    return free?.holder === "" ? (next?.since ?? performance.now()) - free.since : undefined;
  }

  /** Waits until another one holds a Lease; answers the milliseconds that it took. */
  async changed(lease: string, from: string): Promise<number> {
    const began = performance.now();
    const isOther = (now: Lease | undefined) => ![undefined, "", from].includes(now?.spec?.holderIdentity);
    await this.#leases.waitFor(`${SYSTEM}/${lease}`, isOther, { timeoutMs: WAIT_MS });
    return performance.now() - began;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end.abort(new Error("looked away"));
    await this.#running;
    this.#client[Symbol.dispose]();
  }
}

/** The pod in an identity: its name, and a uuid of the process. */
function podOf(identity: string): string {
  return identity.slice(0, -37);
}
