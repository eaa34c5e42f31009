/**
 * What the suites of the official snapshotter (kubernetes-csi/external-snapshotter: its sidecar controller for snapshots and
 * for group snapshots, and what they share) ask.
 *
 * Not asked: what the snapshot-controller does, what the API server refuses, and options that the driver does not have.
 *
 * @module
 */

import type { VolumeSnapshotContent } from "../../k8s/api/snapshot_objects.ts";
import { readSnapshotClassParameters, type SnapshotOwnerKind } from "../../k8s/sidecars/class_parameters.ts";
import { groupSnapshotNameOf, observedGroupPatch } from "../../k8s/snapshotter/group_content.ts";
import {
  CONTENT_FINALIZER,
  observedPatch,
  snapshotNameOf,
  snapshotRules,
} from "../../k8s/snapshotter/snapshot_content.ts";
import { DRIVER } from "../fake/cluster/control_plane.ts";
import { GROUPS, type Kind, type Outcome, rowsPlayedWith, SNAPSHOTS, type Word } from "./content_player.ts";
import { refused, type Row, SIDECARS, testRows } from "./rows.ts";

/** The codes after which the snapshot may be in the making: Canceled, DeadlineExceeded, Aborted, Unavailable. */
const UNCERTAIN: readonly number[] = [1, 4, 10, 14];

/** ResourceExhausted. */
const EXHAUSTED = 8;

const FAILED = { create: "SnapshotCreationFailed", check: "SnapshotContentCheckandUpdateFailed" };

