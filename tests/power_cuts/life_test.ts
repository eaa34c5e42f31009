import { assertEquals } from "@std/assert";
import { describeStep, foreignFiles, LIVES, type Step, stepsToContinue, stepsToGiveUp, worldAfter } from "./life.ts";

const STEPS = LIVES["a snapshot"]!;

/** The number of steps up to the last one that does something. */
const after = (name: string) => STEPS.map(describeStep).findIndex((step) => step.endsWith(name)) + 1;

const describe = (steps: readonly Step[]) => steps.map((step) => describeStep(step, 0).slice("0-".length));

Deno.test("worldAfter() says what acknowledged steps promise", () => {
  const { volumes, snapshots } = worldAfter(STEPS.slice(0, after("create-restored")));
  assertEquals(volumes.get("one"), { type: "ext4", mib: 16, mounted: "published", files: ["first", "second"] });
  assertEquals(volumes.get("restored"), { type: "ext4", mib: 16, mounted: "no", files: ["first"] });
  assertEquals([...snapshots.keys()], ["cut"]);
});

Deno.test("each life ends with an empty world, after the driver has removed what was deleted", () => {
  for (const [life, steps] of Object.entries(LIVES)) {
    assertEquals(worldAfter(steps), { volumes: new Map(), snapshots: new Map() }, life);
    assertEquals(steps.at(-1), { do: "settle" }, life);
  }
});

Deno.test("an orchestrator that continues mounts what was in use, and repeats what was not acknowledged", () => {
  const steps = describe(stepsToContinue(STEPS, after("stage-restored")));
  assertEquals(steps.slice(0, 4), ["stage-one", "publish-one", "stage-restored", "publish-restored"]);
  assertEquals(steps.length, 3 + STEPS.length - after("stage-restored"));
});

Deno.test("an orchestrator that gives up repeats a creation without an answer, and deletes everything", () => {
  assertEquals(describe(stepsToGiveUp(STEPS, after("snapshot-cut") - 1)), [
    "snapshot-cut",
    ...["unpublish-one", "unstage-one", "deleteSnapshot-cut", "delete-one", "settle"],
  ]);
});

Deno.test("the snapshots of a group are taken and deleted together", () => {
  const group = LIVES["a group snapshot"]!;
  const taken = group.findIndex((step) => step.do === "snapshotGroup");
  const { snapshots } = worldAfter(group.slice(0, taken + 1));
  const files = [["both", ["first"]], ["both", ["second"]]];
  assertEquals([...snapshots.values()].map(({ group, files }) => [group, files]), files);
  assertEquals(describe(stepsToGiveUp(group, taken)), [
    "snapshotGroup-both",
    ...["unpublish-thick", "unstage-thick", "unpublish-thin", "unstage-thin"],
    ...["deleteGroup-both", "delete-thick", "delete-thin", "settle"],
  ]);
});

Deno.test("a restored volume has no file newer than its snapshot", () => {
  const steps = STEPS.slice(0, after("create-restored"));
  const { volumes } = worldAfter(steps);
  const foreign = (volume: string) => foreignFiles(["first", "second"], volume, STEPS, volumes.get(volume)!);
  assertEquals(foreign("restored"), ["second"]);
  assertEquals(foreign("one"), []);
});

Deno.test("a volume may have a file whose writing was not acknowledged", () => {
  const { volumes } = worldAfter(STEPS.slice(0, after("snapshot-cut")));
  assertEquals(volumes.get("one")!.files, ["first"]);
  assertEquals(foreignFiles(["first", "second"], "one", STEPS, volumes.get("one")!), []);
});
