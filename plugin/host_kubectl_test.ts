import { assertEquals, assertRejects } from "@std/assert";
import { FakeTime } from "@std/testing/time";
import { nextTurn } from "../base/clock.ts";
import { StorageError } from "../base/error.ts";
import { HostKubectl, type KubectlPatience } from "./kubectl.ts";

/** A kubectl that a test plays. */
interface FakeProcess {
  readonly args: readonly string[];
  readonly hasInput: boolean;
  /** What it was given, and that its input was closed. */
  readonly input: string[];
  readonly signal: AbortSignal | undefined;
  print(text: string): Promise<void>;
  say(text: string): Promise<void>;
  /** Ends it; a signal does, too. */
  exit(code: number): void;
  ignoreSignal(): void;
}

/** Returns a kubectl whose programs are simulated by a function. */
function simulated(
  play: (process: FakeProcess) => Promise<void> | void,
  patience: Partial<KubectlPatience> = {},
): HostKubectl {
  const options = { noticeMs: 60_000, silenceMs: 60_000, note: () => {}, ...patience };
  return new HostKubectl({ context: "c" }, options, (args, hasInput, signal) => {
    const [stdout, stderr] = [new TransformStream<Bytes>(), new TransformStream<Bytes>()];
    const [out, err] = [stdout.writable.getWriter(), stderr.writable.getWriter()];
    const status = Promise.withResolvers<Deno.CommandStatus>();
    const input: string[] = [];
    const write = (writer: WritableStreamDefaultWriter<Bytes>) => async (text: string) =>
      await writer.write(new TextEncoder().encode(text));
    const exit = (code: number) => {
      for (const writer of [out, err]) void writer.close().catch(() => {});
      status.resolve({ code, success: code === 0, signal: null });
    };
    const onAbort = () => exit(143);
    signal?.addEventListener("abort", onAbort);
    const ignoreSignal = () => signal?.removeEventListener("abort", onAbort);
    const stdin = new WritableStream<Bytes>({
      write: (bytes) => void input.push(new TextDecoder().decode(bytes)),
      close: () => void input.push("END"),
    });
    void play({ args, hasInput, input, signal, print: write(out), say: write(err), exit, ignoreSignal });
    return { stdin, stdout: stdout.readable, stderr: stderr.readable, status: status.promise } as unknown as Pick<
      Deno.ChildProcess,
      "stdin" | "stdout" | "stderr" | "status"
    >;
  });
}

type Bytes = Uint8Array<ArrayBuffer>;

const VERSION = { verb: "get", path: "/version" } as const;

Deno.test("HostKubectl: returns what kubectl prints, says and ends with, and gives it a body as its whole input", async () => {
  const seen: FakeProcess[] = [];
  const kubectl = simulated(async (process) => {
    seen.push(process);
    await process.say("warning: x\n");
    await process.print('{"a":1}\n');
    process.exit(3);
  });
  const output = { code: 3, stdout: '{"a":1}\n', stderr: "warning: x\n" };
  assertEquals(await kubectl.run(VERSION), output);
  assertEquals(await kubectl.run({ verb: "create", path: "/x", body: { b: 2 } }), output);
  assertEquals(seen.map(({ args, hasInput, input }) => [args.join(" "), hasInput, input]), [
    ["get --raw /version --context=c", false, []],
    ["create --raw /x --filename - --context=c", true, ['{"b":2}', "END"]],
  ]);
});

Deno.test("HostKubectl: a command and a watch end with the signal of their caller", async () => {
  const end = new AbortController();
  const kubectl = simulated(() => {});
  const running = kubectl.run(VERSION, end.signal);
  const { lines, output } = kubectl.readLines("/watch", end.signal);
  end.abort();
  assertEquals((await running).code, 143);
  assertEquals(await Array.fromAsync(lines), []);
  assertEquals(await output, { code: 143, stdout: "", stderr: "" });
});

Deno.test("HostKubectl: a watch has its lines as they come, and what kubectl says at its end", async () => {
  const kubectl = simulated(async ({ print, say, exit }) => {
    await print("one\ntw");
    await print("o\n");
    await say("Error from server (Expired): too old");
    exit(1);
  });
  const { lines, output } = kubectl.readLines("/watch");
  assertEquals(await Array.fromAsync(lines), ["one", "two"]);
  assertEquals(await output, { code: 1, stdout: "", stderr: "Error from server (Expired): too old" });
});

/** Lets everything happen that waits for no time. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await nextTurn();
}

Deno.test("HostKubectl: says once when it waits for an API server that does not answer, and gives up", async () => {
  using time = new FakeTime();
  const said: string[] = [];
  const kubectl = simulated(() => {}, { noticeMs: 3_000, silenceMs: 60_000, note: (text) => said.push(text) });
  const stderr = "kubectl had no answer from the API server within 60 s; try: kubectl get nodes";
  const running = [1, 2, 3].map(() => kubectl.run(VERSION));
  await settle();
  time.tick(2_999);
  assertEquals(said, []);
  time.tick(1);
  assertEquals(said, ["Waiting for the API server, for up to 60 s …"]);
  time.tick(57_000);
  for (const one of running) assertEquals(await one, { code: 1, stdout: "", stderr });
  assertEquals(said.length, 1);
});

Deno.test("HostKubectl: gives up also when something that kubectl started keeps its streams open", async () => {
  using time = new FakeTime();
  const kubectl = simulated((process) => void process.ignoreSignal());
  const running = kubectl.run(VERSION);
  await settle();
  time.tick(61_000);
  assertEquals((await running).code, 1);
});

Deno.test("HostKubectl: waits longer for a login that says something, and for an answer that goes on", async () => {
  using time = new FakeTime();
  for (const use of ["say", "print"] as const) {
    let process!: FakeProcess;
    const running = simulated((started) => void (process = started)).run(VERSION);
    for (const text of ["d", "o", "n", "e"]) {
      await process[use](text);
      await settle();
      time.tick(59_000);
    }
    process.exit(0);
    const { code, stdout, stderr } = await running;
    assertEquals([code, stdout + stderr], [0, "done"]);
  }
});

Deno.test("HostKubectl: without kubectl a command says what to install", async () => {
  const path = Deno.env.get("PATH")!;
  Deno.env.set("PATH", "/nowhere");
  try {
    const error = await assertRejects(
      () => new HostKubectl({}).run(VERSION),
      StorageError,
      "kubectl: not found in PATH",
    );
    assertEquals(error.kind, "Unavailable");
  } finally {
    Deno.env.set("PATH", path);
  }
});