/** Returns the rows that both kinds have. */
function rowsOf(kind: Kind): Row[] {
  const { className, owner } = kind.fields;
  const [taken, listed] = kind === SNAPSHOTS ? ["taken ready", "taken"] : ["taken 2 listed ready", "taken 2 listed"];
  // the status of a content whose snapshot was there before lists nothing
  const was = kind === SNAPSHOTS ? "taken" : "taken 1 listed";
  const row = rowsPlayedWith(kind);
  const gone = (calls: string): Outcome => [calls, "gone", ""];
  const refusal: Outcome = ["", "unready failed", FAILED.create];
  const toDelete = (...is: Word[]) => ["released", "deleted", ...is] as const;

  return [
    row("taking: a new content", {}, ["create", taken, ""]),
    row("taking: with the secret of the content", { secret: "readable" }, ["create with a secret", taken, ""]),
    row("taking: the secret does not exist", { secret: "missing" }, refusal),
    row("taking: the secret may not be read", { secret: "forbidden" }, refusal),
    row("taking: the secret has an empty name", { secret: "unnamed" }, ["create", taken, ""], SIDECARS),
    row("taking: no class", { spec: { [className]: undefined } }, refusal),
    row("taking: a class that does not exist", { spec: { [className]: "x" } }, refusal),
    row("taking: a class with an unknown key", { classParameters: { "csi.storage.k8s.io/x": "1" } }, refusal),
    row("taking: a class of another driver", { spec: { [className]: "foreign" } }, refusal, SIDECARS),
    row("taking: a content of another driver", { spec: { driver: "other.example" } }, ["", "", ""]),
    row("taking: an owner without a uid", { spec: { [owner]: { namespace: "default", name: "o" } } }, refusal),
    row("taking: before the finalizer is there", { is: ["unprotected"] }, ["", "unprotected", ""], SIDECARS),
    row("taking: an owner that is being deleted", { is: ["released"] }, ["", "", ""], SIDECARS),
    row("taking: an earlier error is removed", { is: ["failed"] }, ["create", taken, ""]),
    ...Array.from({ length: 16 }, (_, index) => index + 1).map((code) => {
      const failed = `${UNCERTAIN.includes(code) ? "marked " : ""}unready failed`;
      const differs = code === EXHAUSTED ? SIDECARS : undefined;
      return row(`taking: gRPC code ${code}`, { answers: [code] }, ["create", failed, FAILED.create], differs);
    }),
    row("taking: an error without a code", { answers: ["no code"] }, [
      "create",
      "marked unready failed",
      FAILED.create,
    ]),
    row(
      "taking: again after an unknown outcome",
      { answers: [4, 14], retries: true },
      ["create, create, create", taken, FAILED.create],
    ),
    row("taking: again after a failure", { answers: [13], retries: true }, ["create, create", taken, FAILED.create]),
    row("taking: not ready", { answers: ["unready"] }, ["create", `${listed} unready`, ""]),

    row("looking: until it is ready", { answers: ["unready", "unready", "ready"], retries: true }, [
      kind === SNAPSHOTS ? "create, find, find" : "create, get, get",
      taken,
      "",
    ]),
    ...lookRows(kind, was),

    row("deleting: with the policy Delete", { is: toDelete("ready") }, gone("delete")),
    row(
      "deleting: with the policy Retain",
      { is: toDelete("ready"), spec: { deletionPolicy: "Retain" } },
      gone(""),
    ),
    row(
      "deleting: with the secret of the content",
      { is: toDelete("ready"), secret: "readable" },
      gone(
        "delete with a secret",
      ),
    ),
    row("deleting: the secret does not exist", { is: toDelete("ready"), secret: "missing" }, gone("delete"), SIDECARS),
    row(
      "deleting: the secret may not be read",
      { is: toDelete("ready"), secret: "forbidden" },
      gone("delete"),
      SIDECARS,
    ),
    row(
      "deleting: the secret has an empty name",
      { is: toDelete("ready"), secret: "unnamed" },
      gone("delete"),
      SIDECARS,
    ),
    row("deleting: the driver fails", { is: toDelete("ready"), answers: [13] }, [
      "delete",
      `${was} ready`,
      "SnapshotDeleteError",
    ]),
    row("deleting: the driver is busy", { is: toDelete("ready"), answers: [10] }, [
      "delete",
      `${was} ready`,
      "SnapshotDeleteError",
    ]),
    row("deleting: again after a failure", { is: toDelete("ready"), answers: [13], retries: true }, [
      "delete, delete",
      "gone",
      "SnapshotDeleteError",
    ]),
    row("deleting: no class", { is: toDelete("ready"), spec: { [className]: undefined } }, gone("delete")),
    row("deleting: a class that does not exist", { is: toDelete("ready"), spec: { [className]: "x" } }, gone("delete")),
    row("deleting: never ready", { is: toDelete("taken") }, gone("delete")),
    row("deleting: never requested", { is: toDelete() }, gone("")),
    row("deleting: the handle is removed already", { is: toDelete("failed") }, gone("")),
    row("deleting: the owner is there", { is: ["ready", "deleted"] }, ["", `${was} ready`, ""]),
    row("deleting: the content is not being deleted", { is: ["ready", "released"] }, ["", `${was} ready`, ""]),
    row("deleting: other finalizers stay", { is: toDelete("ready", "held") }, [
      "delete",
      `unprotected ${was} ready`,
      "",
    ]),
    row("deleting: without the finalizer", { is: toDelete("ready", "held", "unprotected") }, [
      "",
      `unprotected ${was} ready`,
      "",
    ], SIDECARS),
    row("deleting: in the making", { is: toDelete("marked") }, gone("create, delete")),
    row(
      "deleting: in the making, without a class",
      { is: toDelete("marked"), spec: { [className]: "x" } },
      gone(
        "create, delete",
      ),
    ),
    row("deleting: in the making, and the outcome stays unknown", { is: toDelete("marked"), answers: [14] }, [
      "create",
      "marked unready failed",
      FAILED.create,
    ]),
    row(
      "deleting: in the making, and it fails",
      { is: toDelete("marked"), answers: [13], retries: true },
      ["create", "gone", FAILED.create],
    ),
    row(
      "deleting: in the making, with the policy Retain",
      { is: toDelete("marked"), spec: { deletionPolicy: "Retain" } },
      gone(""),
      SIDECARS,
    ),
    row("deleting: given, with the policy Delete", { is: toDelete("given", "ready") }, gone("delete")),
    row(
      "deleting: given, with the policy Retain",
      { is: toDelete("given", "ready"), spec: { deletionPolicy: "Retain" } },
      gone(""),
    ),
    row(
      "deleting: given, without a class",
      { is: toDelete("given", "ready"), spec: { [className]: undefined } },
      gone(
        "delete",
      ),
    ),
    row("deleting: given, and never looked at", { is: toDelete("given") }, gone("delete"), SIDECARS),
    row("deleting: given, without an owner", { is: ["unbound", "ready", "deleted"] }, gone("delete")),
    row(
      "deleting: given, without an owner, with the policy Retain",
      { is: ["unbound", "ready", "deleted"], spec: { deletionPolicy: "Retain" } },
      gone(""),
    ),
    row("deleting: given, with an owner that is there", { is: ["given", "ready", "deleted"] }, [
      "",
      `${was} ready`,
      "",
    ]),
  ];

  function lookRows(kind: Kind, was: string): Row[] {
    const look = kind === SNAPSHOTS ? "find" : "get";
    const failed: Outcome = ["", "unready failed", FAILED.check];
    return [
      row("looking: taken before, ready now", { is: ["taken"] }, [look, `${was} ready`, ""]),
      row("looking: taken before, not ready yet", { is: ["taken"], answers: ["unready"] }, [
        look,
        `${was} unready`,
        "",
      ]),
      row("looking: ready before", { is: ["ready"] }, ["", `${was} ready`, ""]),
      row("looking: ready before, with the mark", { is: ["ready", "marked"] }, ["", `${was} ready`, ""]),
      row(
        "looking: the class is gone",
        { is: ["taken"], spec: { [className]: "x" } },
        [look, `${was} ready`, ""],
        SIDECARS,
      ),
      row("looking: given", { is: ["given"] }, [look, "taken ready", ""]),
      row("looking: given, without an owner", { is: ["unbound"] }, [look, "taken ready", ""]),
      row("looking: given, without a class", { is: ["given"], spec: { [className]: undefined } }, [
        look,
        "taken ready",
        "",
      ]),
      row(
        "looking: given, and the class is gone",
        { is: ["given"], spec: { [className]: "x" } },
        [look, "taken ready", ""],
        SIDECARS,
      ),
      row("looking: given, not ready yet", { is: ["given"], answers: ["unready"] }, [look, "taken unready", ""]),
      row("looking: given, ready before", { is: ["given", "ready"] }, ["", `${was} ready`, ""]),
      row("looking: given, unknown to the driver", { is: ["given", "unknown"] }, [
        look,
        "unready failed",
        FAILED.check,
      ]),
      row("looking: given, the driver does not answer", { is: ["given"], answers: [14] }, [
        look,
        "unready failed",
        FAILED.check,
      ]),
      row("looking: given, found after a failure", { is: ["given"], answers: [14], retries: true }, [
        `${look}, ${look}`,
        "taken ready",
        FAILED.check,
      ]),
      row("looking: with the secret of the class", { is: ["given"], lookupSecret: "readable" }, [
        `${look} with a secret`,
        "taken ready",
        "",
      ]),
      row("looking: the secret of the class does not exist", { is: ["given"], lookupSecret: "missing" }, failed),
      row("looking: the secret of the class may not be read", { is: ["given"], lookupSecret: "forbidden" }, failed),
      row("looking: the secret of the class has no name", { is: ["given"], lookupSecret: "unnamed" }, failed),
    ];
  }
}

