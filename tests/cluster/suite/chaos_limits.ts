/**
 * Limits of IO while the agent is killed: they hold meanwhile, and what was set otherwise, or changed, is put right when it is back.
 *
 * @module
 */

import { DriverPods } from "./driver_pods.ts";
import { limitScene } from "./limit_scene.ts";
import { Scene } from "./scene.ts";
import { QUICK } from "./scene_objects.ts";

const MiB = 2 ** 20;

const WRITE = "dd if=/dev/zero of=/data/file bs=256k count=48 oflag=direct conv=notrunc";

Deno.test("limits are kept over a death of the agent, and those that changed meanwhile are applied", async () => {
  await using scene = await Scene.open("kept");
  await using driver = await DriverPods.open(scene.cluster);
  const { attributesClass, change, limited, paced } = limitScene(scene);
  const parameters = { ...QUICK, writeBps: "2Mi" };
  await scene.claim({ name: "data", class: await scene.storageClass("slow", { parameters }), size: "64Mi" });
  await scene.pod({ name: "user", claims: [{ name: "data", path: "/data" }] });
  const { metadata: { uid } } = await scene.running("user");
  await limited("data", /writeBps 2Mi$/);
  const gold = await attributesClass("gold", { writeBps: "4Mi" });

  const before = driver.working("node");
  await driver.killProcess("node");
  await paced("user", WRITE, { amount: 12 * MiB, rate: 2 * MiB });
  await change("data", gold); // recorded; nobody is there to apply it, or somebody just came back
  await driver.back("node", { before });
  await limited("data", /writeBps 4Mi$/);
  await paced("user", WRITE, { amount: 12 * MiB, rate: 4 * MiB });

  const again = driver.working("node");
  await driver.killProcess("node");
  const device = (await scene.lvOf("data")).device;
  const number = `$(lsblk -dno MAJ:MIN ${device} | tr -d ' ')`;
  await scene.onNode(`echo "${number} wbps=max" > /sys/fs/cgroup/kubepods/besteffort/pod${uid}/io.max`);
  await driver.back("node", { before: again });
  // no object changes by this, so the cgroup itself is looked at
  const file = `/sys/fs/cgroup/kubepods/besteffort/pod${uid}/io.max`;
  await scene.onNode(`until grep -q "^${number} .*wbps=${4 * MiB}" ${file}; do sleep 1; done`);
  await paced("user", WRITE, { amount: 12 * MiB, rate: 4 * MiB });
});
