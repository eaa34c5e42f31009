/**
 * A fake cluster with a volume of another driver: its LV on a node, its objects, a bound claim, and what Kubernetes and the driver
 * do about PersistentVolumes.
 *
 * @module
 */

import { volumeIdOf } from "../../../base/ids.ts";
import { lvmVolumes } from "../../../k8s/api/lvm_objects.ts";
import {
  type KubeObject,
  type PersistentVolume,
  type PersistentVolumeClaim,
  type StorageClass,
  storageClasses,
} from "../../../k8s/api/objects.ts";
import { type LvmImport, lvmImports, objectsOf, type Origin } from "../../../k8s/handover/imports.ts";
import type { ImportOptions } from "../../../plugin/import/sources.ts";
import { waitUntil } from "./control_plane.ts";
import { FakeControllers, type OnWrite } from "./fake_controllers.ts";
import { affinityTo } from "../../../k8s/handover/persistent_volume.ts";
import { addForeignLv } from "../machine/foreign_lv.ts";
import type { FakeMachine } from "../machine/machine.ts";
import { KillableExec } from "../machine/killable_exec.ts";
import { FakeCluster } from "./node_cluster.ts";
import { machineWith, MiB } from "./volume_cluster.ts";

/** What a driver has made of the claim. */
interface OtherDriver {
  readonly group: string;
  readonly lvName: string;
  readonly pvName: string;
  readonly storageClass: Pick<StorageClass, "provisioner" | "parameters">;
  readonly source: object;
  readonly topologyKey: string;
  readonly object?: KubeObject & { spec: object };
}

/** The drivers, with names as they write them. */
export const OTHERS: Readonly<Record<Origin, OtherDriver>> = {
  OpenEBS: {
    group: "lvmvg",
    lvName: "pvc-ffd618dd-c9f2-4593-876b-bf6d5eefcf88",
    pvName: "pvc-ffd618dd-c9f2-4593-876b-bf6d5eefcf88",
    storageClass: {
      provisioner: "local.csi.openebs.io",
      parameters: { fsType: "ext4", storage: "lvm", volgroup: "lvmvg" },
    },
    source: {
      csi: {
        driver: "local.csi.openebs.io",
        fsType: "ext4",
        volumeAttributes: { "openebs.io/cas-type": "localpv-lvm", "openebs.io/volgroup": "lvmvg" },
        volumeHandle: "pvc-ffd618dd-c9f2-4593-876b-bf6d5eefcf88",
      },
    },
    topologyKey: "openebs.io/nodename",
    object: {
      metadata: {
        name: "pvc-ffd618dd-c9f2-4593-876b-bf6d5eefcf88",
        namespace: "openebs",
        finalizers: ["lvm.openebs.io/finalizer"],
      },
      spec: { capacity: "33554432", ownerNodeID: "node1", shared: "no", thinProvision: "no", volGroup: "lvmvg" },
    },
  },
  TopoLVM: {
    group: "topo",
    lvName: "0d43aa8c-3c7a-4adf-8db2-0b1b0239feb1",
    pvName: "pvc-e7fb0eba-ab5e-429a-9e70-5cf198db1e72",
    storageClass: {
      provisioner: "topolvm.io",
      parameters: { "csi.storage.k8s.io/fstype": "ext4", "topolvm.io/device-class": "topo" },
    },
    source: {
      csi: { driver: "topolvm.io", fsType: "ext4", volumeHandle: "0d43aa8c-3c7a-4adf-8db2-0b1b0239feb1" },
    },
    topologyKey: "topology.topolvm.io/node",
    object: {
      metadata: { name: "pvc-e7fb0eba-ab5e-429a-9e70-5cf198db1e72", finalizers: ["topolvm.io/logicalvolume"] },
      spec: { deviceClass: "topo", name: "pvc-e7fb0eba-ab5e-429a-9e70-5cf198db1e72", nodeName: "node1", size: "32Mi" },
    },
  },
  Local: {
    group: "data",
    lvName: "archive-2019",
    pvName: "archive",
    storageClass: { provisioner: "kubernetes.io/no-provisioner" },
    source: { local: { path: "/dev/data/archive-2019", fsType: "ext4" } },
    topologyKey: "kubernetes.io/hostname",
  },
};

/** The size of the volume in bytes. */
export const SIZE = 32n * MiB;

/** The mount of a pod that uses the volume by the other driver. */
const POD_MOUNT = "/var/lib/kubelet/pods/1/mount";

/** Options of {@linkcode ImportCluster.start}. */
export interface ImportClusterOptions {
  /** The machine of the node; by default one with a disk. */
  readonly machine?: FakeMachine;
  /** Arguments of lvcreate for the size and the layout of the LV. */
  readonly lvcreate?: readonly string[];
}

/** The cluster. */
export class ImportCluster implements AsyncDisposable {
  readonly #controllers: FakeControllers;

  private constructor(
    readonly cluster: FakeCluster,
    readonly machine: ReturnType<typeof machineWith>,
    readonly exec: KillableExec,
    readonly origin: Origin,
    /** The directory below which volumes are mounted. */
    readonly root: string,
  ) {
    this.#controllers = new FakeControllers(cluster);
  }

