import { assert, assertEquals, assertMatch, assertRejects, assertStringIncludes } from "@std/assert";
import { join } from "@std/path";
import { PLUGIN_SUBCOMMANDS } from "../cli/subcommands.ts";
import { ARCHITECTURES } from "./runtime.ts";
import { V8_FLAGS } from "./launch.ts";
import { type SelfExtractingParts, writeSelfExtracting } from "./self_extracting.ts";

/** A fake deno that prints how it was started. */
const FAKE_DENO = `#!/bin/sh
if [ "\${WAIT:-}" ]; then
  trap 'echo ended; exit 7' TERM
  echo up
  read -r _
fi
printf '%s\\n' "$$" "$(umask)" "$DENO_DIR" "$DENO_V8_FLAGS" "$@"
`;

/** A folder with such a file, and where it unpacks to. */
class Fixture implements AsyncDisposable {
  private constructor(readonly folder: string) {}

  static async create(parts: Partial<SelfExtractingParts> = {}): Promise<Fixture> {
    const fixture = new Fixture(await Deno.realPath(await Deno.makeTempDir()));
    await Deno.writeTextFile(fixture.path("runtime"), FAKE_DENO);
    await Deno.writeTextFile(fixture.path("module"), "// the driver\n");
    await Deno.writeTextFile(fixture.path("worker"), "// its worker\n");
    await Deno.writeTextFile(fixture.path("plugin"), "// the plugin\n");
    await writeSelfExtracting(fixture.path("denolith"), {
      version: "1.2.3",
      arch: Deno.build.arch,
      runtime: fixture.path("runtime"),
      modules: { main: fixture.path("module"), worker: fixture.path("worker") },
      plugin: fixture.path("plugin"),
      config: "{}",
      ...parts,
    });
    await Deno.mkdir(fixture.cache);
    return fixture;
  }

  get cache(): string {
    return this.path("cache");
  }

  path(name: string): string {
    return join(this.folder, name);
  }

  /** Returns the folder that the file unpacked itself to. */
  app(): string {
    const [name, ...more] = [...Deno.readDirSync(this.cache)].map(({ name }) => name);
    assert(name !== undefined && more.length === 0, `${name} ${more}`);
    return join(this.cache, name);
  }

  command(args: string[] = [], env: Record<string, string> = {}, ...wrapper: string[]): Deno.Command {
    const [program, ...rest] = [...wrapper, this.path("denolith"), ...args];
    return new Deno.Command(program!, {
      args: rest,
      env: { DENOLITH_CACHE: this.cache, CACHE_DIRECTORY: "", ...env },
      cwd: this.folder,
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
    });
  }

  /** Starts it. @returns the arguments of the fake deno */
  async start(...how: Parameters<Fixture["command"]>) {
    await using child = this.command(...how).spawn();
    await child.stdin.close();
    const [status, out, err] = await Promise.all([child.status, text(child.stdout), text(child.stderr)]);
    assertEquals([status.code, err], [0, ""]);
    const [pid, umask, denoDir, v8Flags, ...args] = out.trimEnd().split("\n");
    return { childPid: child.pid, pid: Number(pid), umask, denoDir, v8Flags, args };
  }

  /** Starts the artifact, asserts that it fails before it runs deno. @returns its error message */
  async startRefused(...how: Parameters<Fixture["command"]>): Promise<string> {
    await using child = this.command(...how).spawn();
    await child.stdin.close();
    const [status, out, err] = await Promise.all([child.status, text(child.stdout), text(child.stderr)]);
    assertEquals([status.code, out], [1, ""]);
    assertMatch(err, /^denolith: .+\n$/);
    return err;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.folder, { recursive: true });
  }
}

function text(stream: ReadableStream<Uint8Array>): Promise<string> {
  return new Response(stream as ReadableStream<Uint8Array<ArrayBuffer>>).text();
}

const MODE = 0o7777;

Deno.test("the artifact becomes deno with the driver: same process, under the set, arguments as they were", async () => {
  await using fixture = await Fixture.create();
  const given = ["standalone", "--", "a b", '"q"', "it's", "$HOME", "*", "", "back\\slash", "-A"];
  const { pid, childPid, denoDir, v8Flags, args } = await fixture.start(given);
  assertEquals(pid, childPid);
  const app = fixture.app();
  assertEquals([denoDir, v8Flags], [join(app, "deno_dir"), V8_FLAGS]);
  assertEquals(args.slice(args.indexOf(join(app, "main.js")) + 1), given);
  const flags = args.slice(0, args.indexOf(join(app, "main.js")));
  for (const flag of ["run", "-P=denolith", "--no-prompt", "--cached-only"]) {
    assert(flags.includes(flag), flag);
  }
  assertEquals(flags.slice(-2), ["--config", join(app, "deno.json")]);
  assert(flags.every((flag) => !/^(?:-A|--allow)/.test(flag)), `${flags}`);
});

