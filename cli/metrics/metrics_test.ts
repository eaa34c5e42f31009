import { assert, assertEquals } from "@std/assert";
import type { TrimmedVolume } from "../../lvm/staging/trimmer.ts";
import type { ReadOnlyFilesystem } from "../../lvm/health/read_only_filesystems.ts";
import { snapshotIdOf, volumeIdOf } from "../../base/ids.ts";
import type { LogicalVolume, Segment } from "../../lvm/model/report.ts";
import { readSurvey, type SurveyedGroup } from "../../lvm/model/survey.ts";
import type { NamedVolume } from "./lvm_metrics.ts";
import { Metrics } from "./metrics.ts";
import { FakeMachine } from "../../tests/fake/machine/machine.ts";

const DRIVER = "lvm.denolith.dev";

/** Returns the lines of the metrics with a prefix, without buckets and sums, which depend on the duration of calls. */
async function lines(metrics: Metrics, prefix: string): Promise<string[]> {
  const text = await metrics.text();
  return text.split("\n").filter((line) => line.startsWith(prefix) && !/_(?:bucket|sum)\{/.test(line)).sort();
}

Deno.test("Metrics counts calls, reconciles and requests by their result", async () => {
  const metrics = new Metrics();
  metrics.onCallCompleted({ method: "CreateVolume", code: 0, durationMs: 20 });
  metrics.onCallCompleted({ method: "CreateVolume", code: 0, durationMs: 1_500 });
  metrics.onCallCompleted({ method: "CreateVolume", code: 8, durationMs: 3 });
  metrics.onReconciled({ controller: "lvmvolume", key: "a", ms: 40, error: undefined });
  metrics.onReconciled({ controller: "lvmvolume", key: "a", ms: 40, error: new Error("no") });
  metrics.onRequest("get", "nodes", 200);
  metrics.onRequest("get", "nodes", 200);
  metrics.onRequest("patch", "lvmvolumes", 0);
  assertEquals(await lines(metrics, "denolith_csi_operation"), [
    'denolith_csi_operation_duration_seconds_count{method="CreateVolume",code="0"} 2',
    'denolith_csi_operation_duration_seconds_count{method="CreateVolume",code="8"} 1',
  ]);
  assertEquals(await lines(metrics, "denolith_reconcile"), [
    'denolith_reconcile_duration_seconds_count{controller="lvmvolume",result="error"} 1',
    'denolith_reconcile_duration_seconds_count{controller="lvmvolume",result="success"} 1',
  ]);
  assertEquals(await lines(metrics, "denolith_api"), [
    'denolith_api_requests_total{verb="get",resource="nodes",code="200"} 2',
    'denolith_api_requests_total{verb="patch",resource="lvmvolumes",code="0"} 1',
  ]);
  const text = await metrics.text();
  assert(text.includes('operation_duration_seconds_bucket{le="0.025",method="CreateVolume",code="0"} 1'), text);
  assert(
    text.includes('operation_duration_seconds_sum{method="CreateVolume",code="0"} 1.52'),
    "milliseconds come as seconds",
  );
});

Deno.test("Metrics: queues and groups are read at each scrape, and removed ones are not reported", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  machine.addGroup("gone", 1n << 30n);
  const create = (args: readonly string[]) =>
    machine.run({ program: "lvm", args: ["lvcreate", ...args], mutates: true });
  await create(["--yes", "--wipesignatures", "n", "--size", `${64 << 20}b`, "--name", "one", "data"]);
  let { groups } = await readSurvey(machine);
  const metrics = new Metrics();
  metrics.registerGroups(() => groups, DRIVER);
  metrics.onDepth("lvmvolume", 3);
  metrics.onEventDropped();
  assertEquals(await lines(metrics, "denolith_events"), ["denolith_events_dropped_total 1"]);
  assertEquals(await lines(metrics, "denolith_workqueue"), ['denolith_workqueue_depth{controller="lvmvolume"} 3']);
  const before = await lines(metrics, "denolith_volume_group");
  groups = groups.filter(({ name }) => name === "data");
  assertEquals((await lines(metrics, "denolith_volume_group")).length, before.length / 2);
  assertEquals(await lines(metrics, "denolith_volume_group"), [
    'denolith_volume_group_erasing_bytes{group="data"} 0',
    'denolith_volume_group_erasing_volumes{group="data"} 0',
    'denolith_volume_group_free_bytes{group="data"} 1006632960',
    `denolith_volume_group_info{group="data",uuid="${groups[0]!.uuid}",allocation_policy="normal"} 1`,
    'denolith_volume_group_logical_volumes_limit{group="data"} 0',
    'denolith_volume_group_logical_volumes{group="data"} 1',
    'denolith_volume_group_metadata_areas_used{group="data"} 1',
    'denolith_volume_group_metadata_areas{group="data"} 1',
    'denolith_volume_group_metadata_free_bytes{group="data"} 519789',
    'denolith_volume_group_metadata_size_bytes{group="data"} 1044480',
    'denolith_volume_group_missing_physical_volumes{group="data"} 0',
    'denolith_volume_group_physical_volumes_limit{group="data"} 0',
    'denolith_volume_group_physical_volumes{group="data"} 1',
    'denolith_volume_group_size_bytes{group="data"} 1073741824',
    'denolith_volume_group_snapshots{group="data"} 0',
    'denolith_volume_group_spare_bytes{group="data"} 0',
    'denolith_volume_group_writeable{group="data"} 1',
  ]);
  assertEquals(await lines(metrics, "denolith_logical"), [
    'denolith_logical_volume_active{group="data",lv="one"} 1',
    'denolith_logical_volume_health_status{group="data",lv="one",status="ok"} 1',
    'denolith_logical_volume_info{group="data",lv="one",type="linear",device="dm-0"} 1',
    'denolith_logical_volume_readonly{group="data",lv="one"} 0',
    'denolith_logical_volume_size_bytes{group="data",lv="one"} 67108864',
  ]);
  assertEquals(await lines(metrics, "denolith_snapshot"), []);
  groups = groups.map((group) => ({ ...group, lvs: group.lvs.map((lv) => ({ ...lv, snapshotPercent: 12.5 })) }));
  assertEquals(await lines(metrics, "denolith_snapshot"), [
    'denolith_snapshot_cow_used_ratio{group="data",lv="one"} 0.125',
    'denolith_snapshot_overflowed{group="data",lv="one"} 0',
  ]);
});

