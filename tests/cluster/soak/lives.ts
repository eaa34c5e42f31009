/**
 * The load of a soak: lives of volumes in pods, from the claim to its deletion.
 *
 * @module
 */

import type { PersistentVolumeClaim } from "../../../k8s/api/objects.ts";
import { pollUntil } from "../../rig/poll_until.ts";
import { pick, type RandomSource } from "../../rig/seeded_random.ts";
import type { SnapshotTestNamespace } from "../suite/helpers/snapshot_test_namespace.ts";
import { SYSTEM_NAMESPACE } from "../suite/helpers/driver_pods.ts";
import type { ClaimSpec } from "../suite/helpers/objects.ts";
import type { TestNamespace } from "../suite/helpers/test_namespace.ts";

/** The time limit of a command while components die, in milliseconds: a node that lost its power takes minutes. */
const COMMAND_TIMEOUT_MS = 900_000;

/** The errors of kubectl that come from a component that is dead or starts. Any other error fails the soak. */
const DEATH_ERRORS = [
  /connection refused|connection to the server .* was refused|connection reset|connection lost|unable to connect|unexpected EOF|: EOF|TLS handshake|i\/o timeout/i,
  /error dialing backend|error sending request|timed out|ServiceUnavailable|apiserver not ready|Internal error occurred/i,
  /container not found|unable to upgrade connection|cannot exec in a (deleted|stopped)|not running|no such container/i,
  /failed to exec in container|task .* not found|command terminated with exit code 137/i,
  // The API server has just started, and has not read the roles and the kinds yet.
  /no matches for kind|could not find the requested resource|is forbidden: User .* not yet/i,
];

/** The classes of a soak, by kind of volume. */
export interface SoakClasses {
  /** The full names of StorageClasses. */
  readonly storage: readonly string[];
  /** The full name of the VolumeSnapshotClass. */
  readonly snapshot: string;
}

/** The group of the volumes, and the pool of its thin volumes, which stays when they are gone. */
const GROUP = "data";
export const THIN_POOL = `${GROUP}_thinpool`;

/** Creates the classes of a soak: thick volumes on each filesystem, erased and not, and thin ones. */
export async function createClasses(snapshots: SnapshotTestNamespace): Promise<SoakClasses> {
  const { ns } = snapshots;
  const volumeGroup = GROUP;
  const parameters: Record<string, Record<string, string>> = {
    "ext4-erased": { volumeGroup },
    "ext4": { volumeGroup, erase: "none" },
    "xfs": { volumeGroup, erase: "none", "csi.storage.k8s.io/fstype": "xfs" },
    "thin": { volumeGroup, thinProvision: "yes", thinPoolSize: "3Gi" },
  };
  const storage: string[] = [];
  for (const [name, values] of Object.entries(parameters)) {
    storage.push(await ns.createStorageClass(name, { parameters: values }));
  }
  return { storage, snapshot: await snapshots.createSnapshotClass("now") };
}

/** Creates, uses and deletes volumes. */
export class Lives {
  /** Lives that have ended. */
  ended = 0;
  readonly #snapshots: SnapshotTestNamespace;
  readonly #classes: SoakClasses;
  readonly #random: RandomSource;
  #started = 0;

  constructor(snapshots: SnapshotTestNamespace, classes: SoakClasses, random: RandomSource) {
    this.#snapshots = snapshots;
    this.#classes = classes;
    this.#random = random;
  }

  /**
   * Runs lives one after the other until `isOver`.
   *
   * @throws {Error} when a step fails, or data differ from what was written
   */
  async run(isOver: () => boolean): Promise<void> {
    while (!isOver()) await this.#live();
  }

