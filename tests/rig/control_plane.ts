import { join } from "@std/path";
import * as certificates from "./certificates.ts";
import {
  API_HOSTS,
  apiserverFlags,
  AUDIT_POLICY,
  controllerManagerFlags,
  type ControlPlanePorts,
  egressSelector,
  etcdFlags,
  FILES,
  HOST_FROM_GUEST,
  schedulerFlags,
} from "./control_plane_flags.ts";
import { ensureTools } from "./debian.ts";
import { freePorts } from "./free_ports.ts";
import type { KubernetesPrograms } from "./kubernetes.ts";
import { toolEnvironment } from "./process.ts";
import { logTail, type RunFolder } from "./run_folder.ts";
import { pollUntil } from "./poll_until.ts";

export { API_SERVICE, HOST_FROM_GUEST } from "./control_plane_flags.ts";

/** Settings of {@linkcode ControlPlane.start}. */
export interface ControlPlaneOptions {
  /** The folder of its files and its processes. */
  readonly folder: RunFolder;
  readonly programs: KubernetesPrograms;
  /** Ports to listen on; free ones by default. */
  readonly ports?: Partial<ControlPlanePorts>;
  /** Further flags of kube-apiserver, such as feature gates. */
  readonly apiserverFlags?: readonly string[];
  /** Further flags of kube-controller-manager. */
  readonly controllerManagerFlags?: readonly string[];
  readonly log?: (line: string) => void;
}

/** The settings of a control plane, kept for later processes. */
interface Settings {
  readonly ports: ControlPlanePorts;
  readonly token: string;
  readonly programs: KubernetesPrograms;
  readonly apiserverFlags: readonly string[];
}

/** A request as the API server noted it: the fields of audit.k8s.io/v1 Event that tests read. */
export interface AuditEvent {
  readonly auditID: string;
  readonly verb: string;
  readonly requestURI: string;
  readonly user: { readonly username: string; readonly groups?: readonly string[] };
  readonly objectRef?: {
    readonly resource?: string;
    readonly subresource?: string;
    readonly namespace?: string;
    readonly name?: string;
    readonly apiGroup?: string;
    readonly apiVersion?: string;
  };
  readonly responseStatus?: { readonly code?: number; readonly message?: string };
  readonly requestReceivedTimestamp: string;
  readonly userAgent?: string;
}

/** The time limit for the API server to answer after its start, in milliseconds. */
const READY_MS = 60_000;

const ROOT = new URL("../../", import.meta.url).pathname;

const API = "kube-apiserver";
const KUBELET_PROXY = "kubelet-proxy";

/** The components that call the API server with a certificate. */
const COMPONENTS = {
  "controller-manager": { user: "system:kube-controller-manager", groups: [] },
  scheduler: { user: "system:kube-scheduler", groups: [] },
} as const;

/** A control plane of real components on 127.0.0.1: etcd, kube-apiserver, kube-controller-manager, kube-scheduler. */
export class ControlPlane {
  readonly folder: RunFolder;
  readonly programs: KubernetesPrograms;
  readonly ports: ControlPlanePorts;
  /** The token of the administrator, who is in system:masters. */
  readonly token: string;
  /** The certificate of the authority, as PEM. */
  readonly ca: string;
  readonly #settings: Settings;

  private constructor(folder: RunFolder, settings: Settings, ca: string) {
    this.folder = folder;
    this.programs = settings.programs;
    this.ports = settings.ports;
    this.token = settings.token;
    this.ca = ca;
    this.#settings = settings;
  }

