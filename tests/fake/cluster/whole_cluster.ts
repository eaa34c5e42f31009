/**
 * A whole cluster in this process: a fake API server, agents on fake machines, the driver's own controller process, and a
 * binder. What happens to a claim, its objects and events, is what happens in a cluster.
 *
 * @module
 */

import { runController } from "../../../cli/controller.ts";
import {
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  type StorageClass,
  storageClasses,
} from "../../../k8s/api/objects.ts";
import {
  volumeGroupSnapshotClasses,
  volumeGroupSnapshotContents,
  volumeGroupSnapshots,
  volumeSnapshotClasses,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../../k8s/api/snapshot_objects.ts";
import {
  customResourceDefinitions,
  DEFINITIONS,
  SCHEMA_ANNOTATION,
  SCHEMA_VERSION,
} from "../../../k8s/client/definitions.ts";
import { HttpClient } from "../../../k8s/client/http_client.ts";
import { type Clock, systemClock } from "../../../base/clock.ts";
import type { Exec } from "../../../lvm/exec.ts";
import { PROVISIONER_ANNOTATION } from "./control_plane.ts";
import { DRIVER, FakeCluster, NAMESPACE, type ProcessOptions } from "./node_cluster.ts";
import { collectPrinted, flagsOf, httpPort, RunningSubcommand, SubcommandFolder } from "../subcommand.ts";
import { secrets } from "../../../k8s/sidecars/secrets.ts";
import { startBinder } from "./volume_binder.ts";

/** A claim, as tests make it. */
export interface ClaimFixture {
  /** Its name. */
  readonly name?: string;
  /** Its class. */
  readonly className?: string;
  /** The size that it requests. */
  readonly size?: string;
  /** More of its spec. */
  readonly spec?: Partial<NonNullable<PersistentVolumeClaim["spec"]>>;
  /** Annotations. */
  readonly annotations?: Record<string, string>;
}

/** Options of {@linkcode WholeCluster.start}. */
export interface WholeClusterOptions extends Pick<ProcessOptions, "mountRoots" | "cgroupRoot" | "limitGraceMs"> {
  /** Whether the driver's controller runs; yes, when absent. */
  readonly withController?: boolean;
  /** The time of the controller; that of the machine, when absent. */
  readonly controllerClock?: Clock;
  /** Whether the definitions of the driver's kinds are too old until {@linkcode WholeCluster.replaceDefinitions}. */
  readonly hasOldDefinitions?: boolean;
}

/** A whole cluster. */
export class WholeCluster implements AsyncDisposable {
  readonly #end = new AbortController();
  readonly #disposables = new AsyncDisposableStack();
  #controller: RunningSubcommand | undefined;

  private constructor(readonly agents: FakeCluster) {}

  /** Starts a cluster whose nodes are the given machines. */
  static async start(
    machines: Record<string, Exec>,
    { withController = true, controllerClock = systemClock, hasOldDefinitions = false, ...agentOptions }:
      WholeClusterOptions = {},
  ): Promise<WholeCluster> {
    const agents = await FakeCluster.start(machines, agentOptions);
    const cluster = new WholeCluster(agents);
    const { api } = agents;
    const snapshotKinds = [volumeSnapshots, volumeSnapshotContents, volumeSnapshotClasses];
    const groupKinds = [volumeGroupSnapshots, volumeGroupSnapshotContents, volumeGroupSnapshotClasses];
    for (const resource of [...snapshotKinds, ...groupKinds, secrets]) {
      api.addResource(resource);
    }
    for (const name of Object.keys(machines)) {
      await agents.registerNode(name);
    }
    cluster.addClass("now", { volumeBindingMode: "Immediate" });
    cluster.addClass("later");
    if (hasOldDefinitions) {
      api.addResource(customResourceDefinitions);
      for (const name of DEFINITIONS) api.put(customResourceDefinitions, { metadata: { name } });
    }
    cluster.#bind();
    if (withController) await cluster.#startController(controllerClock);
    return cluster;
  }

  /** The API server. */
  get api(): FakeCluster["api"] {
    return this.agents.api;
  }

  /** Gives the definitions of the driver's kinds the version that the driver needs, or another one; watches end with new schemas. */
  replaceDefinitions(version = SCHEMA_VERSION): void {
    for (const name of DEFINITIONS) {
      const metadata = { annotations: { [SCHEMA_ANNOTATION]: `${version}` } };
      this.api.collection(customResourceDefinitions).patch({ metadata }, { name, namespace: undefined });
    }
    this.api.endWatches();
  }

  /** Adds a class of the driver. */
  addClass(
    name: string,
    { parameters = { volumeGroup: "data" }, ...rest }: Omit<Partial<StorageClass>, "metadata"> = {},
  ): void {
    this.api.put(storageClasses, {
      metadata: { name },
      ...{ provisioner: DRIVER, reclaimPolicy: "Delete", allowVolumeExpansion: true },
      ...{ volumeBindingMode: "WaitForFirstConsumer", parameters, ...rest },
    });
  }

  /** Adds a claim, as kube-controller-manager leaves it to the provisioner. */
  addClaim({ name = "data", className = "now", size = "32Mi", spec, annotations }: ClaimFixture = {}): void {
    this.api.put(persistentVolumeClaims, {
      metadata: { name, namespace: "default", annotations: { [PROVISIONER_ANNOTATION]: DRIVER, ...annotations } },
      spec: {
        ...{ storageClassName: className, accessModes: ["ReadWriteOnce"], volumeMode: "Filesystem" },
        resources: { requests: { storage: size } },
        ...spec,
      },
      status: { phase: "Pending" },
    });
  }

  #bind(): void {
    const client = new HttpClient({ url: this.api.url }, { userAgent: "binder" });
    const { running } = startBinder(client, this.#end.signal);
    this.#disposables.defer(async () => {
      await running;
      client[Symbol.dispose]();
    });
  }

  /** Ends the driver's controller. */
  async stopController(): Promise<void> {
    await this.#controller?.[Symbol.asyncDispose]();
  }

  async #startController(clock: Clock): Promise<void> {
    const folder = await SubcommandFolder.create(this.api.url);
    const printed = collectPrinted();
    const flags = flagsOf(
      ...["controller", "--kubeconfig", folder.kubeconfig, "--endpoint", `unix://${folder.path}/socket/csi.sock`],
      ...["--http-address", "127.0.0.1:0", "--disable-process-metrics", "--namespace", NAMESPACE],
    );
    this.#disposables.use(folder);
    this.#disposables.use(printed);
    const { startLogging } = await import("../../../cli/logging.ts");
    await startLogging("info", "text");
    const isReady = () => httpPort(printed) !== undefined;
    this.#controller = this.#disposables.use(
      await RunningSubcommand.start((end) => runController(flags, end, clock), isReady),
    );
  }

  /** Ends it. @throws {Error} when an object waits in silence */
  async [Symbol.asyncDispose](): Promise<void> {
    await using _ = { [Symbol.asyncDispose]: () => this.#stop() };
    await this.agents.requireWakeUps();
  }

  async #stop(): Promise<void> {
    this.#end.abort();
    await this.#disposables.disposeAsync();
    await this.agents[Symbol.asyncDispose]();
  }
}
