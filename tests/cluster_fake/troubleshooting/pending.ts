/**
 * The cases of the chapter "Claim stays Pending".
 *
 * @module
 */

import { addForeignLv } from "../../fake/machine/foreign_lv.ts";
import { csiNodes, nodes, persistentVolumeClaims, persistentVolumes } from "../../../k8s/api/objects.ts";
import { SELECTED_NODE_ANNOTATION } from "../../../k8s/provisioner/claim.ts";
import { TOPOLOGY_KEY } from "../../../csi/topology.ts";
import { DRIVER } from "../../fake/cluster/node_cluster.ts";
import { machineWith, MiB } from "../../fake/cluster/volume_cluster.ts";
import { type Chapter, once, type Play } from "./case.ts";
import type { Stage } from "./stage.ts";

/** Starts a cluster in which something is wrong with the volume group `data`, and adds a claim. */
function withGroup(change: (stage: Stage) => void): Play {
  return async (stage) => {
    await stage.start();
    change(stage);
    await stage.report();
    stage.cluster.addClaim();
  };
}

/** Starts a cluster, and adds a claim for which the scheduler chose a node. */
function withSelectedNode(node: string, prepare: (stage: Stage) => void): Play {
  return async (stage) => {
    await stage.start({ machines: twoMachines() });
    prepare(stage);
    stage.cluster.addClaim({ className: "later", annotations: { [SELECTED_NODE_ANNOTATION]: node } });
    stage.addPod();
  };
}

/** Starts a cluster, and adds a claim of a class with these parameters. */
function withParameters(parameters: Record<string, string>, prepare: (stage: Stage) => void = () => {}): Play {
  return async (stage) => {
    await stage.start();
    prepare(stage);
    stage.cluster.addClass("odd", { volumeBindingMode: "Immediate", parameters });
    stage.cluster.addClaim({ className: "odd" });
  };
}

/** Starts a cluster, and adds a claim with a source. */
function withSource(dataSource: object, prepare: (stage: Stage) => void | Promise<void> = () => {}): Play {
  return async (stage) => {
    await stage.start();
    await prepare(stage);
    stage.cluster.addClaim({ spec: { dataSource } as never });
  };
}

const twoMachines = () => ({ n1: machineWith({ data: 256n * MiB }), n2: machineWith({ data: 256n * MiB }) });
const ofClaim = (name: string) => ({ kind: "PersistentVolumeClaim", name });
const ofSnapshot = (name: string) => ({ kind: "VolumeSnapshot", apiGroup: "snapshot.storage.k8s.io", name });

/** Parameters of a class that names a secret. */
const SECRET = {
  volumeGroup: "data",
  "csi.storage.k8s.io/provisioner-secret-name": "s",
  "csi.storage.k8s.io/provisioner-secret-namespace": "default",
};

/** Removes the driver from all nodes. */
function unregister({ cluster }: Stage): void {
  for (const { metadata: { name } } of cluster.api.objects(csiNodes)) {
    cluster.api.collection(csiNodes).patch({ spec: { drivers: [] } }, { name, namespace: undefined });
  }
}

/** Adds a node with the driver in its CSINode, and without an agent. */
function addNodeWithoutAgent({ cluster }: Stage): void {
  cluster.api.put(nodes, { metadata: { name: "n3", labels: { [TOPOLOGY_KEY]: "n3" } } });
  const drivers = [{ name: DRIVER, nodeID: "n3", topologyKeys: [TOPOLOGY_KEY] }];
  cluster.api.put(csiNodes, { metadata: { name: "n3" }, spec: { drivers } });
}