Deno.test("the artifact under the name kubectl-denolith is the plugin: its module, under its set", async () => {
  await using fixture = await Fixture.create();
  await Deno.symlink("denolith", fixture.path("kubectl-denolith"));
  const { success, stdout } = await new Deno.Command(fixture.path("kubectl-denolith"), {
    args: ["why", "a b"],
    env: { DENOLITH_CACHE: fixture.cache },
  }).output();
  assert(success);
  const args = new TextDecoder().decode(stdout).trimEnd().split("\n");
  assert(args.includes("-P=kubectl-denolith") && !args.includes("-P=denolith"), `${args}`);
  assertEquals(args.slice(args.indexOf(join(fixture.app(), "kubectl_denolith.js")) + 1), ["why", "a b"]);
  assertEquals(await Deno.readTextFile(join(fixture.app(), "kubectl_denolith.js")), "// the plugin\n");
});

Deno.test("the artifact is the plugin for each of the subcommands that the plugin has", async () => {
  await using fixture = await Fixture.create();
  for (const name of PLUGIN_SUBCOMMANDS) {
    const { args } = await fixture.start([name, "--port", "8080"]);
    assert(args.includes("-P=kubectl-denolith") && !args.includes("-P=denolith"), `${args}`);
    assertEquals(args.slice(args.indexOf(join(fixture.app(), "kubectl_denolith.js")) + 1), [name, "--port", "8080"]);
  }
});

Deno.test("the artifact unpacks once: a later start needs no more of the file than its script", async () => {
  await using fixture = await Fixture.create();
  await fixture.start();
  const app = fixture.app();
  assertEquals(await Deno.readTextFile(join(app, "main.js")), "// the driver\n");
  assertEquals(await Deno.readTextFile(join(app, "worker.js")), "// its worker\n");
  assertEquals(await Deno.readTextFile(join(app, "deno.json")), "{}");
  const before = await Deno.stat(join(app, "deno"));
  await Deno.truncate(fixture.path("denolith"), 8192);
  await fixture.start();
  assertEquals((await Deno.stat(join(app, "deno"))).ino, before.ino);
});

Deno.test("the artifact unpacks for this user alone, whatever the umask, and keeps the umask", async () => {
  await using fixture = await Fixture.create();
  const { umask } = await fixture.start([], {}, "/bin/sh", "-c", 'umask 0; exec "$0" "$@"');
  assertMatch(umask!, /^0+$/);
  const app = fixture.app();
  const modes = ["", "deno", "main.js", "worker.js", "kubectl_denolith.js", "deno.json", "deno_dir"].map((name) =>
    (Deno.statSync(join(app, name)).mode! & MODE).toString(8)
  );
  assertEquals(modes, ["755", "755", "644", "644", "644", "644", "700"]);
});

Deno.test("the artifact can be started twice at once: both run, from one folder", async () => {
  await using fixture = await Fixture.create();
  // sync is what comes before the rename: each start waits there for the other
  const bin = fixture.path("bin");
  await Deno.mkdir(bin);
  await Deno.mkdir(fixture.path("there"));
  await Deno.writeTextFile(
    join(bin, "sync"),
    `#!/bin/sh\n: >"$THERE/$$"\nuntil [ "$(ls "$THERE" | wc -l)" -ge 2 ]; do :; done\n`,
    { mode: 0o755 },
  );
  const env = { PATH: `${bin}:${Deno.env.get("PATH")}`, THERE: fixture.path("there") };
  const starts = await Promise.all([fixture.start([], env), fixture.start([], env)]);
  const app = fixture.app();
  assertEquals(starts.map(({ denoDir }) => denoDir), Array(2).fill(join(app, "deno_dir")));
  const files = [...Deno.readDirSync(app)].map(({ name }) => name).sort();
  assertEquals(files, ["deno", "deno.json", "deno_dir", "kubectl_denolith.js", "main.js", "worker.js"]);
});

Deno.test("the artifact refuses to start from a file that was damaged, and leaves nothing", async () => {
  await using fixture = await Fixture.create();
  const whole = await Deno.readFile(fixture.path("denolith"));
  const damaged = whole.slice();
  damaged[whole.length - 5]! ^= 1;
  const truncated = whole.slice(0, -1);
  for (const bytes of [damaged, truncated, whole.slice(0, 8192)]) {
    await Deno.writeFile(fixture.path("denolith"), bytes);
    assertStringIncludes(await fixture.startRefused(), `${fixture.path("denolith")} is damaged`);
    assertEquals([...Deno.readDirSync(fixture.cache)], []);
  }
});