Deno.test("Metrics: each physical volume has its size, its free space, and whether it is missing", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  const { groups: [survey] } = await readSurvey(machine);
  const [first, second] = survey!.pvs;
  const metrics = new Metrics();
  const { deviceSize: _, ...lost } = { ...second!, path: "[unknown]", missing: true, free: 0n, used: 4n << 20n };
  metrics.registerGroups(() => [{ ...survey!, pvs: [{ ...first!, allocatable: false }, lost] }], DRIVER);
  const labels = (path: string, uuid: string) => `{group="data",device="${path}",uuid="${uuid}"}`;
  const [a, b] = [labels(group.pvs[0]!.path, first!.uuid), labels("[unknown]", second!.uuid)];
  const expected = [
    `denolith_physical_volume_allocatable${a} 0`,
    `denolith_physical_volume_allocatable${b} 1`,
    `denolith_physical_volume_device_size_bytes${a} 537919488`,
    `denolith_physical_volume_free_bytes${a} 536870912`,
    `denolith_physical_volume_free_bytes${b} 0`,
    `denolith_physical_volume_metadata_free_bytes${a} 520192`,
    `denolith_physical_volume_metadata_free_bytes${b} 520192`,
    `denolith_physical_volume_metadata_size_bytes${a} 1044480`,
    `denolith_physical_volume_metadata_size_bytes${b} 1044480`,
    `denolith_physical_volume_missing${a} 0`,
    `denolith_physical_volume_missing${b} 1`,
    `denolith_physical_volume_size_bytes${a} 536870912`,
    `denolith_physical_volume_size_bytes${b} 536870912`,
    `denolith_physical_volume_used_bytes${a} 0`,
    `denolith_physical_volume_used_bytes${b} 4194304`,
  ];
  assertEquals(await lines(metrics, "denolith_physical"), expected.sort());
});