  /**
   * Starts a control plane; it answers after about three seconds.
   *
   * @throws {Error} when a program ends or does not come up; the message shows the end of its log
   */
  static async start(options: ControlPlaneOptions): Promise<ControlPlane> {
    const { folder, programs } = options;
    await ensureTools([{ program: "openssl", packages: ["openssl"] }], options.log ?? ((line) => console.error(line)));
    const [api, etcd, etcdPeer] = freePorts(3) as [number, number, number];
    const settings: Settings = {
      ports: { api, etcd, etcdPeer, ...options.ports },
      token: crypto.randomUUID(),
      programs,
      apiserverFlags: options.apiserverFlags ?? [],
    };
    await folder.start("etcd", programs.etcd, etcdFlags(folder, settings.ports));
    await writeFiles(folder, settings);
    await startKubeletProxy(folder);
    const plane = await ControlPlane.open(folder);
    await plane.startApi();
    await folder.start("kube-controller-manager", programs.controllerManager, [
      ...controllerManagerFlags(folder),
      ...options.controllerManagerFlags ?? [],
    ]);
    await folder.start("kube-scheduler", programs.scheduler, schedulerFlags(folder));
    await pollUntil(() => plane.#hasServiceAccount(), {
      action: "start kube-controller-manager",
      timeoutMs: READY_MS,
      failFast: () => plane.#requireRunning("kube-controller-manager"),
    });
    return plane;
  }

  /** Opens the control plane that was started in a folder. */
  static async open(folder: RunFolder): Promise<ControlPlane> {
    const settings = JSON.parse(await Deno.readTextFile(folder.file(FILES.settings))) as Settings;
    return new ControlPlane(folder, settings, await Deno.readTextFile(folder.file(certificates.CA)));
  }

  /** Address of the API server on this machine. */
  get server(): string {
    return `https://127.0.0.1:${this.ports.api}`;
  }

  /** Path of the administrator's kubeconfig, whose server is {@linkcode ControlPlane.server}. */
  get kubeconfig(): string {
    return this.folder.file(FILES.kubeconfig);
  }

  /** Path of the audit log: one JSON object a line. */
  get auditLog(): string {
    return this.folder.file(FILES.audit);
  }

  /** Returns all requests that were noted so far, in the order of their first answer. */
  async auditEvents(): Promise<AuditEvent[]> {
    return auditEventsFrom(await Deno.readTextFile(this.auditLog).catch(() => ""));
  }

  /** Creates an HTTP client that trusts the authority. */
  httpClient(): Deno.HttpClient {
    return Deno.createHttpClient({ caCerts: [this.ca] });
  }

  /** Requests a path of the API as the administrator; the answer is read to its end. */
  async request(path: string, init: RequestInit = {}): Promise<{ status: number; body: string }> {
    using client = this.httpClient();
    const headers = new Headers(init.headers);
    headers.set("authorization", `Bearer ${this.token}`);
    if (init.body != null && !headers.has("content-type")) headers.set("content-type", "application/json");
    const response = await fetch(`${this.server}${path}`, { ...init, headers, client });
    return { status: response.status, body: await response.text() };
  }

  /**
   * Runs kubectl as the administrator.
   *
   * @returns its output @throws {Error} when it fails, with its error output
   */
  async kubectl(args: readonly string[], options: { stdin?: string; signal?: AbortSignal } = {}): Promise<string> {
    const child = new Deno.Command(this.programs.kubectl, {
      args: [...args],
      env: { ...toolEnvironment(), KUBECONFIG: this.kubeconfig },
      stdin: "piped",
      stdout: "piped",
      stderr: "piped",
      ...(options.signal === undefined ? {} : { signal: options.signal }),
    }).spawn();
    const input = new Blob([options.stdin ?? ""]).stream().pipeTo(child.stdin).catch(() => {});
    const [output] = await Promise.all([child.output(), input]);
    if (output.success) return new TextDecoder().decode(output.stdout);
    const errorOutput = new TextDecoder().decode(output.stderr).trim();
    throw new Error(`run kubectl ${args.join(" ")}: exit status ${output.code}: ${errorOutput}`);
  }

  /**
   * Writes a kubeconfig for someone, by a certificate, and answers its path.
   *
   * @param name of the files, unique in this control plane
   * @param from where it is used: on this machine by default, or in a guest
   */
  async kubeconfigFor(
    name: string,
    identity: certificates.Identity,
    from: "host" | "guest" = "host",
  ): Promise<string> {
    const files = await certificates.makeClientCertificate(this.folder, name, identity);
    const server = from === "host" ? this.server : `https://${HOST_FROM_GUEST}:${this.ports.api}`;
    const path = this.folder.file(`certs/${name}.kubeconfig`);
    await Deno.writeTextFile(path, await certificates.kubeconfigText(this.folder, server, files), { mode: 0o600 });
    return path;
  }

  /** Kills the API server: all connections to it are reset, and new ones refused. The other components keep running. */
  async stopApi(): Promise<void> {
    await this.folder.stop(API);
  }

  /** Starts the API server and waits until it answers. */
  async startApi(): Promise<void> {
    const flags = [...apiserverFlags(this.folder, this.ports), ...this.#settings.apiserverFlags];
    await this.folder.start(API, this.programs.apiserver, flags);
    await pollUntil(() => this.#isReady(), {
      action: "start kube-apiserver",
      timeoutMs: READY_MS,
      failFast: async () => {
        await this.#requireRunning("etcd");
        await this.#requireRunning(API);
        await this.#requireRunning(KUBELET_PROXY);
      },
    });
  }

  /** Cuts all connections to the API server, which is back at once. */
  async resetConnections(): Promise<void> {
    await this.stopApi();
    await this.startApi();
  }

  /** Suspends the API server: it keeps its connections but stops answering, as behind a network that drops packets. */
  async pauseApi(): Promise<void> {
    await this.folder.signal(API, "SIGSTOP");
  }

  /** Ends {@linkcode ControlPlane.pauseApi}. */
  async resumeApi(): Promise<void> {
    await this.folder.signal(API, "SIGCONT");
  }

  async #isReady(): Promise<boolean> {
    const ready = await this.request("/readyz").catch(() => undefined);
    return ready?.status === 200;
  }

  /** Reports whether pods can be created: they need a service account, which kube-controller-manager creates. */
  async #hasServiceAccount(): Promise<boolean> {
    const account = await this.request("/api/v1/namespaces/default/serviceaccounts/default").catch(() => undefined);
    return account?.status === 200;
  }

  async #requireRunning(name: string): Promise<void> {
    if (await this.folder.isRunning(name)) return;
    throw new Error(`start ${name}: it ended; the end of its log:\n${await logTail(this.folder, name)}`);
  }
}

