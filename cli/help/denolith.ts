/**
 * The driver as a program: its subcommands, and the topics of its help.
 *
 * @module
 */

import { CACHE_VARIABLES, EXIT_STATUS_TOPIC, type Program, type Topic } from "../command_line.ts";
import { SUBCOMMANDS } from "../subcommands.ts";

const ENVIRONMENT: Topic = {
  summary: "The environment variables that denolith reads",
  about: "Flags take precedence over variables.",
  rows: [
    ["CSI_ENDPOINT", "Default of --endpoint. It is checked as the flag is."],
    [
      "KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT",
      "Address of the API server without --kubeconfig; Kubernetes sets them in pods.",
    ],
    ...CACHE_VARIABLES,
  ],
};

const FILTERS: Topic = {
  summary: "How lists select volume groups",
  about:
    "--volume-groups is a list of names and patterns, separated by commas. It selects the volume groups that one of " +
    "them matches. IO limits such as --read-iops-per-gib are lists of GROUP=RATE; the first one that matches applies.",
  rows: [
    ["data", "The volume group with this name."],
    ["/nvme-.*/", "Those whose whole name matches this pattern in the syntax of RE2. Quote it for the shell."],
    ["data,/nvme-.*/", "Either."],
    ["data=100,/.*/=50", "As an IO limit: 100 for the volumes in data, 50 for all others."],
  ],
};

/** The driver. */
export const DENOLITH: Program = {
  name: "denolith",
  executable: "denolith",
  summary: "denolith: a CSI driver for node-local LVM storage",
  commands: SUBCOMMANDS,
  topics: { "exit-status": EXIT_STATUS_TOPIC, environment: ENVIRONMENT, filters: FILTERS },
};