Deno.test("Metrics: a logical volume says what it is, and whether it is active, read-only and healthy", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const { groups: [group] } = await readSurvey(machine);
  const lv = (name: string, more: Partial<LogicalVolume>) =>
    ({
      name,
      size: 1n,
      tags: [],
      segment: { type: "linear" },
      health: "",
      active: true,
      pvSegments: [],
      ...more,
    }) as LogicalVolume;
  const tags = (kind: string, id: string) => [`denolith=${DRIVER}`, `denolith.${kind}=${id}`];
  const [volume, snapshot] = [volumeIdOf("one"), snapshotIdOf("two")];
  const lvs = [
    lv("vol-1", { tags: tags("volume", volume), deviceNumber: "253:7", segment: { type: "raid1" } as Segment }),
    lv("vol-2", { tags: tags("volume", volume).with(0, "denolith=other.example.com"), active: false }),
    lv("snap-1", { tags: tags("snapshot", snapshot), readOnly: true, health: "refresh needed", origin: "vol-1" }),
    lv("vol-3", { pool: "pool", thinPercent: 12.5, segment: { type: "thin" } as Segment }),
    lv("vol-4", { pool: "pool", origin: "vol-3" }),
    lv("del-5", { tags: [...tags("deleted", volume), "denolith.erased=1024"], size: 4096n }),
  ];
  const metrics = new Metrics();
  const claimOf = (id: string) => id === volume || id === snapshot ? "shop/orders" : undefined;
  metrics.registerGroups(() => [{ ...group!, lvs }], DRIVER, claimOf);
  const claim = 'persistentvolumeclaim="orders",claim_namespace="shop"';
  assertEquals(await lines(metrics, "denolith_logical_volume_info"), [
    'denolith_logical_volume_info{group="data",lv="del-5",type="linear"} 1',
    `denolith_logical_volume_info{group="data",lv="snap-1",type="linear",snapshot="${snapshot}",${claim}} 1`,
    `denolith_logical_volume_info{group="data",lv="vol-1",type="raid1",device="dm-7",volume="${volume}",${claim}} 1`,
    'denolith_logical_volume_info{group="data",lv="vol-2",type="linear"} 1',
    'denolith_logical_volume_info{group="data",lv="vol-3",type="thin",pool="pool"} 1',
    'denolith_logical_volume_info{group="data",lv="vol-4",type="linear",pool="pool"} 1',
  ]);
  assertEquals(await lines(metrics, "denolith_volume_group_erasing"), [
    'denolith_volume_group_erasing_bytes{group="data"} 3072',
    'denolith_volume_group_erasing_volumes{group="data"} 1',
  ]);
  const of = (prefix: string, lv: string) =>
    lines(metrics, prefix).then((all) => all.filter((line) => line.includes(`lv="${lv}"`)));
  assertEquals(await of("denolith_logical_volume_health", "vol-1"), [
    'denolith_logical_volume_health_status{group="data",lv="vol-1",status="ok"} 1',
  ]);
  assertEquals(await of("denolith_logical_volume_health", "snap-1"), [
    'denolith_logical_volume_health_status{group="data",lv="snap-1",status="refresh_needed"} 1',
  ]);
  assertEquals(await of("denolith_logical_volume_active", "vol-2"), [
    'denolith_logical_volume_active{group="data",lv="vol-2"} 0',
  ]);
  assertEquals(await of("denolith_logical_volume_readonly", "snap-1"), [
    'denolith_logical_volume_readonly{group="data",lv="snap-1"} 1',
  ]);
  assertEquals(await lines(metrics, "denolith_thin_volume"), [
    'denolith_thin_volume_used_ratio{group="data",lv="vol-3"} 0.125',
  ]);
  assertEquals(await lines(metrics, "denolith_volume_group_snapshots"), [
    'denolith_volume_group_snapshots{group="data"} 1', // a thin snapshot takes no COW space
  ]);
});

