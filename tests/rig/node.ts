import { carryDisks } from "./carried_disks.ts";
import type { ControlPlane } from "./control_plane.ts";
import { freePorts } from "./free_ports.ts";
import { callGuest, type GuestAnswer } from "./guest_call.ts";
import { ensureGuestImage, type GuestImage } from "./guest_image.ts";
import { diskSizes, EXEC_PORT, nodeFiles } from "./node_files.ts";
import type { Machine, MachineCommand, MachineKind, PortForward } from "./machine.ts";
import { makeDisk, makePayload, type PayloadFile } from "./payload.ts";
import { ensureTestImage } from "./pod_image.ts";
import { run } from "./process.ts";
import { ensureQemu, qemuCommand } from "./qemu.ts";
import { logTail } from "./run_folder.ts";
import { connectToSharedNetwork, type SharedPlace } from "./shared_network.ts";
import { TempFolder } from "./temp_folder.ts";
import { ensureUml, umlCommand } from "./uml.ts";
import { networkProcess, startUmlNetwork } from "./uml_network.ts";
import { pollUntil } from "./poll_until.ts";

/** Settings of {@linkcode Node.start}. */
export interface NodeOptions {
  /** The kind of machine; user-mode Linux by default. */
  readonly machine?: MachineKind;
  /** The node's name, a DNS label. */
  readonly name: string;
  /**
   * Its place on the network that nodes share, which must have been started; by default it has none. Pods of nodes on it
   * reach each other. Emulated machines cannot be on it.
   */
  readonly place?: SharedPlace;
  /** Volume groups to make, each over disks of its own; none by default. Disks are sparse. */
  readonly volumeGroups?: readonly { readonly name: string; readonly disksGiB: readonly number[] }[];
  /** Empty disks beside those of the groups; they come after them in DATA_DISKS order. */
  readonly bareDisksGiB?: readonly number[];
  /** Archives of images for pods, on this machine, beside the test image. They need imagePullPolicy Never or IfNotPresent. */
  readonly images?: readonly string[];
  /** Further files, by path relative to /work in the guest. */
  readonly files?: Readonly<Record<string, PayloadFile>>;
  /** The guest's memory in MiB; 3072 by default. */
  readonly memMiB?: number;
  /** The kubelet's root directory; /var/lib/kubelet by default. */
  readonly kubeletRoot?: string;
  readonly kubeletFlags?: readonly string[];
  /** Fields of kubelet's configuration, over those of the rig. */
  readonly kubeletConfig?: Readonly<Record<string, unknown>>;
}

/** Ports of this machine that lead into a node. */
export interface NodePorts {
  /** Takes commands. */
  readonly exec: number;
  /** kubelet's, the same in the guest. */
  readonly kubelet: number;
}

/** The settings of a node, kept for later processes. */
interface Settings {
  readonly options: NodeOptions;
  readonly ports: NodePorts;
  readonly machine: MachineCommand;
}

/** The time limit for a node to be ready, in milliseconds. */
const READY_TIMEOUT_MS = 600_000;

/** The default time limit of a command in the guest, in milliseconds. */
const COMMAND_TIMEOUT_MS = 60_000;

/** The file in the node's folder that its machine makes when its network can be connected. */
const NETWORK_READY = "network-ready";

/** Room on the root disk for images and what pods write, sparse. */
const ROOT_SIZE = "12G";

/** A guest that is a node of a cluster: containerd, kubelet and LVM in a virtual machine. */
export class Node {
  readonly name: string;
  readonly ports: NodePorts;
  readonly #plane: ControlPlane;
  #settings: Settings;

  private constructor(plane: ControlPlane, settings: Settings) {
    this.name = settings.options.name;
    this.ports = settings.ports;
    this.#plane = plane;
    this.#settings = settings;
  }

  /**
   * Starts a new node; {@linkcode Node.ready} waits for it. It belongs to the control plane's folder and ends with it.
   *
   * @param log called with what is built on first use @throws {Error} when the guest's disks cannot be made
   */
  static async start(plane: ControlPlane, options: NodeOptions, log: (line: string) => void): Promise<Node> {
    const image = await ensureGuestImage(log);
    const images = [await ensureTestImage(log), ...options.images ?? []];
    const [exec, kubelet] = freePorts(2) as [number, number];
    const ports = { exec, kubelet };
    const folder = plane.folder.file(processName(options.name));
    await Deno.mkdir(folder);
    const identity = { user: `system:node:${options.name}`, groups: ["system:nodes"] };
    const files = nodeFiles({
      options,
      ports,
      images,
      apiPort: plane.ports.api,
      kubelet: plane.programs.kubelet,
      kubeconfig: await plane.kubeconfigFor(processName(options.name), identity, "guest"),
      ca: plane.folder.file("certs/ca.crt"),
    });
    const machine = await makeMachine(folder, { image, files, options, ports, log });
    await writeSettings(plane, { options, ports, machine });
    const node = await Node.open(plane, options.name);
    await node.powerOn();
    return node;
  }

