/**
 * The definitions of our kinds in the cluster, its CustomResourceDefinitions. The API server drops fields that they do not have,
 * so that older ones than those of this version would lose what is recorded.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { type Clock, sleep } from "../../base/clock.ts";
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

/** The time after which definitions that are too old are read again, in milliseconds. */
const RECHECK_MS = 10_000;

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

/** Returns the path of a write. The API server refuses one with a record that it would drop (Kubernetes, field validation). */
export function strictPath(resource: Resource, path: string): string {
  return areRecords(resource) ? `${path}?fieldValidation=Strict` : path;
}

/** The definitions, as they were read last. */
export class Definitions {
  readonly #client: ApiClient;
  readonly #clock: Clock;
  readonly #mended = new AbortController();
  #reading: Promise<void> | undefined;
  #isRead = false;
  #outdated: string | undefined;

  /** Creates it; nothing is read before {@linkcode Definitions.run}, or a write that depends on it. */
  constructor(client: ApiClient, clock: Clock) {
    this.#client = client;
    this.#clock = clock;
  }

  /** The definitions that are too old, with the remedy; `undefined` while none is known to be. */
  get outdated(): string | undefined {
    return this.#outdated;
  }

  /** Aborted when definitions that were too old are so no more. */
  get mended(): AbortSignal {
    return this.#mended.signal;
  }

  /** Reads them until none is too old, or the signal is aborted; never fails. */
  async run(end: AbortSignal): Promise<void> {
    const log = getLogger(["denolith", "definitions"]);
    let told: string | undefined;
    while (!end.aborted) {
      await this.#read().catch(() => {}); // that the API server does not answer is told elsewhere
      if (this.#isRead && this.#outdated === undefined) break;
      if (this.#outdated !== told) log.warn("definitions are too old", { problem: this.#outdated });
      told = this.#outdated;
      await sleep(this.#clock, RECHECK_MS, end);
    }
    if (told === undefined || end.aborted) return;
    log.info("no definition is too old any more");
    this.#mended.abort();
  }

  /**
   * Requires that no definition is too old before a volume or a snapshot is requested, or its request changes. What becomes of
   * those that there are is written as long as the API server keeps all of it.
   *
   * @throws {ApiError} `DefinitionsOutdated`
   */
  async requireFor({ verb, resource, name, body }: ApiWrite): Promise<void> {
    if (!areRecords(resource) || (body as { spec?: unknown }).spec === undefined) return;
    if (!this.#isRead) await this.#read();
    if (this.#outdated === undefined) return;
    const message = `${verb} ${resource.plural} ${name}: ${this.#outdated}`;
    throw new ApiError(message, { status: 403, reason: "DefinitionsOutdated" });
  }

  /** Returns the condition of an LVMNode about them. */
  condition(): NewCondition {
    const message = this.#outdated;
    return message === undefined
      ? {
        type: DEFINITIONS_CONDITION,
        status: "False",
        reason: "DefinitionsCurrent",
        message: "the CRDs are as new as the agent",
      }
      : { type: DEFINITIONS_CONDITION, status: "True", reason: "DefinitionsOutdated", message };
  }

  /** Reads them, once for all who ask meanwhile. */
  #read(): Promise<void> {
    return this.#reading ??= outdatedDefinitions(this.#client).then((outdated) => {
      this.#outdated = outdated;
      this.#isRead = true;
    }).finally(() => this.#reading = undefined);
  }
}

/** Returns the definitions that are too old, with the remedy. A missing one drops nothing; under older roles none may be read. */
async function outdatedDefinitions(client: ApiClient): Promise<string | undefined> {
  const found = await Promise.all(DEFINITIONS.map((name) => orAbsent(client.get(customResourceDefinitions, { name }))))
    .catch((error) => {
      if (error instanceof ApiError && error.status === 403) return [];
      throw error;
    });
  const outdated = found.flatMap((definition) => {
    const version = Number(definition?.metadata.annotations?.[SCHEMA_ANNOTATION] ?? 0);
    return definition === undefined || version >= SCHEMA_VERSION ? [] : [`${definition.metadata.name} (${version})`];
  });
  if (outdated.length === 0) return undefined;
  const names = outdated.join(", ");
  return `CustomResourceDefinitions are too old, with schemas before version ${SCHEMA_VERSION}: ${names}; upgrade them with ` +
    "the chart (crds.enabled), or by kubectl apply -f deploy/crds";
}
