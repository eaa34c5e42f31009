import { assert, assertEquals, assertMatch } from "@std/assert";
import { succeeds } from "../demo/command.ts";
import { DRIVER_FLAGS } from "./driver_command.ts";

const MAIN = new URL("../../main.ts", import.meta.url).pathname;

async function runDenolith(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", ...DRIVER_FLAGS, MAIN, ...args],
    env: { NO_COLOR: "1" },
  }).output();
  return { code, stdout: new TextDecoder().decode(stdout), stderr: new TextDecoder().decode(stderr) };
}

Deno.test("denolith: help names every command, and every command has help of its own", async () => {
  const overview = await runDenolith("--help");
  assertEquals(overview.code, 0);
  for (
    const command of ["standalone", "node", "controller", "doctor", "status", "completion", "version"]
  ) {
    assert(overview.stdout.includes(`  ${command} `), overview.stdout);
    const help = await runDenolith(command, "--help");
    assertEquals([help.code, help.stderr], [0, ""]);
    assert(help.stdout.startsWith(`Usage: denolith ${command}`), help.stdout);
    assertEquals(help.stdout.split("\n").filter((line) => line.length > 100), []);
  }
  assertEquals((await runDenolith()).code, 2);
});

Deno.test("denolith: the process that parses the command line does not load the driver, so --version needs no permissions", async () => {
  const args = ["run", "--quiet", "--no-prompt", MAIN, "version"];
  const { code, stderr } = await new Deno.Command(Deno.execPath(), { args, env: { NO_COLOR: "1" } }).output();
  assertEquals([code, new TextDecoder().decode(stderr)], [0, ""]); // grpc-js reads variables as soon as it is loaded
});

Deno.test("denolith: a command line that is not understood ends with status 2 and suggests a similar word", async () => {
  const cases: [string[], RegExp][] = [
    [["standalon"], /unknown command "standalon"; did you mean standalone\?/],
    [["standalone", "--endpont", "x"], /unknown flag "--endpont"; did you mean --endpoint\?/],
    [["standalone"], /--volume-groups is required; "denolith status" lists those of this host/],
    [["standalone", "--volume-groups", "a", "--endpoint", "tcp://x"], /endpoint/],
    [["standalone", "--volume-groups", "a", "--endpoint", "/a.sock"], /a directory of its own/],
    [
      ["standalone", "--volume-groups", "a", "--mount-roots", "/"],
      /--mount-roots "\/": is the root directory; must be absolute paths/,
    ],
    [["standalone", "--volume-groups", "/(/"], /--volume-groups "\/\(\/": /],
    [["standalone", "--volume-groups", "a", "--node-id=_x"], /--node-id "_x": must be/],
    [["standalone", "--volume-groups", "a", "--log-level", "loud"], /--log-level "loud": must be debug/],
    [["doctor", "--volume-groups", "/(/"], /--volume-groups/],
    [["status", "--driver-name", "_"], /--driver-name "_": must be/],
    [["help", "standalon"], /unknown command "standalon"; did you mean standalone\?/],
    [["help", "nonsense"], /unknown command "nonsense"; see "denolith help"/],
    [["status", "--kubeconfig", "/k"], /--kubeconfig has no effect without --node-name/],
  ];
  await Promise.all(cases.map(async ([args, expected]) => {
    const { code, stderr } = await runDenolith(...args);
    assertMatch(stderr, expected);
    assertEquals(code, 2, `${args.join(" ")}: ${stderr}`);
  }));
});

Deno.test("denolith: flags are checked before the API server is looked for", async () => {
  const cases: [string[], RegExp][] = [
    [["node", "--http-address", "banana"], /node: --http-address "banana": must be HOST:PORT/],
    [["node", "--thin-pool-autoextend-threshold", "20"], /--thin-pool-autoextend-threshold "20": must be/],
    [["node", "--volume-groups", "/(/"], /--volume-groups "\/\(\/": /],
    [["node", "--read-iops-per-gib", "data"], /--read-iops-per-gib "data": must be GROUP=RATE/],
    [["node", "--kubelet-dir", "kubelet"], /--kubelet-dir "kubelet": not an absolute path; must be/],
    [["controller", "--disable-controllers", "resize"], /--disable-controllers "resize": must be provisioner/],
    [["controller", "--kubeconfig", "/nowhere", "--log-level", "loud"], /--log-level "loud": must be/],
    [["status", "--node-name", "a/b"], /--node-name "a\/b": must be/],
  ];
  await Promise.all(cases.map(async ([args, expected]) => {
    const { code, stderr } = await runDenolith(...args);
    assertMatch(stderr, expected);
    assertEquals(code, 2, `${args.join(" ")}: ${stderr}`);
  }));
});