Deno.test("Metrics: another volume adds the same number of series each time, and a scrape reads the report only", async () => {
  const machine = new FakeMachine();
  machine.addGroup("data", 1n << 30n);
  const metrics = new Metrics();
  let { groups } = await readSurvey(machine);
  metrics.registerGroups(() => groups, DRIVER);
  metrics.registerPools(() => groups, 100n);
  const counts = [(await lines(metrics, "denolith_")).length];
  for (const name of ["one", "two", "three"]) {
    const args = ["lvcreate", "--yes", "--wipesignatures", "n", "--size", `${64 << 20}b`, "--name", name, "data"];
    await machine.run({ program: "lvm", args, mutates: true });
    ({ groups } = await readSurvey(machine));
    counts.push((await lines(metrics, "denolith_")).length);
  }
  assertEquals(counts.map((count) => count - counts[0]!), [0, 5, 10, 15]);
});

Deno.test("Metrics: orphans are counted, and volumes that need attention have a series each, with their claims", async () => {
  const metrics = new Metrics({ process: false });
  let [orphans, lost, held, keysOutdated]: [
    number,
    NamedVolume[],
    NamedVolume[],
    (NamedVolume & { reason: string })[],
  ] = [
    0,
    [{ volume: "v1-a", claim: "shop/db" }, { volume: "v1-b" }],
    [{ volume: "v1-c", claim: "shop/queue" }],
    [{ volume: "v1-d", claim: "shop/mail", reason: "KeyChangeFailed" }],
  ];
  metrics.registerOrphans(() => orphans);
  metrics.registerProblems({ lost: () => lost, held: () => held, keysOutdated: () => keysOutdated });
  const now = async () => [...await lines(metrics, "denolith_orphan"), ...await lines(metrics, "denolith_volume")];
  const claim = (name: string) => `persistentvolumeclaim="${name}",claim_namespace="shop"`;
  assertEquals(await now(), [
    "denolith_orphan_logical_volumes 0",
    `denolith_volume_held{volume="v1-c",${claim("queue")}} 1`,
    `denolith_volume_keys_outdated{volume="v1-d",${claim("mail")},reason="KeyChangeFailed"} 1`,
    `denolith_volume_lost{volume="v1-a",${claim("db")}} 1`,
    `denolith_volume_lost{volume="v1-b"} 1`,
  ]);
  [orphans, lost, held, keysOutdated] = [3, [], [], []];
  assertEquals(await now(), ["denolith_orphan_logical_volumes 3"]);
});

Deno.test("Metrics: a controller says which groups it leads, which agents are silent, and when moves got further", async () => {
  const metrics = new Metrics({ process: false });
  const onLeading = metrics.registerLeaders(["provisioner", "moves"]);
  let isSilent = true;
  metrics.registerAgents(() => [{ node: "n1", isSilent }, { node: "n2", isSilent: false }]);
  const of = (volume: string) => ({ volume, claim: "shop/db", state: "Copying", progressedAt: 1_700_000_000 });
  metrics.registerHandovers({ move: () => [of("v1-a")], import: () => [of("v1-b")] });
  onLeading("moves", true);
  assertEquals(await lines(metrics, "denolith_leader"), [
    'denolith_leader{controller="moves"} 1',
    'denolith_leader{controller="provisioner"} 0',
  ]);
  onLeading("moves", false);
  assertEquals(await lines(metrics, "denolith_leader"), [
    'denolith_leader{controller="moves"} 0',
    'denolith_leader{controller="provisioner"} 0',
  ]);
  assertEquals(await lines(metrics, "denolith_agent"), [
    'denolith_agent_silent{lvmnode="n1"} 1',
    'denolith_agent_silent{lvmnode="n2"} 0',
  ]);
  isSilent = false;
  assertEquals((await lines(metrics, "denolith_agent"))[0], 'denolith_agent_silent{lvmnode="n1"} 0');
  const labels = 'persistentvolumeclaim="db",claim_namespace="shop",state="Copying"';
  assertEquals([...await lines(metrics, "denolith_import"), ...await lines(metrics, "denolith_move")], [
    `denolith_import_progress_timestamp_seconds{volume="v1-b",${labels}} 1700000000`,
    `denolith_move_progress_timestamp_seconds{volume="v1-a",${labels}} 1700000000`,
  ]);
});

