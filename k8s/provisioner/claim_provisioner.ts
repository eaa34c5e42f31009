/**
 * Creates the volumes of claims.
 *
 * For each claim there is an {@linkcode Attempt}: a CreateVolume request that is repeated without changes until its
 * outcome is known. Then the PersistentVolume is created, or the volume is deleted if the claim no longer needs it.
 *
 * The key of a claim is `namespace/name/uid`, so that a deleted claim is not taken for another one of its name.
 *
 * @module
 */

import { getLogger } from "@logtape/logtape";
import {
  classNameOf,
  dataSourceOf,
  SELECTED_NODE_ANNOTATION,
  selectedNodeOf,
  shouldProvision,
  volumeNameOf,
  waitsForConsumer,
} from "./claim.ts";
import { isPendingCloneOf } from "./cloning_protection.ts";
import { AwaitedObjects } from "./awaited_objects.ts";
import { sidecarController } from "../sidecars/sidecar_controller.ts";
import { type FreeSpaceGrowth, SpaceWaiters, WaitingKeys } from "../runtime/wake_ups.ts";
import { hasDriver, TopologyError, topologyLabels, WrongNodeError } from "../sidecars/claim_topology.ts";
import { ClaimError, readClassParameters } from "../sidecars/class_parameters.ts";
import { ApiError, isAlreadyExists, isTransient, orAbsent } from "../client/client.ts";
import { findContentSource } from "./content_source.ts";
import { codeName, type CreatedVolume, errorMessage, isMaybeInProgress } from "../sidecars/csi_client.ts";
import type { Controller, ReconcileOutcome } from "../runtime/controller.ts";
import { type CsiNode, type PersistentVolumeClaim, persistentVolumeClaims, persistentVolumes } from "../api/objects.ts";
import type { ProvisionerOptions } from "./provisioner_options.ts";
import { quantityToBytes } from "../api/quantity.ts";
import { readSecret } from "../sidecars/secrets.ts";
import { persistentVolumeFor, type ProvisioningInputs } from "./persistent_volume.ts";
import {
  awaitedSpace,
  createVolumeRequestFor,
  mutableParametersOf,
  requireProvisionable,
  topologyFor,
} from "./volume_request.ts";
import { systemClock } from "../../base/clock.ts";

/**
 * The time in which the published capacity of a full node should be corrected, in milliseconds. The agent batches
 * changes for a second, reads a report, and CSIStorageCapacities are written at most once a second.
 */
const CAPACITY_TIMEOUT_MS = 5_000;

/**
 * The time after which a volume that is not created yet is announced, in milliseconds. Most volumes are created by then, and
 * an event is a request.
 */
const ANNOUNCE_AFTER_MS = 5_000;

/** The number of times that the API server may reject a PersistentVolume before its volume is deleted. */
const MAX_REFUSALS = 5;

/** A request that was possibly sent. It is repeated without changes until its outcome is known and handled. */
interface Attempt extends ProvisioningInputs {
  /** The volume, once it is created. */
  created?: CreatedVolume;
  /** True once the deletion of the volume has begun: it may go at any time, so nobody gets it any more. */
  isGivenUp?: true;
  /** The number of times that its PersistentVolume was rejected. */
  refusals: number;
}

/** Creates the volumes of claims. */
export class ClaimProvisioner {
  readonly #options: ProvisionerOptions;
  readonly #log = getLogger(["denolith", "provisioner"]);
  readonly #attempts = new Map<string, Attempt>();
  /** The errors of claims whose last attempt failed and left nothing, by their keys. */
  readonly #failures = new Map<string, unknown>();
  /** Those keys for which there was no space. */
  readonly #spaceWaiters = new SpaceWaiters();
  /** Those of claims whose volumes are being created, by the names of their requests. */
  readonly #waiting = new WaitingKeys();
  /** The objects that claims wait for. */
  readonly #awaited: AwaitedObjects;
  /** The keys of claims that have the event `Provisioning` already. */
  readonly #announced = new Set<string>();
  readonly #controller: Controller;
  #stopSignal: AbortSignal | undefined;