Deno.test("denolith: without a way to the API server the processes of a cluster end with status 1 and say so", async () => {
  const cases: [string[], RegExp][] = [
    [["node"], /not in a pod: KUBERNETES_SERVICE_HOST .* are not set/],
    [["controller", "--kubeconfig", "/nowhere"], /reading \/nowhere: /],
    [["status", "--node-name", "n1", "--kubeconfig", "/nowhere"], /reading \/nowhere: /],
  ];
  await Promise.all(cases.map(async ([args, expected]) => {
    const { code, stderr } = await runDenolith(...args);
    assertMatch(`${code} ${stderr}`, expected);
    assertEquals(code, 1);
  }));
});

Deno.test("denolith: the version and the help of a command can be asked for in every usual way", async () => {
  const [version, viaFlag, ofCommand] = await Promise.all(
    [["version"], ["--version"], ["node", "--version"]].map((args) => runDenolith(...args)),
  );
  assertMatch(version!.stdout, /^denolith \d+\.\d+\.\d+ \(deno /);
  assertEquals([viaFlag, ofCommand], [version, version]);
  const [help, topic, flagFirst] = await Promise.all(
    [["node", "--help"], ["help", "node"], ["--help", "node"]].map((args) => runDenolith(...args)),
  );
  assert(help!.stdout.startsWith("Usage: denolith node"), help!.stdout);
  assertEquals([topic, flagFirst], [help, help]);
});

Deno.test("denolith doctor: works whatever this machine lacks, as text and as JSON, with an exit status", async () => {
  const [text, json] = await Promise.all([runDenolith("doctor"), runDenolith("doctor", "--json")]);
  const { level, checks, findings } = JSON.parse(json.stdout);
  assertEquals(checks.length, 10, json.stderr);
  const lacksLvm = findings.some(({ check, subject }: Record<string, string>) =>
    check === "tools" && subject === "lvm"
  );
  assertEquals(lacksLvm, !await succeeds("lvm", ["version"]));
  for (const { code, stderr } of [text, json]) assertEquals([code, stderr], [level === "error" ? 1 : 0, ""]);
  for (const { check } of checks) assertMatch(text.stdout, new RegExp(`^. ${check} `, "m"));
});

Deno.test("denolith status: prints the status where LVM answers; elsewhere it ends with status 1 and names LVM", async () => {
  const { code, stdout, stderr } = await runDenolith("status", "--json");
  if (await succeeds("lvm", ["fullreport"])) {
    assertEquals([code, stderr], [0, ""]);
    assertEquals(JSON.parse(stdout).driver, "lvm.denolith.dev");
  } else assertMatch(`${code} ${stderr}`, /^1 denolith: .*\blvm\b/);
});

Deno.test("denolith standalone: serves until SIGTERM, then ends with status 0 and leaves no socket", async () => {
  const folder = await Deno.makeTempDir();
  const socket = `${folder}/csi.sock`;
  const child = new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      ...DRIVER_FLAGS,
      MAIN,
      "standalone",
      "--endpoint",
      `unix://${socket}`,
      "--node-id",
      "n",
      "--volume-groups",
      "none",
    ],
    stdout: "null",
    stderr: "piped",
  }).spawn();
  let log = "";
  for await (const chunk of child.stderr.pipeThrough(new TextDecoderStream())) {
    const before = log;
    log += chunk;
    if (log.includes(" serving ") && !before.includes(" serving ")) {
      assert((await Deno.stat(socket)).isSocket);
      child.kill("SIGTERM");
    }
  }
  assertEquals((await child.status).code, 0, log);
  assert(log.includes(" stopped "), log);
  assertEquals([...Deno.readDirSync(folder)], []);
  await Deno.remove(folder, { recursive: true });
});