  /** Starts a cluster with a volume that has data. */
  static async start(
    origin: Origin = "OpenEBS",
    { machine = machineWith({ [OTHERS[origin].group]: 1n << 30n }), lvcreate }: ImportClusterOptions = {},
  ): Promise<ImportCluster> {
    const { group, lvName } = OTHERS[origin];
    await addForeignLv(machine, { group, name: lvName, bytes: SIZE, ...(lvcreate && { args: lvcreate }) });
    const exec = new KillableExec(machine);
    const root = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-import-" }));
    const cluster = await FakeCluster.start({ node1: exec }, { waitMs: 3_000, mountRoots: [root] });
    const self = new ImportCluster(cluster, machine, exec, origin, root);
    self.#addObjects();
    await self.#controllers.startBinding();
    return self;
  }

  #addObjects(): void {
    const { pvName, storageClass, source, topologyKey, object } = OTHERS[this.origin];
    const { api } = this.cluster;
    const annotations = { "kubectl.kubernetes.io/last-applied-configuration": "{}", owner: "storage" };
    api.put(storageClasses, {
      ...storageClass,
      metadata: { name: "fast", annotations },
      reclaimPolicy: "Delete",
      volumeBindingMode: "WaitForFirstConsumer",
    });
    this.#controllers.addBoundClaim("fast", {
      metadata: {
        name: pvName,
        labels: { tier: "gold" },
        annotations: { "pv.kubernetes.io/provisioned-by": storageClass.provisioner, note: "kept" },
        finalizers: ["external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-protection"],
      },
      spec: {
        ...source,
        nodeAffinity: affinityTo("node1", topologyKey),
        volumeMode: "Filesystem",
      },
    });
    const resource = objectsOf(this.origin);
    if (resource !== undefined) api.put(resource, structuredClone(object!));
  }

  /** Starts what imports volumes. @param onWrite sends each of its writes @returns what ends it */
  startImporter(onWrite?: OnWrite): () => Promise<void> {
    return this.#controllers.startImporter(onWrite);
  }

  /** Plans the import of the claim, as an administrator who has stopped the provisioner. */
  plan(more: Partial<ImportOptions> = {}): ReturnType<FakeControllers["planImport"]> {
    return this.#controllers.planImport(more);
  }

  /** Asks for the import of the claim. */
  async addImport(more: Partial<LvmImport["spec"]> = {}): Promise<LvmImport> {
    const { import: object, plan } = await this.plan();
    if (object === undefined) throw new Error(plan.refusals.join("; "));
    return this.cluster.api.put(lvmImports, { ...object, spec: { ...object.spec, ...more } });
  }

  /** Asks for the end of the import. */
  async finish(): Promise<void> {
    await this.cluster.client.patch(lvmImports, { name: this.id }, { merge: { spec: { finish: true } } });
  }

  /** Asks for the undoing of the import. */
  async cancel(): Promise<void> {
    await this.cluster.client.delete(lvmImports, { name: this.id });
  }

  /** Waits until the import is in a state. */
  async waitForState(state: string): Promise<LvmImport> {
    const what = () => `the import to be ${state}: ${JSON.stringify(this.import?.status)}`;
    await waitUntil(() => this.import?.status?.state === state, what);
    return this.import!;
  }

  /** Lets a pod use the volume by the other driver. @returns what ends it */
  usePod(): () => void {
    const { group, lvName } = OTHERS[this.origin];
    const { lv } = this.machine.allLvs()[0]!;
    const mount = {
      target: POD_MOUNT,
      source: `/dev/mapper/${group}-${lvName.replaceAll("-", "--")}`,
      ...{ fsType: "ext4", root: "/", readOnly: false, deviceNumber: `252:${lv.minor}`, lv },
    };
    this.machine.mounts.push(mount);
    return () => void this.machine.mounts.splice(this.machine.mounts.indexOf(mount), 1);
  }

  /** The id of the volume that the LV becomes. */
  get id() {
    return volumeIdOf(OTHERS[this.origin].pvName);
  }

  /** The import, as it is kept. */
  get import(): LvmImport | undefined {
    return this.cluster.api.objects(lvmImports)[0];
  }

  /** The claim, as it is kept. */
  get claim(): PersistentVolumeClaim | undefined {
    return this.#controllers.claim;
  }

  /** The PersistentVolume, as it is kept. */
  get persistentVolume(): PersistentVolume | undefined {
    return this.#controllers.persistentVolume;
  }

  /** The class, as it is kept. */
  get storageClass(): StorageClass | undefined {
    return this.cluster.api.objects(storageClasses)[0];
  }

  /** The object of the other driver, as it is kept. */
  get object(): KubeObject | undefined {
    const resource = objectsOf(this.origin);
    return resource && this.cluster.api.objects(resource)[0];
  }

  /** The state of the LVMVolume, as it is kept. */
  get volumeState(): string | undefined {
    return this.cluster.api.objects(lvmVolumes)[0]?.status?.state;
  }

  /** The LV. */
  get lv() {
    return this.machine.allLvs()[0]?.lv;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#controllers[Symbol.asyncDispose]();
    await this.cluster[Symbol.asyncDispose]();
    await Deno.remove(this.root, { recursive: true });
  }
}