testRows("csi-snapshotter", rowsOf(SNAPSHOTS));
testRows("csi-snapshotter, groups", [
  ...rowsOf(GROUPS),
  rowsPlayedWith(GROUPS)(
    "deleting: no snapshot is known",
    {
      is: ["given", "released", "deleted"],
      spec: { source: { groupSnapshotHandles: { volumeGroupSnapshotHandle: "g" } } },
    },
    ["delete", "gone", ""],
    SIDECARS,
  ),
]);

const member = rowsPlayedWith(SNAPSHOTS);
testRows("csi-snapshotter, snapshots of a group", [
  member("not taken alone", { is: ["member"] }, ["", "", ""]),
  member("not ready yet", { is: ["member", "taken"] }, ["find", "taken ready", ""]),
  member("not ready yet, as the status says", { is: ["member by status", "taken"] }, ["find", "taken ready", ""]),
  member("ready", { is: ["member", "ready"] }, ["", "taken ready", ""]),
  member("not deleted alone", { is: ["member by status", "ready", "released", "deleted"] }, ["", "gone", ""]),
  member("not deleted alone, before its status says so", { is: ["member", "ready", "released", "deleted"] }, [
    "",
    "gone",
    "",
  ], SIDECARS),
]);

const readsParameters = (ownerKind: SnapshotOwnerKind, parameters: Record<string, string>) => () =>
  readSnapshotClassParameters(parameters, { contentName: "content", ownerKind });

