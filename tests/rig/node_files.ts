import answer from "./node/answer.sh" with { type: "text" };
import nodeScript from "./node/node.sh" with { type: "text" };
import startKubelet from "./node/start_kubelet.sh" with { type: "text" };
import { API_SERVICE, HOST_FROM_GUEST } from "./control_plane_flags.ts";
import { guestFiles } from "./guest_files.ts";
import type { NodeOptions, NodePorts } from "./node.ts";
import type { PayloadFile } from "./payload.ts";
import { PAUSE_IMAGE } from "./pod_image.ts";
import { podSubnet, sharedAddress, type SharedPlace } from "./shared_network.ts";
import { UML_FILES } from "./uml.ts";
import { GUEST_ADDRESS } from "./uml_network.ts";

/** The input of {@linkcode nodeFiles}. */
export interface NodeParts {
  readonly options: NodeOptions;
  readonly ports: NodePorts;
  /** The port of the API server on this machine. */
  readonly apiPort: number;
  /** Paths on this machine. */
  readonly kubelet: string;
  readonly kubeconfig: string;
  readonly ca: string;
  readonly images: readonly string[];
}

/** The port of the guest on which commands are taken. */
export const EXEC_PORT = 7000;

/** Returns the sizes of a node's disks in GiB: those of the groups in order, then those without one. */
export function diskSizes(options: NodeOptions): number[] {
  return [...(options.volumeGroups ?? []).flatMap((group) => group.disksGiB), ...options.bareDisksGiB ?? []];
}

/** Returns the files in /work that make a guest a node. */
export function nodeFiles(parts: NodeParts): Record<string, PayloadFile> {
  const { options } = parts;
  const env = {
    API_ADDRESS: `${HOST_FROM_GUEST}:${parts.apiPort}`,
    API_SERVICE,
    EXEC_PORT: String(EXEC_PORT),
    KUBELET_FLAGS: (options.kubeletFlags ?? []).join(" "),
    KUBELET_ROOT: options.kubeletRoot ?? "/var/lib/kubelet",
    NODE_ADDRESS: GUEST_ADDRESS,
    NODE_NAME: options.name,
    ROUTES: routes(options.place),
    SHARED_ADDRESS: options.place === undefined ? "" : sharedAddress(options.place.number),
    VOLUME_GROUPS: (options.volumeGroups ?? []).map(({ name, disksGiB }) => `${name}:${disksGiB.length}`).join(" "),
  };
  const settings = Object.entries(env).map(([name, value]) => `${name}='${value}'\n`).join("");
  return {
    ...options.files,
    ...(options.machine === "qemu" ? {} : UML_FILES),
    ...guestFiles({
      script: nodeScript,
      env: {},
      dataDisks: diskSizes(options).length,
      endMark: "end",
      sendsOut: false,
      terminal: false,
      watch: 0,
      slowModules: false,
    }),
    "node/settings": { text: settings },
    "node/answer.sh": { text: answer, mode: 0o755 },
    "node/start_kubelet.sh": { text: startKubelet },
    "node/cni.conflist": { text: JSON.stringify(podNetwork(options.place)) },
    "node/containerd.toml": { text: CONTAINERD },
    "node/kubelet.json": { text: JSON.stringify({ ...kubeletConfig(parts.ports.kubelet), ...options.kubeletConfig }) },
    "node/kubelet": { host: parts.kubelet },
    "node/kubeconfig": { host: parts.kubeconfig },
    "node/ca.crt": { host: parts.ca },
    ...Object.fromEntries(parts.images.map((host, i) => [`node/images/${String(i).padStart(3, "0")}.tar`, { host }])),
  };
}

function kubeletConfig(port: number): Record<string, unknown> {
  return {
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    // The port is that of the host, too: the API server takes it from the node's status.
    port,
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: "/work/node/ca.crt" },
    },
    authorization: { mode: "Webhook" },
    cgroupDriver: "cgroupfs",
    containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
    enforceNodeAllocatable: [],
    failSwapOn: false,
    resolvConf: "",
    // Images that were brought along cannot be fetched again.
    imageGCHighThresholdPercent: 100,
    evictionHard: { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    volumeStatsAggPeriod: "10s",
  };
}

/** Returns the network of pods: a bridge. Services other than the API's lead nowhere. */
function podNetwork(place: SharedPlace | undefined) {
  const subnet = place === undefined ? "10.88.0.0/16" : podSubnet(place.number);
  return {
    cniVersion: "0.4.0",
    name: "rig",
    plugins: [{
      type: "bridge",
      bridge: "cni0",
      isGateway: true,
      ipam: { type: "host-local", ranges: [[{ subnet }]], routes: [{ dst: "0.0.0.0/0" }] },
    }],
  };
}

/** Returns the ways to the pods of other nodes, as SUBNET:ADDRESS. */
function routes(place: SharedPlace | undefined): string {
  const numbers = Array.from({ length: place?.of ?? 0 }, (_, i) => i + 1).filter((number) => number !== place!.number);
  return numbers.map((number) => `${podSubnet(number)}:${sharedAddress(number)}`).join(" ");
}

/** Each plugin that nobody uses is time at the start. */
const CONTAINERD = `version = 2
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.native",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.restart",
  "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp",
]
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "${PAUSE_IMAGE}"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "/etc/containerd/certs.d"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"
`;