Deno.test("Metrics: a thin pool that is broken says so, since it does not say how full it is", async () => {
  const thinPool = {
    dataPercent: 50,
    metadataPercent: 10,
    metadataSize: 4n,
    health: "",
    needsCheck: false,
    queuesWhenFull: true,
  };
  const broken = { metadataSize: 4n, health: "failed", needsCheck: false };
  const lvs = [
    { name: "pool", size: 100n, tags: [], thinPool },
    { name: "broken", size: 100n, tags: [], thinPool: broken },
    { name: "thin", size: 60n, tags: [], pool: "pool" },
  ];
  const metrics = new Metrics();
  metrics.registerPools(() => [{ name: "data", lvs } as unknown as SurveyedGroup], 150n);
  assertEquals(await lines(metrics, "denolith_thin_pool"), [
    'denolith_thin_pool_damaged{group="data",pool="broken"} 1',
    'denolith_thin_pool_damaged{group="data",pool="pool"} 0',
    'denolith_thin_pool_data_used_ratio{group="data",pool="pool"} 0.5',
    'denolith_thin_pool_metadata_size_bytes{group="data",pool="broken"} 4',
    'denolith_thin_pool_metadata_size_bytes{group="data",pool="pool"} 4',
    'denolith_thin_pool_metadata_used_ratio{group="data",pool="pool"} 0.1',
    'denolith_thin_pool_queues_when_full{group="data",pool="pool"} 1',
    'denolith_thin_pool_size_bytes{group="data",pool="broken"} 100',
    'denolith_thin_pool_size_bytes{group="data",pool="pool"} 100',
    'denolith_thin_pool_virtual_allocated_bytes{group="data",pool="broken"} 0',
    'denolith_thin_pool_virtual_allocated_bytes{group="data",pool="pool"} 60',
    'denolith_thin_pool_virtual_available_bytes{group="data",pool="broken"} 0',
    'denolith_thin_pool_virtual_available_bytes{group="data",pool="pool"} 90',
  ]);
});

Deno.test("Metrics: a read-only filesystem is reported until it accepts writes", async () => {
  const metrics = new Metrics();
  let stopped = [{ group: { name: "data" }, lv: { name: "one" } }] as ReadOnlyFilesystem[];
  metrics.registerReadOnlyFilesystems(() => stopped);
  assertEquals(await lines(metrics, "denolith_file"), ['denolith_filesystem_readonly{group="data",lv="one"} 1']);
  stopped = [];
  assertEquals(await lines(metrics, "denolith_file"), []);
});

Deno.test("Metrics: copies are reported while they run", async () => {
  const metrics = new Metrics();
  let copies = [{ volume: "v1-a", claim: "shop/db", done: 0.25 }];
  metrics.registerCopies(() => copies);
  assertEquals(await lines(metrics, "denolith_copy"), [
    'denolith_copy_progress_ratio{volume="v1-a",persistentvolumeclaim="db",claim_namespace="shop"} 0.25',
  ]);
  copies = [];
  assertEquals(await lines(metrics, "denolith_copy"), []);
});

Deno.test("Metrics: the metrics of the process can be left out", async () => {
  const processLines = await lines(new Metrics(), "process_");
  assertEquals(processLines.map((line) => line.split(" ")[0]), [
    "process_resident_memory_bytes",
    "process_start_time_seconds",
  ]);
  assert(processLines.every((line) => Number(line.split(" ")[1]) > 0), processLines.join());
  assertEquals(await lines(new Metrics({ process: false }), "process_"), []);
});

Deno.test("Metrics: the limits of a volume in use are reported, and a rate without a limit is not", async () => {
  const metrics = new Metrics();
  metrics.registerLimits(() => [
    { group: "data", lv: "one", rates: { readIops: 500n, writeIops: "max" }, applied: true },
    { group: "data", lv: "two", rates: { readBps: 1_048_576n, writeBps: 2_097_152n }, applied: false },
  ]);
  assertEquals(await lines(metrics, "denolith_io_limit"), [
    'denolith_io_limit_bytes_per_second{group="data",lv="two",direction="read"} 1048576',
    'denolith_io_limit_bytes_per_second{group="data",lv="two",direction="write"} 2097152',
    'denolith_io_limit_operations_per_second{group="data",lv="one",direction="read"} 500',
    'denolith_io_limits_applied{group="data",lv="one"} 1',
    'denolith_io_limits_applied{group="data",lv="two"} 0',
  ]);
});