for (const { ownerKind, lookup } of [SNAPSHOTS, GROUPS]) {
  const [name, namespace, taking] = [`${lookup}-name`, `${lookup}-namespace`, lookup.replace(/-(?:list|get)-/, "-")];
  const reads = (parameters: Record<string, string>) => readsParameters(ownerKind, parameters);
  const secret = (parameters: Record<string, string>) => () => reads(parameters)().lookupSecret;
  const own = (parameters: Record<string, string>) => () => reads(parameters)().parameters;
  const token = `\${${ownerKind.toLowerCase()}content.name}`;
  testRows(`csi-snapshotter: parameters of a ${ownerKind}Class`, [
    ["no reserved key", own({ snapSize: "1Gi", csiFoo: "x" }), { snapSize: "1Gi", csiFoo: "x" }],
    ["one reserved key", own({ [`${taking}-name`]: "s", a: "1" }), { a: "1" }],
    [
      "all reserved keys",
      own({ [`${taking}-name`]: "s", [`${taking}-namespace`]: "n", [name]: "s", [namespace]: "n" }),
      {},
    ],
    ["an unknown reserved key", reads({ "csi.storage.k8s.io/x": "1" }), refused("there is no such key")],
    ["nothing", own({}), {}],
    ["no secret", secret({}), undefined],
    ["a secret", secret({ [name]: "s", [namespace]: "n" }), { name: "s", namespace: "n" }],
    ["a namespace alone", secret({ [namespace]: "n" }), refused("one of them is missing")],
    ["an invalid name", secret({ [name]: "bad name", [namespace]: "n" }), refused("not a valid name")],
    ["the content's name", secret({ [name]: `s-${token}`, [namespace]: "n" }), { name: "s-content", namespace: "n" }],
    [
      "what only the owner knows",
      secret({ [name]: "\${volumesnapshot.annotations['key']}", [namespace]: "n" }),
      refused("is not known here"),
    ],
  ]);
}

const before: VolumeSnapshotContent = {
  metadata: { name: "content", annotations: { "example.com/a": "1" }, resourceVersion: "1" },
  spec: { driver: DRIVER, deletionPolicy: "Delete", source: {}, volumeSnapshotRef: {} },
};
/** Reports whether a change of a content is a reason to look at it again. */
const isLookedAt = (now: { metadata?: object; spec?: object; status?: object }) => () => {
  const { metadata, spec, status } = now;
  const after = { metadata: { ...before.metadata, ...metadata }, spec: { ...before.spec, ...spec }, status };
  return snapshotRules.reconcileInputs(after as VolumeSnapshotContent) !== snapshotRules.reconcileInputs(before);
};
const annotated = (annotations: Record<string, string>) =>
  isLookedAt({ metadata: { annotations: { ...before.metadata.annotations, ...annotations } } });

