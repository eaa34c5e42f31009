import { assert, assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import manifest from "../../deno.json" with { type: "json" };

const ROOT = new URL("../../", import.meta.url);

/** A workflow of GitHub, as far as this test reads it. */
interface Workflow {
  readonly permissions: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, { readonly "timeout-minutes"?: number; readonly steps: readonly Step[] }>>;
}

interface Step {
  readonly run?: string;
  readonly uses?: string;
}

Deno.test("workflows run tasks and scripts that there are, for a limited time, and write only where they say so", async () => {
  const tasks = new Set<string>();
  for (const { name } of Deno.readDirSync(new URL(".github/workflows", ROOT))) {
    const text = await Deno.readTextFile(new URL(`.github/workflows/${name}`, ROOT));
    const { permissions, jobs } = parse(text) as Workflow;
    assertEquals(permissions, { contents: "read" }, name);
    for (const [job, { "timeout-minutes": minutes, steps }] of Object.entries(jobs)) {
      assert(minutes !== undefined, `${name}: ${job} has a time limit`);
      for (const { run = "" } of steps) {
        for (const [, task] of run.matchAll(/deno@\S+ task (\S+)/g)) tasks.add(task!);
        for (const [, path] of run.matchAll(/^(\.ci\/\S+|tests\/\S+)/gm)) await Deno.stat(new URL(path!, ROOT));
      }
    }
  }
  assert(tasks.size > 4, "the test sees the tasks");
  assertEquals([...tasks].filter((task) => !Object.hasOwn(manifest.tasks, task)), []);
});