Deno.test("Metrics: a RAID volume says whether it survives the loss of a disk, how far it is, and what differs", async () => {
  const machine = new FakeMachine();
  const group = machine.addGroup("data", 1n << 30n, 4n << 20n, 2);
  const lvcreate = (name: string, ...layout: string[]) => {
    const args = [
      "lvcreate",
      "--yes",
      "--wipesignatures",
      "n",
      "--size",
      `${64 << 20}b`,
      "--name",
      name,
      ...layout,
      "data",
    ];
    return machine.run({ program: "lvm", args, mutates: true });
  };
  await lvcreate("mirrored", "--type", "raid1", "--mirrors", "1");
  await lvcreate("plain");
  const metrics = new Metrics();
  let { groups } = await readSurvey(machine);
  metrics.registerGroups(() => groups, DRIVER);
  const raid = async () => {
    ({ groups } = await readSurvey(machine));
    return (await lines(metrics, "denolith_raid")).map((line) => line.replace('{group="data",lv="mirrored"}', ""));
  };
  Object.assign(group.lvs[0]!.raid!, { action: "idle", syncPercent: 100, mismatches: 8 });
  const action = (word: string) => `denolith_raid_sync_action{group="data",lv="mirrored",action="${word}"} 1`;
  assertEquals(await raid(), [
    "denolith_raid_mismatches 8",
    "denolith_raid_redundant 1",
    action("idle"),
    "denolith_raid_sync_ratio 1",
  ]);
  Object.assign(group.lvs[0]!.raid!, { action: "resync", syncPercent: 25, mismatches: 0 });
  assertEquals((await raid()).slice(1), [
    "denolith_raid_redundant 0",
    action("resync"),
    "denolith_raid_sync_ratio 0.25",
  ]);
});

Deno.test("Metrics: what happens to snapshots, in trims and in transfers is counted", async () => {
  const metrics = new Metrics();
  const countExtension = metrics.registerCowExtensions();
  const trims = metrics.registerTrimming(() => [
    { volume: { group: { name: "data" }, lv: { name: "one" } } as TrimmedVolume, at: 1_700_000_000 },
  ]);
  const countBytes = metrics.registerTransfers();
  assertEquals(await lines(metrics, "denolith_transfer"), [
    'denolith_transfer_bytes_total{direction="received"} 0',
    'denolith_transfer_bytes_total{direction="sent"} 0',
  ]);
  countExtension();
  trims.succeeded(4096);
  trims.succeeded(1);
  trims.failed();
  countBytes("sent", 10);
  countBytes("received", 3);
  countBytes("sent", 1);
  assertEquals(await lines(metrics, "denolith_snapshot_ext"), ["denolith_snapshot_extensions_total 1"]);
  assertEquals(await lines(metrics, "denolith_trim"), [
    "denolith_trim_failures_total 1",
    'denolith_trim_last_success_timestamp_seconds{group="data",lv="one"} 1700000000',
    "denolith_trimmed_bytes_total 4097",
  ]);
  assertEquals(await lines(metrics, "denolith_transfer"), [
    'denolith_transfer_bytes_total{direction="received"} 3',
    'denolith_transfer_bytes_total{direction="sent"} 11',
  ]);
});

Deno.test("Metrics: describe() has the type and the labels of each metric", () => {
  const metrics = new Metrics({ process: false });
  metrics.registerTransfers();
  const described = metrics.describe();
  const find = (name: string) => described.find((metric) => metric.name === name);
  assertEquals(find("denolith_transfer_bytes_total"), {
    ...{ name: "denolith_transfer_bytes_total", type: "counter", labels: ["direction"] },
    help: "Bytes of volumes sent to agents of other nodes, or received from them, without zeros",
  });
  assertEquals(find("denolith_csi_operation_duration_seconds")?.type, "histogram");
  assertEquals(find("denolith_workqueue_depth")?.type, "gauge");
  assertEquals(described.length, 7);
});
