/**
 * Claims of all sizes that kubectl accepts: whatever LVM makes of them, all objects have the same size, and an equal claim is
 * cloned.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  events,
  type PersistentVolumeClaim,
  persistentVolumeClaims,
  persistentVolumes,
} from "../../k8s/api/objects.ts";
import { quantityToBytes } from "../../k8s/api/quantity.ts";
import { formatQuantity } from "../../base/size.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { FakeMachine } from "../fake/machine/machine.ts";
import { WholeCluster } from "../fake/cluster/whole_cluster.ts";

const MiB = 1n << 20n;

/** Classes, with the bytes of which the sizes of their volumes are multiples, and the smallest size. */
const CLASSES = {
  linear: { parameters: {}, step: 4n * MiB, least: 4n * MiB },
  striped: { parameters: { layout: "striped", stripes: "3" }, step: 12n * MiB, least: 12n * MiB },
  raid6: { parameters: { layout: "raid6" }, step: 12n * MiB, least: 12n * MiB },
  thin: { parameters: { thinProvision: "yes" }, step: 4n * MiB, least: 4n * MiB },
  encrypted: { parameters: { encryption: "luks2" }, step: 4n * MiB, least: 20n * MiB },
};

/** Requested sizes, what they are expanded to, and their classes: each form of a quantity, and each class. */
const CASES: readonly [keyof typeof CLASSES, string, string][] = [
  ["linear", "33M", "1500M"],
  ["linear", "1", "1.5Gi"],
  ["linear", "0.5", "1e8"],
  ["linear", "1500m", "23.625G"],
  ["linear", "1.5E7", "64Mi"],
  ["striped", "1G", "1100M"],
  ["raid6", "100M", "200M"],
  ["thin", "0.1Gi", "123456789"],
  ["encrypted", "1M", "50M"],
];

function claimOf({ api }: WholeCluster, name: string): PersistentVolumeClaim {
  return api.objects(persistentVolumeClaims).find(({ metadata }) => metadata.name === name)!;
}

/** Returns the sizes that all objects of a claim have, without those that they do not have. */
function sizesOf(cluster: WholeCluster, machine: FakeMachine, name: string): string[] {
  const { spec, status } = claimOf(cluster, name);
  const volume = cluster.api.objects(persistentVolumes).find(({ metadata }) => metadata.name === spec?.volumeName);
  const object = cluster.api.objects(lvmVolumes).find(({ metadata }) =>
    metadata.name === volume?.spec?.csi?.volumeHandle
  );
  const lv = machine.allLvs().find(({ lv }) => lv.uuid === object?.status?.lvUUID)?.lv;
  const all = [
    ...[status?.capacity?.["storage"], status?.allocatedResources?.["storage"], volume?.spec?.capacity?.["storage"]],
    ...[object?.status?.size, lv && formatQuantity(lv.size)],
  ];
  return all.filter((size) => size !== undefined);
}

Deno.test("claims of all forms of sizes, in all layouts, have one size in all objects, are cloned equally, and expanded", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 400n << 30n, 4n * MiB, 5);
  await using cluster = await WholeCluster.start({ "node-1": machine });
  for (const [name, { parameters }] of Object.entries(CLASSES)) {
    cluster.addClass(name, { parameters: { volumeGroup: "data", ...parameters }, volumeBindingMode: "Immediate" });
  }
  for (const [className, size, grown] of CASES) {
    const { step, least } = CLASSES[className];
    const got = (text: string) => {
      const bytes = (quantityToBytes(text)! + step - 1n) / step * step;
      return formatQuantity(bytes < least ? least : bytes);
    };
    const name = `${className}-${size.toLowerCase()}`;
    const spec = { volumeMode: "Block" };
    const isBound = (claim: string) => () => claimOf(cluster, claim).status?.phase === "Bound";
    cluster.addClaim({ name, className, size, spec });
    await waitUntil(isBound(name), () => `${name}: ${JSON.stringify(cluster.api.objects(events).at(-1)?.message)}`);
    assertEquals(sizesOf(cluster, machine, name), Array(4).fill(got(size)), name);
    const copy = `${name}-copy`;
    cluster.addClaim({
      name: copy,
      className,
      size,
      spec: { ...spec, dataSource: { kind: "PersistentVolumeClaim", name } },
    });
    await waitUntil(isBound(copy), () => `${copy}: ${JSON.stringify(cluster.api.objects(events).at(-1)?.message)}`);
    assertEquals(sizesOf(cluster, machine, copy), Array(4).fill(got(size)), copy);

    const merge = { spec: { resources: { requests: { storage: grown } } } };
    await cluster.agents.client.patch(persistentVolumeClaims, { namespace: "default", name }, { merge });
    const hasNow = className === "encrypted" ? got(size) : got(grown); // the node is due for an encrypted one
    const expected = String([hasNow, ...Array(4).fill(got(grown))]);
    await waitUntil(
      () => String(sizesOf(cluster, machine, name)) === expected,
      () => `${name}: ${sizesOf(cluster, machine, name)}, and not ${expected}`,
    );
  }
});

Deno.test("a claim of more than any volume can have waits, and its event says why", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  await using cluster = await WholeCluster.start({ "node-1": machine });
  for (const size of ["16Ei", "9223372036854775807"]) cluster.addClaim({ name: `large-${size.toLowerCase()}`, size });
  const said = () => cluster.api.objects(events).filter(({ reason }) => reason === "ProvisioningFailed");
  await waitUntil(() => new Set(said().map(({ involvedObject }) => involvedObject.name)).size === 2, "both events");
  for (const { message = "" } of said()) assert(message.includes("largest size of a volume"), message);
  assertEquals(machine.allLvs(), []);
});
