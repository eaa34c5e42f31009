/**
 * Changes of the keys of encrypted volumes, as an administrator sees them: from the call with the Secret to the condition, the
 * event, the health and the answer of `why`.
 *
 * @module
 */

import { assert, assertEquals, assertMatch } from "@std/assert";
import { volumeProblems } from "../../plugin/diagnosis/volumes.ts";
import { lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { events } from "../../k8s/api/objects.ts";
import { headerBackupLvName } from "../../base/ids.ts";
import { Passphrase } from "../../lvm/encryption/passphrase.ts";
import { examine } from "../../lvm/doctor/doctor.ts";
import { readStatus } from "../../lvm/status/status.ts";
import { reportedVolumes } from "../../k8s/agent/volume_progress.ts";
import { waitUntil } from "../fake/cluster/control_plane.ts";
import { blankContent } from "../fake/machine/device_content.ts";
import { newUuid } from "../fake/machine/machine.ts";
import { DRIVER, FakeCluster } from "../fake/cluster/node_cluster.ts";
import { namedRequest } from "../fake/request.ts";
import { ANYWHERE, machineWith, MiB } from "../fake/cluster/volume_cluster.ts";

const NODE = "node-1";
const ACCESS = { kind: "block" } as const;

/** Starts a cluster of one node with an encrypted volume that is staged and published with the passphrase `old`. */
async function setUp() {
  const folder = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-keys-" }));
  const machine = machineWith({ data: 256n * MiB });
  const cluster = await FakeCluster.start({ [NODE]: machine }, { mountRoots: [folder] });
  const format = { state: "raw", luks: { state: "wanted" } } as const;
  const { id } = await cluster.volumes.create(namedRequest("pvc-1", 32n * MiB, { format }), ANYWHERE);
  const staging = () => cluster.agent(NODE).machine.staging;
  const [stagingPath, target] = [`${folder}/staging`, `${folder}/pod`];
  const passphrases = (passphrase: string, previous?: string) => ({
    passphrase: new Passphrase(passphrase),
    previous: previous === undefined ? undefined : new Passphrase(previous),
  });
  await staging().stage(id, stagingPath, ACCESS, passphrases("old"));
  const object = () => cluster.api.objects(lvmVolumes)[0]!;
  const publish = (passphrase: string, previous?: string) =>
    staging().publish(id, {
      ...{ stagingPath, target, access: ACCESS, readOnly: false, exclusive: false },
      passphrases: passphrases(passphrase, previous),
    });
  await publish("old");
  return {
    ...{ folder, machine, cluster, id, object, publish },
    condition: () => object().status?.conditions?.find(({ type }) => type === "KeysChanged"),
    eventTexts: () => cluster.api.objects(events).map(({ type, reason, message }) => `${type} ${reason}: ${message}`),
    /** The messages of `denolith status` and the findings of `denolith doctor` on the node. */
    texts: async () => {
      const reported = reportedVolumes(cluster.api.objects(lvmVolumes));
      const status = await readStatus({ exec: machine, driver: DRIVER, reported });
      const { findings } = await examine({ exec: machine, driver: DRIVER });
      return {
        status: status.volumes.map(({ problem }) => problem ?? ""),
        doctor: findings.filter(({ subject }) => subject === id).map(({ level, message }) => `${level} ${message}`),
      };
    },
    [Symbol.asyncDispose]: async () => {
      await cluster[Symbol.asyncDispose]();
      await Deno.remove(folder, { recursive: true });
    },
  };
}

type Harness = Awaited<ReturnType<typeof setUp>>;

async function waitForReason({ condition }: Harness, reason: string | undefined): Promise<void> {
  await waitUntil(() => condition()?.reason === reason, () => `the reason ${reason}: ${JSON.stringify(condition())}`);
}

Deno.test("a change of the passphrase in use that fails is a condition, an event, a problem and a degraded health until it is made", async () => {
  await using s = await setUp();
  await s.publish("new", "wrong");
  await waitForReason(s, "KeyChangeFailed");
  const { message } = s.condition()!;
  assertMatch(message, /neither the passphrase nor the previousPassphrase .* nothing was changed/);
  await waitUntil(() => s.eventTexts().includes(`Warning KeyChangeFailed: ${message}`), "the event");
  assertEquals((await s.cluster.volumes.health(s.id)).problems, [{ reason: "KeyChangeFailed", message }]);
  const local = await s.cluster.agent(NODE).machine.health.volume(s.id);
  assertEquals(local.problems, [{ reason: "KeyChangeFailed", message }]);
  const [problem] = volumeProblems(s.object(), "claim/default/data");
  assertEquals([problem!.severity, problem!.reason, problem!.message], ["warning", "KeyChangeFailed", message]);
  assertMatch(problem!.remedy!, /Correct the Secret/);
  assertEquals((await s.texts()).status, [message]);

  await s.publish("old");
  await waitForReason(s, undefined);
  await s.publish("new", "old");
  await waitForReason(s, "KeyChangeComplete");
  assertEquals(s.condition()!.status, "True");
  await waitUntil(() => s.eventTexts().some((text) => text.startsWith("Normal KeyChangeComplete:")), "the event");
  assertEquals([(await s.cluster.volumes.health(s.id)).problems, volumeProblems(s.object(), "o")], [[], []]);
  assertEquals(await s.texts(), { status: [""], doctor: [] });
});

Deno.test("a request for another volume key of a volume in use is answered by a condition", async () => {
  await using s = await setUp();
  await s.cluster.agent(NODE).machine.staging.publish(s.id, {
    ...{ stagingPath: `${s.folder}/staging`, target: `${s.folder}/pod`, access: ACCESS, readOnly: false },
    ...{ exclusive: false, passphrases: { passphrase: new Passphrase("old"), volumeKey: "next" } },
  });
  await waitForReason(s, "KeyChangeFailed");
  assertMatch(s.condition()!.message, /it is in use; end its pods/);
});

Deno.test("a change of the passphrase that was interrupted is seen by everybody, and by nobody when it was completed", async () => {
  await using s = await setUp();
  const [{ group, lv }] = s.machine.allLvs() as [ReturnType<typeof s.machine.allLvs>[0]];
  await s.cluster.stopAgent(NODE);
  group.lvs.push({
    ...lv,
    ...{ name: headerBackupLvName(s.id), uuid: newUuid(), minor: s.machine.nextMinor(), content: blankContent() },
    ...{ mapping: undefined, size: 16n * MiB, createdAt: Math.floor(Date.now() / 1000) },
    tags: new Set([`denolith=${DRIVER}`, `denolith.header=${s.id}:0:0=0000000a:0248ab34`, "denolith.luks"]),
  });
  s.cluster.startAgent(NODE, s.machine, { mountRoots: [s.folder] });
  const agent = s.cluster.agent(NODE);
  await agent.objects.synced;
  await agent.node.refresh();
  await waitForReason(s, "KeyChangeInterrupted");
  const { message } = s.condition()!;
  assertMatch(message, /data\/hdr-.* has its LUKS header. To complete the change, start a pod/);
  await waitUntil(() => s.eventTexts().includes(`Warning KeyChangeInterrupted: ${message}`), "the event");
  const [problem] = volumeProblems(s.object(), "claim/default/data");
  assertMatch(problem!.remedy!, /former one there as previousPassphrase/);
  const texts = await s.texts();
  assertEquals(texts.status, [message]);
  assertMatch(texts.doctor.join(), /^warning its passphrase is being changed, or a change was interrupted/);

  await s.publish("new", "old");
  await waitForReason(s, "KeyChangeComplete");
  assertEquals(await s.texts(), { status: [""], doctor: [] });
  assert(!s.machine.allLvs().some(({ lv: { name } }) => name.startsWith("hdr-")));
});

Deno.test("a change of the volume key that was interrupted is a condition, an event and a health until it is completed", async () => {
  await using s = await setUp();
  const [{ lv }] = s.machine.allLvs() as [ReturnType<typeof s.machine.allLvs>[0]];
  const call = { volumeId: s.id, targetPath: `${s.folder}/pod`, stagingTargetPath: `${s.folder}/staging` } as never;
  await s.cluster.waitUntilIdle(NODE, s.id); // it would answer Aborted, and kubelet try again
  await s.cluster.agent(NODE).nodeService.nodeUnpublishVolume!(call);
  await s.cluster.agent(NODE).nodeService.nodeUnstageVolume!(call);
  await s.cluster.stopAgent(NODE);
  lv.content.luks!.isReencrypting = true;
  s.cluster.startAgent(NODE, s.machine, { mountRoots: [s.folder] });
  const agent = s.cluster.agent(NODE);
  await agent.objects.synced;
  await agent.node.refresh();
  await waitForReason(s, "ReencryptionInterrupted");
  const { message } = s.condition()!;
  await waitUntil(() => s.eventTexts().includes(`Warning ReencryptionInterrupted: ${message}`), "the event");
  const problems = [{ reason: "ReencryptionInterrupted", message } as const];
  assertEquals((await s.cluster.volumes.health(s.id)).problems, problems);
  assertEquals((await agent.machine.health.volume(s.id)).problems, problems);

  const passphrases = { passphrase: new Passphrase("old"), volumeKey: "next" };
  await agent.machine.staging.stage(s.id, `${s.folder}/staging`, ACCESS, passphrases);
  await waitForReason(s, "KeyChangeComplete");
});

Deno.test("the doctor says that data is encrypted by two volume keys", async () => {
  await using s = await setUp();
  const [{ lv }] = s.machine.allLvs() as [ReturnType<typeof s.machine.allLvs>[0]];
  lv.content.luks!.isReencrypting = true;
  assertMatch((await s.texts()).doctor.join(), /^info its data is being encrypted by another volume key, or that was/);
});