  /** Runs one life of each class. */
  async warmUp(): Promise<void> {
    for (const className of this.#classes.storage) await this.#live(className);
  }

  /** Runs one life. @throws {Error} when a step fails, with what is known of its volume */
  async #live(className = pick(this.#random, this.#classes.storage)): Promise<void> {
    const name = `life-${this.#started++}`;
    try {
      await this.#runSteps(name, className);
    } catch (error) {
      // The cluster and its logs end with the soak.
      const known = await describeLife(this.#snapshots.ns, name).catch((cause) => (cause as Error).message);
      throw new Error(`${(error as Error).message}\n${known}`, { cause: error });
    }
    this.ended++;
  }

  /** A claim and its pod, growth, a snapshot and a copy of it, or of the claim itself, and their end. */
  async #runSteps(name: string, className: string): Promise<void> {
    const { ns } = this.#snapshots;
    const size = className.endsWith("xfs") ? 320 : 32;
    await this.#startPod(name, { class: className, size: `${size}Mi` });
    await this.#write(name, "first");
    if (this.#random() < 0.5) await this.#grow(name, `${size * 2}Mi`);
    const copies: string[] = [];
    if (this.#random() < 0.6) {
      const copy = `${name}-copy`;
      const isSnapshot = this.#random() < 0.7;
      if (isSnapshot) await this.#takeSnapshot(name);
      const from = { kind: isSnapshot ? "VolumeSnapshot" : "PersistentVolumeClaim", name } as const;
      await this.#startPod(copy, { class: className, size: `${size * 2}Mi`, from });
      copies.push(copy);
      await this.#write(name, "second");
      await this.#verify(copy, "first");
    }
    await this.#verify(name, "first");
    for (const pod of [name, ...copies]) await this.#end("Pod", pod);
    // In the order in which people delete: a volume waits for its snapshots.
    for (const claim of [name, ...copies]) await this.#request("PersistentVolumeClaim", claim);
    await this.#end("VolumeSnapshot", name);
    for (const claim of [name, ...copies]) await ns.waitForDeletion("PersistentVolumeClaim", claim);
  }

  async #startPod(name: string, claim: Omit<ClaimSpec, "name">): Promise<void> {
    const { ns } = this.#snapshots;
    await persist(() => ns.createClaim({ name, ...claim }));
    await persist(() => ns.createPod({ name, claims: [{ name, path: "/data" }] }));
    await ns.waitForRunning(name);
  }

  async #write(pod: string, file: string): Promise<void> {
    const command = `dd if=/dev/urandom of=/data/${file} bs=1M count=4 && cd /data && ` +
      `sha256sum ${file} > ${file}.sum && sync`;
    await persist(() => this.#snapshots.ns.exec(pod, command));
  }

  async #verify(pod: string, file: string): Promise<void> {
    await persist(() => this.#snapshots.ns.exec(pod, `cd /data && sha256sum -c ${file}.sum`));
  }

  async #grow(name: string, storage: string): Promise<void> {
    const { ns } = this.#snapshots;
    await persist(() => ns.patch("PersistentVolumeClaim", name, { spec: { resources: { requests: { storage } } } }));
    const isGrown = (capacity: string | undefined) => capacity === storage;
    await ns.waitFor("PersistentVolumeClaim", name, (claim) => isGrown(claim?.status?.capacity?.storage), "has grown");
  }

  async #takeSnapshot(name: string): Promise<void> {
    await persist(() => this.#snapshots.createSnapshot(name, { claim: name, class: this.#classes.snapshot }));
    await this.#snapshots.waitUntilReady(name);
  }

  async #request(kind: "Pod" | "PersistentVolumeClaim" | "VolumeSnapshot", name: string): Promise<void> {
    await persist(() => this.#snapshots.ns.requestDeletion(kind, name));
  }

  async #end(kind: "Pod" | "VolumeSnapshot", name: string): Promise<void> {
    await this.#request(kind, name);
    await this.#snapshots.ns.waitForDeletion(kind, name);
  }
}

/** Returns what is known of a life: its claim and its pod as the API has them now, their events, and the last lines about its volume in the logs. */
async function describeLife(ns: TestNamespace, name: string): Promise<string> {
  const [pod, claim] = await Promise.all(["pod", "persistentvolumeclaim"].map((kind) => {
    return ns.kubectl("get", kind, name, "--ignore-not-found", "--output=json");
  }));
  const events = await ns.kubectl("get", "events", `--field-selector=involvedObject.name=${name}`, "--output=wide");
  const volume = (JSON.parse(claim || "{}") as PersistentVolumeClaim).spec?.volumeName ?? name;
  const logs = `grep -h ${volume} /var/log/kubelet.log /var/log/pods/${SYSTEM_NAMESPACE}_*/*/*.log | tail -n 60`;
  return [pod, claim, events, await ns.runOnNode(logs)].join("\n");
}

/** Runs a command again while it fails because a component is dead or starts. */
async function persist(run: () => Promise<unknown>): Promise<void> {
  const attempt = async () => {
    try {
      await run();
      return true;
    } catch (error) {
      if (!isDeathError((error as Error).message)) throw error;
      return false;
    }
  };
  await pollUntil(attempt, {
    action: "run a command while components die",
    timeoutMs: COMMAND_TIMEOUT_MS,
    intervalMs: 2_000,
  });
}

/** Reports whether an error of kubectl comes from a component that is dead or starts. */
export function isDeathError(message: string): boolean {
  return DEATH_ERRORS.some((pattern) => pattern.test(message));
}
