/**
 * `kubectl denolith import`: shows what the import of a claim's volume would do, has it done, finishes it, or undoes it.
 *
 * @module
 */

import { parseVolumeParameters } from "../../csi/parameters.ts";
import { TOPOLOGY_KEY } from "../../csi/topology.ts";
import { StorageError } from "../../base/error.ts";
import { parseFilesystemType, parseMkfsOptions } from "../../lvm/settings/filesystem.ts";
import type { Erasure } from "../../lvm/model/tags.ts";
import { orAbsent, orAbsentOrChanged } from "../../k8s/client/client.ts";
import { persistentVolumeClaims, persistentVolumes, type Pod } from "../../k8s/api/objects.ts";
import { isFinished } from "../../k8s/handover/handover.ts";
import { type LvmImport, lvmImports } from "../../k8s/handover/imports.ts";
import { foreignVolumesText, readForeignVolumes } from "../import/foreign_volumes.ts";
import { type ImportPlan, planImport } from "../import/plan.ts";
import { type ImportOptions, readSources } from "../import/sources.ts";
import { importPlanText, importProgressText } from "../import/text.ts";
import { FS_TYPE } from "../../k8s/sidecars/class_parameters.ts";
import { podsUsing } from "../move/preview.ts";
import { EXIT } from "../../cli/command_line.ts";
import { evict, followObject, namesOf, removeFinished } from "./move_follow.ts";
import type { Answer } from "../output.ts";
import type { Session } from "../session.ts";

/**
 * Takes a claim's volume over; with `--dry-run` only shows the plan, or, without a claim, what all volumes of others become.
 *
 * @returns 0; 1 when it cannot be, or failed
 */
export async function importClaim(session: Session): Promise<number> {
  const { client, flags, subject: { namespace } } = session;
  const claimName = flags["CLAIM"];
  if (claimName === undefined) {
    const volumes = await readForeignVolumes(client, optionsOf(session));
    session.print({ data: { volumes }, text: () => foreignVolumesText(volumes) });
    return EXIT.success;
  }
  const existing = await findImport(session, claimName);
  if (flags.cancel !== undefined) return await cancelImport(session, existing);
  if (existing !== undefined && flags.finish !== undefined && flags["dry-run"] === undefined && !isFinished(existing)) {
    await client.patch(lvmImports, { name: existing.metadata.name }, { merge: { spec: { finish: true } } });
    return await followImport(session, existing);
  }
  const sources = await readSources(client, { driver: session.driver, namespace, claimName });
  const { plan, import: object } = planImport(sources, optionsOf(session));
  const answer = planAnswer(plan, namesOf(await podsUsing(client, sources.claim)));
  if (flags["dry-run"] !== undefined || object === undefined) {
    session.print(answer);
    return object === undefined ? EXIT.failure : EXIT.success;
  }
  if (flags.output === undefined) session.print(answer);
  if (sources.existing !== undefined) await removeFinished(session, lvmImports, sources.existing);
  const { spec } = object;
  const created = await client.create(lvmImports, {
    ...object,
    spec: { ...spec, ...(flags.finish !== undefined && { finish: true }) },
  });
  return await followImport(session, created);
}

function optionsOf({ flags, driver, now }: Session): ImportOptions {
  return {
    ...{ driver, topologyKey: TOPOLOGY_KEY, now: now.getTime() },
    ...{ volumeGroup: flags["volume-group"], thinPool: flags["thin-pool"], erase: flags.erase as Erasure | undefined },
    ...{ isProvisionerStopped: flags["provisioner-stopped"] !== undefined, parameterProblem },
  };
}

/** Returns the import of a claim that is not finished, or else its last one. */
async function findImport(
  { client, subject: { namespace } }: Session,
  claimName: string,
): Promise<LvmImport | undefined> {
  const { items } = await client.list(lvmImports);
  const own = items.filter(({ spec: { claim } }) => claim.namespace === namespace && claim.name === claimName);
  return own.find((one) => !isFinished(one)) ?? own[0];
}

