import { assert, assertEquals, assertMatch } from "@std/assert";
import { FakeCgroups } from "../../tests/fake/machine/cgroups.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import { waitUntil } from "../../tests/fake/cluster/control_plane.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";
import { namedRequest } from "../../tests/fake/request.ts";
import { describeCommand } from "../exec.ts";
import { StorageError } from "../../base/error.ts";
import { type VolumeId, volumeIdOf } from "../../base/ids.ts";
import { IoLimiter, type IoLimiterSettings, type LimitsState, podUidOf } from "./io_limiter.ts";
import type { IoLimits } from "../settings/io_limits.ts";
import { Lvm } from "../client/client.ts";
import { Reaper } from "../deletion/reaper.ts";
import { VolumeFinder } from "../inventory/volume_finder.ts";
import { PoolReservation } from "../pools/pool_reservation.ts";
import { Volumes } from "../volumes/volumes.ts";

const POD = "0a1b2c3d-1111-2222-3333-444455556666";
const GiB = 1n << 30n;

const id = volumeIdOf("one");

const readIops = (rate: bigint, perGiB = false): IoLimits => ({ readIops: { rate, perGiB } });

/** Creates a machine with a volume of 1 GiB, a cgroup hierarchy, and limiters. */
async function harness(limits: IoLimits, options: IoLimiterSettings = {}) {
  const folder = await Deno.makeTempDir({ prefix: "denolith-limiter-" });
  const cgroups = new FakeCgroups(`${folder}/cgroup`);
  cgroups.mount();
  const machine = new FakeMachine();
  machine.addGroup("data", 8n << 30n);
  const commands: string[] = [];
  machine.fault = (command) => void commands.push(describeCommand(command).split(" ").slice(0, 2).join(" "));
  const lvm = new Lvm(machine);
  const reservation = new PoolReservation(lvm);
  const reaper = new Reaper({ lvm, driver: "test", reservation, onError: () => {} });
  const finder = new VolumeFinder({ driver: "test" });
  const volumes = new Volumes({ lvm, finder, reservation, reaper });
  await volumes.create(namedRequest("one", GiB, { limits }));
  const errors: unknown[] = [];
  const reported: (LimitsState | undefined)[] = [];
  const limiters: IoLimiter[] = [];
  const start = () => {
    const limiter = new IoLimiter({
      cgroupRoot: cgroups.root,
      onLimitsChanged: (_: VolumeId, state) => reported.push(state),
      retryMs: 1,
      ...options,
      lvm,
      volumes: finder,
      onError: (error) => errors.push(error),
    });
    limiters.push(limiter);
    return limiter;
  };
  const target = `/var/lib/kubelet/pods/${POD}/volumes/kubernetes.io~csi/pvc-1/mount`;
  return {
    machine,
    cgroups,
    lvm,
    volumes,
    start,
    reported,
    errors,
    target,
    /** Returns the commands that were run since the last call. */
    commands: () => commands.splice(0),
    /** Adds the mount of a published volume. */
    mount: (at = target) => {
      const { lv } = machine.allLvs()[0]!;
      const [source, deviceNumber] = [`/dev/mapper/data-${lv.name.replaceAll("-", "--")}`, `253:${lv.minor}`];
      machine.mounts.push({ target: at, source, fsType: "ext4", root: "/", readOnly: false, deviceNumber, lv });
    },
    [Symbol.asyncDispose]: async () => {
      for (const limiter of limiters) await limiter.stop();
      await Deno.remove(folder, { recursive: true });
      assertEquals(errors, []);
    },
  };
}

Deno.test("onPublished() applies the limits before it returns, without a command", async () => {
  await using s = await harness(readIops(500n));
  const file = s.cgroups.addPod(`kubepods/pod${POD}`);
  const volume = await s.volumes.get(id);
  s.commands();
  const limiter = s.start();
  await limiter.onPublished(volume, s.target);
  assertEquals(await Deno.readTextFile(file), "253:0 riops=500\n");
  assertEquals(s.commands(), []);
  assertEquals(s.reported, [{ applied: true, reason: "Applied", message: "each pod is held to readIops 500" }]);
  assertEquals(limiter.limitedVolumes().map(({ applied, rates }) => [applied, rates]), [[true, { readIops: 500n }]]);
  limiter.onUnpublished(id, s.target);
  assertEquals([s.reported.at(-1), limiter.limitedVolumes()], [undefined, []]);
});