Deno.test("the artifact refuses a folder that others can change, before it unpacks and after", async () => {
  await using fixture = await Fixture.create();
  for (const [path, mode] of [["cache", 0o777], ["cache", 0o775], ["cache", 0o1777], ["", 0o777]] as const) {
    await Deno.chmod(fixture.path(path), mode);
    assertStringIncludes(await fixture.startRefused(), "can be changed by other users");
    assertEquals([...Deno.readDirSync(fixture.cache)], []);
    await Deno.chmod(fixture.path(path), 0o755);
  }
  await Deno.chmod(fixture.folder, 0o1777); // as /tmp: what is not theirs they leave
  await fixture.start();
  const app = fixture.app();
  for (const name of ["", "deno", "main.js", "worker.js", "kubectl_denolith.js", "deno.json", "deno_dir"]) {
    const path = join(app, name);
    const mode = (await Deno.stat(path)).mode! & MODE;
    await Deno.chmod(path, mode | 0o020);
    assertStringIncludes(await fixture.startRefused(), `${path.replace(/\/$/, "")} (`);
    await Deno.chmod(path, mode);
  }
  await fixture.start();
  await Deno.remove(join(app, "main.js"));
  await Deno.symlink(fixture.path("module"), join(app, "main.js"));
  assertStringIncludes(await fixture.startRefused(), "main.js (l");
});

Deno.test({
  name: "the artifact refuses files of other owners",
  ignore: Deno.uid() !== 0, // only root can give files away
  async fn() {
    await using fixture = await Fixture.create();
    const somebody = 4711;
    await Deno.chown(fixture.cache, somebody, somebody);
    assertStringIncludes(await fixture.startRefused(), `${fixture.cache} belongs to user ${somebody}`);
    await Deno.chown(fixture.cache, 0, 0);
    await fixture.start();
    for (const name of ["", "deno", "main.js", "worker.js", "kubectl_denolith.js", "deno.json", "deno_dir"]) {
      const path = join(fixture.app(), name).replace(/\/$/, "");
      await Deno.chown(path, somebody, somebody);
      assertStringIncludes(await fixture.startRefused(), `${path} belongs to user ${somebody}`);
      await Deno.chown(path, 0, 0);
    }
    await fixture.start();
  },
});

Deno.test("the artifact takes the cache that it is given: its own variable, then systemd's, never a relative one", async () => {
  await using fixture = await Fixture.create();
  const [own, other] = [fixture.path("own/deep"), fixture.path("other")];
  await Deno.mkdir(other);
  const { denoDir } = await fixture.start([], { DENOLITH_CACHE: "", CACHE_DIRECTORY: `${own}:${other}` });
  assert(denoDir!.startsWith(`${own}/`), denoDir);
  await fixture.start([], { CACHE_DIRECTORY: other });
  fixture.app();
  assertEquals([...Deno.readDirSync(other)], []);
  assertStringIncludes(await fixture.startRefused([], { DENOLITH_CACHE: "here" }), "must begin with a slash");
});

Deno.test("the artifact unpacks again when its folder has lost a file, has a part of one, or has no cache of Deno", async () => {
  await using fixture = await Fixture.create();
  await fixture.start();
  const app = fixture.app();
  const [whole, old] = [namesIn(app), (await Deno.stat(join(app, "deno"))).ino];
  const wrong: ((path: string) => Promise<void>)[] = [
    (path) => Deno.remove(path, { recursive: true }),
    (path) => Deno.truncate(path, 1),
  ];
  for (const name of whole) {
    for (const damage of wrong.slice(0, name === "deno_dir" ? 1 : 2)) {
      await damage(join(app, name));
      await fixture.start();
      assertEquals([fixture.app(), namesIn(app)], [app, whole], name);
      assertEquals(await Deno.readTextFile(join(app, "main.js")), "// the driver\n");
    }
  }
  assert((await Deno.stat(join(app, "deno"))).ino !== old);
  await Deno.remove(app, { recursive: true });
  await Deno.writeTextFile(app, "a file in its place");
  await fixture.start();
  assertEquals([fixture.app(), namesIn(app)], [app, whole]);
});