  /** Creates it; nothing runs before {@linkcode ClaimProvisioner.run}. */
  constructor(options: ProvisionerOptions) {
    this.#options = options;
    this.#awaited = new AwaitedObjects(options);
    this.#controller = sidecarController("provisioner", options, (key, signal) => this.#reconcile(key, signal));
  }

  /** Returns the names of the requests of the attempts in progress. */
  requestsInProgress(): ReadonlySet<string> {
    return new Set([...this.#attempts.values()].map(({ request }) => request.name));
  }

  /** Runs until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { driverName, topologyKey, claims, volumes, classes, nodes, csiNodes, wakeUps } = this.#options;
    const controller = this.#controller;
    this.#stopSignal = signal;
    controller.watch(claims, (claim) => this.#isRelevant(claim) ? [keyOfClaim(claim)] : [])
      .subscribe(claims, (_, now, before) => {
        if (now?.status?.phase !== "Bound" || before?.status?.phase === "Bound") return;
        for (const key of this.#failedKeys((claim) => isPendingCloneOf(claim, now))) controller.wake(key);
      }, { replay: false })
      .watch(volumes, ({ spec }) => this.#unprovisionedClaimKeys(spec?.claimRef))
      .watch(classes, ({ metadata }) => this.#keysOfClass(metadata.name))
      .subscribe(nodes, (_, now, before) => {
        const isChanged = (label: string) => now?.metadata.labels?.[label] !== before?.metadata.labels?.[label];
        this.#requeueTopology((claim) => {
          return topologyLabels(topologyKey, classes.get(classNameOf(claim))?.allowedTopologies).some(isChanged);
        });
      })
      .subscribe(csiNodes, (_, now, before) => {
        const isRegistered = (node: CsiNode | undefined) => node !== undefined && hasDriver(node, driverName);
        if (isRegistered(now) && !isRegistered(before)) this.#requeueTopology(() => true);
      });
    const onGrowth = (growth: FreeSpaceGrowth) => {
      for (const { key, delayMs } of this.#spaceWaiters.wake(growth)) controller.addAfter(key, delayMs);
    };
    wakeUps.on("space", onGrowth, signal);
    wakeUps.on("unreserved", onGrowth, signal);
    wakeUps.on("request", (name) => this.#waiting.wake(name, controller), signal);
    const watching = this.#awaited.run(controller, signal);
    await controller.run(signal);
    await watching;
  }

  #isRelevant(claim: PersistentVolumeClaim): boolean {
    if (shouldProvision(claim, this.#options.driverName)) return true;
    return [this.#attempts, this.#failures].some((keys) => keys.size > 0 && keys.has(keyOfClaim(claim)));
  }

  /**
   * Returns the key of the claim of a volume, if that claim waits for a volume: when one is deleted, the next is
   * created.
   */
  #unprovisionedClaimKeys(reference: { namespace?: string; name?: string; uid?: string } | undefined): string[] {
    const claim = this.#options.claims.get(`${reference?.namespace}/${reference?.name}`);
    if (claim === undefined || claim.metadata.uid !== reference?.uid) return [];
    return shouldProvision(claim, this.#options.driverName) ? [keyOfClaim(claim)] : [];
  }

  /** Returns the keys of the claims of a class that have no volume; also of those that wait for a pod: it may be made again. */
  #keysOfClass(name: string): string[] {
    return this.#options.claims.list().filter((claim) => classNameOf(claim) === name && this.#isRelevant(claim)).map(
      keyOfClaim,
    );
  }

  /** Requeues the claims that failed for want of a node or of space, and are selected: other nodes may help now. */
  #requeueTopology(select: (claim: PersistentVolumeClaim) => boolean): void {
    for (const key of this.#failedKeys(select)) {
      if (this.#failures.get(key) instanceof TopologyError) this.#controller.add(key);
      const delayMs = this.#spaceWaiters.wakeKey(key);
      if (delayMs !== undefined) this.#controller.addAfter(key, delayMs);
    }
  }

