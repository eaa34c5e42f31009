/**
 * The page of `denolith ui` over a fake API server, as `runPlugin` serves it.
 *
 * @module
 */

import { runPlugin } from "../../plugin/subcommands/run.ts";
import type { Kubectl, KubectlCommand, KubectlOptions, KubectlOutput } from "../../plugin/kubectl.ts";
import { lvmNodes, lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { lvmImports } from "../../k8s/handover/imports.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { volumeSnapshotContents, volumeSnapshots } from "../../k8s/api/snapshot_objects.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";
import { FakeKubectl } from "../fake/cluster/kubectl.ts";
import { fillCluster, type LargeClusterOptions, SHOWN_CLAIM } from "./large_cluster.ts";

/** A kubectl over a fake API server that also passes on what kubelet measures. */
class MeasuringKubectl extends FakeKubectl implements Kubectl {
  /** Implements {@linkcode Kubectl}. */
  override run(command: KubectlCommand): Promise<KubectlOutput> {
    if (command.verb !== "get" || !command.path.endsWith("/stats/summary")) return super.run(command);
    const [namespace, name] = SHOWN_CLAIM.split("/");
    const volume = { pvcRef: { namespace, name }, usedBytes: 67 * 2 ** 30, capacityBytes: 98 * 2 ** 30 };
    const summary = { pods: [{ volume: [{ ...volume, inodesUsed: 41_200, inodes: 6_553_600 }] }] };
    return Promise.resolve({ code: 0, stdout: JSON.stringify(summary), stderr: "" });
  }
}

/** A page that is served. It ends when it is disposed of. */
export class ServedPage implements AsyncDisposable {
  readonly #end = new AbortController();
  readonly #running: Promise<number>;

  private constructor(readonly api: FakeApiServer, running: (signal: AbortSignal) => Promise<number>) {
    this.#running = running(this.#end.signal);
  }

  /** The address that opens the page, once. */
  address = "";

  /** Serves the page of a cluster. */
  static async start(cluster: Omit<LargeClusterOptions, "now">): Promise<ServedPage> {
    const own = [lvmNodes, lvmVolumes, lvmSnapshots, lvmMoves, lvmImports];
    const resources = [...own, volumeSnapshots, volumeSnapshotContents];
    const api = FakeApiServer.start({ resources });
    fillCluster(api, { ...cluster, now: new Date() });
    const printed = Promise.withResolvers<string>();
    const terminal = {
      ...{ isInteractive: false, hasColours: false, confirm: () => false, note: () => {}, write: () => {} },
      ...{ print: printed.resolve, replace: printed.resolve },
    };
    const kubectl = (flags: KubectlOptions) => new MeasuringKubectl({ url: api.url, role: "viewer", flags });
    const args = ["ui", "--context", "prod"];
    const page = new ServedPage(api, (signal) => runPlugin(args, { kubectl, terminal, signal }));
    page.address = /http:\S+/.exec(await printed.promise)![0];
    return page;
  }

  /** Implements {@linkcode AsyncDisposable}. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#end.abort();
    await this.#running;
    await this.api[Symbol.asyncDispose]();
  }
}