Deno.test("a volume without limits needs no command", async () => {
  await using s = await harness({});
  const file = s.cgroups.addPod(`kubepods/pod${POD}`);
  const volume = await s.volumes.get(id);
  s.commands();
  const limiter = s.start();
  await limiter.onPublished(volume, s.target);
  limiter.onUnpublished(id, s.target);
  assertEquals([s.commands(), s.reported, await Deno.readTextFile(file)], [[], [], ""]);
});

Deno.test("wake() finds the users of limited volumes in the mount table, so no state is lost with a restart", async () => {
  await using s = await harness(readIops(10n, true));
  const file = s.cgroups.addPod(`kubepods/pod${POD}`);
  s.mount("/var/lib/kubelet/plugins/kubernetes.io/csi/lvm.denolith.dev/1/globalmount");
  s.mount();
  s.commands();
  const limiter = s.start();
  limiter.wake();
  await limiter.idle();
  assertEquals(await Deno.readTextFile(file), "253:0 riops=10\n");
  assertEquals(s.commands(), ["lvm fullreport"]);

  await s.volumes.expand(id, { required: 3n * GiB });
  limiter.wake();
  await limiter.idle();
  assertEquals(await Deno.readTextFile(file), "253:0 riops=30\n", "it grows with the volume");

  await s.volumes.setLimits(id, { writeBps: "max", ...readIops(7n) });
  limiter.wake();
  await limiter.idle();
  assertEquals(await Deno.readTextFile(file), "253:0 riops=7 wbps=max\n");

  s.machine.mounts.pop();
  limiter.wake();
  await limiter.idle();
  assertEquals(s.reported.at(-1), undefined);
});

Deno.test("the limits of the group apply where the volume sets none; max is a limit that is set", async () => {
  const defaults = (group: string): IoLimits => group === "data" ? { ...readIops(100n, true), writeIops: "max" } : {};
  await using s = await harness({ writeIops: { rate: 5n, perGiB: false } }, { defaults });
  const file = s.cgroups.addPod(`kubepods/pod${POD}`);
  await s.start().onPublished(await s.volumes.get(id), s.target);
  assertEquals(await Deno.readTextFile(file), "253:0 riops=100 wiops=5\n");
  await s.volumes.setLimits(id, { readIops: "max" });
  await s.start().onPublished(await s.volumes.get(id), s.target);
  assertEquals(await Deno.readTextFile(file), "253:0 riops=max wiops=5\n");
});

Deno.test("the limiter waits for a missing cgroup, and reports it after a grace time", async () => {
  await using s = await harness(readIops(500n), { graceMs: 20 });
  const limiter = s.start();
  const { promise: missed, resolve: miss } = Promise.withResolvers<LimitsState>();
  const { promise: found, resolve: find } = Promise.withResolvers<void>();
  s.reported.push = (state) => {
    if (state?.applied) find();
    else if (state !== undefined) miss(state);
    return 0;
  };
  await limiter.onPublished(await s.volumes.get(id), s.target);
  const { reason, message } = await missed;
  assertEquals(reason, "NoPodCgroup");
  assertMatch(message, new RegExp(`pod ${POD} .* ${s.cgroups.root}`));
  const file = s.cgroups.addPod(`kubepods/besteffort/pod${POD}`);
  await found;
  assertEquals(await Deno.readTextFile(file), "253:0 riops=500\n");
});

Deno.test("limits that were changed by hand are set again", async () => {
  await using s = await harness(readIops(500n), { refreshMs: 5 });
  const file = s.cgroups.addPod(`kubepods/pod${POD}`);
  await s.start().onPublished(await s.volumes.get(id), s.target);
  s.commands();
  await Deno.writeTextFile(file, "253:0 rbps=max wbps=max riops=9 wiops=max\n");
  await waitUntil(() => Deno.readTextFileSync(file) === "253:0 riops=500\n", "the limit");
  assertEquals(s.commands(), []);
});

Deno.test("the limiter needs no listener, and looks at an applied limit only after its interval", async () => {
  await using s = await harness(readIops(500n));
  s.cgroups.addPod(`kubepods/pod${POD}`);
  const [clock, volumes] = [new FakeClock(), new VolumeFinder({ driver: "test" })];
  const options = { refreshMs: 5_000, retryMs: 10, clock, cgroupRoot: s.cgroups.root, onError: () => {} };
  const limiter = new IoLimiter({ ...options, lvm: s.lvm, volumes });
  await limiter.onPublished(await s.volumes.get(id), s.target);
  await limiter.idle();
  assertEquals([limiter.stateOf(id)?.applied, clock.msUntilNextTimer], [true, 5_000]);
  await limiter.stop();
});

