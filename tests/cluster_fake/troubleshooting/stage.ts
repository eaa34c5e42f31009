/**
 * A cluster in which the cases of the troubleshooting pages come about: the driver's controller and agents do what they do, and
 * what is not the driver's, such as kubelet and the scheduler, does its part when a test says so.
 *
 * @module
 */

import { dirname } from "@std/path";
import { VolumeCapability_AccessMode_Mode as Mode } from "../../../csi/proto/csi_pb.ts";
import { statusOf } from "../../../csi/status.ts";
import {
  csiStorageCapacities,
  events,
  type PersistentVolume,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods,
  type Resource,
  volumeAttributesClasses,
} from "../../../k8s/api/objects.ts";
import {
  volumeGroupSnapshotClasses,
  type VolumeGroupSnapshotContent,
  volumeGroupSnapshotContents,
  volumeGroupSnapshots,
  volumeSnapshotClasses,
  type VolumeSnapshotContent,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../../k8s/api/snapshot_objects.ts";
import { maximumVolumeSizeOf } from "../../../k8s/scheduling/capacity_object.ts";
import { GROUP_CONTENT_FINALIZER } from "../../../k8s/snapshotter/group_content.ts";
import { CONTENT_FINALIZER } from "../../../k8s/snapshotter/snapshot_content.ts";
import { ControllerClock, NODE_WAIT_MS } from "./controller_clock.ts";
import { DRIVER, type FakeAgent } from "../../fake/cluster/node_cluster.ts";
import type { FakeLv, FakeMachine } from "../../fake/machine/machine.ts";
import { pluginOver } from "../../fake/cluster/plugin_run.ts";
import { machineWith, MiB } from "../../fake/cluster/volume_cluster.ts";
import { type ClaimFixture, WholeCluster, type WholeClusterOptions } from "../../fake/cluster/whole_cluster.ts";

/** A problem, as the plugin prints it as JSON. */
export interface PrintedProblem {
  /** The kind of problem. */
  readonly reason: string;
  /** How bad it is. */
  readonly severity: string;
  /** What is wrong. */
  readonly message: string;
  /** Since when. */
  readonly since?: string;
  /** What to do. */
  readonly remedy?: string;
  /** The chapter of the runbooks. */
  readonly runbook?: string;
}

/** Options of {@linkcode Stage.start}. */
export interface StageOptions
  extends Pick<WholeClusterOptions, "withController" | "hasOldDefinitions" | "cgroupRoot" | "limitGraceMs"> {
  /** The machines; one, `n1`, with 256 MiB in the group `data`, when absent. */
  readonly machines?: Record<string, FakeMachine>;
  /** The time that the controller waits for the agent of a node, in milliseconds. */
  readonly nodeWaitMs?: number;
}

/** The time within which a situation must have come about, in milliseconds. */
const TIMEOUT_MS = 30_000;

/** Waits until a function returns something. @throws {Error} after the time limit */
export async function waitFor<T>(what: string, find: () => T | undefined | Promise<T | undefined>): Promise<T> {
  for (const end = Date.now() + TIMEOUT_MS;;) {
    const found = await find();
    if (found !== undefined) return found;
    if (Date.now() > end) throw new Error(`waiting for ${what}: it does not come`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** The cluster of a case. It is started by the case, which knows what it needs. */
export class Stage implements AsyncDisposable {
  readonly #disposables = new AsyncDisposableStack();
  #cluster?: WholeCluster;
  #machines: Record<string, FakeMachine> = {};
  #folder = "";
  #clock?: ControllerClock;
  /** The secret of the volume, as kubelet reads it for a pod. */
  secrets: Record<string, string> = {};

  /** The cluster. */
  get cluster(): WholeCluster {
    return this.#cluster!;
  }

  /** The machine of the node `n1`. */
  get machine(): FakeMachine {
    return this.#machines["n1"]!;
  }

  /** The agent of the node `n1`. */
  get agent(): FakeAgent {
    return this.cluster.agents.agent("n1");
  }

  /** Returns the only logical volume of the driver. */
  get lv(): FakeLv {
    return this.machine.allLvs().find(({ lv }) => lv.origin === undefined && lv.thinPool === undefined)!.lv;
  }

  /** Starts the cluster. */
  async start(
    { machines = { n1: machineWith({ data: 256n * MiB }) }, nodeWaitMs = NODE_WAIT_MS, ...options }: StageOptions = {},
  ): Promise<void> {
    this.#folder = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-troubleshooting-" }));
    this.#disposables.defer(() => Deno.remove(this.#folder, { recursive: true }));
    this.#machines = machines;
    const controllerClock = this.#clock = this.#disposables.use(new ControllerClock(nodeWaitMs));
    const all = { controllerClock, mountRoots: [this.#folder], ...options };
    this.#cluster = this.#disposables.use(await WholeCluster.start(machines, all));
  }

  /** Has something done at the end. */
  defer(end: () => void | Promise<void>): void {
    this.#disposables.defer(end);
  }

  /** Lets minutes pass for the controller, while the API server answers, until a condition holds. */
  async passMinutesUntil(what: string, condition: () => boolean): Promise<void> {
    await waitFor(what, async () => {
      for (let minute = 0; minute < 6; minute++) {
        this.#clock!.skip(60_000);
        this.cluster.api.sendBookmarks();
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
      return condition() || undefined;
    });
  }

  /** Lets time pass until the controller takes the agent of the node for silent, so that the node has no capacity. */
  async silence(): Promise<void> {
    await this.cluster.agents.stopAgent("n1");
    const capacities = () => this.cluster.api.objects(csiStorageCapacities);
    await waitFor("a capacity", () => capacities().length > 0 || undefined);
    await this.passMinutesUntil(
      "the silence of the agent",
      () => capacities().every((capacity) => maximumVolumeSizeOf(capacity) === 0n),
    );
  }

  /** Adds a finalizer to the claim, as Kubernetes or another program does. */
  keepClaim(...finalizers: string[]): void {
    const at = { name: "data", namespace: "default" };
    this.cluster.api.collection(persistentVolumeClaims).patch({ metadata: { finalizers } }, at);
  }

  /** Adds a claim of the class `now`, and waits until it is bound. */
  async bindClaim(fixture: ClaimFixture = {}): Promise<void> {
    this.cluster.addClaim(fixture);
    const { name = "data" } = fixture;
    await waitFor(`the binding of ${name}`, () => this.claim(name)?.status?.phase === "Bound" || undefined);
  }

  /** Returns a claim. */
  claim(name = "data"): PersistentVolumeClaim | undefined {
    return this.cluster.api.objects(persistentVolumeClaims).find(({ metadata }) => metadata.name === name);
  }

  /** Returns the PersistentVolume of a claim. */
  volume(claim = "data"): PersistentVolume | undefined {
    return this.cluster.api.objects(persistentVolumes).find(({ spec }) => spec?.claimRef?.name === claim);
  }

  /** Changes a claim as its user does. */
  async patchClaim(merge: Partial<Omit<PersistentVolumeClaim, "metadata">>, name = "data"): Promise<void> {
    const client = this.cluster.agents.client;
    await client.patch(persistentVolumeClaims, { namespace: "default", name }, { merge: merge as never });
  }

  /** Makes the claim Lost, as Kubernetes does when its PersistentVolume was deleted. */
  async loseClaim(): Promise<void> {
    await this.patchClaimStatus({ phase: "Lost" });
  }

  /** Asks for a larger size. */
  async grow(size = "64Mi"): Promise<void> {
    await this.patchClaim({ spec: { resources: { requests: { storage: size } } } });
  }

  /** Changes the status of a claim as Kubernetes does. */
  async patchClaimStatus(status: object): Promise<void> {
    const at = { namespace: "default", name: "data" };
    await this.cluster.agents.client.patch(persistentVolumeClaims, at, { merge: { status }, subresource: "status" });
  }

  /** Deletes an object as its user does. */
  async delete(resource: Resource, name: string): Promise<void> {
    await this.cluster.agents.client.delete(resource, { name, ...(resource.namespaced && { namespace: "default" }) });
  }

  /** Has agents read their machines until what they find is in the objects. */
  async report(): Promise<void> {
    for (const name of Object.keys(this.#machines)) {
      // a report waits for a disk that hangs, and the next one reads each group on its own
      const { node, machine } = this.cluster.agents.agent(name);
      for (let time = 0; time < 2; time++) await node.refresh().catch(() => {});
      await machine.lvm.report().catch(() => {}); // what its calls know of the groups
    }
  }

  /** Adds a pod that uses the claim `data`, as the scheduler leaves it. */
  addPod({ name = "web", spec = {}, status = {} }: { name?: string; spec?: object; status?: object } = {}): void {
    const volumes = [{ name: "v", persistentVolumeClaim: { claimName: "data" } }];
    this.cluster.api.put<Pod>(pods, {
      metadata: { name, namespace: "default" },
      ...{ spec: { volumes, ...spec } as never, status: { phase: "Pending", ...status } as never },
    });
  }

  /** Adds a pod that the scheduler finds no node for. @param message what the scheduler says */
  addUnschedulablePod(message: string, name = "web"): void {
    const condition = { type: "PodScheduled", status: "False", reason: "Unschedulable", message };
    const lastTransitionTime = new Date().toISOString();
    this.addPod({ name, status: { conditions: [{ ...condition, lastTransitionTime }] } });
  }

  /** Adds an event of something else than the driver. */
  addEvent(reason: string, message: string, kind = "PersistentVolumeClaim", name = "data"): void {
    this.cluster.api.put(events, {
      metadata: { name: `${name}.${crypto.randomUUID()}`, namespace: "default" },
      involvedObject: { kind, name, namespace: "default" },
      ...{ reason, message, type: "Warning", lastTimestamp: new Date().toISOString() },
    } as never);
  }

  /**
   * Starts a pod on the node of the volume, as kubelet does: its event has the driver's error.
   *
   * @param context the SELinux context that kubelet requests
   */
  async startPod(name = "web", context?: string): Promise<void> {
    const volume = this.volume()!;
    const { csi, accessModes = [] } = volume.spec!;
    const mountFlags = context === undefined ? [] : [`context="${context}"`];
    const use = {
      volumeId: csi!.volumeHandle,
      stagingTargetPath: `${this.#folder}/staging`,
      volumeCapability: {
        accessMode: {
          mode: accessModes.includes("ReadWriteOncePod")
            ? Mode.SINGLE_NODE_SINGLE_WRITER
            : Mode.SINGLE_NODE_MULTI_WRITER,
        },
        accessType: { case: "mount", value: { fsType: csi!.fsType ?? "", mountFlags, volumeMountGroup: "" } },
      },
      volumeContext: {},
      secrets: this.secrets,
    };
    this.addPod({ name, spec: { nodeName: "n1" } });
    const publish = { ...use, targetPath: this.#targetPath(name), readonly: false };
    await Deno.mkdir(dirname(publish.targetPath), { recursive: true });
    try {
      await this.agent.nodeService.nodeStageVolume!(use as never);
      await this.agent.nodeService.nodePublishVolume!(publish as never);
    } catch (error) {
      const cause = `rpc error: code = Internal desc = ${statusOf(error).details}`;
      const said = `MountVolume.SetUp failed for volume "${volume.metadata.name}" : ${cause}`;
      this.addEvent("FailedMount", said, "Pod", name);
      return;
    }
    const at = { namespace: "default", name };
    const merge = { status: { phase: "Running" } };
    await this.cluster.agents.client.patch(pods, at, { merge, subresource: "status" });
  }

  /** Returns the path at which kubelet publishes the volume for a pod. */
  #targetPath(name: string): string {
    return `${this.#folder}/pods/${this.podUid(name)}/volumes/kubernetes.io~csi/pv/mount`;
  }

  /** Returns the uid of a pod. */
  podUid(name = "web"): string {
    return this.cluster.api.objects(pods).find(({ metadata }) => metadata.name === name)!.metadata.uid!;
  }

  /** Ends a pod, as kubelet does. */
  async endPod(name = "web"): Promise<void> {
    const volumeId = this.volume()!.spec!.csi!.volumeHandle;
    const { nodeService } = this.agent;
    await nodeService.nodeUnpublishVolume!({ volumeId, targetPath: this.#targetPath(name) } as never);
    await nodeService.nodeUnstageVolume!({ volumeId, stagingTargetPath: `${this.#folder}/staging` } as never);
    await this.delete(pods, name);
  }

  /** Resizes the filesystem of a claim that a pod uses, as kubelet does. @returns the driver's error, if any */
  async resizeOnNode(bytes: bigint, name = "web"): Promise<string | undefined> {
    const volumeId = this.volume()!.spec!.csi!.volumeHandle;
    const request = {
      ...{ volumeId, volumePath: this.#targetPath(name) },
      capacityRange: { requiredBytes: bytes, limitBytes: 0n },
    };
    try {
      await this.agent.nodeService.nodeExpandVolume!(request as never);
      return undefined;
    } catch (error) {
      return statusOf(error).details;
    }
  }

  /** Adds a VolumeSnapshotClass. */
  addSnapshotClass(name = "snap", parameters: Record<string, string> = {}): void {
    this.cluster.api.put(volumeSnapshotClasses, { metadata: { name }, driver: DRIVER, parameters });
  }

  /**
   * Adds a VolumeSnapshot `cut` of the claim `data`, as the snapshot-controller leaves it to the driver.
   *
   * @param content more of the spec of its content; `null` for no content
   * @param annotations those of its content
   */
  addSnapshot(
    content: Partial<VolumeSnapshotContent["spec"]> | null = {},
    annotations: Record<string, string> = {},
  ): void {
    const meta = { name: "cut", namespace: "default" };
    const { metadata: { uid } } = this.cluster.api.put(volumeSnapshots, { metadata: meta });
    if (content === null) return;
    this.cluster.api.put(volumeSnapshotContents, {
      metadata: { name: "content", annotations, finalizers: [CONTENT_FINALIZER] },
      spec: {
        ...{ driver: DRIVER, deletionPolicy: "Delete", volumeSnapshotClassName: "snap" },
        source: { volumeHandle: this.volume()?.spec?.csi?.volumeHandle ?? "" },
        volumeSnapshotRef: { ...meta, uid: uid! },
        ...content,
      },
    } as never);
  }

  /**
   * Adds a VolumeGroupSnapshot `both` of claims, as the snapshot-controller leaves it to the driver.
   *
   * @param claims the names of the claims; none for one without a content
   */
  addGroupSnapshot(claims: readonly string[]): void {
    const meta = { name: "both", namespace: "default" };
    const { metadata: { uid } } = this.cluster.api.put(volumeGroupSnapshots, { metadata: meta });
    if (claims.length === 0) return;
    this.cluster.api.put(volumeGroupSnapshotClasses, { metadata: { name: "groups" }, driver: DRIVER, parameters: {} });
    this.cluster.api.put(volumeGroupSnapshotContents, {
      metadata: { name: "group-content", finalizers: [GROUP_CONTENT_FINALIZER] },
      spec: {
        ...{ driver: DRIVER, deletionPolicy: "Delete", volumeGroupSnapshotClassName: "groups" },
        source: { volumeHandles: claims.map((claim) => this.volume(claim)!.spec!.csi!.volumeHandle) },
        volumeGroupSnapshotRef: { ...meta, uid: uid! },
      },
    } as never);
  }

  /** Returns the content of the group snapshot. */
  groupContent(): VolumeGroupSnapshotContent | undefined {
    return this.cluster.api.objects(volumeGroupSnapshotContents).at(0);
  }

  /** Adds a snapshot of the claim `data`, and waits until it is ready. */
  async takeSnapshot(parameters: Record<string, string> = {}): Promise<void> {
    this.addSnapshotClass("snap", parameters);
    this.addSnapshot();
    await waitFor("the snapshot", () => this.content()?.status?.readyToUse === true || undefined);
    await this.setSnapshotStatus({ readyToUse: true, boundVolumeSnapshotContentName: "content" });
  }

  /** Changes the status of the VolumeSnapshot, as the snapshot-controller does. */
  async setSnapshotStatus(status: object): Promise<void> {
    const at = { namespace: "default", name: "cut" };
    await this.cluster.agents.client.patch(volumeSnapshots, at, { merge: { status }, subresource: "status" });
  }

  /** Returns the content of the snapshot. */
  content(): VolumeSnapshotContent | undefined {
    return this.cluster.api.objects(volumeSnapshotContents).at(0);
  }

  /** Adds a VolumeAttributesClass. */
  addAttributesClass(name: string, parameters: Record<string, string>): void {
    this.cluster.api.put(volumeAttributesClasses, { metadata: { name }, driverName: DRIVER, parameters });
  }

  /** Runs the plugin as somebody who may only view. @returns the problems that it prints */
  async problems(command: readonly string[], now?: Date): Promise<readonly PrintedProblem[]> {
    const run = pluginOver(this.cluster.api, { role: "viewer", ...(now && { now }) });
    const { output, errors } = await run([...command, "-o", "json"]);
    if (output === "") throw new Error(errors);
    return JSON.parse(output).problems;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#disposables.disposeAsync();
  }
}
