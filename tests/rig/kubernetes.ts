import { join } from "@std/path";
import { cacheKey, ensureCached } from "./cache.ts";
import { buildGo, fetchGoModule, type GoModule } from "./go_build.ts";

/** The releases of Kubernetes that clusters can have. */
export type KubernetesRelease = "1.32" | "1.36";

/** The versions of a release's programs. */
interface ReleaseVersions {
  readonly kubernetes: string;
  /** The etcd whose client the API server has: they share modules. */
  readonly etcd: string;
  /** The version of the language, where it is not the usual one: it decides how the programs behave by default. */
  readonly language?: string;
}

/** The versions of each release. */
export const RELEASES: Readonly<Record<KubernetesRelease, ReleaseVersions>> = {
  "1.32": { kubernetes: "1.32.0", etcd: "3.5.16", language: "1.23.0" },
  "1.36": { kubernetes: "1.36.3", etcd: "3.6.16" },
};

/** Returns the names of the releases, the oldest first. */
export function kubernetesReleases(): KubernetesRelease[] {
  return Object.keys(RELEASES) as KubernetesRelease[];
}

/** The versions of what else the cluster tests run. */
export const VERSIONS = {
  "csi-provisioner": "6.3.0",
  "csi-resizer": "2.3.0",
  "csi-snapshotter": "8.7.0",
  helm: "4.3.1",
} as const;

/** Paths of the programs of a cluster. */
export interface KubernetesPrograms {
  readonly etcd: string;
  readonly apiserver: string;
  readonly controllerManager: string;
  readonly scheduler: string;
  readonly kubelet: string;
  readonly kubectl: string;
}

/** An official sidecar that a loop of the driver stands in for. */
export type Sidecar = "csi-provisioner" | "csi-resizer" | "csi-snapshotter";

