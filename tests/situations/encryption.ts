/**
 * Situations of encrypted volumes.
 *
 * @module
 */

import { by, type Situation } from "./situation.ts";

/** The situations. */
export const ENCRYPTION: readonly Situation[] = [
  {
    seen: ["ceph-csi#3781", "otaru#2785"],
    happened: "Each derivation of a key takes half of the node's memory.",
    here: "Each takes 64 MiB, and one runs at a time.",
    shown: [
      by("lvm/encryption/encryption_test.ts", "one key is derived at a time, since each derivation takes much memory"),
    ],
  },
  {
    seen: ["talos#10473", "ceph-csi#5306", "community.crypto#844"],
    happened: "A passphrase is cut at a newline, or shown in the list of processes.",
    here: "Each byte counts, and it is shown nowhere.",
    shown: [
      by(
        "lvm/encryption/passphrase_test.ts",
        "a passphrase is given to a program each time byte for byte, and shown nowhere",
      ),
      by("tests/contract/hostile_secrets_suite.ts", "passphrases are the bytes that they are"),
    ],
  },
  {
    seen: ["ceph-csi#1469", "osc-bsu-csi-driver#837"],
    happened: "An encrypted volume does not grow without its passphrase.",
    here: "It grows under its pod.",
    shown: [by("tests/contract/encryption_suite.ts", "staged, published, expanded while in use, and back")],
  },
];
