/**
 * Makes the volumes that claims ask for.
 *
 * A claim's key is `namespace/name/uid`, so that a claim that is gone is not taken for a namesake.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import {
  classNameOf,
  dataSourceOf,
  SELECTED_NODE,
  selectedNodeOf,
  volumeNameOf,
  waitsForConsumer,
  wantsVolume,
} from "./claim.ts";
import { centralLoop } from "../sidecars/controller_options.ts";
import { hasDriver, topologyOfAll, topologyOfNode, WrongNodeError } from "../sidecars/claim_topology.ts";
import { ClaimError, readClassParameters } from "../sidecars/class_parameters.ts";
import { ApiError, isAlreadyExists, isNotFound, isTransient } from "../client/client.ts";
import { findContentSource } from "./content_source.ts";
import { type CreatedVolume, isContended, isExhausted, isMaybeInProgress, reasonOf } from "../sidecars/csi_client.ts";
import type { WaitOptions } from "../runtime/informer.ts";
import type { Loop } from "../runtime/controller.ts";
import {
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type StorageClass,
  volumeAttributesClasses,
} from "../api/objects.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";
import { bytesOf } from "../api/quantity.ts";
import { readSecret } from "../sidecars/secrets.ts";
import { type Origin, volumeObject } from "./persistent_volume.ts";
import { checkClaim, volumeRequest } from "./volume_request.ts";

/** How often the API server may refuse a PersistentVolume before its volume is given up. */
const REFUSALS = 5;

/** Milliseconds in which a change that was made should be seen by the informers. */
const SEEN_WITHIN_MS = 10_000;

/**
 * Milliseconds in which the scheduler should be told of a node without room: the agent gathers its changes for a second, LVM
 * answers, and what is published changes once a second.
 */
const WITHDRAWN_WITHIN_MS = 5_000;

/** A request that may have been made, and is repeated as it is until its outcome is known and dealt with. */
interface Attempt extends Origin {
  /** What came of it. */
  created?: CreatedVolume;
  /** How often its PersistentVolume was refused. */
  refusals: number;
}

/** Makes the volumes that claims ask for. */
export class Provisioning {
  readonly #options: ProvisionerOptions;
  readonly #log = getLogger(["denolith", "provisioner"]);
  readonly #attempts = new Map<string, Attempt>();
  /** The keys of claims that failed for good, for now; and whether it was for want of space. */
  readonly #waiting = new Map<string, "space" | "other">();
  /** The keys of claims whose events said that work has begun. */
  readonly #announced = new Set<string>();
  #loop: Loop | undefined;
  #stopping: AbortSignal | undefined;

  /** Does nothing before {@linkcode Provisioning.run}. */
  constructor(options: ProvisionerOptions) {
    this.#options = options;
  }

  /** Tries again the claims for which there was no space. */
  poke(): void {
    for (const [key, why] of this.#waiting) if (why === "space") this.#loop?.add(key);
  }

  /** Whether a volume of that name is being worked on. */
  isBusyWith(requestName: string): boolean {
    return [...this.#attempts.values()].some(({ request }) => request.name === requestName);
  }

  /** Works until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { driverName, claims, volumes, classes, nodes, csiNodes } = this.#options;
    // What was known when someone else led is worth nothing now; the intents are still there.
    this.#attempts.clear();
    this.#waiting.clear();
    this.#announced.clear();
    const loop = centralLoop("provisioner", this.#options, (key, ending) => this.#reconcile(key, ending));
    [this.#loop, this.#stopping] = [loop, signal];
    loop.follow(claims, (claim) => this.#concerns(claim) ? [keyOfClaim(claim)] : [])
      .follow(volumes, ({ spec }) => this.#wanting(spec?.claimRef))
      .follow(classes, ({ metadata }) => this.#waitingFor(metadata.name))
      .follow(nodes, () => [])
      .follow(csiNodes, (node) => hasDriver(node, driverName) ? this.#waiting.keys() : []);
    await loop.run(signal);
    this.#loop = undefined;
  }

  /** How long it is waited for what was done to be seen; not when the loop is to end. */
  get #patience(): WaitOptions {
    return { signal: this.#stopping, timeoutMs: SEEN_WITHIN_MS };
  }

  #concerns(claim: PersistentVolumeClaim): boolean {
    const key = keyOfClaim(claim);
    return wantsVolume(claim, this.#options.driverName) || this.#attempts.has(key) || this.#waiting.has(key);
  }

  /** The key of the claim that a volume is for, if it waits: the volume's end is the start of another one. */
  #wanting(reference: { namespace?: string; name?: string; uid?: string } | undefined): string[] {
    const key = `${reference?.namespace}/${reference?.name}/${reference?.uid}`;
    const claim = this.#claim(key);
    return claim !== undefined && wantsVolume(claim, this.#options.driverName) ? [key] : [];
  }

  #waitingFor(className: string): string[] {
    return [...this.#waiting.keys()].filter((key) => {
      const claim = this.#claim(key);
      return claim !== undefined && classNameOf(claim) === className;
    });
  }