Deno.test("the artifact does not take a folder for whole that could not be made whole", async () => {
  await using fixture = await Fixture.create();
  const bin = fixture.path("bin");
  await Deno.mkdir(bin);
  await Deno.writeTextFile(join(bin, "mkdir"), "#!/bin/sh\nexit 1\n", { mode: 0o755 });
  const env = { PATH: `${bin}:${Deno.env.get("PATH")}` };
  assertStringIncludes(await fixture.startRefused([], env), `unpack into ${fixture.cache}: mkdir failed`);
  assertEquals([...Deno.readDirSync(fixture.cache)], []);
});

Deno.test("the artifact says what to do where the kernel starts no program of its folder", async () => {
  await using fixture = await Fixture.create();
  await fixture.start();
  await Deno.chmod(join(fixture.app(), "deno"), 0o644); // as on a filesystem that is mounted noexec
  assertMatch(await fixture.startRefused(), /noexec: set DENOLITH_CACHE to another folder$/m);
});

/** Returns the names in a folder. */
function namesIn(folder: string): string[] {
  return [...Deno.readDirSync(folder)].map(({ name }) => name).sort();
}

Deno.test("the artifact removes what earlier versions unpacked, when it unpacks itself, and nothing else", async () => {
  await using fixture = await Fixture.create();
  const hex = "0123456789abcdef".repeat(2);
  const removed = [`denolith-${hex}/deno_dir`, `denolith-${hex}/main.js`, "denolith-new.AbCd012345/worker.js"];
  const kept = [
    ...["else/deno", "denolith-backup/deno", "denolith-image.tar", "denolith-new.0123/deno"],
    ...[`denolith-${hex.replace("0", "1")}/luks.img`, "denolith-new.backup2026/luks.img"],
    ...[`denolith-${hex.toUpperCase()}/deno`, `denolith-${hex}0/deno`, `denolith-${hex.replace("0", "2")}`],
  ];
  for (const path of [...removed, ...kept]) {
    const file = join(fixture.cache, path);
    await Deno.mkdir(join(file, ".."), { recursive: true });
    if (path.endsWith("deno_dir")) await Deno.mkdir(file);
    else await Deno.writeTextFile(file, "");
  }
  await Deno.mkdir(join(fixture.cache, "denolith-new.recent0123"));
  const before = namesIn(fixture.cache);
  for (const name of before) {
    if (!name.includes("recent")) await Deno.utime(join(fixture.cache, name), 0, 0);
  }
  await fixture.start();
  const left = namesIn(fixture.cache).filter((name) => before.includes(name));
  assertEquals(left, [...kept.map((path) => path.split("/")[0]!), "denolith-new.recent0123"].sort());
});

Deno.test("SIGTERM reaches the driver", async () => {
  await using fixture = await Fixture.create();
  await using child = fixture.command([], { WAIT: "1" }).spawn();
  let out = "";
  for await (const chunk of child.stdout.pipeThrough(new TextDecoderStream())) {
    out += chunk;
    if (out === "up\n") child.kill("SIGTERM");
  }
  assertEquals([out, (await child.status).code], ["up\nended\n", 7]);
  await child.stdin.close();
  await child.stderr.cancel();
});

Deno.test("the artifact for another kind of machine says so", async () => {
  const other = ARCHITECTURES.find((arch) => arch !== Deno.build.arch)!;
  await using fixture = await Fixture.create({ arch: other });
  assertStringIncludes(await fixture.startRefused(), `this file is for ${other}, the machine is ${Deno.build.arch}`);
});

Deno.test("writeSelfExtracting() makes the same file of the same parts, and names its folder after them", async () => {
  await using fixture = await Fixture.create();
  await using same = await Fixture.create();
  await using other = await Fixture.create({ config: '{"lock":false}' });
  const [file, secondFile] = await Promise.all([fixture, same].map((one) => Deno.readFile(one.path("denolith"))));
  assertEquals(file, secondFile);
  await Promise.all([fixture.start(), same.start(), other.start()]);
  assertEquals(fixture.app().slice(fixture.folder.length), same.app().slice(same.folder.length));
  assert(fixture.app().slice(fixture.folder.length) !== other.app().slice(other.folder.length));
  await assertRejects(
    () => writeSelfExtracting(other.path("x"), { ...partsOf(other), version: "1".repeat(9000) }),
    Error,
    "more than 8192",
  );
});

function partsOf(fixture: Fixture): SelfExtractingParts {
  const modules = { main: fixture.path("module"), worker: fixture.path("worker") };
  return {
    version: "1.2.3",
    arch: Deno.build.arch,
    runtime: fixture.path("runtime"),
    modules,
    plugin: fixture.path("plugin"),
    config: "{}",
  };
}
