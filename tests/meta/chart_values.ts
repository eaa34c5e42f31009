/**
 * The values with which tests render the chart: the defaults, and a different value for each.
 *
 * @module
 */

import type { RenderOptions, Values } from "../../deploy/chart.ts";

/** Another value for each that the chart has. */
export const OTHER_VALUES: Values = {
  global: { imageRegistry: "registry.example" },
  commonLabels: { "example.com/team": "storage" },
  driverName: "storage.example",
  docsUrl: "https://example.com/denolith/docs",
  crds: { enabled: true, annotations: { "kustomize.toolkit.fluxcd.io/prune": "disabled" } },
  kubeletDir: "/var/lib/k0s/kubelet",
  volumeGroups: ["data", "/fast-.*/"],
  diskRules: ["data=/nvme-.*/;min=100Gi;rotational=no", "slow=/ata-.*/"],
  topologyLabels: ["topology.kubernetes.io/zone", "rack"],
  lvm: {
    configDir: "/var/lib/denolith/lvm",
    archiveDir: "/var/lib/denolith/archive",
    devicesFile: "denolith.devices",
    systemId: "$(NODE_NAME)",
    settings: ["devices/issue_discards=1", 'devices/global_filter=["r|/dev/dm-.*|"]'],
  },
  hostPaths: {
    lvmLocks: "/var/lock/lvm",
    cryptsetupLocks: "/var/lock/cryptsetup",
    udev: "/dev/.udev",
    cgroup: "/sys/fs/cgroup/unified",
    cache: "/var/lib/denolith/cache",
    machineId: "/etc/machine-id",
  },
  ioLimits: {
    readIopsPerGiB: "data=100,/fast-.*/=500",
    writeIopsPerGiB: "data=50",
    readBpsPerGiB: "data=4Mi",
    writeBpsPerGiB: "data=2Mi",
  },
  thinPool: { overcommit: "2.5", autoextendThreshold: 70, autoextendPercent: 30, removeEmpty: true },
  snapshotAutoextend: "50:100",
  transfer: { enabled: true, port: 9910, bandwidth: "100Mi", networkPolicy: false },
  image: {
    repository: "registry.example/storage/denolith",
    tag: "0.2.0-rc.1",
    digest: `sha256:${"ab".repeat(32)}`,
    pullPolicy: "Always",
    pullSecrets: [{ name: "registry" }],
  },
  log: { level: "debug", format: "text" },
  node: {
    nodeSelector: { disks: "yes" },
    tolerations: [{ key: "dedicated", operator: "Equal", value: "storage", effect: "NoSchedule" }],
    affinity: {
      nodeAffinity: {
        requiredDuringSchedulingIgnoredDuringExecution: {
          nodeSelectorTerms: [{ matchExpressions: [{ key: "disks", operator: "Exists" }] }],
        },
      },
    },
    priorityClassName: "storage",
    resources: { requests: { cpu: "50m" }, limits: { memory: "512Mi" } },
    updateStrategy: { type: "OnDelete", rollingUpdate: null },
    disableRegistration: true,
    extraArgs: ["--thin-pool-remove-empty"],
    podLabels: { "example.com/zone": "a" },
    podAnnotations: { "prometheus.io/scrape": "false", "example.com/owner": "storage" },
    serviceAccount: { create: true, name: "storage-node", annotations: { "example.com/role": "node" } },
    extraEnv: [{ name: "TZ", value: "Europe/Vienna" }],
    extraVolumes: [{ name: "ca", configMap: { name: "company-ca" } }],
    extraVolumeMounts: [{ name: "ca", mountPath: "/etc/company", readOnly: true }],
  },
  controller: {
    replicas: 2,
    nodeSelector: { "node-role.kubernetes.io/control-plane": "" },
    tolerations: [],
    affinity: { podAntiAffinity: null },
    priorityClassName: "storage",
    resources: { limits: { memory: "1Gi" } },
    v8Flags: "--max-old-space-size=4096",
    podDisruptionBudget: { create: true, maxUnavailable: "50%" },
    disableControllers: ["provisioner", "resizer", "snapshotter", "capacity"],
    importRights: false,
    extraArgs: ["--disable-process-metrics"],
    podLabels: { "example.com/zone": "b" },
    podAnnotations: { "prometheus.io/scrape": "false", "example.com/owner": "storage" },
    serviceAccount: { create: true, name: "storage-controller", annotations: { "example.com/role": "controller" } },
    topologySpreadConstraints: [{ maxSkew: 1, topologyKey: "zone", whenUnsatisfiable: "ScheduleAnyway" }],
    extraContainers: [{
      name: "csi-provisioner",
      image: "csi-provisioner",
      args: ["--csi-address=/run/denolith/csi.sock"],
      volumeMounts: [{ name: "socket", mountPath: "/run/denolith" }],
    }],
    extraEnv: [{ name: "TZ", value: "Europe/Vienna" }],
    extraVolumes: [{ name: "tls", secret: { secretName: "tls" } }],
    extraVolumeMounts: [{ name: "tls", mountPath: "/etc/tls", readOnly: true }],
  },
  storageClasses: [
    {
      name: "fast",
      default: true,
      labels: { "example.com/tier": "gold" },
      annotations: { "resize.example.com/enabled": "true" },
      volumeBindingMode: "Immediate",
      reclaimPolicy: "Retain",
      allowVolumeExpansion: false,
      mountOptions: ["noatime", "nosuid"],
      allowedTopologies: [{ matchLabelExpressions: [{ key: "rack", values: ["1", "2"] }] }],
      parameters: { volumeGroupPattern: "fast-.*", shared: "no", "csi.storage.k8s.io/fstype": "xfs" },
    },
    { name: "plain" },
  ],
  snapshotClass: {
    create: true,
    name: "kept",
    default: true,
    labels: { "velero.io/csi-volumesnapshot-class": "true" },
    annotations: { "k10.kasten.io/is-snapshot-class": "true" },
    deletionPolicy: "Retain",
    parameters: { snapSize: "20%" },
  },
  groupSnapshotClass: {
    create: true,
    name: "kept",
    default: true,
    labels: { "velero.io/csi-volumesnapshot-class": "true" },
    annotations: { "k10.kasten.io/is-snapshot-class": "true" },
    deletionPolicy: "Retain",
    parameters: { snapSize: "30%" },
  },
  seLinux: { mount: true },
  encryption: { republish: true },
  securityContextConstraints: { create: true },
  metrics: {
    podMonitor: {
      create: true,
      labels: { release: "prometheus" },
      interval: "45s",
      relabelings: [{ regex: "a", action: "labeldrop" }],
    },
    prometheusRule: { create: true, labels: { release: "prometheus" } },
    dashboard: { create: true, labels: { grafana_dashboard: "yes" } },
  },
};

/** A cluster that can have a VolumeSnapshotClass. */
export const SNAPSHOT_API = "snapshot.storage.k8s.io/v1";

/** A cluster that can have a VolumeGroupSnapshotClass. */
export const GROUP_SNAPSHOT_API = "groupsnapshot.storage.k8s.io/v1";

/** A cluster that has SecurityContextConstraints. */
export const OPENSHIFT_API = "security.openshift.io/v1";

/** Ways to render the chart, by what they show. */
export const RENDERINGS: Readonly<Record<string, RenderOptions>> = {
  "as it is": {},
  "every value another one": {
    values: OTHER_VALUES,
    namespace: "storage",
    apiVersions: [SNAPSHOT_API, GROUP_SNAPSHOT_API, OPENSHIFT_API],
  },
  "no classes": {
    values: {
      ...{ storageClasses: [], snapshotClass: { create: false }, groupSnapshotClass: { create: false } },
      node: { tolerations: [] },
    },
    apiVersions: [SNAPSHOT_API, GROUP_SNAPSHOT_API],
  },
};
