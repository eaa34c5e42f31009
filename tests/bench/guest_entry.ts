/**
 * The part of the bench that runs in the guest, bundled into one file: it measures, and writes a {@linkcode
 * BenchResult} to out/bench.json.
 *
 * @module
 */

import manifest from "../../deno.json" with { type: "json" };
import { openExec } from "../../lvm/host/open_exec.ts";
import { run } from "../demo/command.ts";
import { pause } from "../demo/data.ts";
import { ArtifactDriver, type DriverPaths } from "./artifact_driver.ts";
import { driverCreation, driverLifecycle, driverListing, listedVolumes } from "./driver_side.ts";
import { measureMs, median, round } from "./statistics.ts";
import { countCommands, operationResult, takeTimes, type Times } from "./measure.ts";
import { Admin, makeVolumes, plainCreation, plainLifecycle, plainListing } from "./plain_side.ts";
import { type BenchResult, mapOperations, type Operation, type OperationResult, type Start } from "./result.ts";
import { CREATION, type CreationOperation, LIFECYCLE } from "./sides.ts";
import { CountingExec, type MeasuredDriver, startCountedDriver } from "./measured_driver.ts";

/** The numbers of starts after the first, of lifecycles of a volume, and of listings. */
const RUNS = { starts: 5, lifecycles: Number(Deno.env.get("RUNS")), listings: 5 };

/** The number of calls without commands, and how many of them run at a time. */
const CALLS = { count: 4_000, atATime: 8 } as const;

/** The idle time before a driver's memory is read, in milliseconds. */
const IDLE_WAIT_MS = 5_000;

const GROUP = "bench";

/** Says where the bench is. */
function logProgress(line: string): void {
  console.log(`[${Math.round(performance.now() / 1000)} s] ${line}`);
}

/** Commands of each operation. They come first: afterwards all that is measured has been in use once, on both sides. */
async function countAllCommands(root: string): Promise<Record<Operation, number>> {
  logProgress("commands of each operation");
  const exec = new CountingExec(await openExec({ ownSessions: false, mountTableDirectory: root }));
  await using subject = await startCountedDriver(exec, { root, group: GROUP });
  return {
    ...await countCommands(LIFECYCLE, driverLifecycle(subject), exec),
    ...await countCreation(subject, exec),
    ...await countCommands([["listVolumes"]], { listVolumes: driverListing(subject, []) }, exec),
  };
}

async function countCreation(subject: MeasuredDriver, exec: CountingExec): Promise<Record<CreationOperation, number>> {
  await using creation = driverCreation(subject);
  return await countCommands(CREATION, creation, exec);
}

/** Measures the first start and the later ones. @returns the times, and the driver of the last start */
async function measureStarts(paths: DriverPaths): Promise<{ start: BenchResult["start"]; driver: ArtifactDriver }> {
  logProgress("first start");
  let driver = await ArtifactDriver.start(paths);
  const first = driver.start;
  const later: Start[] = [];
  const emptyFiles: number[] = [];
  await Deno.writeTextFile("/work/empty.js", "");
  for (let number = 1; number <= RUNS.starts; number++) {
    await driver[Symbol.asyncDispose]();
    logProgress(`later start, ${number} of ${RUNS.starts}`);
    emptyFiles.push(
      await measureMs(() => run("run an empty file", Deno.execPath(), ["run", "--quiet", "/work/empty.js"])),
    );
    driver = await ArtifactDriver.start(paths);
    later.push(driver.start);
  }
  const emptyFileMs = round(median(emptyFiles));
  return { start: { first: summary([first]), later: { ...summary(later), runs: later.length }, emptyFileMs }, driver };
}

function summary(starts: readonly Start[]): Start {
  const medianOf = (time: keyof Start) => round(median(starts.map((start) => start[time])));
  return { socketMs: medianOf("socketMs"), readyMs: medianOf("readyMs"), firstCallMs: medianOf("firstCallMs") };
}

/** Calls that run no command. */
async function measureCalls({ csi: { identity, node } }: ArtifactDriver): Promise<BenchResult["calls"]> {
  logProgress(`${CALLS.count} calls`);
  const makeCalls = async () => {
    for (let call = 0; call < CALLS.count / CALLS.atATime; call += 2) {
      await identity.getPluginInfo();
      await node.nodeGetInfo();
    }
  };
  const ms = await measureMs(() => Promise.all(Array.from({ length: CALLS.atATime }, makeCalls)));
  return { ...CALLS, perSecond: round(CALLS.count / (ms / 1000), 1) };
}

async function measureOperations(
  driver: ArtifactDriver,
  commands: Partial<Record<Operation, number>>,
): Promise<Record<Operation, OperationResult>> {
  const admin = new Admin();
  logProgress(`operations, ${RUNS.lifecycles} times each`);
  const sides = { driver: driverLifecycle(driver), plain: plainLifecycle(admin, GROUP, driver.root), admin };
  const lifecycles = await takeTimes(LIFECYCLE, sides, RUNS.lifecycles);
  const creations = await timeCreation(driver, admin);
  const volumes = listedVolumes();
  logProgress(`listing ${volumes.length} volumes`);
  await makeVolumes(volumes, GROUP);
  const listing = {
    driver: { listVolumes: driverListing(driver, volumes) },
    plain: { listVolumes: plainListing(admin, GROUP) },
    admin,
  };
  const times = { ...lifecycles, ...creations, ...await takeTimes([["listVolumes"]], listing, RUNS.listings) };
  return mapOperations((operation) => operationResult(times[operation], commands[operation]));
}

async function timeCreation(driver: ArtifactDriver, admin: Admin): Promise<Record<CreationOperation, Times>> {
  logProgress(`copies and thin volumes, ${RUNS.lifecycles} times each`);
  await using creation = driverCreation(driver);
  await using plain = plainCreation(admin, GROUP);
  return await takeTimes(CREATION, { driver: creation, plain, admin }, RUNS.lifecycles);
}

async function main(): Promise<void> {
  await run("make a group", "vgcreate", ["-qq", "--yes", GROUP, Deno.env.get("DATA_DISKS") ?? ""]);
  const root = "/work/mounts";
  await Deno.mkdir(root);
  const commands = await countAllCommands(root);
  const socket = "/run/bench/csi.sock";
  const paths = { program: "/work/denolith", cache: "/work/cache", socket, root, group: GROUP };
  const { start, driver } = await measureStarts(paths);
  await using _stopped = driver;
  await pause(IDLE_WAIT_MS);
  const idle = await driver.memory();
  const calls = await measureCalls(driver);
  const afterCalls = await driver.memory();
  const operations = await measureOperations(driver, commands);
  const result: BenchResult = {
    version: manifest.version,
    machine: {
      cpus: navigator.hardwareConcurrency,
      kernel: Deno.osRelease(),
      kind: (await Deno.readTextFile("/proc/cpuinfo")).includes("User Mode Linux") ? "uml" : "qemu",
    },
    start,
    memory: { idle, afterCalls, afterOperations: await driver.memory() },
    calls,
    operations,
  };
  await Deno.mkdir("/work/out");
  await Deno.writeTextFile("/work/out/bench.json", JSON.stringify(result));
  logProgress("done");
}

if (import.meta.main) {
  await main().catch((error) => {
    // Deno prints only the error of the disposal, and not the one that came before it.
    for (let next = error; next instanceof SuppressedError; next = next.suppressed) console.error(next.suppressed);
    throw error;
  });
}