  /** Returns the keys of the claims that failed and are selected. */
  #failedKeys(select: (claim: PersistentVolumeClaim) => boolean): string[] {
    return [...this.#failures.keys()].filter((key) => {
      const claim = this.#claim(key);
      return claim !== undefined && select(claim);
    });
  }

  /** Returns the claim of a key, or `undefined` when it was deleted. */
  #claim(key: string): PersistentVolumeClaim | undefined {
    const [namespace, name, uid] = key.split("/");
    const claim = this.#options.claims.get(`${namespace}/${name}`);
    return claim?.metadata.uid === uid ? claim : undefined;
  }

  #forget(key: string): void {
    this.#waiting.delete(key);
    this.#awaited.delete(key);
    this.#attempts.delete(key);
    this.#failures.delete(key);
    this.#spaceWaiters.delete(key);
    this.#announced.delete(key);
  }

  async #reconcile(key: string, signal: AbortSignal): Promise<ReconcileOutcome> {
    const claim = this.#claim(key);
    const name = requestNameOf(key);
    const forget = (nothingToDo: string) => {
      this.#forget(key);
      return { nothingToDo };
    };
    if (this.#options.volumes.get(name) !== undefined) return forget(`PersistentVolume ${name} exists`);
    let attempt = this.#attempts.get(key);
    if (attempt === undefined && claim === undefined) return forget("the claim is gone");
    if (attempt === undefined && !shouldProvision(claim!, this.#options.driverName)) {
      return forget("the claim requests no volume of the driver, or has one");
    }
    try {
      const prepared = attempt ?? await this.#prepareAttempt(key, claim!, signal);
      if ("waitsFor" in prepared) return prepared;
      attempt = prepared;
      await this.#execute(key, attempt, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      const node = attempt === undefined ? selectedNodeOf(claim!) : this.#selectedNodeOf(attempt);
      await this.#handleFailure(key, error, node, signal);
    }
  }

  /**
   * Prepares an attempt for a claim.
   *
   * @returns the attempt, or what the claim waits for when the driver has nothing to do for it now
   */
  async #prepareAttempt(
    key: string,
    claim: PersistentVolumeClaim,
    signal: AbortSignal,
  ): Promise<Attempt | { waitsFor: string }> {
    const { driverName, client, classes, intents } = this.#options;
    const foundClass = classes.get(classNameOf(claim));
    if (foundClass !== undefined && foundClass.provisioner !== driverName) {
      return { waitsFor: `the provisioner ${foundClass.provisioner} of its class` };
    }
    if (foundClass !== undefined && waitsForConsumer(claim, foundClass)) return { waitsFor: "the scheduler" };
    const source = dataSourceOf(claim);
    if (source.kind === "populator") {
      const waitsFor = "the program that populates volumes from it";
      this.#announce(key, claim, `${source.description}: waiting for ${waitsFor}`);
      return { waitsFor };
    }
    const storageClass = requireProvisionable(claim, foundClass);
    const volumeName = volumeNameOf(claim.metadata.uid!);
    const classParameters = readClassParameters(storageClass.parameters ?? {}, claim, { volumeName });
    const recorded = intents.find(volumeName)?.spec;
    this.#awaited.addSource(claim, key);
    const contentSource = recorded === undefined
      ? await findContentSource(claim, { client, driverName, signal })
      : recorded.source; // which may have been deleted meanwhile
    this.#awaited.addClass(claim, key);
    const request = createVolumeRequestFor(claim, storageClass, {
      classParameters,
      topology: recorded?.topology ?? topologyFor(claim, storageClass, contentSource, this.#options),
      mutableParameters: recorded?.mutableParameters ??
        await mutableParametersOf(claim, { client, driverName, signal }),
      secrets: await readSecret(client, classParameters.secrets.provisioner, { signal }),
    });
    this.#awaited.delete(key);
    const requestWithSource = contentSource === undefined ? request : { ...request, source: contentSource };
    const recordedRequest = recorded && { ...recorded, isRecorded: true };
    return { claim, storageClass, classParameters, request: { ...requestWithSource, ...recordedRequest }, refusals: 0 };
  }

  /** Sends the request, unless it succeeded before. Then creates the PersistentVolume, or deletes an unneeded volume. */
  async #execute(key: string, attempt: Attempt, signal: AbortSignal): Promise<void> {
    this.#attempts.set(key, attempt);
    const created = attempt.created ??= await this.#create(key, attempt, signal);
    const { name, requiredBytes } = attempt.request;
    if (created.capacityBytes > 0n && created.capacityBytes < requiredBytes) {
      await this.#deleteVolumeWithoutPv(key, attempt, signal);
      throw new ClaimError(`volume ${created.volumeId}: made with ${created.capacityBytes} of ${requiredBytes} bytes`);
    }
    const claim = this.#claim(key);
    if (claim?.spec?.volumeName === name) return this.#forget(key);
    if (claim === undefined || !shouldProvision(claim, this.#options.driverName)) {
      await this.#deleteVolumeWithoutPv(key, attempt, signal);
      this.#log.info("a claim no longer needs its volume, which is deleted", { claim: key, volume: name });
      return this.#forget(key);
    }
    if (attempt.isGivenUp) {
      await this.#deleteVolumeWithoutPv(key, attempt, signal);
      return this.#controller.add(key); // with another volume
    }
    await this.#createPersistentVolume(key, attempt, signal);
  }

  async #create(key: string, { claim, request, storageClass }: Attempt, signal: AbortSignal): Promise<CreatedVolume> {
    const { driverName, clock = systemClock } = this.#options;
    const { namespace, name } = claim.metadata;
    const message = `${driverName} is creating a volume for claim ${namespace}/${name}`;
    const cancel = clock.after(ANNOUNCE_AFTER_MS, () => this.#announce(key, claim, message));
    try {
      return await this.#options.csi.createVolume(request, { signal });
    } catch (error) {
      if (isMaybeInProgress(error)) this.#waiting.add(request.name, key);
      else [this.#attempts, this.#waiting].forEach((entries) => entries.delete(key));
      if (codeName(error) !== "ResourceExhausted") this.#spaceWaiters.delete(key);
      else this.#spaceWaiters.add(key, awaitedSpace(request, storageClass, this.#options));
      throw error;
    } finally {
      cancel();
    }
  }

  /**
   * Deletes a volume that has no PersistentVolume, and ends its attempt. Reads the PersistentVolume from the API server,
   * because an answer may have been lost, or another provisioner may have created it.
   */
  async #deleteVolumeWithoutPv(key: string, attempt: Attempt, signal: AbortSignal): Promise<void> {
    const { client, csi, intents } = this.#options;
    const { request, created } = attempt;
    const found = await orAbsent(client.get(persistentVolumes, { name: request.name }, { signal }));
    if (found === undefined && intents.find(request.name)?.pending !== false) {
      attempt.isGivenUp = true;
      await csi.deleteVolume({ volumeId: created!.volumeId, secrets: request.secrets }, { signal });
    }
    this.#attempts.delete(key);
  }

  async #createPersistentVolume(key: string, attempt: Attempt, signal: AbortSignal): Promise<void> {
    const { client, driverName, events, intents, volumes } = this.#options;
    const { name } = attempt.request;
    try {
      await client.create(persistentVolumes, persistentVolumeFor(driverName, attempt, attempt.created!), { signal });
    } catch (error) {
      if (!isAlreadyExists(error)) {
        const refused = error instanceof ApiError && !isTransient(error);
        if (refused && ++attempt.refusals >= MAX_REFUSALS) await this.#deleteVolumeWithoutPv(key, attempt, signal);
        throw error;
      }
    }
    events.record(attempt.claim, "Normal", "ProvisioningSucceeded", `created volume ${name}`);
    this.#forget(key);
    await intents.clearPending(name, { signal }).catch((error) => {
      this.#log.warn("an intent could not be marked as complete; garbage collection does it", { volume: name, error });
    });
    // Otherwise a change of the claim that arrives first looks like a claim without a volume.
    await this.#controller.waitForCache(volumes, name, (volume) => volume !== undefined);
  }

  #announce(key: string, claim: PersistentVolumeClaim, message: string): void {
    if (this.#announced.has(key)) return;
    this.#announced.add(key);
    this.#options.events.record(claim, "Normal", "Provisioning", message);
  }

  /**
   * Returns the node of an attempt, if the scheduler selected it and may select another: a copy is made on the node of
   * its source alone. The request of an earlier process may be for another node than the one that the claim has now.
   */
  #selectedNodeOf({ claim, request: { source, topology } }: Attempt): string | undefined {
    const node = topology.requisite[0]?.[this.#options.topologyKey];
    const isOnlyNode = source !== undefined && this.#options.nodeOfSource(source) === node;
    return selectedNodeOf(claim) === undefined || isOnlyNode ? undefined : node;
  }

  /**
   * Records an event for a failure, and has the scheduler choose again if another node may help.
   *
   * @param node the node that the scheduler selected, if it may select another
   */
  async #handleFailure(key: string, error: unknown, node: string | undefined, signal: AbortSignal): Promise<void> {
    const claim = this.#claim(key);
    if (claim === undefined) {
      if (this.#attempts.has(key)) throw error;
      return this.#forget(key);
    }
    if (codeName(error) === "Aborted") this.#announce(key, claim, errorMessage(error));
    else this.#options.events.record(claim, "Warning", "ProvisioningFailed", errorMessage(error));
    const exhausted = codeName(error) === "ResourceExhausted";
    if (node !== undefined && (exhausted || error instanceof WrongNodeError)) {
      if (exhausted) await this.#waitForCapacityUpdate(claim, node);
      const rightNode = error instanceof WrongNodeError ? error.rightNode : undefined;
      return await this.#rescheduleClaim(key, { node, rightNode }, signal);
    }
    if (!this.#attempts.has(key)) this.#failures.set(key, error);
    throw error;
  }

  /**
   * Waits until the published capacity of a node is too small for a claim. Otherwise the scheduler would choose the same
   * node again. The wait is limited, because a node may refuse a volume although it reports enough free space.
   */
  async #waitForCapacityUpdate(claim: PersistentVolumeClaim, nodeName: string): Promise<void> {
    const { waitForCapacityBelow, capacityTimeoutMs: timeoutMs = CAPACITY_TIMEOUT_MS } = this.#options;
    const bytes = quantityToBytes(claim.spec?.resources?.requests?.["storage"]) ?? 0n;
    await waitForCapacityBelow?.({ nodeName, className: classNameOf(claim) }, bytes, {
      signal: this.#stopSignal,
      timeoutMs,
    });
  }

  /**
   * Removes the selected node from the claim, so that the scheduler chooses again. If it already did, the claim is tried
   * again: the change of the claim may have been seen before this attempt began. When only one node is right, that one is written in its place: the scheduler then considers no other (kube-scheduler, volume
   * binding, `FindPodVolumes`).
   */
  async #rescheduleClaim(
    key: string,
    { node, rightNode = null }: { readonly node: string; readonly rightNode?: string | null | undefined },
    signal: AbortSignal,
  ): Promise<void> {
    const claim = this.#claim(key);
    this.#forget(key);
    if (claim === undefined) return;
    if (selectedNodeOf(claim) !== node) return this.#controller.add(key);
    const { namespace, name, resourceVersion } = claim.metadata;
    const merge = { metadata: { annotations: { [SELECTED_NODE_ANNOTATION]: rightNode } } };
    await this.#options.client.patch(persistentVolumeClaims, { namespace, name }, { merge, resourceVersion, signal });
    const isRescheduled = (now: PersistentVolumeClaim | undefined) => now === undefined || selectedNodeOf(now) !== node;
    await this.#controller.waitForCache(this.#options.claims, `${namespace}/${name}`, isRescheduled);
  }
}

/** Returns the key of a claim: `namespace/name/uid`. */
export function keyOfClaim({ metadata }: PersistentVolumeClaim): string {
  return `${metadata.namespace}/${metadata.name}/${metadata.uid}`;
}

/** Returns the name of the request for the volume of the claim of a key. */
function requestNameOf(key: string): string {
  return volumeNameOf(key.slice(key.lastIndexOf("/") + 1));
}
