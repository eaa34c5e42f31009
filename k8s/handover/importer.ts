/**
 * Takes over volumes of other drivers, as LVMImports request.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import { truncate } from "../../base/error.ts";
import { ApiError, orAbsent } from "../client/client.ts";
import type { Informer } from "../runtime/informer.ts";
import { type LvmNode, lvmVolumes } from "../api/lvm_objects.ts";
import { namesOfBlocking } from "../api/snapshot_mapping.ts";
import { persistentVolumeClaims, persistentVolumes, storageClasses } from "../api/objects.ts";
import { type BoundVolumeInformers, sidecarController, type SidecarOptions } from "../sidecars/sidecar_controller.ts";
import { agentAbsence } from "./move_checks.ts";
import type { SilentAgents } from "../scheduling/agent_liveness.ts";
import { carryOut, type ImportActionsOptions } from "./import_actions.ts";
import { refusalOf } from "./import_checks.ts";
import { isFinished, type LvmImport, lvmImports, type LvmImportStatus } from "./imports.ts";
import { objectsOf } from "./origins.ts";
import { type ImportObjects, type ImportStep, isUndone, nextStep, stateOf } from "./import_step.ts";

/** Options of {@linkcode Importer}. The caller starts and shares the informers. */
export interface ImporterOptions
  extends SidecarOptions, BoundVolumeInformers, Pick<ImportActionsOptions, "topologyKey"> {
  /** All LVMImports. */
  readonly imports: Informer<LvmImport>;
  /** All LVMNodes. */
  readonly lvmNodes: Informer<LvmNode>;
  /** The agents that are silent. */
  readonly agents?: SilentAgents | undefined;
}

/** The longest message of a status, in characters. */
const MAX_MESSAGE_LENGTH = 4_096;

/** The time after which an import that waits is looked at again, in milliseconds, should a change have been missed. */
const RECHECK_MS = 60_000;

/** The objects of an import for which nothing of others is left to do. */
const NO_OBJECTS: Omit<ImportObjects, "import"> = {
  ...{ volume: undefined, persistentVolume: undefined, claim: undefined, storageClass: undefined, object: undefined },
  ...{ snapshots: [], isClassShared: false, others: [] },
};

/** Carries out LVMImports. Two of them at the same time do no harm: each step changes objects only as they were read. */
export class Importer {
  readonly #options: ImporterOptions;
  readonly #log = getLogger(["denolith", "importer"]);
  /** The messages about missing rights, by the names of the imports that wait for them. */
  readonly #forbidden = new Map<string, string>();

  /** Creates it; nothing runs before {@linkcode Importer.run}. */
  constructor(options: ImporterOptions) {
    this.#options = options;
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { imports, lvmVolumes, snapshots, claims, persistentVolumes, classes } = this.#options;
    const having = (matches: (spec: LvmImport["spec"]) => boolean) =>
      imports.list().filter((one) => !isFinished(one) && matches(one.spec)).map(({ metadata: { name } }) => name);
    const changes = { replay: false };
    await sidecarController("importer", this.#options, (name) => this.#reconcile(name))
      .watch(imports)
      .watch(lvmVolumes, ({ metadata: { name } }) => imports.get(name) === undefined ? [] : [name], changes)
      .watch(snapshots, ({ spec }) => imports.get(spec.sourceVolume) === undefined ? [] : [spec.sourceVolume], changes)
      .watch(persistentVolumes, ({ metadata }) => having((spec) => spec.persistentVolume === metadata.name), changes)
      .watch(claims, ({ metadata: { uid } }) => having((spec) => spec.claim.uid === uid), changes)
      .watch(classes, ({ metadata }) => having((spec) => spec.storageClass?.name === metadata.name), changes)
      .run(signal);
  }

  /** Takes the next step of an import. */
  async #reconcile(name: string): Promise<void | { requeueAfterMs: number }> {
    const { client, driverName } = this.#options;
    const self = await orAbsent(client.get(lvmImports, { name }));
    if (self === undefined || isFinished(self)) this.#forbidden.delete(name);
    if (self === undefined || self.spec.driverName !== driverName) return;
    try {
      const result = await this.#step(self);
      this.#forbidden.delete(name);
      return result;
    } catch (error) {
      if (error instanceof ApiError && error.status === 403) await this.#reportForbidden(self, error);
      throw error;
    }
  }