/** Returns the requests of an audit log, each once: a watch is noted when it starts and when it ends. */
export function auditEventsFrom(log: string): AuditEvent[] {
  const events = new Map<string, AuditEvent>();
  // The last line may be half written.
  for (const line of log.slice(0, log.lastIndexOf("\n") + 1).split("\n")) {
    if (line === "") continue;
    const event = JSON.parse(line) as AuditEvent;
    if (!events.has(event.auditID)) events.set(event.auditID, event);
  }
  return [...events.values()];
}

/** Starts what leads the API server to kubelets. */
async function startKubeletProxy(folder: RunFolder): Promise<void> {
  const socket = folder.file(FILES.kubelets);
  await folder.start(KUBELET_PROXY, Deno.execPath(), [
    ...["run", "--quiet", "--no-prompt", "--cached-only", `--config=${ROOT}deno.json`],
    ...[`--allow-net=127.0.0.1,unix:${socket}`, `--allow-read=${socket}`, `--allow-write=${socket}`],
    ...[`${ROOT}tests/rig/kubelet_proxy.ts`, socket],
  ]);
}

/** Writes what the components read: certificates, tokens, kubeconfigs, the audit policy. */
async function writeFiles(folder: RunFolder, settings: Settings): Promise<void> {
  await Deno.writeTextFile(folder.file(FILES.settings), JSON.stringify(settings), { mode: 0o600 });
  await Deno.writeTextFile(folder.file(FILES.auditPolicy), AUDIT_POLICY);
  await Deno.writeTextFile(folder.file(FILES.tokens), `${settings.token},admin,admin,system:masters\n`, {
    mode: 0o600,
  });
  await Deno.writeTextFile(folder.file(FILES.egress), egressSelector(folder));
  await certificates.makeAuthority(folder);
  await certificates.makeServerCertificate(folder, "apiserver", API_HOSTS);
  const kubeletClient = { user: "kube-apiserver-kubelet-client", groups: ["system:masters"] };
  await certificates.makeClientCertificate(folder, "kubelet-client", kubeletClient);
  const server = `https://127.0.0.1:${settings.ports.api}`;
  const admin = await certificates.kubeconfigText(folder, server, { token: settings.token });
  await Deno.writeTextFile(folder.file(FILES.kubeconfig), admin, { mode: 0o600 });
  for (const [name, identity] of Object.entries(COMPONENTS)) {
    const files = await certificates.makeClientCertificate(folder, name, identity);
    const path = join(folder.path, `certs/${name}.kubeconfig`);
    await Deno.writeTextFile(path, await certificates.kubeconfigText(folder, server, files), { mode: 0o600 });
  }
}