Deno.test("wake() forgets the uses that ended, also while another volume is in use", async () => {
  await using s = await harness(readIops(500n));
  s.cgroups.addPod(`kubepods/pod${POD}`);
  await s.volumes.create(namedRequest("two", GiB, { limits: readIops(10n) }));
  s.mount();
  const other = s.machine.allLvs()[1]!.lv;
  const source = `/dev/mapper/data-${other.name.replaceAll("-", "--")}`;
  const target = s.target.replace("pvc-1", "pvc-2");
  s.machine.mounts.push({ ...s.machine.mounts.at(-1)!, target, source, deviceNumber: `253:${other.minor}`, lv: other });
  const limiter = s.start();
  const limited = async () => {
    limiter.wake();
    await limiter.idle();
    return limiter.limitedVolumes().length;
  };
  assertEquals(await limited(), 2);
  s.machine.mounts.pop();
  assertEquals([await limited(), limiter.stateOf(volumeIdOf("two"))], [1, undefined]);
});

for (
  const [reason, options, target] of [
    ["NoCgroupRoot", { cgroupRoot: undefined }, undefined],
    ["NoCgroup2", { cgroupRoot: "/nowhere" }, undefined],
    ["NotAPod", {}, "/mnt/somewhere"],
    ["InvalidArgument", {
      limitsOf: () => {
        throw new StorageError("InvalidArgument", "reading LVMVolume v1: no limit");
      },
    }, undefined],
  ] as const
) {
  Deno.test(`limits that cannot be applied do not fail the publication, and are reported: ${reason}`, async () => {
    await using s = await harness(readIops(500n), options);
    const limiter = s.start();
    await limiter.onPublished(await s.volumes.get(id), target ?? s.target);
    assertEquals(s.reported.map((state) => [state?.applied, state?.reason]), [[false, reason]]);
    assertEquals(limiter.stateOf(id)?.reason, reason);
    await limiter.onPublished(await s.volumes.get(id), target ?? s.target);
    assertEquals(s.reported.length, 1, "reported once");
  });
}

Deno.test("a mount table that was read before a publication does not take the limits back", async () => {
  await using s = await harness(readIops(500n));
  s.cgroups.addPod(`kubepods/pod${POD}`);
  const volume = await s.volumes.get(id);
  const limiter = s.start();
  const read = s.machine.readMountTable.bind(s.machine);
  s.machine.readMountTable = async () => {
    s.machine.readMountTable = read;
    const table = await read();
    await limiter.onPublished(volume, s.target);
    s.mount();
    return table;
  };
  limiter.wake();
  await limiter.idle();
  assertEquals(s.reported.map((state) => state?.reason), ["Applied"]);
});

Deno.test("limits of a pod that ends while they are applied are not reported", async () => {
  await using s = await harness(readIops(500n));
  s.cgroups.addPod(`kubepods/pod${POD}`);
  const limiter = s.start();
  const published = limiter.onPublished(await s.volumes.get(id), s.target);
  limiter.onUnpublished(id, s.target);
  await published;
  assertEquals([limiter.stateOf(id), s.reported], [undefined, []]);
});

Deno.test("a failed report is read again", async () => {
  await using s = await harness(readIops(500n));
  const file = s.cgroups.addPod(`kubepods/pod${POD}`);
  s.mount();
  let failures = 2;
  s.machine.hasMountTable = false;
  s.machine.fault = ({ program }) => {
    if (program !== "findmnt" || failures-- <= 0) return undefined;
    throw new StorageError("Unavailable", "findmnt: no answer");
  };
  s.start().wake();
  await waitUntil(() => Deno.readTextFileSync(file) !== "", "a limit");
  assertEquals(s.errors.splice(0).length, 2);
});

Deno.test("podUidOf() recognizes kubelet's targets, wherever its directory is", () => {
  assertEquals(podUidOf(`/var/lib/kubelet/pods/${POD}/volumes/kubernetes.io~csi/pvc-1/mount`), POD);
  assertEquals(podUidOf(`/k0s/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/${POD}`), POD);
  for (
    const other of [
      "/mnt/target",
      "/var/lib/kubelet/plugins/kubernetes.io/csi/lvm.denolith.dev/abc/globalmount",
      `/var/lib/kubelet/pods/${POD}/volumes/kubernetes.io~csi/pvc-1`,
      "/var/lib/kubelet/pods/../volumes/kubernetes.io~csi/pvc-1/mount",
      `/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1`,
    ]
  ) assert(podUidOf(other) === undefined, other);
});