  async #step(self: LvmImport): Promise<void | { requeueAfterMs: number }> {
    // for a finished one, only its own finalizer is left to remove: the rights for imports may be gone by then
    const objects = isFinished(self) ? { ...NO_OBJECTS, import: self } : await this.#read(self);
    const refusal = isUndone(self) ? undefined : refusalOf(objects);
    const step: ImportStep = refusal === undefined
      ? this.#nameAbsence(self, nextStep(objects))
      : { do: "fail", message: refusal };
    if (step.do === "nothing") return;
    const described = await this.#describe(self, step);
    if (step.do === "wait") return { requeueAfterMs: RECHECK_MS };
    await carryOut(step, { ...objects, import: described }, this.#options);
    this.#log.info("step", { import: self.metadata.name, step: step.do });
    return { requeueAfterMs: 0 };
  }

  /** Returns a step as it is, or, while the agent that it waits for is away, a wait that says that, too. */
  #nameAbsence({ spec: { volume: { nodeName } } }: LvmImport, step: ImportStep): ImportStep {
    if (step.do !== "wait" || !step.isForAgent) return step;
    const { lvmNodes, agents } = this.#options;
    const absence = agentAbsence(nodeName, lvmNodes.get(nodeName), (name) => agents?.isSilent(name) ?? false);
    return absence === undefined ? step : { ...step, message: `${step.message}: ${absence}` };
  }

  /** Writes which right is missing. What is to be done stays the same, and is tried again. */
  async #reportForbidden({ metadata: { name }, status = {} }: LvmImport, { message }: ApiError): Promise<void> {
    const text = truncate(
      `the controller lacks a right for imports (value controller.importRights): ${message}`,
      1_024,
    );
    this.#forbidden.set(name, text); // so that the next attempt does not write another message before
    if (status.message === text) return;
    const merge = { status: { ...(status.state === undefined && { state: "Pending" as const }), message: text } };
    await orAbsent(this.#options.client.patch(lvmImports, { name }, { merge, subresource: "status" }));
  }

  /** Reads the objects of an import from the API server, not from a cache. */
  async #read(self: LvmImport): Promise<ImportObjects> {
    const { client } = this.#options;
    const { metadata: { name }, spec } = self;
    const { claim: { namespace, name: claimName }, storageClass } = spec;
    const resource = objectsOf(spec.from);
    const mayConflict = !isUndone(self) && self.status?.persistentVolume === undefined;
    const [volume, persistentVolume, claim, currentClass, object, isClassShared, others] = await Promise.all([
      orAbsent(client.get(lvmVolumes, { name })),
      orAbsent(client.get(persistentVolumes, { name: spec.persistentVolume })),
      orAbsent(client.get(persistentVolumeClaims, { namespace, name: claimName })),
      storageClass && orAbsent(client.get(storageClasses, { name: storageClass.name })),
      resource && spec.object && orAbsent(client.get(resource, spec.object)),
      storageClass !== undefined && this.#isClassShared(self, storageClass.name),
      mayConflict ? client.list(lvmImports).then(({ items }) => items) : [],
    ]);
    const snapshots = volume === undefined ? [] : namesOfBlocking(volume, this.#options.snapshots.list());
    return {
      import: self,
      volume,
      persistentVolume,
      claim,
      storageClass: currentClass,
      object,
      snapshots,
      isClassShared,
      others,
    };
  }

  /** Reports whether another import, which is not undone, has taken over a volume of a class. */
  async #isClassShared(self: LvmImport, className: string): Promise<boolean> {
    const { client, imports } = this.#options;
    // what is undone would take away the class of one that the cache does not show yet
    const all = isUndone(self) ? (await client.list(lvmImports)).items : imports.list();
    return all.some((other) =>
      other.metadata.uid !== self.metadata.uid && other.spec.storageClass?.name === className &&
      other.status?.persistentVolume !== undefined && !isUndone(other)
    );
  }

  /** Writes the state, before a step that belongs to it. @returns the import as it is then */
  async #describe(self: LvmImport, step: ImportStep): Promise<LvmImport> {
    const { metadata: { name, resourceVersion }, status = {} } = self;
    const message = "message" in step ? step.message : this.#forbidden.get(name) ?? status.error?.message ?? "";
    const next: LvmImportStatus = { state: stateOf(step, self), message: truncate(message, MAX_MESSAGE_LENGTH) };
    const isSame = status.state === next.state && status.message === next.message;
    if (isSame || step.do === "add finalizer" || step.do === "remove finalizer" || step.do === "finish") return self;
    const { client } = this.#options;
    return await client.patch(lvmImports, { name }, {
      merge: { status: next },
      resourceVersion,
      subresource: "status",
    });
  }
}
