import { basename, join } from "@std/path";
import { connect } from "../../csi/client.ts";
import { DriverProcess } from "./driver_process.ts";
import { deleteVolume, listAll, moveOutAndIn, snapshotVolume, stopDriver, tryToLoseData } from "./later_steps.ts";
import { LoopGroup } from "./loop_group.ts";
import { mountsBelow, unmountAll } from "./mounts.ts";
import { Narrator, type Output } from "./output.ts";
import { DRIVER_NAME, type Scene } from "./scene.ts";
import { createVolume, growUnderWriter, meetDriver, publishAndWrite, stageVolume } from "./steps.ts";
import { Story } from "./story.ts";

/** What {@linkcode playLife} needs. */
export interface LifeOptions {
  /** Where the words go. */
  readonly output: Output;
  /** Ends the story, and takes everything down. */
  readonly signal: AbortSignal;
  /** The path of the driver's artifact. */
  readonly driver: string;
  /** Where the temporary folder is made. */
  readonly tempDir: string;
  /** A last remark on the times, if they need one. */
  readonly remark?: string;
}

/** The size of the volume group, in bytes; the file is sparse. */
const GROUP_BYTES = 1 << 30;

/**
 * Plays the life of a volume on this machine, as root, on a volume group of its own, and tells it. Whatever happens, all that
 * it made is gone afterwards.
 *
 * @returns whether everything was as it should be; what was not has been told
 * @throws the signal's reason, when it was aborted and all was taken down
 */
export async function playLife(options: LifeOptions): Promise<boolean> {
  const narrator = new Narrator(options.output);
  const story = new Story(narrator, options.signal);
  try {
    await onStage(options, narrator, story);
  } catch (error) {
    const failures = failuresIn(error).filter((failure) => failure !== options.signal.reason);
    if (failures.length === 0) throw error;
    for (const failure of failures) narrator.failed(failure instanceof Error ? failure.message : String(failure));
    return false;
  }
  narrator.proved("the group, its loop device and its file are removed");
  story.close();
  if (options.remark !== undefined) narrator.say(options.remark);
  return true;
}

/** Sets everything up, lets the story happen, and takes everything down. */
async function onStage(options: LifeOptions, narrator: Narrator, story: Story): Promise<void> {
  const { signal } = options;
  signal.throwIfAborted();
  await using folder = await DemoFolder.create(options.tempDir);
  narrator.title("Setting up");
  narrator.pending("making a volume group");
  const name = `denolith-demo-${Deno.pid}`;
  await using group = await LoopGroup.create(folder.path, name, GROUP_BYTES);
  signal.throwIfAborted();
  narrator.proved(`volume group ${group.name}, on ${group.device}, on a sparse file`);
  await using _mounts = { [Symbol.asyncDispose]: () => unmountAll(folder.path, (text) => narrator.say(text)) };

  const socket = join(folder.path, "csi.sock");
  const flags = [
    ...["--endpoint", `unix://${socket}`],
    ...["--volume-groups", group.name],
    ...["--mount-roots", folder.path],
    ...["--driver-name", DRIVER_NAME],
    ...["--node-id", "demo-node"],
  ];
  narrator.pending("starting the driver");
  await using driver = await DriverProcess.start({
    command: [options.driver, "standalone", ...flags],
    cache: join(folder.path, "cache"),
    socket,
  });
  signal.throwIfAborted();
  narrator.proved("the driver, a process of its own:");
  narrator.show(`${basename(options.driver)} standalone`);
  for (let i = 0; i < flags.length; i += 2) narrator.show(`  ${flags.slice(i, i + 2).join(" ")}`);
  narrator.say(
    "Now what an orchestrator would do: each → is a call through the driver's socket, with the time that it took; " +
      "each ✓ was checked.",
  );
  try {
    using client = connect(socket);
    const scene = { story, client, group, folder: folder.path };
    await tellLife(scene);
    await story.step("Stop the driver in the middle of a call", () => stopDriver(scene, driver, socket));
  } catch (error) {
    if (error !== signal.reason) tellLog(narrator, driver);
    throw error;
  }
  narrator.pending("cleaning up");
}

async function tellLife(scene: Scene): Promise<void> {
  const { story } = scene;
  const room = await story.step("Meet the driver", () => meetDriver(scene));
  const id = await story.step("Create a volume", () => createVolume(scene));
  const filesystem = await story.step("Stage it on the node", () => stageVolume(scene, id));
  const sum = await story.step("Publish it to two pods, and write", () => publishAndWrite(scene, id));
  await story.step("Grow it under a writer", () => growUnderWriter(scene, id, sum));
  const cut = await story.step("Take a snapshot, and overwrite the data", () => snapshotVolume(scene, id, sum));
  await story.step("List what there is", () => listAll(scene, id, cut));
  await story.step("Try to lose data", () => tryToLoseData(scene, id, cut));
  await story.step("Take it from the pods and give it back", () => moveOutAndIn(scene, id, filesystem, cut.sum));
  await story.step("Delete it", () => deleteVolume(scene, id, room));
}

function tellLog(narrator: Narrator, driver: DriverProcess): void {
  narrator.title("The end of the driver's log");
  for (const line of driver.log()) narrator.show(line);
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

/** An error, with what came before it when it came while cleaning up. */
function failuresIn(error: unknown): unknown[] {
  if (error instanceof SuppressedError) return [...failuresIn(error.suppressed), ...failuresIn(error.error)];
  return [error];
}
