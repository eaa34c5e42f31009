import { CA } from "./certificates.ts";
import type { RunFolder } from "./run_folder.ts";

/** Ports of the control plane on 127.0.0.1. */
export interface ControlPlanePorts {
  readonly api: number;
  readonly etcd: number;
  readonly etcdPeer: number;
}

/** This machine, as guests reach it. */
export const HOST_FROM_GUEST = "10.0.2.2";

/** The range of service addresses, and the first of it, which is the API's. */
const SERVICE_RANGE = "10.0.0.0/24";
export const API_SERVICE = "10.0.0.1";

/** The names of the API server in its certificate. */
export const API_HOSTS = [
  ...["127.0.0.1", HOST_FROM_GUEST, API_SERVICE, "localhost"],
  ...["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"],
];

/** Every request, with who made it and how it was answered, once. */
export const AUDIT_POLICY = JSON.stringify({
  apiVersion: "audit.k8s.io/v1",
  kind: "Policy",
  omitStages: ["RequestReceived"],
  omitManagedFields: true,
  rules: [{ level: "Metadata" }],
});

/** Returns the setting of the API server that leads its connections to nodes through a proxy. */
export function egressSelector(folder: RunFolder): string {
  const transport = { uds: { udsName: folder.file(FILES.kubelets) } };
  return JSON.stringify({
    apiVersion: "apiserver.k8s.io/v1beta1",
    kind: "EgressSelectorConfiguration",
    egressSelections: [{ name: "cluster", connection: { proxyProtocol: "HTTPConnect", transport } }],
  });
}

/** Names of files in the folder. */
export const FILES = {
  audit: "audit.log",
  auditPolicy: "audit-policy.json",
  egress: "egress.json",
  kubelets: "kubelets.sock",
  kubeconfig: "kubeconfig",
  settings: "control-plane.json",
  tokens: "tokens.csv",
} as const;

export function etcdFlags(folder: RunFolder, ports: ControlPlanePorts): string[] {
  const client = `http://127.0.0.1:${ports.etcd}`;
  const peer = `http://127.0.0.1:${ports.etcdPeer}`;
  return [
    ...["--data-dir", folder.file("etcd"), "--unsafe-no-fsync", "--log-level", "warn"],
    ...["--listen-client-urls", client, "--advertise-client-urls", client],
    ...["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", `default=${peer}`],
  ];
}

export function apiserverFlags(folder: RunFolder, ports: ControlPlanePorts): string[] {
  const cert = (name: string) => folder.file(`certs/${name}`);
  return [
    ...["--etcd-servers", `http://127.0.0.1:${ports.etcd}`],
    ...["--bind-address", "127.0.0.1", "--secure-port", String(ports.api)],
    // What the endpoints of the service "kubernetes" name: the way from the guest.
    ...["--advertise-address", HOST_FROM_GUEST, "--service-cluster-ip-range", SERVICE_RANGE],
    ...["--tls-cert-file", cert("apiserver.crt"), "--tls-private-key-file", cert("apiserver.key")],
    ...["--client-ca-file", folder.file(CA), "--token-auth-file", folder.file(FILES.tokens)],
    ...["--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction"],
    ...["--service-account-issuer", "https://kubernetes.default.svc"],
    ...["--service-account-key-file", cert("sa.key"), "--service-account-signing-key-file", cert("sa.key")],
    ...["--kubelet-client-certificate", cert("kubelet-client.crt"), "--kubelet-client-key", cert("kubelet-client.key")],
    ...["--kubelet-preferred-address-types", "InternalIP", "--egress-selector-config-file", folder.file(FILES.egress)],
    "--allow-privileged=true",
    ...["--audit-policy-file", folder.file(FILES.auditPolicy), "--audit-log-path", folder.file(FILES.audit)],
  ];
}

export function controllerManagerFlags(folder: RunFolder): string[] {
  return [
    ...["--kubeconfig", folder.file("certs/controller-manager.kubeconfig")],
    ...["--service-account-private-key-file", folder.file("certs/sa.key"), "--root-ca-file", folder.file(CA)],
    ...["--use-service-account-credentials=true", "--leader-elect=false", "--secure-port=0"],
  ];
}

export function schedulerFlags(folder: RunFolder): string[] {
  return [
    ...["--kubeconfig", folder.file("certs/scheduler.kubeconfig")],
    ...["--leader-elect=false", "--secure-port=0"],
  ];
}
