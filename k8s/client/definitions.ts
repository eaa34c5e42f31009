/**
 * The definitions of our kinds in the cluster, its CustomResourceDefinitions. The API server drops fields that they do not have,
 * so that older ones than those of this version would lose what is recorded.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type Backoff, backoffMs, type Clock, eitherSignal, sleep, waitForAbort } from "../../base/clock.ts";
import type { NewCondition } from "../api/conditions.ts";
import { LVM_GROUP } from "../api/lvm_objects.ts";
import { clusterScoped, type Resource } from "../api/objects.ts";
import { type ApiClient, ApiError, orAbsent } from "./client.ts";

/**
 * The version of the schemas in deploy/chart/templates/crds, to be raised with each change of one after a release. Their
 * annotations have it, which deploy/chart/templates/_helpers.tpl writes.
 */
export const SCHEMA_VERSION = 1;

/** The annotation of a definition with the version of its schema. */
export const SCHEMA_ANNOTATION = `${LVM_GROUP}/schema-version`;

/** CustomResourceDefinitions. */
export const customResourceDefinitions: Resource = clusterScoped(
  "apiextensions.k8s.io/v1",
  "CustomResourceDefinition",
);

/** The names of the definitions. */
export const DEFINITIONS: readonly string[] = ["lvmimports", "lvmmoves", "lvmnodes", "lvmsnapshots", "lvmvolumes"].map(
  (plural) => `${plural}.${LVM_GROUP}`,
);

/** The delays after which definitions that are too old are read again. */
const RECHECK: Backoff = { startMs: 10_000, capMs: 120_000 };

/** The condition of an LVMNode that says whether the definitions are too old. */
export const DEFINITIONS_CONDITION = "DefinitionsOutdated";

/** A write of an object. */
export interface ApiWrite {
  /** What is done. */
  readonly verb: string;
  /** Its kind. */
  readonly resource: Resource;
  /** Its name. */
  readonly name: string;
  /** The object, or the patch. */
  readonly body?: unknown;
}

/** Reports whether objects of a kind are records. LVMNodes are reports, which agents write again, and as much as can be kept. */
function areRecords({ group, kind }: Resource): boolean {
  return group === LVM_GROUP && kind !== "LVMNode";
}

/** Reports whether a write requests something. That an agent creates its LVMNode does not, and that a person accepts a disk in it does. */
function isRequest({ verb, resource, body }: ApiWrite): boolean {
  const hasSpec = (body as { spec?: unknown }).spec !== undefined;
  return hasSpec && (areRecords(resource) || (resource.group === LVM_GROUP && verb === "patch"));
}

/** Returns the path of a write. The API server refuses one with a record that it would drop (Kubernetes, field validation). */
export function strictPath(resource: Resource, path: string): string {
  return areRecords(resource) ? `${path}?fieldValidation=Strict` : path;
}

/** Called when definitions have become too old, with what is wrong and the remedy, and when they are so no more. */
export type DefinitionsListener = (outdated: string | undefined) => void;

/** The definitions, as they were read last. */
export class Definitions {
  readonly #client: ApiClient;
  readonly #clock: Clock;
  readonly #listeners = new Set<DefinitionsListener>();
  /** The names of those that are to be read, or to be read again. */
  readonly #unread = new Set(DEFINITIONS);
  /** Those that are too old, by their names. */
  readonly #outdated = new Map<string, ReadDefinition>();
  #reading: Promise<void> | undefined;
  #changed = new AbortController();

