import { assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { outcomeOf, run } from "../process.ts";
import { addTag, readSource, requireTaggable } from "./source.ts";

/** Makes a checkout with one commit. */
async function checkout(): Promise<string> {
  const root = await Deno.makeTempDir();
  await Deno.writeTextFile(join(root, "file"), "text");
  const author = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
  for (const args of [["init", "--quiet"], ["add", "."], [...author, "commit", "--quiet", "--message=First"]]) {
    await run("make a checkout", "git", args, { cwd: root });
  }
  for (
    const [name, value] of [["user.name", "a"], ["user.email", "a@example.org"], ["tag.gpgsign", "false"]] as const
  ) {
    await run("make a checkout", "git", ["config", name, value], { cwd: root });
  }
  return root;
}

Deno.test("a release is tagged once, and only without changes beside the commit", async () => {
  const root = await checkout();
  try {
    const source = await readSource(root);
    assertMatch(source.commit, /^[0-9a-f]{40}$/);
    assertMatch(source.time, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    assertEquals(source.isChanged, false);
    await requireTaggable(source, "v1.0.0");
    await addTag(source, "v1.0.0", "denolith 1.0.0");
    assertEquals(await run("read", "git", ["rev-parse", "v1.0.0^{commit}"], { cwd: root }), `${source.commit}\n`);
    await assertRejects(() => requireTaggable(source, "v1.0.0"), Error, "tag v1.0.0: it exists already");
    await Deno.writeTextFile(join(root, "other"), "not committed");
    const changed = await readSource(root);
    assertEquals(changed.isChanged, true);
    await assertRejects(() => requireTaggable(changed, "v1.0.1"), Error, "has changes that are not committed");
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});

Deno.test("task release explains itself, and refuses what it does not understand before it does anything", async () => {
  const release = (...args: string[]) =>
    outcomeOf("release", Deno.execPath(), ["run", "-A", new URL("make.ts", import.meta.url).pathname, ...args]);
  assertStringIncludes((await release("--help")).stdout, "--deno VERSION");
  for (
    const [args, message] of [
      [["--sign"], "--sign is not understood"],
      [["--deno", "latest"], "--deno latest: must be a version such as 2.9.6"],
      [["--std", "deno"], "--std deno: must be npm or jsr"],
      [["--builder", "me"], "--builder me: must be a URI"],
      [["--registry", "https://registry.example"], "--registry https://registry.example: must be a registry"],
      [["--home", "git.example/x"], "--home git.example/x: must be a URL"],
      [["--downloads", "https://git.example/x/"], "without a slash at the end"],
      [["--home", "https://git.example/x"], "--key: is missing"],
      [["--key", "/does/not/exist"], "/does/not/exist"],
    ] as const
  ) {
    const { success, stderr } = await release(...args);
    assertEquals(success, false);
    assertStringIncludes(stderr, message);
  }
});
