/**
 * A node of the world: a fake machine, the driver's agent as a process, and kubelet, which calls the agent's CSI services for
 * pods.
 *
 * @module
 */

import { create, type DescMethodUnary, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { runNode } from "../../cli/node.ts";
import { Node as NodeService } from "../../csi/proto/csi_pb.ts";
import { type BoundService, pathOf } from "../../csi/service.ts";
import {
  awaitOutput,
  type Command,
  DEFAULT_DEADLINES,
  describeCommand,
  type Exec,
  type Output,
} from "../../lvm/exec.ts";
import { SUSPENSION_SECONDS } from "../../lvm/group_snapshots/suspension.ts";
import type { PersistentVolume } from "../../k8s/api/objects.ts";
import { blockCapability, mountCapability } from "../contract/helpers/host.ts";
import { restartMachine } from "../crash/crash_states.ts";
import { crashMomentsOf } from "../crash/crashing_exec.ts";
import { nothingAcknowledged, violationsOf } from "../crash/invariants.ts";
import { NAMESPACE } from "../fake/cluster/node_cluster.ts";
import { machineWith } from "../fake/cluster/volume_cluster.ts";
import { KillableExec } from "../fake/machine/killable_exec.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";
import { guardsOf } from "../fake/machine/suspension.ts";
import { flagsOf } from "../fake/subcommand.ts";
import { Kubelet } from "./kubelet.ts";
import type { ModelCluster } from "./cluster.ts";
import { currentProcess, type Process, type World } from "./world.ts";

const PENDING_FOREVER = new Promise<never>(() => {});

/** What runs the commands of an agent on its machine: they take time, and a death of the agent leaves those that run half done. */
class SimulatedExec implements Exec {
  readonly #world: World;
  readonly #machine: FakeMachine;
  readonly #killable: KillableExec;
  /** The commands that have begun, and have no effect yet. */
  readonly #begun = new Set<Command>();

  /** How many times as long as usual commands take. */
  readonly #slowness: () => number;

  constructor(world: World, machine: FakeMachine, slowness: () => number) {
    [this.#world, this.#machine, this.#slowness] = [world, machine, slowness];
    this.#killable = new KillableExec(machine);
  }

  async run(command: Command): Promise<Output> {
    const process = currentProcess()!;
    process.onAction();
    if (process.isDead) return await PENDING_FOREVER;
    const running = { output: this.#perform(command), kill: () => true, detach: () => {} };
    running.output.catch(() => {});
    return await awaitOutput(command, running, DEFAULT_DEADLINES);
  }

  async #perform(command: Command): Promise<Output> {
    this.#begun.add(command);
    await this.#world.sleep(this.#world.between(1, command.mutates ? 60 : 20) * this.#slowness());
    this.#begun.delete(command);
    if (command.args.includes("sleep")) void this.#world.root.run(() => this.#expireLater());
    const output = await this.#killable.run(command);
    this.#world.log(`${shortly(command)} => ${output.code}${output.stderr === "" ? "" : ` ${output.stderr.trim()}`}`);
    if (command.mutates) this.#check(describeCommand(command));
    await this.#world.sleep(this.#world.between(0, 5));
    return output;
  }

  /** Lets find(1), which begins, resume devices at the end of its time, also after the death of the agent. */
  async #expireLater(): Promise<void> {
    const before = new Set(guardsOf(this.#machine));
    await this.#world.sleep(1);
    const own = guardsOf(this.#machine).find((guard) => !before.has(guard));
    await this.#world.sleep(SUSPENSION_SECONDS * 1000);
    own?.expire();
  }

  /** Kills what runs. */
  async kill(): Promise<void> {
    this.#killable.kill();
    for (const command of this.#begun) {
      const moment = this.#world.pick(crashMomentsOf(command));
      // a command that would have failed has no half of its work
      await moment.effect(this.#machine, command, () => this.#machine.run(command)).catch(() => {});
      this.#world.log(`killed: ${shortly(command)} (${moment.name})`);
      this.#check(`${describeCommand(command)} (${moment.name})`);
    }
  }

  #check(after: string): void {
    const [violation] = violationsOf(this.#machine, nothingAcknowledged());
    if (violation !== undefined) this.#world.fail(new Error(`after ${after}: ${violation}`));
  }

  idle(): Promise<void> {
    return Promise.resolve();
  }

  readMountTable(): Promise<string | undefined> {
    return this.#machine.readMountTable();
  }
}

/** Describes a command without the many options of reports. */
function shortly(command: Command): string {
  const text = describeCommand(command);
  return text.startsWith("lvm fullreport") ? `lvm fullreport${text.includes("--foreign") ? " of all" : ""}` : text;
}

/** An agent that runs. */
interface Agent {
  readonly process: Process;
  readonly exec: SimulatedExec;
  /** Asks it to end. */
  readonly end: AbortController;
  readonly ended: Promise<unknown>;
  /** Its services; empty before it serves, and after its end. */
  services: readonly BoundService[];
}

/** A failure of a call of kubelet. */
export class CallFailure extends Error {}

/** A node. */
export class SimulatedNode {
  readonly machine: FakeMachine;
  /** Whether it has power. */
  isOn = true;
  /** Whether somebody has forgotten it while it had none: what was deleted meanwhile is left on it. */
  wasForgotten = false;
  /** How many times as long as usual its commands take. */
  slowness = 1;
  /** The directory of its kubelet. */
  readonly directory: string;
  agent: Agent | undefined;
  kubelet: Kubelet | undefined;

  constructor(readonly name: string, readonly cluster: ModelCluster, bytes: bigint) {
    this.machine = machineWith({ data: bytes });
    this.directory = `${cluster.files.folder}/${name}`;
  }

  get #address(): string {
    return `10.0.0.${this.cluster.nodes.indexOf(this) + 1}`;
  }

  /** Starts its kubelet. */
  startKubelet(): void {
    this.kubelet = new Kubelet(this);
  }

  /** Starts its agent, unless it runs. */
  async startAgent(): Promise<void> {
    if (this.agent !== undefined || !this.isOn) return;
    const { world, kubeconfig } = this.cluster;
    const process = world.process(`agent ${this.name}`);
    const exec = new SimulatedExec(world, this.machine, () => this.slowness);
    const end = new AbortController();
    const flags = flagsOf(
      ...["node", "--kubeconfig", kubeconfig, "--node-name", this.name, "--kubelet-dir", this.directory],
      ...["--namespace", NAMESPACE, "--http-address", "off", "--disable-registration"],
      ...["--transfer-address", `${this.#address}:9000`, "--transfer-advertise", this.#address],
    );
    const started = world.untilAction(process, end.signal);
    const ended = process.run(() =>
      runNode(flags, end.signal, {
        createExec: () => exec,
        network: this.cluster.transfers,
        serveServices: (path, services) => {
          agent.services = services;
          return Promise.resolve({
            path,
            close: () => {
              agent.services = [];
              return Promise.resolve(true);
            },
          });
        },
      })
    );
    ended.catch((error) => world.fail(error));
    const agent: Agent = { process, exec, end, ended, services: [] };
    this.agent = agent;
    await started;
  }

  /** Kills its agent. */
  async killAgent(): Promise<void> {
    const { agent } = this;
    if (agent === undefined) return;
    this.agent = undefined;
    agent.process.kill();
    await agent.exec.kill();
  }

  /** Asks its agent to end, and waits until it has. */
  async stopAgent(): Promise<void> {
    const { agent } = this;
    if (agent === undefined) return;
    agent.end.abort();
    await Promise.race([
      agent.ended,
      new Promise((resolve) => agent.process.end.signal.addEventListener("abort", resolve)),
    ]);
    if (this.agent === agent) this.agent = undefined;
  }

  /** Takes its power away. */
  async turnOff(): Promise<void> {
    if (!this.isOn) return;
    this.isOn = false;
    this.kubelet?.process.kill();
    this.kubelet = undefined;
    await this.killAgent();
    guardsOf(this.machine).length = 0;
    restartMachine(this.machine, nothingAcknowledged());
    for (const pod of this.cluster.pods) {
      if (pod.node !== this.name) continue;
      pod.isRunning = false;
      if (pod.isGone) pod.mounted = undefined; // nothing is left of it
    }
  }

  /** Gives it power again. */
  async turnOn(): Promise<void> {
    if (this.isOn) return;
    this.isOn = true;
    this.startKubelet();
    await this.startAgent();
  }

  /** Makes a call to the Node service. @throws {CallFailure} when it fails, or nobody answers */
  async call<M extends DescMethodUnary>(method: M, request: MessageInitShape<M["input"]>): Promise<void> {
    const { agent } = this;
    const bound = agent?.services.map((service) => service.get(pathOf(method))).find((one) => one !== undefined);
    if (agent === undefined || bound === undefined) throw new CallFailure("UNAVAILABLE: no agent answers");
    const bytes = toBinary(method.input, create(method.input, request));
    const reset = new Promise<never>((_, reject) => {
      agent.process.end.signal.addEventListener(
        "abort",
        () => reject(new CallFailure("UNAVAILABLE: connection reset")),
      );
    });
    const late = this.cluster.world.sleep(120_000).then(() => {
      throw new CallFailure("DEADLINE_EXCEEDED");
    });
    const answer = await Promise.race([agent.process.run(() => bound(bytes)), reset, late]);
    late.catch(() => {});
    reset.catch(() => {});
    if ("failure" in answer) throw new CallFailure(`${answer.failure.code} ${answer.failure.details}`);
    if ("message" in answer) fromBinary(method.output, answer.message);
  }

  /** Stages and publishes a volume for a pod. */
  async publish(volume: PersistentVolume, pod: string, secrets: Record<string, string>): Promise<void> {
    const { volumeId, stagingTargetPath, targetPath } = this.paths(volume, pod);
    const shared = { volumeId, stagingTargetPath, volumeCapability: capabilityOf(volume), secrets };
    const volumeContext = volume.spec?.csi?.volumeAttributes ?? {};
    await this.call(NodeService.method.nodeStageVolume, { ...shared, volumeContext });
    await this.call(NodeService.method.nodePublishVolume, { ...shared, volumeContext, targetPath });
  }

  /** Returns the paths of a volume for a pod. */
  paths(volume: PersistentVolume, pod: string) {
    const volumeId = volume.spec!.csi!.volumeHandle;
    return {
      volumeId,
      stagingTargetPath: `${this.directory}/staging/${volumeId}`,
      targetPath: `${this.directory}/pods/${pod}`,
    };
  }
}

function capabilityOf({ spec }: PersistentVolume) {
  return spec?.volumeMode === "Block" ? blockCapability() : mountCapability(spec?.csi?.fsType ?? "");
}
