/**
 * Limits of IO while the agent is killed: they hold meanwhile, and what was set otherwise, or changed, is put right when it is back.
 *
 * @module
 */

import { DriverPods } from "./helpers/driver_pods.ts";
import { ioLimitHelpers, NEEDS_ATTRIBUTES_CLASSES } from "./helpers/io_limit_helpers.ts";
import { TestNamespace } from "./helpers/test_namespace.ts";
import { QUICK } from "./helpers/objects.ts";

const MiB = 2 ** 20;

const WRITE = "dd if=/dev/zero of=/data/file bs=256k count=48 oflag=direct conv=notrunc";

Deno.test(
  "limits stay while the agent is killed, and changes in the meantime are applied",
  NEEDS_ATTRIBUTES_CLASSES,
  async () => {
    await using ns = await TestNamespace.open("kept");
    await using driver = await DriverPods.open(ns.cluster);
    const { createAttributesClass, changeAttributesClass, waitForLimits, assertRate } = ioLimitHelpers(ns);
    const parameters = { ...QUICK, writeBps: "2Mi" };
    await ns.createClaim({ name: "data", class: await ns.createStorageClass("slow", { parameters }), size: "64Mi" });
    await ns.createPod({ name: "user", claims: [{ name: "data", path: "/data" }] });
    const { metadata: { uid } } = await ns.waitForRunning("user");
    await waitForLimits("data", /writeBps 2Mi$/);
    const gold = await createAttributesClass("gold", { writeBps: "4Mi" });

    const before = driver.readyContainers("node");
    await driver.killProcess("node");
    await assertRate("user", WRITE, { amount: 12 * MiB, rate: 2 * MiB });
    await changeAttributesClass("data", gold); // recorded; nobody is there to apply it, or somebody just came back
    await driver.waitForReady("node", { before });
    await waitForLimits("data", /writeBps 4Mi$/);
    await assertRate("user", WRITE, { amount: 12 * MiB, rate: 4 * MiB });

    const again = driver.readyContainers("node");
    await driver.killProcess("node");
    const device = (await ns.lvOf("data")).device;
    const number = `$(lsblk -dno MAJ:MIN ${device} | tr -d ' ')`;
    await ns.runOnNode(`echo "${number} wbps=max" > /sys/fs/cgroup/kubepods/besteffort/pod${uid}/io.max`);
    await driver.waitForReady("node", { before: again });
    // No object changes, so the cgroup itself is read.
    const file = `/sys/fs/cgroup/kubepods/besteffort/pod${uid}/io.max`;
    await ns.runOnNode(`until grep -q "^${number} .*wbps=${4 * MiB}" ${file}; do sleep 1; done`);
    await assertRate("user", WRITE, { amount: 12 * MiB, rate: 4 * MiB });
  },
);
