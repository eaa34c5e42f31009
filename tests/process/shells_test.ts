/**
 * The completion scripts in real shells, at a terminal: a line with tabulators is typed, and the program that it starts prints
 * its arguments.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import { DENOLITH } from "../../cli/help/denolith.ts";
import { completionScript, type Shell } from "../../cli/help/completion.ts";
import { PLUGIN } from "../../plugin/subcommands.ts";
import { bundle } from "../../deploy/bundle.ts";
import { succeeds } from "../demo/command.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

/** The programs whose completion is tried: module, and permission set. */
const PROGRAMS = [
  { program: DENOLITH, module: "main.ts", set: "denolith" },
  { program: PLUGIN, module: "plugin/main.ts", set: "kubectl-denolith" },
];

/** Prints the arguments in a form that a terminal does not change. */
const PRINT_ARGUMENTS = `printf '<%s>' "$@"; echo "<end>"`;

/** Bundles of the programs, which start several times as fast. They are removed with the process. */
const BUNDLES = await Deno.makeTempDir({ prefix: "denolith-bundles-" });
globalThis.addEventListener("unload", () => Deno.removeSync(BUNDLES, { recursive: true }));
const MODULES = new Map<string, string>();

/** A folder with programs, a kubectl, the scripts of a shell, and files. */
class Folder implements AsyncDisposable {
  private constructor(readonly path: string) {}

  static async create(shell: Shell): Promise<Folder> {
    const path = await Deno.realPath(await Deno.makeTempDir({ prefix: "denolith-shell-" }));
    const program = (name: string, text: string) =>
      Deno.writeTextFile(`${path}/${name}`, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
    for (const { program: { executable }, module, set } of PROGRAMS) {
      if (!MODULES.has(module)) MODULES.set(module, await bundle(module, BUNDLES, { name: `${executable}.js` }));
      // Deno's cache is that of the user, not that of the shell
      const run =
        `env HOME='${
          Deno.env.get("HOME")
        }' '${Deno.execPath()}' run --quiet --no-prompt --cached-only --no-check -P=${set} ` +
        `--config='${ROOT}deno.json' '${MODULES.get(module)}'`;
      await program(executable, `[ "$1" = __complete ] && exec ${run} "$@"\n${PRINT_ARGUMENTS}`);
    }
    await program(
      "kubectl",
      `case "$*" in *get-contexts*) printf '%s\\n' prod 'arn:aws:eks:eu:1:cluster/x' '$(touch pwned)' ;; *) exit 1 ;; esac`,
    );
    const scripts = PROGRAMS.map(({ program }) => completionScript(program, shell));
    await Deno.writeTextFile(`${path}/completion`, `${scripts.join("\n")}\n`);
    await Deno.mkdir(`${path}/folder`);
    await Deno.writeTextFile(`${path}/kubeconfig.yaml`, "");
    return new Folder(path);
  }

  get env(): Record<string, string> {
    const own = { PATH: `${this.path}:/usr/bin:/bin`, HOME: this.path };
    // a shell that ends would write its history while the folder is removed
    return { ...own, HISTFILE: "/dev/null", TERM: "xterm", NO_COLOR: "1", LC_ALL: "C.UTF-8" };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.path, { recursive: true });
  }
}

/** The prompt of the shells. */
const PROMPT = "@@";

