/**
 * Situations of the API server and of controllers.
 *
 * @module
 */

import { by, type Situation } from "./situation.ts";

/** The situations. */
export const CONTROL_PLANE: readonly Situation[] = [
  {
    seen: ["openshift-docs#33930"],
    happened: "etcd is restored, and watches are silent for ever.",
    here: "A silent watch is begun again with a list.",
    shown: [by("k8s/runtime/informer_test.ts", "Informer: lists again after a restore of etcd")],
  },
  {
    seen: ["democratic-csi#84", "exoscale-csi-driver#12", "k3s#2243", "external-provisioner#556"],
    happened: "The datastore is slow, and controllers restart again and again.",
    here: "Who loses its Lease pauses; no process restarts.",
    shown: [
      by("k8s/runtime/leader_test.ts", "who cannot renew ends before another may begin, and comes back later"),
      by("tests/cluster/suite/chaos_api_suite.ts", "nothing is lost, no retry storm follows, no process restarts"),
    ],
  },
  {
    seen: ["microk8s#3419"],
    happened: "A storage driver overloads the datastore of a small cluster.",
    here: "An idle node sends a request in two minutes.",
    shown: [by("tests/cluster_fake/request_counts_test.ts", "an idle node renews its Lease every two minutes")],
  },
  {
    seen: ["kubernetes#101695"],
    happened: "What a user has written controls the terminal of who reads it.",
    here: "Messages have no control characters.",
    shown: [
      by("base/error_test.ts", "the message of a StorageError has no characters that move a cursor"),
      by("k8s/runtime/event_correlator_test.ts", "replaces the control characters of a message"),
    ],
  },
  {
    seen: ["ceph-csi#3397", "aws-ebs-csi-driver#1390", "democratic-csi#194"],
    happened: "An upgrade changes a selector, which cannot be changed.",
    here: "Selectors are the same, whatever the values.",
    shown: [by("deploy/chart_test.ts", "and selectors are those of the pods, and the same")],
  },
];