  /** Creates it; nothing is read before {@linkcode Definitions.run}, {@linkcode Definitions.read}, or a write that depends on it. */
  constructor(client: ApiClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  /** The definitions that are too old, with the remedy; `undefined` while none is known to be. */
  get outdated(): string | undefined {
    const [some] = this.#outdated.values();
    if (some === undefined) return undefined;
    const names = [...this.#outdated].map(([name, { version }]) => `${name} (${version})`).sort().join(", ");
    return `CustomResourceDefinitions are too old, with schemas before version ${SCHEMA_VERSION}: ${names}; upgrade them ` +
      `to those of this version: ${some.command}`;
  }

  /** Adds a listener. @returns what removes it */
  subscribe(listener: DefinitionsListener): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /**
   * Reads them, and again while one is too old, and when one may have changed, until the signal is aborted; never fails.
   * {@linkcode Definitions.onWatchEnd} says when that is.
   */
  async run(end: AbortSignal): Promise<void> {
    const log = getLogger(["denolith", "definitions"]);
    let told: string | undefined;
    for (let turns = 1; !end.aborted; turns++) {
      this.#changed = new AbortController();
      await this.read().catch(() => {}); // that the API server does not answer is told elsewhere
      const { outdated } = this;
      if (outdated !== told) {
        if (outdated === undefined) log.info("no definition is too old any more");
        else log.warn("definitions are too old", { problem: outdated });
        [told, turns] = [outdated, 1];
        for (const listener of this.#listeners) listener(outdated);
      }
      using woken = eitherSignal(end, this.#changed.signal);
      if (this.#unread.size === 0 && outdated === undefined) {
        await waitForAbort(woken.signal);
        turns = 0;
      } else await sleep(this.#clock, backoffMs(RECHECK, turns, this.#clock), woken.signal);
    }
  }

  /** Has the definition of a kind read again: the API server ends the watches of one whose schema changes. */
  onWatchEnd({ group, plural }: Resource): void {
    const name = `${plural}.${group}`;
    if (!DEFINITIONS.includes(name)) return;
    this.#unread.add(name);
    this.#changed.abort();
  }

  /**
   * Requires that no definition is too old before a volume or a snapshot is requested, or its request changes. What becomes of
   * those that there are is written as long as the API server keeps all of it.
   *
   * @throws {ApiError} `DefinitionsOutdated`
   */
  async requireFor(write: ApiWrite): Promise<void> {
    if (!isRequest(write)) return;
    if (this.#unread.size > 0 || this.#reading !== undefined) await this.read();
    const { outdated } = this;
    if (outdated === undefined) return;
    const message = `${write.verb} ${write.resource.plural} ${write.name}: ${outdated}`;
    throw new ApiError(message, { status: 403, reason: "DefinitionsOutdated" });
  }

  /** Returns the condition of an LVMNode about them. */
  condition(): NewCondition {
    const message = this.outdated;
    return message === undefined
      ? {
        type: DEFINITIONS_CONDITION,
        status: "False",
        reason: "DefinitionsCurrent",
        message: "the CRDs are as new as the agent",
      }
      : { type: DEFINITIONS_CONDITION, status: "True", reason: "DefinitionsOutdated", message };
  }

  /** Reads those that were not read yet, that may have changed, or were too old, once for all who ask meanwhile. @throws {ApiError} */
  read(): Promise<void> {
    return this.#reading ??= this.#readAgain().finally(() => this.#reading = undefined);
  }

  async #readAgain(): Promise<void> {
    const names = [...new Set([...this.#unread, ...this.#outdated.keys()])];
    this.#unread.clear();
    const results = await Promise.allSettled(names.map((name) => readDefinition(this.#client, name)));
    for (const [index, name] of names.entries()) {
      const read = results[index]!;
      if (read.status === "rejected") this.#unread.add(name);
      else if (read.value === undefined || read.value.version >= SCHEMA_VERSION) this.#outdated.delete(name);
      else this.#outdated.set(name, read.value);
    }
    const failed = results.find(({ status }) => status === "rejected");
    if (failed !== undefined) throw (failed as PromiseRejectedResult).reason;
  }
}

/** A definition, as far as it is read. */
interface ReadDefinition {
  /** The version of its schema. */
  readonly version: number;
  /** The command that upgrades it. What Helm manages is left to Helm: it would refuse fields that kubectl has applied. */
  readonly command: string;
}

/** Reads a definition. @returns `undefined` for a missing one, which drops nothing, and where none may be read */
async function readDefinition(client: ApiClient, name: string): Promise<ReadDefinition | undefined> {
  const reading = client.get(customResourceDefinitions, { name }, { metadataOnly: true }); // thousands of agents do
  const definition = await orAbsent(reading).catch((error) => {
    if (error instanceof ApiError && error.status === 403) return undefined;
    throw error;
  });
  if (definition === undefined) return undefined;
  const { annotations = {} } = definition.metadata;
  const [release, namespace] = ["release-name", "release-namespace"].map((key) => annotations[`meta.helm.sh/${key}`]);
  return {
    version: Number(annotations[SCHEMA_ANNOTATION] ?? 0),
    command: release === undefined
      ? "kubectl apply -f deploy/crds"
      : `helm upgrade ${release} CHART --namespace ${namespace} --reset-then-reuse-values --set crds.enabled=true`,
  };
}
