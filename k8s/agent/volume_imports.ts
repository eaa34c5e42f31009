/**
 * Imports and returns the LVs of other drivers, as LVMVolumes request.
 *
 * The condition `Imported` reports it. It becomes True when the LV is the driver's, and says `Returned` when it is not any more.
 *
 * @module
 */

import { defined } from "../../base/defined.ts";
import { type ErrorKind, StorageError, withReason } from "../../base/error.ts";
import { parseVolumeId, type VolumeId } from "../../base/ids.ts";
import { type Locks, volumeLock } from "../../base/locks.ts";
import type { GroupMatcher } from "../../lvm/model/groups.ts";
import type { ForeignLv, ImportedVolumes } from "../../lvm/volumes/imported_volumes.ts";
import { type ApiClient, orAbsentOrChanged } from "../client/client.ts";
import { patchWithRetry } from "../client/patches.ts";
import { IMPORTED_CONDITION, importedCondition } from "../api/volume_conditions.ts";
import { layoutSpecOf, volumeRequestOf } from "../api/volume_mapping.ts";
import { type ImportedLvSpec, type LayoutSpec, type LvmVolume, lvmVolumes } from "../api/lvm_objects.ts";
import { type ConditionState, updatedConditions } from "../api/object_status.ts";
import { requireKnownValues } from "../api/volume_spec.ts";

/** Options of {@linkcode VolumeImports}. */
export interface VolumeImportsOptions {
  /** The API server. */
  readonly client: ApiClient;
  /** Imports LVs, and returns them. */
  readonly importedVolumes: Pick<
    ImportedVolumes,
    "inspect" | "isStillMounted" | "import" | "isReturned" | "inspectReturn" | "return"
  >;
  /** Locks by volume, shared with the Node service. */
  readonly locks: Locks;
  /** Parses a list of volume groups, as an LVMVolume has it. */
  readonly parseGroups: (list: string) => GroupMatcher;
  /** Called after an LV changed its owner. */
  readonly onChange: () => void;
}

/** The failures that only a change of the LV, or of the object, can end. */
const REFUSALS: readonly ErrorKind[] = [
  "Lost",
  "NotFound",
  "FailedPrecondition",
  "ForeignData",
  "AlreadyExists",
  "InvalidArgument",
];

/**
 * The time after which it is looked again whether an LV is still in use, in milliseconds. Another driver unmounts it, in a
 * mount namespace of its own, so no event reports it.
 */
const IN_USE_RECHECK_MS = 1_000;

/** The time after which a refused LV, or one that waits for the controller, is inspected again, in milliseconds. */
const RECHECK_MS = 60_000;

/** The condition of an LV that was inspected, and its layout, if it has one. */
type InspectedState = ConditionState & { readonly layout?: LayoutSpec };

/** Imports LVs of others, and returns them. */
export class VolumeImports {
  readonly #options: VolumeImportsOptions;

  /** Creates it. */
  constructor(options: VolumeImportsOptions) {
    this.#options = options;
  }

  /** Does what an object asks for, and writes the condition. @throws {StorageError} for a failure that may pass */
  async reconcile(object: LvmVolume, imports: ImportedLvSpec): Promise<{ requeueAfterMs: number }> {
    const id = parseVolumeId(object.metadata.name)!; // the API server accepts no other name
    const isWaitingFor = imports.action !== "Inspect" && importedCondition(object)?.reason === "InUse";
    // the mount table costs much less than a report of LVM
    if (isWaitingFor && await this.#options.importedVolumes.isStillMounted(id)) {
      return { requeueAfterMs: IN_USE_RECHECK_MS };
    }
    const { layout, ...condition } = await this.#act(object, id, imports);
    await this.#write(object, imports, condition, layout);
    const isWaiting = condition.reason === "InUse" && imports.action !== "Inspect";
    return { requeueAfterMs: isWaiting ? IN_USE_RECHECK_MS : RECHECK_MS };
  }

