/**
 * The cases of the chapter "IO limits not applied".
 *
 * @module
 */

import { FakeCgroups } from "../../fake/machine/cgroups.ts";
import { type Chapter, once, type Play } from "./case.ts";
import { type Stage, waitFor } from "./stage.ts";

/** Starts a cluster with a claim, and names a VolumeAttributesClass in it. */
function modifying(parameters?: Record<string, string>): Play {
  return async (stage) => {
    await stage.start();
    await stage.bindClaim();
    if (parameters !== undefined) stage.addAttributesClass("gold", parameters);
    await stage.patchClaim({ spec: { volumeAttributesClassName: "gold" } });
  };
}

/** Starts a pod with a limited volume on a node with these cgroups; none at all, when absent. */
function limited(prepare?: (cgroups: FakeCgroups, stage: Stage) => void, options = {}): Play {
  return async (stage) => {
    const cgroups = new FakeCgroups(await Deno.makeTempDir({ prefix: "denolith-cgroups-" }));
    stage.defer(() => Deno.remove(cgroups.root, { recursive: true }));
    await stage.start({ ...(prepare && { cgroupRoot: cgroups.root }), ...options });
    stage.cluster.addClass("limited", {
      volumeBindingMode: "Immediate",
      parameters: { volumeGroup: "data", readIops: "500" },
    });
    await stage.bindClaim({ className: "limited" });
    prepare?.(cgroups, stage);
    await stage.startPod();
    stage.agent.machine.limiter.wake();
  };
}

/** The agent must find the cgroup of a pod at once. */
const IMPATIENT = { limitGraceMs: 10 };

/** The chapter. */
export const LIMITS: Chapter = {
  asks: ["why", "data"],
  cases: {
    NoSuchAttributesClass: modifying(),
    WrongAttributesClass: "k8s/resizer/modifier_test.ts has a class of another driver",
    WrongParameter: [modifying({ layout: "raid1" }), modifying({ readIops: "many" })],
    NoCgroup2: limited(() => {}),
    NoIoController: limited((cgroups) => cgroups.mount("cpu memory")),
    IoControllerNotEnabled: async (stage) => {
      let cgroups: FakeCgroups;
      await limited((all) => (cgroups = all).mount())(stage);
      cgroups!.addPod(`kubepods/pod${stage.podUid()}`, { io: false });
      stage.agent.machine.limiter.wake();
    },
    NoCgroupRoot: limited(),
    NoPodCgroup: limited((cgroups) => cgroups.mount(), IMPATIENT),
    "A pod is faster than its limit": once(undefined, async (stage) => {
      let cgroups: FakeCgroups;
      await limited((all) => (cgroups = all).mount())(stage);
      const file = cgroups!.addPod(`kubepods/pod${stage.podUid()}`);
      stage.agent.machine.limiter.wake();
      await waitFor("the limit", () => Deno.readTextFileSync(file).includes("riops=500") || undefined);
    }),
    "Two pods together are twice as fast": once(undefined, async (stage) => {
      let cgroups: FakeCgroups;
      await limited((all) => (cgroups = all).mount())(stage);
      await stage.startPod("other");
      const files = ["web", "other"].map((name) => cgroups!.addPod(`kubepods/pod${stage.podUid(name)}`));
      stage.agent.machine.limiter.wake();
      const isLimited = () => files.every((file) => Deno.readTextFileSync(file).includes("riops=500")) || undefined;
      await waitFor("the limits", isLimited);
    }),
  },
};