testRows("csi-snapshotter: changes after which a content is looked at", [
  ["none", isLookedAt({}), false],
  ["the class", isLookedAt({ spec: { volumeSnapshotClassName: "other" } }), true],
  ["an error in the status", isLookedAt({ status: { error: { message: "no" } } }), false],
  ["managed fields", isLookedAt({ metadata: { managedFields: [{ manager: "x" }] } }), false],
  ["finalizers of others", isLookedAt({ metadata: { finalizers: ["example.com/other"] } }), false],
  ["the finalizer", isLookedAt({ metadata: { finalizers: [CONTENT_FINALIZER] } }), true, SIDECARS],
  ["the mark of a request", annotated({ [snapshotRules.traits.beingCreated]: "yes" }), false],
  ["the mark of an owner that is being deleted", annotated({ [snapshotRules.traits.beingDeleted]: "yes" }), true],
  ["another annotation", annotated({ "example.com/a": "2" }), false, SIDECARS],
  ["ready now", isLookedAt({ status: { readyToUse: true } }), false, "the attempt that writes it goes on"],
]);

const NOW = new Date("2026-01-01T00:00:00Z");
const CREATED = { creationTimeNs: 1_767_225_600_000_000_000n, sizeBytes: 1n, readyToUse: true };
const writes = (status: VolumeSnapshotContent["status"], created: object) => () =>
  observedPatch({ ...before, status: status! }, { snapshotId: "s", ...CREATED, ...created }, NOW)?.status;
const OF_GROUP = { snapshotId: "s", volumeId: "a", ...CREATED };
const writesOfGroup = (status: object | undefined, created: object) => () => {
  const spec = {
    driver: DRIVER,
    deletionPolicy: "Delete",
    source: { volumeHandles: ["a"] },
    volumeGroupSnapshotRef: {},
  };
  const content = { metadata: before.metadata, spec, status } as Parameters<typeof observedGroupPatch>[0];
  return observedGroupPatch(content, { groupSnapshotId: "g", ...CREATED, snapshots: [OF_GROUP], ...created }, NOW)
    ?.status;
};
const [TIME, LISTED] = ["2026-01-01T00:00:00Z", [{
  ...{ volumeHandle: "a", snapshotHandle: "s", restoreSize: 1, readyToUse: true },
  creationTime: 1_767_225_600_000_000_000,
}]];
const SAID = { snapshotHandle: "s", creationTime: 1, restoreSize: 1, readyToUse: true };

testRows("csi-snapshotter: what the status says", [
  [
    "no creation time: the present one",
    () => writes(undefined, { creationTimeNs: 0n })()?.creationTime,
    NOW.getTime() * 1e6,
  ],
  ["no size: none", () => writes(undefined, { sizeBytes: 0n })()?.restoreSize, undefined],
  ["all said already", writes(SAID, {}), undefined],
  ["a handle that was said before stays", writes({ ...SAID, snapshotHandle: "first" }, {}), undefined],
  ["ready now", writes({ ...SAID, readyToUse: false }, {}), { readyToUse: true }],
  ["ready now, after an error", writes({ ...SAID, readyToUse: false, error: {} }, {}), {
    readyToUse: true,
    error: null,
  }],
  ["its group", writes(SAID, { groupSnapshotId: "g" }), { volumeGroupSnapshotHandle: "g" }],
  ["a group without a status", writesOfGroup(undefined, {}), {
    ...{ volumeGroupSnapshotHandle: "g", creationTime: TIME, readyToUse: true, volumeSnapshotInfoList: LISTED },
  }],
  [
    "a group without a creation time: the present one",
    () => writesOfGroup(undefined, { creationTimeNs: 0n })()?.creationTime,
    TIME,
  ],
  [
    "a group whose snapshots are not listed yet",
    writesOfGroup({ volumeGroupSnapshotHandle: "first", creationTime: TIME, readyToUse: false }, {}),
    { readyToUse: true, volumeSnapshotInfoList: LISTED },
  ],
  [
    "a group of which all is said already",
    writesOfGroup({
      volumeGroupSnapshotHandle: "g",
      creationTime: TIME,
      readyToUse: true,
      volumeSnapshotInfoList: LISTED,
    }, {}),
    undefined,
  ],
  ["the name of a request", () => snapshotNameOf("uid"), "snapshot-uid"],
  ["the name of a request for a group", () => groupSnapshotNameOf("uid"), "groupsnapshot-uid"],
]);