/** The chapter. */
export const PENDING: Chapter = {
  asks: ["why", "data"],
  cases: {
    "status: ClaimPending": once("ClaimPending", async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ size: "1Gi" });
      return new Date(Date.now() + 90_000);
    }, ["status"]),
    "WaitForFirstConsumer, nothing else": once("NoConsumer", async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ className: "later" });
    }),
    "The pod's event has did not have enough free storage": once("NoCapacity", async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ className: "later", size: "1Gi" });
      stage.addUnschedulablePod("0/1 nodes are available: 1 node(s) did not have enough free storage.");
    }),
    "ExternalProvisioning alone": once("NoController", async (stage) => {
      await stage.start({ withController: false });
      stage.cluster.addClaim();
      stage.addEvent("ExternalProvisioning", "Waiting for a volume to be created");
    }),
    DefinitionsOutdated: async (stage) => {
      await stage.start({ hasOldDefinitions: true });
      stage.cluster.addClaim();
    },
    NoSpace: async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ size: "1Gi" });
    },
    PhysicalVolumesMissing: withGroup(({ machine }) => {
      machine.groups[0]!.missingPvs = 1;
    }),
    VolumeGroupUnresponsive: async (stage) => {
      await stage.start({ machines: { n1: machineWith({ data: 256n * MiB, other: 64n * MiB }) } });
      stage.machine.hungPvs.set("/dev/vdb", Promise.withResolvers());
      await stage.report();
      stage.cluster.addClaim();
    },
    VolumeGroupUnreadable: async (stage) => {
      await stage.start({ machines: { n1: machineWith({ data: 256n * MiB, other: 64n * MiB }) } });
      stage.machine.hungPvs.set("/dev/vdc", Promise.withResolvers()); // LVM reads each group on its own then
      stage.machine.fault = ({ program, args }) =>
        program === "lvm" && args.includes("data")
          ? { code: 5, stdout: "", stderr: "  Cannot process volume group data" }
          : undefined;
      await stage.report();
      stage.cluster.addClaim();
    },
    VolumeGroupReadOnly: withGroup(({ machine }) => {
      machine.groups[0]!.exported = true;
    }),
    VolumeGroupRefusesChanges: withGroup(({ machine }) => {
      machine.groups[0]!.unchangeable = "Cannot update volume group data with duplicate PV devices.";
    }),
    TooManyLogicalVolumes: async (stage) => {
      await stage.start();
      await addForeignLv(stage.machine, { group: "data", name: "other", bytes: 4n * MiB });
      stage.machine.groups[0]!.maxLvs = 1;
      await stage.report();
      stage.cluster.addClaim();
    },
    NoSuchVolumeGroup: withParameters({ volumeGroup: "gone" }),
    NodeWithoutAgent: withSelectedNode("n3", addNodeWithoutAgent),
    DriverNotRegistered: [withSelectedNode("n2", unregister), async (stage) => {
      await stage.start();
      unregister(stage);
      stage.cluster.addClaim();
    }],
    NodeExcludedByClass: async (stage) => {
      await stage.start({ machines: twoMachines() });
      const matchLabelExpressions = [{ key: TOPOLOGY_KEY, values: ["n2"] }];
      stage.cluster.addClass("only-n2", { allowedTopologies: [{ matchLabelExpressions }] });
      stage.cluster.addClaim({ className: "only-n2", annotations: { [SELECTED_NODE_ANNOTATION]: "n1" } });
      stage.addPod();
    },
    AgentDoesNotAnswer: async (stage) => {
      await stage.start({ nodeWaitMs: 500 });
      await stage.cluster.agents.stopAgent("n1");
      stage.cluster.addClaim();
    },
    AccessModeUnsupported: async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ spec: { accessModes: ["ReadWriteMany"] } });
    },
    WrongParameter: withParameters({ volumeGrup: "data" }),
    SizeUnsuitable: "a claim has no largest size; lvm/model/groups_test.ts has one",
    NoSuchClass: async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ className: "none" });
    },
    SourceNotReady: [
      withSource(ofClaim("other"), ({ cluster }) => {
        cluster.addClaim({ name: "other", className: "later" });
      }),
      withSource(ofSnapshot("cut"), async (stage) => {
        await stage.bindClaim({ name: "other" });
        stage.addSnapshot({ source: { volumeHandle: "v1-none" } });
        await stage.setSnapshotStatus({ boundVolumeSnapshotContentName: "content", readyToUse: false });
      }),
      withSource(ofClaim("missing")),
    ],
    SourceUnsuitable: [
      withSource(ofClaim("other"), async (stage) => {
        await stage.bindClaim({ name: "other" });
        const at = { name: "other", namespace: "default" };
        stage.cluster.api.collection(persistentVolumeClaims).patch({ metadata: { finalizers: ["test/keep"] } }, at);
        await stage.delete(persistentVolumeClaims, "other");
      }),
      withSource(ofClaim("other"), ({ cluster: { api } }) => {
        const csi = { driver: "ebs.csi.aws.com", volumeHandle: "vol-1" };
        api.put(persistentVolumes, { metadata: { name: "ebs" }, spec: { csi }, status: { phase: "Bound" } });
        api.put(persistentVolumeClaims, {
          metadata: { name: "other", namespace: "default" },
          ...{ spec: { volumeName: "ebs" }, status: { phase: "Bound" } },
        });
      }),
      withSource(
        ofClaim("other"),
        (stage) => stage.bindClaim({ name: "other", spec: { volumeMode: "Block" } }),
      ),
    ],
    SourceOnOtherNode: async (stage) => {
      await stage.start({ machines: twoMachines() });
      const annotations = { [SELECTED_NODE_ANNOTATION]: "n1" };
      await stage.bindClaim({ name: "other", className: "later", annotations });
      const matchLabelExpressions = [{ key: TOPOLOGY_KEY, values: ["n2"] }];
      stage.cluster.addClass("only-n2", {
        volumeBindingMode: "Immediate",
        allowedTopologies: [{ matchLabelExpressions }],
      });
      stage.cluster.addClaim({ className: "only-n2", spec: { dataSource: ofClaim("other") } as never });
    },
    SecretForbidden: withParameters(SECRET, ({ cluster }) => {
      cluster.api.faults.forbidden.add("secrets");
    }),
    NoSuchSecret: withParameters(SECRET),
    VolumeGroupAmbiguous: withGroup(({ machine }) => {
      machine.addGroup("data", 64n * MiB);
    }),
    VolumeGroupOfHost: async (stage) => {
      await stage.start();
      const swap = await addForeignLv(stage.machine, { group: "data", name: "swap", bytes: 4n * MiB });
      stage.machine.host.swapLvs.add(swap);
      await stage.report();
      stage.cluster.addClass("any", { volumeBindingMode: "Immediate", parameters: {} });
      stage.cluster.addClaim({ className: "any" });
    },
    AgentSilent: async (stage) => {
      await stage.start();
      await stage.silence();
      stage.cluster.addClaim({ className: "later", annotations: { [SELECTED_NODE_ANNOTATION]: "n1" } });
      stage.addPod();
      // the controller lets the scheduler choose again: without a pod, the claim waits for one
    },
    "The claim has an empty storageClassName": once("NoClass", async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ className: "" });
    }),
    "The claim names no class, and no class is the default": once("NoDefaultClass", async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ spec: { storageClassName: undefined as never } });
    }),
    "The class has the provisioner kubernetes.io/no-provisioner": once("NoProvisioner", async (stage) => {
      await stage.start();
      const provisioner = "kubernetes.io/no-provisioner";
      stage.cluster.addClass("static", { provisioner, volumeBindingMode: "Immediate" });
      stage.cluster.addClaim({ className: "static" });
    }),
    "The claim names a PersistentVolume that does not exist": once("NoSuchPersistentVolume", async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ spec: { volumeName: "gone" } });
    }),
    "The pod has a nodeName": once("SchedulerSkipped", async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ className: "later" });
      stage.addPod({ spec: { nodeName: "n1" } });
    }),
    "The pod cannot be scheduled for another reason": once("Unschedulable", async (stage) => {
      await stage.start();
      stage.cluster.addClaim({ className: "later" });
      stage.addUnschedulablePod("0/1 nodes are available: 1 Insufficient cpu.");
    }),
    "The claim is Lost": once("ClaimLost", async (stage) => {
      await stage.start();
      await stage.bindClaim();
      await stage.loseClaim();
    }),
  },
};