  /** The claim of a key, unless it is gone. */
  #claim(key: string): PersistentVolumeClaim | undefined {
    const [namespace, name, uid] = key.split("/");
    const claim = this.#options.claims.get(`${namespace}/${name}`);
    return claim?.metadata.uid === uid ? claim : undefined;
  }

  #settle(key: string): void {
    this.#attempts.delete(key);
    this.#waiting.delete(key);
    this.#announced.delete(key);
  }

  async #reconcile(key: string, signal: AbortSignal): Promise<void> {
    const claim = this.#claim(key);
    const name = volumeNameOf(key.slice(key.lastIndexOf("/") + 1));
    if (this.#options.volumes.get(name) !== undefined) return this.#settle(key);
    const known = this.#attempts.get(key);
    if (known === undefined && (claim === undefined || !wantsVolume(claim, this.#options.driverName))) {
      return this.#settle(key);
    }
    try {
      const attempt = known ?? await this.#prepare(key, claim!, signal);
      if (attempt !== undefined) await this.#carryOut(key, attempt, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      await this.#failed(key, error, known?.claim ?? claim!, signal);
    }
  }

  /** The attempt to be made for a claim; undefined when it is not for us to make one now. */
  async #prepare(key: string, claim: PersistentVolumeClaim, signal: AbortSignal): Promise<Attempt | undefined> {
    const { driverName, client, classes, intents } = this.#options;
    const given = classes.get(classNameOf(claim));
    if (given !== undefined && (given.provisioner !== driverName || waitsForConsumer(claim, given))) return undefined;
    const source = dataSourceOf(claim);
    this.#announce(
      key,
      claim,
      source.kind === "foreign"
        ? `${source.what}: left to the program that fills volumes with it`
        : `${driverName} is making a volume for claim ${claim.metadata.namespace}/${claim.metadata.name}`,
    );
    if (source.kind === "foreign") return undefined;
    const storageClass = checkClaim(claim, given);
    const volumeName = volumeNameOf(claim.metadata.uid!);
    const read = readClassParameters(storageClass.parameters ?? {}, claim, { volumeName });
    const recorded = intents.find(volumeName)?.recorded;
    const contents = recorded === undefined
      ? await findContentSource(claim, { client, driverName, signal })
      : recorded.source; // which may be gone by now
    const request = volumeRequest(claim, storageClass, {
      read,
      topology: recorded?.topology ?? this.#topology(claim, storageClass),
      mutableParameters: recorded?.mutableParameters ?? await this.#mutableParameters(claim, signal),
      secrets: await readSecret(client, read.secrets.provisioner, { signal }),
    });
    const filled = contents === undefined ? request : { ...request, source: contents };
    return { claim, storageClass, read, request: { ...filled, ...recorded }, refusals: 0 };
  }

  #topology(claim: PersistentVolumeClaim, { allowedTopologies }: StorageClass) {
    const { driverName, topologyKey, nodes, csiNodes } = this.#options;
    const known = { driverName, topologyKey, nodes: nodes.list(), csiNodes: csiNodes.list() };
    const node = selectedNodeOf(claim);
    return node === undefined
      ? topologyOfAll(allowedTopologies, known)
      : topologyOfNode(node, allowedTopologies, known);
  }

  async #mutableParameters({ spec }: PersistentVolumeClaim, signal: AbortSignal): Promise<Record<string, string>> {
    const { driverName, client } = this.#options;
    const name = spec?.volumeAttributesClassName;
    if (!name) return {};
    const named = await client.get(volumeAttributesClasses, { name }, { signal });
    if (named.driverName === driverName) return named.parameters ?? {};
    throw new ClaimError(`volumeAttributesClassName ${JSON.stringify(name)}: it is for ${named.driverName}`);
  }

  /** Repeats the request until its outcome is known, and then gives the volume to the claim, or takes it back. */
  async #carryOut(key: string, attempt: Attempt, signal: AbortSignal): Promise<void> {
    this.#attempts.set(key, attempt);
    const created = attempt.created ??= await this.#create(key, attempt, signal);
    const { name, requiredBytes } = attempt.request;
    if (created.capacityBytes > 0n && created.capacityBytes < requiredBytes) {
      await this.#undo(key, attempt, signal);
      throw new ClaimError(`volume ${created.volumeId}: made with ${created.capacityBytes} of ${requiredBytes} bytes`);
    }
    const claim = this.#claim(key);
    if (claim?.spec?.volumeName === name) return this.#settle(key);
    if (claim === undefined || !wantsVolume(claim, this.#options.driverName)) {
      await this.#undo(key, attempt, signal);
      this.#log.info("a claim no longer wants its volume, which is removed", { claim: key, volume: name });
      return this.#settle(key);
    }
    await this.#publish(key, attempt, signal);
  }

  async #create(key: string, { request }: Attempt, signal: AbortSignal): Promise<CreatedVolume> {
    try {
      return await this.#options.csi.createVolume(request, { signal });
    } catch (error) {
      if (!isMaybeInProgress(error)) this.#attempts.delete(key);
      throw error;
    }
  }

  /**
   * Takes a volume back that no PersistentVolume was made for. Whether that is so is asked of the API server: an answer may
   * have been lost, and another provisioner may have been here.
   */
  async #undo(key: string, { request, created }: Attempt, signal: AbortSignal): Promise<void> {
    const { client, csi, intents } = this.#options;
    const found = await client.get(persistentVolumes, { name: request.name }, { signal }).catch((error) => {
      if (!isNotFound(error)) throw error;
    });
    if (found === undefined && intents.find(request.name)?.pending !== false) {
      await csi.deleteVolume({ volumeId: created!.volumeId, secrets: request.secrets }, { signal });
    }
    this.#attempts.delete(key);
  }

  async #publish(key: string, attempt: Attempt, signal: AbortSignal): Promise<void> {
    const { client, driverName, events, intents, volumes } = this.#options;
    const { name } = attempt.request;
    try {
      await client.create(persistentVolumes, volumeObject(driverName, attempt, attempt.created!), { signal });
    } catch (error) {
      if (!isAlreadyExists(error)) {
        const refused = error instanceof ApiError && !isTransient(error);
        if (refused && ++attempt.refusals >= REFUSALS) await this.#undo(key, attempt, signal);
        throw error;
      }
    }
    events.record(attempt.claim, "Normal", "ProvisioningSucceeded", `volume ${name} was made`);
    this.#settle(key);
    await intents.handOver(name, { signal }).catch((error) => {
      this.#log.warn("an intent could not be marked as handed over; the sweep does it", { volume: name, error });
    });
    // Else a change of the claim that comes first would be taken for a claim without a volume.
    await volumes.seen(name, (volume) => volume !== undefined, this.#patience);
  }

  #announce(key: string, claim: PersistentVolumeClaim, message: string): void {
    if (this.#announced.has(key)) return;
    this.#announced.add(key);
    this.#options.events.record(claim, "Normal", "Provisioning", message);
  }

  /** Says what went wrong, and who can do something about it: the scheduler, or time. */
  async #failed(key: string, error: unknown, tried: PersistentVolumeClaim, signal: AbortSignal): Promise<void> {
    const claim = this.#claim(key);
    if (claim === undefined) {
      if (this.#attempts.has(key)) throw error;
      return this.#settle(key);
    }
    if (!isContended(error)) this.#options.events.record(claim, "Warning", "ProvisioningFailed", reasonOf(error));
    const exhausted = isExhausted(error);
    const node = selectedNodeOf(tried);
    if (node !== undefined && (exhausted || error instanceof WrongNodeError)) {
      if (exhausted) await this.#withdraw(tried, node);
      return await this.#reschedule(key, node, signal);
    }
    if (!this.#attempts.has(key)) this.#waiting.set(key, exhausted ? "space" : "other");
    throw error;
  }

  /**
   * Waits until the scheduler is told that the node has no room for the claim: it would choose the same one again. A node that
   * refuses what it seems to have room for is waited for in vain, if it does not say soon that it has less.
   */
  async #withdraw(claim: PersistentVolumeClaim, nodeName: string): Promise<void> {
    const { withdrawn, withdrawnWithinMs: timeoutMs = WITHDRAWN_WITHIN_MS } = this.#options;
    const bytes = bytesOf(claim.spec?.resources?.requests?.["storage"]) ?? 0n;
    await withdrawn?.({ nodeName, className: classNameOf(claim) }, bytes, { signal: this.#stopping, timeoutMs });
  }

  /** Takes back the scheduler's choice, so that it chooses again; unless it did already. */
  async #reschedule(key: string, node: string, signal: AbortSignal): Promise<void> {
    const claim = this.#claim(key);
    this.#settle(key);
    if (claim === undefined || selectedNodeOf(claim) !== node) return;
    const { namespace, name, resourceVersion } = claim.metadata;
    const merge = { metadata: { annotations: { [SELECTED_NODE]: null } } };
    await this.#options.client.patch(persistentVolumeClaims, { namespace, name }, { merge, resourceVersion, signal });
    const chosenAgain = (now: PersistentVolumeClaim | undefined) => now === undefined || selectedNodeOf(now) !== node;
    await this.#options.claims.seen(`${namespace}/${name}`, chosenAgain, this.#patience);
  }
}

function keyOfClaim({ metadata }: PersistentVolumeClaim): string {
  return `${metadata.namespace}/${metadata.name}/${metadata.uid}`;
}