/** A shell at a terminal, which script(1) provides. */
class Terminal implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #writer: WritableStreamDefaultWriter<Uint8Array>;
  readonly #reader: ReadableStreamDefaultReader<string>;
  #seen = "";

  constructor(command: string, folder: Folder) {
    this.#child = new Deno.Command("script", {
      args: ["--quiet", "--return", "--command", command, "/dev/null"],
      ...{ clearEnv: true, env: folder.env, cwd: folder.path },
      ...{ stdin: "piped", stdout: "piped", stderr: "null" },
    }).spawn();
    this.#writer = this.#child.stdin.getWriter();
    this.#reader = this.#child.stdout.pipeThrough(new TextDecoderStream()).getReader();
  }

  /** Types a text, and returns what is on the screen when another text is there. */
  async type(text: string, until: string | RegExp): Promise<string> {
    if (text !== "") this.#seen = "";
    await this.#writer.write(new TextEncoder().encode(text));
    const deadline = setTimeout(() => this.#child.kill("SIGKILL"), 60_000);
    while (!(typeof until === "string" ? this.#seen.includes(until) : until.test(this.#seen))) {
      const { value, done } = await this.#reader.read();
      if (done) throw new Error(`the shell ended; on its screen: ${JSON.stringify(this.#seen.slice(-500))}`);
      this.#seen += value;
    }
    clearTimeout(deadline);
    return this.#seen;
  }

  /** Types a command line. @returns the arguments that the program gets */
  async run(line: string): Promise<string[]> {
    const screen = await this.type(`${line}\n`, /<end>[^]*@@/);
    return [...screen.slice(screen.lastIndexOf("\n<") + 1).matchAll(/<([^>]*)>/g)].map(([, word]) => word!).slice(
      0,
      -1,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#writer.abort().catch(() => {});
    while (!(await this.#reader.read()).done);
    await this.#child.status;
  }
}

/** Lines that are typed, and the arguments that the program must get. */
const CASES: readonly (readonly [typed: string, args: readonly string[]])[] = [
  ["denolith standa\t", ["standalone"]],
  ["denolith node --log-l\td\t", ["node", "--log-level", "debug"]],
  ["denolith node --log-level=w\t", ["node", "--log-level=warning"]],
  ["denolith help ex\t", ["help", "exit-status"]],
  ["denolith controller --disable-controllers resizer,sn\t", [
    "controller",
    "--disable-controllers",
    "resizer,snapshotter",
  ]],
  ["denolith status --kubeconfig kubeco\t", ["status", "--kubeconfig", "kubeconfig.yaml"]],
  ["denolith status --kubeconfig=kubeco\t", ["status", "--kubeconfig=kubeconfig.yaml"]],
  ["kubectl-denolith status --context=arn:aws:e\t", ["status", "--context=arn:aws:eks:eu:1:cluster/x"]],
  ["denolith node --kubelet-dir fol\t", ["node", "--kubelet-dir", "folder/"]],
  ["kubectl-denolith snap\t--out\tya\t", ["snapshots", "--output", "yaml"]],
  ["kubectl-denolith why x -o j\t", ["why", "x", "-o", "json"]],
  ["kubectl-denolith status --context pr\t", ["status", "--context", "prod"]],
  ["kubectl-denolith status --context arn:aws:e\t", ["status", "--context", "arn:aws:eks:eu:1:cluster/x"]],
];

/** How each shell is started at a terminal, and what is typed first. */
const SHELLS = {
  bash: {
    command: "bash --norc --noprofile",
    start: [`PS1='${PROMPT} '; bind 'set enable-bracketed-paste off'`, "source ./completion"],
  },
  zsh: {
    command: "zsh -f",
    start: [
      `PS1='${PROMPT} '; autoload -Uz compinit; compinit -u -D; setopt no_auto_remove_slash`,
      "source ./completion",
    ],
  },
} as const;

for (const shell of ["bash", "zsh"] as const) {
  const isThere = await succeeds("script", ["--version"]) && await succeeds(shell, ["--version"]);
  Deno.test(
    `${shell} completes both programs at a terminal${isThere ? "" : ` (skipped: ${shell} or script is not installed)`}`,
    {
      ignore: !isThere,
    },
    async () => {
      await using folder = await Folder.create(shell);
      await using terminal = new Terminal(SHELLS[shell].command, folder);
      for (const line of SHELLS[shell].start) await terminal.type(`${line}; echo "<"end">"\n`, /<end>[^]*@@/);
      for (const [typed, args] of CASES) assertEquals(await terminal.run(typed), args, typed);
      const files = [...Deno.readDirSync(folder.path)].map(({ name }) => name);
      assertEquals(files.includes("pwned"), false, "no name is run as a command");
    },
  );
}

const hasFish = await succeeds("fish", ["--version"]);
Deno.test(
  `fish completes both programs${hasFish ? "" : " (skipped: fish is not installed)"}`,
  { ignore: !hasFish },
  async () => {
    await using folder = await Folder.create("fish");
    for (const [typed, args] of CASES) {
      const line = typed.slice(0, typed.indexOf("\t"));
      const { stdout, stderr } = await new Deno.Command("fish", {
        args: ["--no-config", "-c", `source ./completion; complete --do-complete '${line}'`],
        ...{ clearEnv: true, env: folder.env, cwd: folder.path },
      }).output();
      const [first = ""] = new TextDecoder().decode(stdout).split("\n");
      const words = line.split(" ").length;
      assertEquals(new TextDecoder().decode(stderr), "");
      assertEquals(first.split("\t")[0], args[words - 2], typed);
    }
  },
);

const hasPowerShell = await succeeds("pwsh", ["-Version"]);
Deno.test(
  `PowerShell completes the plugin${hasPowerShell ? "" : " (skipped: pwsh is not installed)"}`,
  { ignore: !hasPowerShell },
  async () => {
    await using folder = await Folder.create("powershell");
    await Deno.rename(`${folder.path}/completion`, `${folder.path}/completion.ps1`);
    for (const [typed, args] of CASES.filter(([typed]) => typed.startsWith(PLUGIN.executable))) {
      const line = typed.slice(0, typed.indexOf("\t"));
      const script = `. ./completion.ps1; (TabExpansion2 '${line}' ${line.length}).CompletionMatches[0].CompletionText`;
      const { stdout, stderr } = await new Deno.Command("pwsh", {
        args: ["-NoProfile", "-NonInteractive", "-Command", script],
        ...{ clearEnv: true, env: folder.env, cwd: folder.path },
      }).output();
      assertEquals(new TextDecoder().decode(stderr), "");
      assertEquals(new TextDecoder().decode(stdout).trimEnd(), args[line.split(" ").length - 2], typed);
    }
  },
);

Deno.test("kubectl's completion program prints what the plugin proposes, in the protocol of kubectl", async () => {
  await using folder = await Folder.create("kubectl");
  await Deno.writeTextFile(`${folder.path}/kubectl_complete-denolith`, completionScript(PLUGIN, "kubectl"), {
    mode: 0o755,
  });
  const complete = async (...args: string[]) => {
    const { code, stdout, stderr } = await new Deno.Command(`${folder.path}/kubectl_complete-denolith`, {
      ...{ args, clearEnv: true, env: folder.env },
    }).output();
    assertEquals([code, new TextDecoder().decode(stderr)], [0, ""]);
    return new TextDecoder().decode(stdout).trimEnd().split("\n");
  };
  assertEquals(await complete("vol"), ["volumes\tList the volumes", ":4"]);
  assertEquals(await complete("status", "--output", "y"), ["yaml", ":4"]);
  assertEquals(await complete("status", "--context", "pr"), ["prod", ":4"]);
  assertEquals(await complete("status", "--kubeconfig", ""), [":0"]);
  assertEquals(await complete("forget-node", ""), [":4"]);
});