  /**
   * Writes that the LV of a volume was returned, if it was. The controller may ask for another inspection of a refused return
   * while another attempt of the agent succeeds.
   *
   * @returns whether it was
   * @throws {StorageError} those of a report
   */
  async reportReturned(object: LvmVolume, imports: ImportedLvSpec): Promise<boolean> {
    const id = parseVolumeId(object.metadata.name)!; // the API server accepts no other name
    const from = foreignLvOf(imports);
    if (!await this.#options.importedVolumes.isReturned(id, from, object.status?.lvUUID)) return false;
    await this.#write(object, imports, returnedState(imports));
    return true;
  }

  /** Reports whether the LV of a volume, which stays its own meanwhile, can be returned. @throws {StorageError} */
  async inspectReturn(object: LvmVolume, imports: ImportedLvSpec): Promise<{ requeueAfterMs: number }> {
    const { importedVolumes, locks, parseGroups } = this.#options;
    const from = foreignLvOf(imports);
    const lock = [volumeLock(parseVolumeId(object.metadata.name)!)]; // the API server accepts no other name
    let state: ConditionState;
    try {
      requireKnownValues(object, ["imports"]);
      const request = volumeRequestOf(object, parseGroups);
      await locks.run("inspecting the return", lock, () => importedVolumes.inspectReturn(request, from));
      state = { status: "True", reason: "Returnable", message: "it was imported, and can be returned" };
    } catch (error) {
      if (!(error instanceof StorageError) || !REFUSALS.includes(error.kind)) throw error;
      state = { status: "True", reason: "NotReturnable", message: error.message };
    }
    await this.#write(object, imports, state);
    return { requeueAfterMs: RECHECK_MS };
  }

  async #act(object: LvmVolume, id: VolumeId, imports: ImportedLvSpec): Promise<InspectedState> {
    const { importedVolumes, locks, onChange, parseGroups } = this.#options;
    const { action, lvName } = imports;
    const from = foreignLvOf(imports);
    try {
      requireKnownValues(object, ["imports"]);
      if (action === "Inspect") {
        const { user, layout } = await importedVolumes.inspect(volumeRequestOf(object, parseGroups), from);
        const found = { status: "False", ...defined({ layout: layoutSpecOf(layout) }) } as const;
        return user === undefined
          ? { ...found, reason: "Inspected", message: "it can be imported, and nobody uses it" }
          : { ...found, reason: "InUse", message: `it can be imported when ${user} does not use it any more` };
      }
      const change = () =>
        action === "Import"
          ? importedVolumes.import(volumeRequestOf(object, parseGroups), from)
          : importedVolumes.return(id, from);
      await locks.run(action === "Import" ? "importing" : "returning", [volumeLock(id)], change);
      onChange();
      return action === "Import"
        ? { status: "True", reason: "Imported", message: `the logical volume ${lvName} was imported` }
        : returnedState(imports);
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      if (error.kind === "InUse") return { status: "False", reason: "InUse", message: error.message };
      if (!REFUSALS.includes(error.kind)) throw error;
      return { status: "False", reason: "Refused", message: withReason(error.message, error.reason) };
    }
  }

  /** Writes the condition, while the object asks for the same. */
  async #write(
    object: LvmVolume,
    { action }: ImportedLvSpec,
    state: ConditionState,
    layout?: LayoutSpec,
  ): Promise<void> {
    const change = (now: LvmVolume) => {
      if (now.spec.imports?.action !== action) return undefined;
      const before = importedCondition(now);
      if (before?.reason === state.reason && before.message === state.message) return undefined;
      const conditions = updatedConditions(now, { [IMPORTED_CONDITION]: state });
      const pending = now.status?.state === undefined ? "Pending" as const : undefined;
      return { status: { ...defined({ state: pending, layout }), conditions } };
    };
    await orAbsentOrChanged(
      patchWithRetry(this.#options.client, lvmVolumes, object, change, { subresource: "status" }),
    );
  }
}

/** Returns where the LV of another driver is. */
export function foreignLvOf({ volumeGroupUUID, lvName }: ImportedLvSpec): ForeignLv {
  return { groupUuid: volumeGroupUUID, name: lvName };
}

function returnedState({ lvName }: ImportedLvSpec): ConditionState {
  return { status: "False", reason: "Returned", message: `the logical volume ${lvName} was returned` };
}