/** Modules of Kubernetes' own repository, which its go.mod names without a version. A release may lack some. */
const STAGING = [
  ...["api", "apiextensions-apiserver", "apimachinery", "apiserver", "cli-runtime", "client-go", "cloud-provider"],
  ...["cluster-bootstrap", "component-base", "component-helpers", "controller-manager", "cri-api", "cri-client"],
  ...["cri-streaming", "csi-translation-lib", "dynamic-resource-allocation", "endpointslice", "externaljwt", "kms"],
  ...["kube-aggregator", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet", "metrics"],
  ...["mount-utils", "pod-security-admission", "sample-apiserver", "streaming"],
];

/**
 * Returns the programs of a Kubernetes cluster, which need no libraries. They are built on first use, in about seven
 * minutes on two processors, and kept in the cache folder.
 *
 * @param log receives a line for each step, with the seconds since the start
 * @throws {Error} when there is no Go and none can be fetched, or when the build fails
 */
export async function ensureKubernetes(
  log: (line: string) => void,
  release: KubernetesRelease = "1.36",
): Promise<KubernetesPrograms> {
  const folder = await ensureBuilt("kubernetes", kubernetesModule(RELEASES[release]), log);
  return {
    etcd: join(folder, "etcd"),
    apiserver: join(folder, "kube-apiserver"),
    controllerManager: join(folder, "kube-controller-manager"),
    scheduler: join(folder, "kube-scheduler"),
    kubelet: join(folder, "kubelet"),
    kubectl: join(folder, "kubectl"),
  };
}

/**
 * Returns the path of Kubernetes' own end-to-end tests, a program that needs no libraries. It is built for the tests that
 * need it, in about ten minutes on two processors.
 *
 * @param log receives a line for each step, with the seconds since the start
 * @throws {Error} when there is no Go and none can be fetched, or when the build fails
 */
export async function ensureKubernetesTests(
  log: (line: string) => void,
  release: KubernetesRelease = "1.36",
): Promise<string> {
  return join(await ensureBuilt("kubernetes-tests", kubernetesTestsModule(RELEASES[release]), log), "e2e.test");
}

/**
 * Returns the path of an official sidecar, built with the dependencies that its authors chose. Sidecars share none of
 * them, so each is built by itself, for the tests that need it.
 *
 * @param log receives a line for each step, with the seconds since the start
 * @throws {Error} when there is no Go and none can be fetched, or when the build fails
 */
export async function ensureSidecar(name: Sidecar, log: (line: string) => void): Promise<string> {
  return join(await ensureBuilt(name, sidecarModule(name), log), name);
}

/**
 * Returns the path of helm, which needs no libraries. It is built for the tests that need it.
 *
 * @param log receives a line for each step, with the seconds since the start
 * @throws {Error} when there is no Go and none can be fetched, or when the build fails
 */
export async function ensureHelm(log: (line: string) => void): Promise<string> {
  return join(await ensureBuilt("helm", helmModule(), log), "helm");
}

/**
 * Returns the path of the official snapshot-controller, which is built with csi-snapshotter.
 *
 * @param log receives a line for each step, with the seconds since the start
 * @throws {Error} when there is no Go and none can be fetched, or when the build fails
 */
export async function ensureSnapshotController(log: (line: string) => void): Promise<string> {
  return join(await ensureBuilt("csi-snapshotter", sidecarModule("csi-snapshotter"), log), "snapshot-controller");
}

/**
 * Returns a folder with the CRDs of snapshots and group snapshots, each in a file, which the official snapshot-controller
 * requires. They are fetched on first use, and kept in the cache folder.
 *
 * @param log receives a line for each step, with the seconds since the start
 * @throws {Error} when there is no Go and none can be fetched, or when the module cannot be fetched
 */
export async function ensureSnapshotCrds(log: (line: string) => void): Promise<string> {
  const version = VERSIONS["csi-snapshotter"];
  const path = `github.com/kubernetes-csi/external-snapshotter/client/v${version.split(".")[0]}`;
  return await ensureCached(`group-snapshot-crds-${version}`, log, async (temp, into) => {
    const crds = join(await fetchGoModule(path, version, { temp, log }), "config/crd");
    for await (const { name } of Deno.readDir(crds)) {
      // beside them is how to apply them all
      if (/^(?:group)?snapshot\.storage\.k8s\.io_/.test(name)) await Deno.copyFile(join(crds, name), join(into, name));
    }
  });
}

/** Returns the folder with the programs of a module. */
async function ensureBuilt(name: string, module: GoModule, log: (line: string) => void): Promise<string> {
  const key = await cacheKey(JSON.stringify(module));
  return await ensureCached(`${name}-${key}`, log, (temp, into) => buildGo(module, { temp, into, log }));
}

/** Returns how the modules of a release are built. */
function releaseModule({ kubernetes }: ReleaseVersions): Pick<GoModule, "replace" | "linkFlags"> {
  const [, minor] = kubernetes.split(".");
  const staged = kubernetes.replace(/^1\./, "0.");
  const version = "k8s.io/component-base/version";
  return {
    replace: Object.fromEntries(STAGING.map((name) => [`k8s.io/${name}`, staged])),
    // Kubernetes has no version of its own when it is built as a module; kubectl and kubelet compare it.
    linkFlags: `-X ${version}.gitVersion=v${kubernetes} -X ${version}.gitMajor=1 -X ${version}.gitMinor=${minor}`,
  };
}

/** Returns one module for all programs, with etcd, so that shared code is fetched and compiled once. */
function kubernetesModule(versions: ReleaseVersions): GoModule {
  const { kubernetes, etcd, language } = versions;
  return {
    name: `Kubernetes ${kubernetes} and etcd ${etcd}`,
    time: "about seven minutes",
    require: { "k8s.io/kubernetes": kubernetes, "go.etcd.io/etcd/server/v3": etcd },
    ...releaseModule(versions),
    packages: [
      ...["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"]
        .map((program) => `k8s.io/kubernetes/cmd/${program}`),
      "go.etcd.io/etcd/server/v3",
    ],
    rename: { server: "etcd" },
    ...(language === undefined ? {} : { language }),
  };
}

function kubernetesTestsModule(versions: ReleaseVersions): GoModule {
  const { kubernetes, language } = versions;
  return {
    name: `the end-to-end tests of Kubernetes ${kubernetes}`,
    time: "about ten minutes",
    require: { "k8s.io/kubernetes": kubernetes },
    ...releaseModule(versions),
    packages: [],
    tests: "k8s.io/kubernetes/test/e2e",
    rename: {},
    ...(language === undefined ? {} : { language }),
  };
}

/** Programs of the same module as a sidecar. */
const EXTRA_PROGRAMS: { readonly [S in Sidecar]?: readonly string[] } = { "csi-snapshotter": ["snapshot-controller"] };

function sidecarModule(program: Sidecar): GoModule {
  const version = VERSIONS[program];
  const path = `github.com/kubernetes-csi/${program.replace("csi-", "external-")}/v${version.split(".")[0]}`;
  return {
    name: `${program} ${version}`,
    time: "about three minutes",
    require: { [path]: version },
    replace: {},
    linkFlags: `-X main.version=v${version}`,
    packages: [program, ...EXTRA_PROGRAMS[program] ?? []].map((name) => `${path}/cmd/${name}`),
    rename: {},
  };
}

function helmModule(): GoModule {
  const path = `helm.sh/helm/v${VERSIONS.helm.split(".")[0]}`;
  return {
    name: `Helm ${VERSIONS.helm}`,
    time: "several minutes",
    require: { [path]: VERSIONS.helm },
    replace: {},
    linkFlags: "",
    packages: [`${path}/cmd/helm`],
    rename: {},
  };
}