  /** Opens a node that was started, perhaps by another process. */
  static async open(plane: ControlPlane, name: string): Promise<Node> {
    const text = await Deno.readTextFile(settingsFile(plane, name));
    return new Node(plane, JSON.parse(text) as Settings);
  }

  /** Returns the names of the nodes of a control plane. */
  static async names(plane: ControlPlane): Promise<string[]> {
    const names: string[] = [];
    for await (const entry of Deno.readDir(plane.folder.path)) {
      if (entry.isDirectory && entry.name.startsWith("node-")) names.push(entry.name.slice("node-".length));
    }
    return names.sort();
  }

  /**
   * Waits until the API says that the node is ready, as it was booted last, and its images are there.
   *
   * @throws {Error} when it takes too long or the machine ends, with the ends of its logs
   */
  async ready(options: { signal?: AbortSignal; timeoutMs?: number } = {}): Promise<void> {
    const waitOptions = {
      action: `wait for node ${this.name}`,
      timeoutMs: options.timeoutMs ?? READY_TIMEOUT_MS,
      intervalMs: 300,
      failFast: () => this.#requireRunning(),
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    };
    try {
      const bootIdCommand = "cat /proc/sys/kernel/random/boot_id";
      const boot = await pollUntil(
        () => this.exec(bootIdCommand).then(({ stdout }) => stdout.trim(), () => ""),
        waitOptions,
      );
      await pollUntil(() => this.#isReady(boot), waitOptions);
      const importsDoneCommand = "[ -e /run/images-imported ] && [ -e /run/volume-groups-made ]";
      await pollUntil(async () => (await this.exec(importsDoneCommand)).code === 0, waitOptions);
    } catch (cause) {
      options.signal?.throwIfAborted();
      throw new Error(`${(cause as Error).message}\n${await this.logs()}`, { cause });
    }
  }

  /**
   * Runs a command in the guest as root, with /bin/sh.
   *
   * @throws {Error} when the guest does not answer; a command that fails has a status
   */
  async exec(
    command: string,
    options: { stdin?: string | Uint8Array<ArrayBuffer>; timeoutMs?: number } = {},
  ): Promise<GuestAnswer> {
    return await callGuest(this.ports.exec, { timeoutMs: COMMAND_TIMEOUT_MS, ...options, command });
  }

  /** Ends kubelet and starts it again; pods run on. */
  async restartKubelet(): Promise<void> {
    const { code, stderr } = await this.exec("sh /work/node/start_kubelet.sh");
    if (code !== 0) throw new Error(`restart kubelet of ${this.name}: exit status ${code}: ${stderr}`);
  }

  /** Switches the node off at once, as a power failure does: data that was not synced may be lost. Its disks stay. */
  async powerOff(): Promise<void> {
    await this.#plane.folder.stop(processName(this.name));
    await this.#plane.folder.stop(networkProcess(processName(this.name)));
  }

  /** Switches the node on; it has the disks that it had. */
  async powerOn(): Promise<void> {
    const { machine, options, ports } = this.#settings;
    const name = processName(this.name);
    const ready = this.#file(NETWORK_READY);
    await Deno.remove(ready).catch(() => {});
    await this.#plane.folder.start(name, machine.program, machine.args);
    if (options.machine === "qemu") return;
    const { folder } = this.#plane;
    await startUmlNetwork({ folder, machine: name, ready, forward: forwardedPorts(ports) });
    if (options.place !== undefined) await connectToSharedNetwork(folder, name);
  }

  /** Switches the node off and on again and waits until it is ready. */
  async powerCycle(): Promise<void> {
    await this.powerOff();
    await this.powerOn();
    await this.ready();
  }

  /**
   * Carries the disks of a volume group to another node. Both are switched off, and in user-mode Linux.
   *
   * @throws {Error} when the node does not have the group, or the other one has no place for its disks
   */
  async carryDisks(group: string, to: Node): Promise<void> {
    const groups = this.#settings.options.volumeGroups ?? [];
    const index = groups.findIndex(({ name }) => name === group);
    if (index < 0) throw new Error(`carry the disks of ${group}: node ${this.name} has ${groups.map((g) => g.name)}`);
    const first = groups.slice(0, index).reduce((sum, { disksGiB }) => sum + disksGiB.length, 0);
    const files = groups[index]!.disksGiB.map((_, disk) => this.#file(dataDisk(first + disk)));
    const args = carryDisks(this.#settings.machine.args, to.#settings.machine.args, files);
    await this.#setArguments(args.from);
    await to.#setArguments(args.to);
  }

  async #setArguments(args: readonly string[]): Promise<void> {
    this.#settings = { ...this.#settings, machine: { ...this.#settings.machine, args } };
    await writeSettings(this.#plane, this.#settings);
  }

  /** Returns the ends of kubelet's and containerd's logs, or of the console where the guest does not answer. */
  async logs(lines = 30): Promise<string> {
    const tails = ["kubelet", "containerd"].map((name) => `echo "== ${name}"; tail -n ${lines} /var/log/${name}.log`);
    const guestLogs = await this.exec(tails.join("\n")).catch(() => undefined);
    if (guestLogs !== undefined) return guestLogs.stdout;
    const console = await Deno.readTextFile(this.#file("console")).catch(() => "");
    const output = await Deno.readTextFile(this.#file("output")).catch(() => "");
    return `== console\n${lastLines(console, lines)}\n== output\n${lastLines(output, lines)}`;
  }

  #file(name: string): string {
    return this.#plane.folder.file(`${processName(this.name)}/${name}`);
  }

  async #isReady(boot: string): Promise<boolean> {
    const answer = await this.#plane.request(`/api/v1/nodes/${this.name}`).catch(() => undefined);
    return answer?.status === 200 && isReadyNode(JSON.parse(answer.body), boot);
  }

  async #requireRunning(): Promise<void> {
    const name = processName(this.name);
    if (await this.#plane.folder.isRunning(name)) return;
    throw new Error(`run node ${this.name}: its machine ended:\n${await logTail(this.#plane.folder, name)}`);
  }
}

/** The fields of a Node that are read. */
interface NodeObject {
  readonly status: {
    readonly nodeInfo: { readonly bootID: string };
    readonly conditions: readonly { readonly type: string; readonly status: string }[];
  };
}

/** Reports whether a node is ready since this boot. The API calls a node that was switched off ready for a while. */
export function isReadyNode(node: NodeObject, boot: string): boolean {
  if (node.status.nodeInfo.bootID !== boot) return false;
  return node.status.conditions.some(({ type, status }) => type === "Ready" && status === "True");
}

/** Returns the name of a node's process and folder. */
function processName(node: string): string {
  return `node-${node}`;
}

function settingsFile({ folder }: ControlPlane, name: string): string {
  return folder.file(`${processName(name)}/settings.json`);
}

async function writeSettings(plane: ControlPlane, settings: Settings): Promise<void> {
  await Deno.writeTextFile(settingsFile(plane, settings.options.name), JSON.stringify(settings));
}

/** Returns the name of the image of a data disk in the node's folder. */
function dataDisk(number: number): string {
  return `data${number}.img`;
}

interface MachineParts {
  readonly image: GuestImage;
  readonly files: Readonly<Record<string, PayloadFile>>;
  readonly options: NodeOptions;
  readonly ports: NodePorts;
  readonly log: (line: string) => void;
}

/** Makes the disks of a node and returns the command of its machine. */
async function makeMachine(
  folder: string,
  { image, files, options, ports, log }: MachineParts,
): Promise<MachineCommand> {
  const file = (name: string) => `${folder}/${name}`;
  const root = file("root.img");
  await run("copy the guest's root disk", "cp", ["--sparse=always", "--reflink=auto", image.root, root]);
  await Deno.chmod(root, 0o600);
  await run("grow the node's root disk", "truncate", ["-s", ROOT_SIZE, root]);
  await run("grow the node's root file system", "resize2fs", ["-f", root]);
  // It must survive a power failure.
  await run("give the node's root a journal", "tune2fs", ["-O", "has_journal", root]);
  {
    await using temp = await TempFolder.create(folder, "payload-");
    await Deno.rename(await makePayload(temp, files), file("payload.img"));
  }
  const dataDisks: string[] = [];
  for (const gib of diskSizes(options)) {
    const disk = file(dataDisk(dataDisks.length));
    await makeDisk(disk, gib);
    dataDisks.push(disk);
  }
  const isQemu = options.machine === "qemu";
  const machine: Machine = {
    image: { ...image, root },
    payload: file("payload.img"),
    dataDisks,
    memMiB: options.memMiB ?? 3072,
    forward: forwardedPorts(ports),
    ...(isQemu ? {} : { network: { ready: file(NETWORK_READY), isShared: options.place !== undefined } }),
    hostAccess: true,
    terminal: false,
    persistsRoot: true,
    rootChanges: "",
    output: file("output"),
    console: file("console"),
    readReport: file("report"),
    out: file("out.tar"),
  };
  if (!isQemu) return umlCommand(machine, await ensureUml(log));
  await ensureQemu(log);
  return qemuCommand(machine);
}

function forwardedPorts({ exec, kubelet }: NodePorts): PortForward[] {
  const host = "127.0.0.1";
  return [
    { host, hostPort: exec, guestPort: EXEC_PORT },
    { host, hostPort: kubelet, guestPort: kubelet },
  ];
}

function lastLines(text: string, count: number): string {
  return text.trimEnd().split(/\r?\n/).slice(-count).join("\n");
}
