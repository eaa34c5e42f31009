/**
 * What runs inside the guest, bundled into one file: measures, and leaves a {@linkcode BenchResult} in out/bench.json.
 *
 * @module
 */

import manifest from "../../deno.json" with { type: "json" };
import { run } from "../demo/command.ts";
import { pause } from "../demo/data.ts";
import { ArtifactDriver, type Place } from "./artifact_driver.ts";
import { driverLife, driverListing, driverMaking, listedVolumes } from "./driver_side.ts";
import { median, rounded, timed } from "./figures.ts";
import { countCommands, operationResult, takeTimes, type Times } from "./measure.ts";
import { Admin, makeVolumes, plainLife, plainListing, plainMaking } from "./plain_side.ts";
import { type BenchResult, ofEach, type Operation, type OperationResult, type Start } from "./result.ts";
import { LIFE, MADE, type MakingOperation } from "./sides.ts";
import { countedSubject, CountingExec, type Subject } from "./subject.ts";

/** How many starts there are after the first, how many lives of a volume, and how often the volumes are listed. */
const RUNS = { starts: 5, lives: 3, listings: 5 } as const;

/** How many calls that run no command are made, and how many of them at a time. */
const CALLS = { count: 4_000, atATime: 8 } as const;

/** How long a driver is left alone before its memory is read, in milliseconds. */
const IDLE_MS = 5_000;

const GROUP = "bench";

/** Says where the bench is. */
function say(line: string): void {
  console.log(`[${Math.round(performance.now() / 1000)} s] ${line}`);
}

/** Commands of each operation. They come first: afterwards all that is measured has been in use once, on both sides. */
async function count(root: string): Promise<Record<Operation, number>> {
  say("commands of each operation");
  const exec = new CountingExec();
  await using subject = await countedSubject(exec, { root, group: GROUP });
  return {
    ...await countCommands(LIFE, driverLife(subject), exec),
    ...await countMaking(subject, exec),
    ...await countCommands([["listVolumes"]], { listVolumes: driverListing(subject, []) }, exec),
  };
}

async function countMaking(subject: Subject, exec: CountingExec): Promise<Record<MakingOperation, number>> {
  await using making = driverMaking(subject);
  return await countCommands(MADE, making, exec);
}

/** The first start and the later ones, and the driver of the last. */
async function startAll(place: Place): Promise<{ start: BenchResult["start"]; driver: ArtifactDriver }> {
  say("first start");
  let driver = await ArtifactDriver.start(place);
  const first = driver.start;
  const later: Start[] = [];
  for (let number = 1; number <= RUNS.starts; number++) {
    await driver[Symbol.asyncDispose]();
    say(`later start, ${number} of ${RUNS.starts}`);
    driver = await ArtifactDriver.start(place);
    later.push(driver.start);
  }
  return { start: { first: summary([first]), later: { ...summary(later), runs: later.length } }, driver };
}

function summary(starts: readonly Start[]): Start {
  const of = (time: keyof Start) => rounded(median(starts.map((start) => start[time])));
  return { socketMs: of("socketMs"), readyMs: of("readyMs"), firstCallMs: of("firstCallMs") };
}

/** Calls that run no command. */
async function callALot({ csi: { identity, node } }: ArtifactDriver): Promise<BenchResult["calls"]> {
  say(`${CALLS.count} calls`);
  const some = async () => {
    for (let call = 0; call < CALLS.count / CALLS.atATime; call += 2) {
      await identity.getPluginInfo();
      await node.nodeGetInfo();
    }
  };
  const ms = await timed(() => Promise.all(Array.from({ length: CALLS.atATime }, some)));
  return { ...CALLS, perSecond: rounded(CALLS.count / (ms / 1000), 1) };
}

async function operate(
  driver: ArtifactDriver,
  commands: Record<Operation, number>,
): Promise<Record<Operation, OperationResult>> {
  const admin = new Admin();
  say(`operations, ${RUNS.lives} times each`);
  const sides = { driver: driverLife(driver), plain: plainLife(admin, GROUP, driver.root), admin };
  const lives = await takeTimes(LIFE, sides, RUNS.lives);
  const made = await timeMaking(driver, admin);
  const volumes = listedVolumes();
  say(`listing ${volumes.length} volumes`);
  await makeVolumes(volumes, GROUP);
  const listing = {
    driver: { listVolumes: driverListing(driver, volumes) },
    plain: { listVolumes: plainListing(admin, GROUP) },
    admin,
  };
  const times = { ...lives, ...made, ...await takeTimes([["listVolumes"]], listing, RUNS.listings) };
  return ofEach((operation) => operationResult(times[operation], commands[operation]));
}

async function timeMaking(driver: ArtifactDriver, admin: Admin): Promise<Record<MakingOperation, Times>> {
  say(`copies and thin volumes, ${RUNS.lives} times each`);
  await using making = driverMaking(driver);
  await using plain = plainMaking(admin, GROUP);
  return await takeTimes(MADE, { driver: making, plain, admin }, RUNS.lives);
}

if (import.meta.main) {
  await run("make a group", "vgcreate", ["-qq", "--yes", GROUP, Deno.env.get("DATA_DISKS") ?? ""]);
  const root = "/work/mounts";
  await Deno.mkdir(root);
  const commands = await count(root);
  const place = { program: "/work/denolith", cache: "/work/cache", socket: "/run/bench/csi.sock", root, group: GROUP };
  const { start, driver } = await startAll(place);
  await using _stopped = driver;
  await pause(IDLE_MS);
  const idle = await driver.memory();
  const calls = await callALot(driver);
  const afterCalls = await driver.memory();
  const operations = await operate(driver, commands);
  const result: BenchResult = {
    version: manifest.version,
    machine: { cpus: navigator.hardwareConcurrency, kernel: Deno.osRelease() },
    start,
    memory: { idle, afterCalls, afterOperations: await driver.memory() },
    calls,
    operations,
  };
  await Deno.mkdir("/work/out");
  await Deno.writeTextFile("/work/out/bench.json", JSON.stringify(result));
  say("done");
}
