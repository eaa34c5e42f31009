/**
 * `kubectl denolith dump`: writes one archive for a support case: objects, events, logs, and what the other subcommands say.
 *
 * @module
 */

import manifest from "../../deno.json" with { type: "json" };
import { messageOf } from "../../base/error.ts";
import { DRIVER_NAME_LABEL } from "../../k8s/api/agent_leases.ts";
import { CLAIM_ANNOTATION, lvmNodes, lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import {
  csiStorageCapacities,
  type Event,
  events,
  keyOf,
  type KubeObject,
  leases,
  nodes,
  persistentVolumeClaims,
  persistentVolumes,
  type Pod,
  pods,
  storageClasses,
} from "../../k8s/api/objects.ts";
import { claimNamesOf } from "../../k8s/api/pods.ts";
import {
  volumeGroupSnapshotContents,
  volumeGroupSnapshots,
  volumeSnapshotContents,
  volumeSnapshots,
} from "../../k8s/api/snapshot_objects.ts";
import { lvmImports } from "../../k8s/handover/imports.ts";
import { lvmMoves } from "../../k8s/handover/moves.ts";
import { classNameOf, provisionerOf } from "../../k8s/provisioner/claim.ts";
import { EXIT } from "../../cli/command_line.ts";
import { archive, Mask } from "../archive.ts";
import { readClaimState } from "../diagnosis/claim_state.ts";
import { LenientReader, readClusterState } from "../diagnosis/cluster_state.ts";
import { overviewOf } from "../diagnosis/overview.ts";
import { explainClaim } from "../diagnosis/why.ts";
import { toPlain } from "../output.ts";
import { seconds } from "../plugin_flags.ts";
import type { Session } from "../session.ts";
import { diagnoseAll } from "./doctor.ts";

/** The label of the driver's pods. */
const OWN_PODS = ["app.kubernetes.io/name", "denolith"] as const;

/** What a name may be a part of, and is no name of anybody. */
const KEPT_WORDS = ["lvm.denolith.dev", "storage.k8s.io", "snapshot.storage.k8s.io", "groupsnapshot.storage.k8s.io"];

/** The end of the log of a container that is taken: its lines, and its bytes. */
const LOG_LIMITS = "tailLines=5000&limitBytes=2000000";

/** The most claims with problems that are explained. */
const MAX_EXPLAINED = 20;

/** Namespaces that each cluster has. */
const COMMON_NAMESPACES = /^(?:default|kube-.*)$/;

/** Writes the archive on standard output. @returns 0 @throws {UsageError} on a terminal */
export async function dump(session: Session): Promise<number> {
  const { client, driver, flags, now, subject } = session;
  session.requirePipe("kubectl denolith dump > denolith.tar.gz");
  const { definitions } = client;
  const state = await readClusterState(client, driver, now, { withClaims: true, definitions });
  const reader = new LenientReader(client);
  const objects = await readObjects(reader, driver);
  const overview = overviewOf(state);
  const unread = new Set(state.unread);
  /** Reads something that may fail, and notes why it did. */
  const attempt = async <R>(what: string, read: () => Promise<R>): Promise<R | undefined> => {
    try {
      return await read();
    } catch (error) {
      if (session.signal.aborted) throw error;
      unread.add(`${what}: ${messageOf(error)}`);
      return undefined;
    }
  };
  const claims = overview.problems.map(({ object }) => /^claim\/(.+)\/(.+)$/.exec(object)).filter((match) =>
    match !== null
  );
  const answers: unknown[] = [];
  for (const [, namespace, name] of claims.slice(0, MAX_EXPLAINED)) {
    const at = { driver, namespace: namespace!, name: name!, now };
    answers.push(await attempt(`why ${name}`, async () => explainClaim(await readClaimState(client, at))));
  }
  const readLogs = async (pod: Pod, container: string): Promise<[file: string, text: string][]> => {
    const { namespace, name } = pod.metadata;
    const path = `/api/v1/namespaces/${namespace}/pods/${name}/log?container=${container}&${LOG_LIMITS}`;
    const read = (path: string) => client.readPath(path, { signal: session.signal });
    const log = await attempt(`log of ${name} ${container}`, () => read(path));
    // that of a container that was not started again does not exist
    const before = await read(`${path}&previous=true`).catch(() => "");
    const file = `logs/${name}.${container}`;
    return [
      ...(log === undefined ? [] : [[`${file}.log`, log] as [string, string]]),
      ...(before === "" ? [] : [[`${file}.previous.log`, before] as [string, string]]),
    ];
  };
  const containers = objects.pods.filter(ownPodsBy(objects.leases)).flatMap((pod) =>
    [...pod.spec?.initContainers ?? [], ...pod.spec?.containers ?? []].map(({ name }) => ({ pod, name }))
  );
  const logs = (await Promise.all(containers.map(({ pod, name }) => readLogs(pod, name)))).flat();
  session.signal.throwIfAborted();
  const wait = seconds(flags["timeout"]!, "--timeout");
  const doctor = flags["skip-doctor"] === undefined
    ? await attempt("doctor", () => diagnoseAll(session, wait))
    : undefined;
  const kubernetes = await attempt("version", async () => JSON.parse(await client.readPath("/version")));
  for (const what of reader.unreadKinds()) unread.add(what);
  const about = {
    ...{ version: manifest.version, kubernetes, driver, created: now.toISOString() },
    ...{ context: subject.context, unread: [...unread] },
  };
  const isMasked = flags.mask !== undefined;
  const mask = new Mask(isMasked ? namesIn(objects, subject.context) : {}, [driver, ...KEPT_WORDS]);
  const clean = (object: KubeObject) => isMasked ? withoutForeignMetadata(object) : object;
  const data = { dump: about, status: overview, why: answers, ...(doctor && { doctor }) };
  const toJson = (value: object) => isMasked ? mask.json(toPlain(value)) : JSON.stringify(toPlain(value), null, 2);
  const files = new Map([
    ...Object.entries(data).map(([name, value]) => [`${name}.json`, toJson(value)] as const),
    ...Object.entries(objects).map(([name, list]) => [`objects/${name}.json`, toJson(list.map(clean))] as const),
    ...logs.map(([name, text]) => isMasked ? [mask.text(name), mask.text(text)] as const : [name, text] as const),
  ]);
  await session.write(archive(new Map([...files].map(([name, text]) => [`denolith-dump/${name}`, `${text}\n`])), now));
  for (const what of unread) session.noteOnce(`Not read: ${what}`);
  return EXIT.success;
}

/** Reads the objects that have a part in what the driver does, by their plural names. */
async function readObjects(reader: LenientReader, driver: string) {
  const ofDriver = ({ spec }: { spec: { driverName: string } }) => spec.driverName === driver;
  const [classes, volumes, allClaims, contents, groupContents, allPods] = await Promise.all([
    reader.list(storageClasses).then((all) => all.filter(({ provisioner }) => provisioner === driver)),
    reader.list(persistentVolumes).then((all) => all.filter(({ spec }) => spec?.csi?.driver === driver)),
    reader.list(persistentVolumeClaims),
    reader.list(volumeSnapshotContents).then((all) => all.filter(({ spec }) => spec.driver === driver)),
    reader.list(volumeGroupSnapshotContents).then((all) => all.filter(({ spec }) => spec.driver === driver)),
    reader.list(pods),
  ]);
  const isOfClass = (name: string | undefined) => classes.some(({ metadata }) => metadata.name === name);
  const keysOf = (refs: readonly ({ namespace?: string; name?: string } | undefined)[]) =>
    new Set(refs.map((ref) => `${ref?.namespace}/${ref?.name}`));
  const bound = keysOf(volumes.map(({ spec }) => spec?.claimRef));
  const claims = allClaims.filter((claim) =>
    bound.has(keyOf(claim)) || provisionerOf(claim) === driver || isOfClass(classNameOf(claim))
  );
  const ofClaims = new Set(claims.map(keyOf));
  const usesClaims = (pod: Pod) => claimNamesOf(pod).some((name) => ofClaims.has(`${pod.metadata.namespace}/${name}`));
  const requests = keysOf(contents.map(({ spec }) => spec.volumeSnapshotRef));
  const groupRequests = keysOf(groupContents.map(({ spec }) => spec.volumeGroupSnapshotRef));
  const ownLeases = (await reader.list(leases)).filter(({ metadata: { name, labels } }) =>
    name.includes(driver.replaceAll(".", "-")) || labels?.[DRIVER_NAME_LABEL] === driver
  );
  const isOwn = ownPodsBy(ownLeases);
  const objects = {
    lvmnodes: (await reader.list(lvmNodes)).filter(ofDriver),
    lvmvolumes: (await reader.list(lvmVolumes)).filter(ofDriver),
    lvmsnapshots: (await reader.list(lvmSnapshots)).filter(ofDriver),
    lvmmoves: (await reader.list(lvmMoves)).filter(ofDriver),
    lvmimports: (await reader.list(lvmImports)).filter(ofDriver),
    nodes: (await reader.list(nodes)).map(({ metadata, spec, status }) => ({
      metadata,
      spec: { unschedulable: spec?.unschedulable }, // others name providers and networks
      status: { ...status, images: [] },
    })),
    ...{ storageclasses: classes, persistentvolumes: volumes, persistentvolumeclaims: claims },
    ...{ volumesnapshotcontents: contents, volumegroupsnapshotcontents: groupContents },
    volumesnapshots: (await reader.list(volumeSnapshots)).filter((one) =>
      requests.has(keyOf(one)) || one.status?.boundVolumeSnapshotContentName === undefined // maybe of the driver
    ),
    volumegroupsnapshots: (await reader.list(volumeGroupSnapshots)).filter((one) => groupRequests.has(keyOf(one))),
    csistoragecapacities: (await reader.list(csiStorageCapacities)).filter((one) => isOfClass(one.storageClassName)),
    leases: ownLeases,
    pods: allPods.filter((pod) => isOwn(pod) || usesClaims(pod)).map((pod) => shortPod(pod, isOwn(pod))),
  };
  const uids = new Set(Object.values(objects).flat().map(({ metadata }) => metadata.uid));
  const isAbout = ({ involvedObject: { uid }, source, reportingComponent }: Event) =>
    (uid !== undefined && uids.has(uid)) || `${source?.component} ${reportingComponent}`.includes(driver);
  const all = { ...objects, events: (await reader.list(events)).filter(isAbout) };
  return Object.fromEntries(
    Object.entries(all).map(([name, list]) => [name, (list as KubeObject[]).map(withoutCopies)]),
  ) as unknown as typeof all;
}

/** Returns what reports whether a pod is the driver's: anybody may give the label to a pod, but not in a namespace of its leases. */
function ownPodsBy(ownLeases: readonly KubeObject[]): (pod: Pod) => boolean {
  const namespaces = new Set(ownLeases.map(({ metadata }) => metadata.namespace));
  return ({ metadata: { namespace, labels } }) => labels?.[OWN_PODS[0]] === OWN_PODS[1] && namespaces.has(namespace);
}

/** Returns a pod without its environment, which may have secrets: of those of others, only what is theirs of claims. */
function shortPod(pod: Pod, isOwn: boolean): Pod {
  const { metadata, spec, status } = pod;
  const { nodeName, volumes = [], containers = [], initContainers = [] } = spec ?? {};
  const short = ({ name, image, args, resources }: typeof containers[number]) => ({ name, image, args, resources });
  const ofOthers = { nodeName, volumes: volumes.filter((one) => one.persistentVolumeClaim || one.ephemeral) };
  const ofDriver = { ...ofOthers, containers: containers.map(short), initContainers: initContainers.map(short) };
  const { phase, conditions, containerStatuses, startTime } = status ?? {};
  return {
    metadata: isOwn ? metadata : { ...metadata, annotations: {}, labels: {} },
    spec: isOwn ? ofDriver : { ...ofOthers, containers: [] },
    status: { phase, conditions, startTime, ...(isOwn && { containerStatuses }) },
  } as Pod;
}

/** Returns an object without what repeats it. */
function withoutCopies(object: KubeObject): KubeObject {
  const { managedFields: _, annotations, ...metadata } = object.metadata as KubeObject["metadata"] & {
    managedFields?: unknown;
  };
  const { "kubectl.kubernetes.io/last-applied-configuration": _copy, ...others } = annotations ?? {};
  return { ...object, metadata: { ...metadata, annotations: others } };
}

/** Returns an object without labels, annotations and finalizers of others. */
function withoutForeignMetadata(object: KubeObject): KubeObject {
  const isKnown = (name: string) => /(?:^|\.)(?:denolith\.dev|kubernetes\.io|k8s\.io)\//.test(name);
  const known = (all: Readonly<Record<string, string>> = {}) =>
    Object.fromEntries(Object.entries(all).filter(([name]) => isKnown(name)));
  const { labels, annotations, finalizers } = object.metadata;
  return {
    ...object,
    metadata: {
      ...object.metadata,
      ...{ labels: known(labels), annotations: known(annotations) },
      ...(finalizers && { finalizers: finalizers.filter(isKnown) }),
    },
  };
}

/** Returns the names of what belongs to others, by what they are names of. */
function namesIn(
  objects: Awaited<ReturnType<typeof readObjects>>,
  context: string,
): Record<string, readonly (string | undefined)[]> {
  const all: KubeObject[] = Object.values(objects).flat();
  const names = (list: readonly KubeObject[]) => list.map(({ metadata }) => metadata.name);
  const made = objects.lvmvolumes.map(({ metadata }) => metadata.annotations?.[CLAIM_ANNOTATION]?.split("/") ?? []);
  const isOwn = ownPodsBy(objects.leases);
  const own = new Set(objects.pods.filter(isOwn).map(({ metadata }) => metadata.namespace));
  const mentioned = new Map<string, string[]>();
  collectNames(all, mentioned);
  const found = (kind: string) => mentioned.get(kind) ?? [];
  const namespaces = [
    ...all.map(({ metadata }) => metadata.namespace),
    ...made.map(([namespace]) => namespace),
    ...found("namespace"),
  ];
  return {
    context: COMMON_NAMESPACES.test(context) ? [] : [context],
    address: objects.nodes.flatMap(({ status }) => status?.addresses ?? []).map(({ address }) => address),
    pod: [...found("pod"), ...names(objects.pods)].filter((name) => !names(objects.pods.filter(isOwn)).includes(name!)),
    claim: [
      ...found("persistentvolumeclaim"),
      ...names(objects.persistentvolumeclaims),
      ...made.map(([, name]) => name),
    ],
    namespace: namespaces.filter((name) => name !== undefined && !COMMON_NAMESPACES.test(name) && !own.has(name)),
    snapshot: [
      ...names([...objects.volumesnapshots, ...objects.volumegroupsnapshots]),
      ...["volumesnapshot", "volumegroupsnapshot"].flatMap(found),
    ],
    class: [...names(objects.storageclasses), ...found("class")],
    node: [...names(objects.nodes), ...objects.lvmvolumes.map(({ spec }) => spec.nodeName), ...names(objects.lvmnodes)],
    ...Object.fromEntries([...mentioned].filter(([kind]) => !OWN_KINDS.test(kind))),
  };
}

/** What is not masked by its kind: names that Kubernetes or the driver has made, and those that stand elsewhere. */
const OWN_KINDS =
  /^(?:namespace|class|pod|node|persistentvolume(?:claim)?|lvm.*|lease|volume(?:group)?snapshot(?:content)?|customresourcedefinition|daemonset|deployment)$/;

/** Collects the names in the references of objects, by the kinds of what they name. */
function collectNames(value: unknown, names: Map<string, string[]>, key = ""): void {
  if (value === null || typeof value !== "object") return;
  const add = (kind: string, name: unknown) => {
    if (typeof name !== "string") return;
    if (!names.has(kind)) names.set(kind, []);
    names.get(kind)!.push(name);
  };
  const { kind, name, namespace } = value as Record<string, unknown>;
  if (/(?:Ref|^dataSource|^involvedObject|^ownerReferences)$/.test(key)) {
    add(typeof kind === "string" ? kind.toLowerCase() : "name", name);
    add("namespace", namespace);
  }
  for (const [field, part] of Object.entries(value)) {
    if (/ClassName$/.test(field)) add("class", part);
    if (/secret-name$/.test(field)) add("secret", part);
    if (/secret-namespace$/.test(field)) add("namespace", part);
    collectNames(part, names, Array.isArray(value) ? key : field);
  }
}
