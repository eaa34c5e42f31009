import { basename, join } from "@std/path";
import { connect } from "../contract/helpers/csi_client.ts";
import { DriverProcess } from "./driver_process.ts";
import {
  deleteVolume,
  listAll,
  snapshotVolume,
  stopDriver,
  testDeletionGuards,
  unpublishAndRepublish,
} from "./later_steps.ts";
import { LoopGroup } from "./loop_group.ts";
import { mountsBelow, unmountAll } from "./mounts.ts";
import { type Output, Reporter } from "./reporter.ts";
import { type DemoContext, DRIVER_NAME } from "./context.ts";
import { createVolume, expandUnderWriter, publishAndWrite, queryDriver, stageVolume } from "./steps.ts";
import { StepRunner } from "./step_runner.ts";

/** Options of {@linkcode runLifecycle}. */
export interface LifecycleOptions {
  /** The output of the demo. */
  readonly output: Output;
  /** Ends the story, and takes everything down. */
  readonly signal: AbortSignal;
  /** The path of the driver's artifact. */
  readonly driver: string;
  /** The folder for the temporary folder. */
  readonly tempDir: string;
  /** A last remark on the times, if they need one. */
  readonly remark?: string;
}

/** The size of the volume group, in bytes; the file is sparse. */
const GROUP_BYTES = 1 << 30;

/**
 * Plays the lifecycle of a volume on this machine, as root, on a volume group of its own. Everything that it created is
 * removed at the end, also after a failure.
 *
 * @returns whether everything was as expected; differences were printed @throws the signal's reason, when it was
 * aborted and all was removed
 */
export async function runLifecycle(options: LifecycleOptions): Promise<boolean> {
  const reporter = new Reporter(options.output);
  const runner = new StepRunner(reporter, options.signal);
  try {
    await runOnTestGroup(options, reporter, runner);
  } catch (error) {
    const failures = failuresIn(error).filter((failure) => failure !== options.signal.reason);
    if (failures.length === 0) throw error;
    for (const failure of failures) reporter.failed(failure instanceof Error ? failure.message : String(failure));
    return false;
  }
  reporter.verified("the group, its loop device and its file are removed");
  runner.printSummary();
  if (options.remark !== undefined) reporter.say(options.remark);
  return true;
}

/** Sets everything up, lets the story happen, and takes everything down. */
async function runOnTestGroup(options: LifecycleOptions, reporter: Reporter, runner: StepRunner): Promise<void> {
  const { signal } = options;
  signal.throwIfAborted();
  await using folder = await DemoFolder.create(options.tempDir);
  reporter.title("Setting up");
  reporter.pending("making a volume group");
  const name = `denolith-demo-${Deno.pid}`;
  await using group = await LoopGroup.create(folder.path, name, GROUP_BYTES);
  signal.throwIfAborted();
  reporter.verified(`volume group ${group.name}, on ${group.device}, on a sparse file`);
  await using _mounts = { [Symbol.asyncDispose]: () => unmountAll(folder.path, (text) => reporter.say(text)) };

  const socket = join(folder.path, "csi.sock");
  const flags = [
    ...["--endpoint", `unix://${socket}`],
    ...["--volume-groups", group.name],
    ...["--mount-roots", folder.path],
    ...["--driver-name", DRIVER_NAME],
    ...["--node-id", "demo-node"],
  ];
  reporter.pending("starting the driver");
  await using driver = await DriverProcess.start({
    command: [options.driver, "standalone", ...flags],
    cache: join(folder.path, "cache"),
    socket,
  });
  signal.throwIfAborted();
  reporter.verified("the driver, a process of its own:");
  reporter.show(`${basename(options.driver)} standalone`);
  for (let i = 0; i < flags.length; i += 2) reporter.show(`  ${flags.slice(i, i + 2).join(" ")}`);
  reporter.say(
    "Now what an orchestrator would do: each → is a call through the driver's socket, with the time that it took; " +
      "each ✓ was checked.",
  );
  try {
    using client = connect(socket);
    const context = { runner, client, group, folder: folder.path };
    await runSteps(context);
    await runner.step("Stop the driver in the middle of a call", () => stopDriver(context, driver, socket));
  } catch (error) {
    if (error !== signal.reason) printLog(reporter, driver);
    throw error;
  }
  reporter.pending("cleaning up");
}

async function runSteps(context: DemoContext): Promise<void> {
  const { runner } = context;
  const freeBytes = await runner.step("Meet the driver", () => queryDriver(context));
  const id = await runner.step("Create a volume", () => createVolume(context));
  const filesystem = await runner.step("Stage it on the node", () => stageVolume(context, id));
  const sum = await runner.step("Publish it to two pods, and write", () => publishAndWrite(context, id));
  await runner.step("Expand it under a writer", () => expandUnderWriter(context, id, sum));
  const taken = await runner.step("Take a snapshot, and overwrite the data", () => snapshotVolume(context, id, sum));
  await runner.step("List what there is", () => listAll(context, id, taken));
  await runner.step("Try to lose data", () => testDeletionGuards(context, id, taken));
  await runner.step(
    "Take it from the pods and give it back",
    () => unpublishAndRepublish(context, id, filesystem, taken.checksumBefore),
  );
  await runner.step("Delete it", () => deleteVolume(context, id, freeBytes));
}

function printLog(reporter: Reporter, driver: DriverProcess): void {
  reporter.title("The end of the driver's log");
  for (const line of driver.log()) reporter.show(line);
}

/** A temporary folder. */
class DemoFolder implements AsyncDisposable {
  private constructor(readonly path: string) {}

  static async create(parent: string): Promise<DemoFolder> {
    return new DemoFolder(await Deno.realPath(await Deno.makeTempDir({ dir: parent, prefix: "denolith-demo-" })));
  }

  /** Removes it, except where something is still mounted in it: that would be emptied. */
  async [Symbol.asyncDispose](): Promise<void> {
    const [mounted] = await mountsBelow(this.path);
    if (mounted !== undefined) throw new Error(`remove ${this.path}: ${mounted} is still mounted`);
    await Deno.remove(this.path, { recursive: true });
  }
}

/** Returns an error, and before it the one that happened before the clean-up. */
function failuresIn(error: unknown): unknown[] {
  if (error instanceof SuppressedError) return [...failuresIn(error.suppressed), ...failuresIn(error.error)];
  return [error];
}
