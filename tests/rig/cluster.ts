import { ControlPlane, type ControlPlaneOptions } from "./control_plane.ts";
import { ensureGuestImage } from "./guest_image.ts";
import { ensureKubernetes, type KubernetesRelease } from "./kubernetes.ts";
import { Node, type NodeOptions } from "./node.ts";
import { ensureTestImage } from "./pod_image.ts";
import { timedLog } from "./progress.ts";
import { RunFolder } from "./run_folder.ts";
import { startSharedNetwork } from "./shared_network.ts";

/** Settings of {@linkcode Cluster.start}. */
export interface ClusterOptions {
  /** The folder of its files and its processes. */
  readonly folder: RunFolder;
  readonly nodes: readonly NodeOptions[];
  /** The release of Kubernetes; the usual one by default. */
  readonly kubernetes?: KubernetesRelease;
  /** Settings of the control plane that differ from the usual. */
  readonly controlPlane?: Omit<ControlPlaneOptions, "folder" | "programs" | "log">;
  /** Called with each step. */
  readonly log: (line: string) => void;
  readonly signal?: AbortSignal;
}

/** A control plane with its nodes. It ends with its folder. */
export class Cluster {
  readonly folder: RunFolder;
  readonly controlPlane: ControlPlane;
  readonly nodes: readonly Node[];

  private constructor(folder: RunFolder, controlPlane: ControlPlane, nodes: readonly Node[]) {
    this.folder = folder;
    this.controlPlane = controlPlane;
    this.nodes = nodes;
  }

  /**
   * Builds what was not built yet, starts a cluster and waits until its nodes are ready.
   *
   * @throws {Error} when something cannot be built or does not come up
   */
  static async start(options: ClusterOptions): Promise<Cluster> {
    const { folder } = options;
    const programs = await ensureKubernetes(options.log, options.kubernetes);
    await ensureGuestImage(options.log);
    await ensureTestImage(options.log);
    options.signal?.throwIfAborted();
    const step = timedLog(options.log);
    step("control plane");
    const plane = await ControlPlane.start({ ...options.controlPlane, folder, programs, log: step });
    const nodes: Node[] = [];
    const { length } = options.nodes;
    if (length > 1) await startSharedNetwork(folder);
    for (const node of options.nodes) {
      step(`node ${node.name}: booting`);
      const place = { number: nodes.length + 1, of: length };
      nodes.push(await Node.start(plane, length > 1 ? { place, ...node } : node, step));
    }
    await Promise.all(nodes.map(async (node) => {
      await node.ready(options.signal === undefined ? {} : { signal: options.signal });
      step(`node ${node.name}: ready`);
    }));
    return new Cluster(folder, plane, nodes);
  }

  /** Opens the cluster that was started in a folder. */
  static async open(path: string): Promise<Cluster> {
    const folder = RunFolder.open(path);
    const plane = await ControlPlane.open(folder);
    const names = await Node.names(plane);
    return new Cluster(folder, plane, await Promise.all(names.map((name) => Node.open(plane, name))));
  }

  /**
   * Returns the node of a name.
   *
   * @throws {Error} when there is none
   */
  node(name: string): Node {
    const found = this.nodes.find((node) => node.name === name);
    if (found === undefined) throw new Error(`find node ${name}: there are ${this.nodes.map((node) => node.name)}`);
    return found;
  }
}