/** Follows an import until it is imported, or until it is complete where that is asked for. */
async function followImport(session: Session, existing: LvmImport): Promise<number> {
  const { name, uid } = existing.metadata;
  const { flags } = session;
  const isForPeople = flags.output === undefined;
  if (flags.wait === "false") {
    if (isForPeople) session.say(`\nThe controller is asked for it: kubectl get lvmimport ${name} --watch`);
    else session.print(importAnswer((await orAbsent(session.client.get(lvmImports, { name })))!));
    return EXIT.success;
  }
  const ended = await followObject(session, lvmImports, name, async (now) => {
    if (now?.metadata.uid !== uid) {
      // one that could not be undone goes when it is finished
      if (await isVolumeOf(session, existing)) return { ...existing, status: { state: "Complete" as const } };
      throw new StorageError("FailedPrecondition", "import: it was undone, because its LVMImport was deleted");
    }
    session.sayProgress(importProgressText(now!));
    if (flags.evict !== undefined) await evict(session, () => usersOf(session, now!));
    const state = now!.status?.state;
    return isFinished(now!) || (state === "Imported" && !now!.spec.finish) ? now : undefined;
  });
  session.print(importAnswer(ended));
  return ended.status?.state === "Failed" ? EXIT.failure : EXIT.success;
}

/** Reports whether the claim of an import has a volume of the driver. */
async function isVolumeOf({ client, driver }: Session, { spec }: LvmImport): Promise<boolean> {
  const object = await orAbsent(client.get(persistentVolumes, { name: spec.persistentVolume }));
  return object?.spec?.csi?.driver === driver;
}

/** Undoes an import. @returns 0; 1 when it cannot be undone any more */
async function cancelImport(session: Session, existing: LvmImport | undefined): Promise<number> {
  const { client, flags, subject: { namespace } } = session;
  const claim = `${namespace}/${flags["CLAIM"]}`;
  if (existing === undefined) throw new StorageError("NotFound", `import: claim ${claim} is not being imported`);
  if (isFinished(existing)) {
    throw new StorageError("FailedPrecondition", `import: it is ${existing.status?.state} already`);
  }
  const { name, uid } = existing.metadata;
  await orAbsentOrChanged(client.delete(lvmImports, { name }, { uid }));
  const { isTooLate } = await followObject(session, lvmImports, name, async (now) => {
    const isGone = now?.metadata.uid !== uid;
    if (isGone || now?.status?.finishing) return { isTooLate: !isGone };
    session.sayProgress(importProgressText(now!));
    if (flags.evict !== undefined) await evict(session, () => usersOf(session, now!));
    return undefined;
  });
  const text = isTooLate
    ? `Claim ${claim} cannot be returned any more, and the import is being completed.`
    : `Claim ${claim} is returned.`;
  session.print({ data: { claim, undone: !isTooLate }, text: () => text });
  return isTooLate ? EXIT.failure : EXIT.success;
}

/**
 * Returns the pods that an import waits for: those that run while the PersistentVolume does not exist. Before, the next pod
 * would start at once, and after that, those that run are the next ones.
 */
async function usersOf({ client }: Session, { spec: { claim, persistentVolume: name } }: LvmImport): Promise<Pod[]> {
  const object = await orAbsent(client.get(persistentVolumeClaims, claim));
  if (object === undefined) return [];
  const using = await podsUsing(client, object);
  const running = using.filter(({ spec }) => spec?.nodeName !== undefined);
  return running.length > 0 && await orAbsent(client.get(persistentVolumes, { name })) === undefined ? running : [];
}

/** Returns why the driver would not accept the parameters of a class. */
function parameterProblem(parameters: Readonly<Record<string, string>>): string | undefined {
  try {
    const { type, mkfsOptions } = parseVolumeParameters(parameters);
    parseMkfsOptions(parseFilesystemType(parameters[FS_TYPE] ?? "") ?? type, mkfsOptions);
    return undefined;
  } catch (error) {
    if (error instanceof StorageError) return error.message;
    throw error;
  }
}

function planAnswer(plan: ImportPlan, pods: readonly string[]): Answer {
  return { data: { ...plan, pods }, text: () => importPlanText(plan, pods) };
}

function importAnswer({ metadata: { name }, spec, status: { state = "Pending", error } = {} }: LvmImport): Answer {
  const claim = `${spec.claim.namespace}/${spec.claim.name}`;
  const texts: Readonly<Record<string, string>> = {
    Imported:
      `Claim ${claim} is a volume of the driver. Return it with --cancel, or remove what is left of the other driver ` +
      "with --finish.",
    Complete: `Claim ${claim} is a volume of the driver, and nothing is left of the other one.`,
  };
  return {
    data: { claim, volume: name, state, ...(error && { error }) },
    text: () => texts[state] ?? `Claim ${claim} stays as it is: ${error?.message ?? state}`,
  };
}
