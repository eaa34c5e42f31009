/**
 * `kubectl denolith ui`: the whole cluster as a page for a browser on this machine.
 *
 * @module
 */

import { messageOf } from "../../base/error.ts";
import { ClusterChanges, clusterPage } from "../ui/cluster_page.ts";
import { type ClaimMessage, claimPage } from "../ui/claim_page.ts";
import type { CommandTarget } from "../ui/commands.ts";
import { type Follow, type PageSource, servePage } from "../ui/server.ts";
import { summaryPath, usageInSummary, type VolumeMessage, volumePage, type VolumeUsage } from "../ui/volume_page.ts";
import { lvmSnapshots, lvmVolumes } from "../../k8s/api/lvm_objects.ts";
import { events, persistentVolumeClaims, pods } from "../../k8s/api/objects.ts";
import { ApiError } from "../../k8s/client/client.ts";
import { EvidenceReader, readClaimState } from "../diagnosis/claim_state.ts";
import { readClusterState } from "../diagnosis/cluster_state.ts";
import { type VolumeView, volumeViews } from "../diagnosis/volumes.ts";
import { CLUSTER_FLAGS } from "../plugin_flags.ts";
import { LISTED, type Session, showWhenChanged, type Watched } from "../session.ts";

/** Serves the page until Ctrl-C. @returns 0 @throws {ApiError} when the cluster does not answer */
export async function serveUi(session: Session): Promise<number> {
  const { client, driver, flags, signal, subject: { context } } = session;
  const cluster = context === "" ? "the cluster" : `context ${context}`;
  session.note(`Reading ${cluster} by kubectl …`);
  await readClusterState(client, driver, session.now); // what fails at once ends the subcommand
  const source: PageSource = {
    cluster: followCluster(session),
    volume: (id) => followVolume(session, id),
    claim: (namespace, name) => followClaim(session, { namespace, name }),
  };
  const server = servePage({ source, port: Number(flags["port"]), signal });
  await session.dropNetwork(); // it listens already, and asks nobody but kubectl
  session.say(
    `Open this address in a browser on this machine. It works once:\n\n  ${server.address}\n\n` +
      `The page shows ${cluster}, and changes nothing. Ctrl-C ends it.`,
  );
  await server.finished;
  return 0;
}

/** Returns what the commands on the page are for: what this one is for. */
function targetOf({ driver, flags: { kubeconfig }, subject: { context } }: Session): CommandTarget {
  const isDefault = driver === CLUSTER_FLAGS["driver-name"].default();
  return { context, kubeconfig, driver: isDefault ? undefined : driver };
}

function followCluster(session: Session): Follow {
  const { client, driver } = session;
  const { definitions } = client;
  const target = targetOf(session);
  return async (send, signal) => {
    const changes = new ClusterChanges();
    const read = async (now: Date) =>
      changes.next(
        clusterPage(await readClusterState(client, driver, now, { withWork: true, definitions }), target),
        now,
      );
    await follow(session, { read, send, signal, watched: () => LISTED });
  };
}

function followClaim(session: Session, at: { readonly namespace: string; readonly name: string }): Follow {
  const { client, driver } = session;
  const target = targetOf(session);
  const read = async (now: Date): Promise<ClaimMessage> => {
    const state = await readClaimState(client, { driver, ...at, now });
    const isGone = state.claim === undefined && state.volume === undefined && state.persistentVolume === undefined;
    return { read: now.toISOString(), ...(!isGone && { claim: claimPage(state, target) }) };
  };
  return (send, signal) => follow(session, { read, send, signal, watched: () => watchedOfClaim(at) });
}

function followVolume(session: Session, id: string): Follow {
  const read = (now: Date) => readVolume(session, id, now);
  const watched = (first: VolumeMessage | undefined) => watchedOf(id, first?.volume?.claim);
  return (send, signal) => follow(session, { read, send, signal, watched });
}

/** How a stream is made. */
interface FollowOptions<T> {
  /** Reads what is sent. */
  readonly read: (now: Date) => Promise<T>;
  /** Returns the objects on which it depends. @param first what was read first; absent when that failed */
  readonly watched: (first: T | undefined) => readonly Watched[];
  readonly send: (message: object) => void;
  readonly signal: AbortSignal;
}

/** Sends what is read, or why it cannot be read, now and whenever something changes. */
async function follow<T extends object>(
  session: Session,
  { read, watched, send, signal }: FollowOptions<T>,
): Promise<void> {
  let last: T | undefined;
  const show = async () => {
    last = await read(session.now).catch((error) => void send({ error: messageOf(error) })) ?? undefined;
    if (last !== undefined) send(last);
  };
  await show();
  await showWhenChanged(show, { client: session.client, watched: watched(last), signal });
}

/** Returns the objects on which a volume depends. */
function watchedOf(id: string, claim: string | undefined): Watched[] {
  const own = [{ resource: lvmVolumes, selection: named(id) }, { resource: lvmSnapshots }];
  const [namespace, name] = claim?.split("/") ?? [];
  if (namespace === undefined || name === undefined) return own;
  return [...own, ...watchedOfClaim({ namespace, name })];
}

/** Returns the objects on which a claim depends. */
function watchedOfClaim({ namespace, name }: { readonly namespace: string; readonly name: string }): Watched[] {
  return [
    { resource: persistentVolumeClaims, selection: { namespace, ...named(name) } },
    { resource: pods, selection: { namespace } },
    { resource: events, selection: { namespace, fieldSelector: `involvedObject.name=${name}` } },
  ];
}

function named(name: string): { fieldSelector: string } {
  return { fieldSelector: `metadata.name=${name}` };
}

async function readVolume(session: Session, id: string, now: Date): Promise<VolumeMessage> {
  const { client, driver } = session;
  const state = await readClusterState(client, driver, now);
  const view = volumeViews(state).find((volume) => volume.id === id);
  if (view === undefined) return { read: now.toISOString() };
  const [namespace, name] = view.claim?.split("/") ?? [];
  const unread: string[] = [];
  const [ofClaim, usage] = await Promise.all([
    namespace && name
      ? readClaimState(client, { driver, namespace, name, now }).catch((error) => void unread.push(forbidden(error)))
      : undefined,
    readUsage(session, view),
  ]);
  const claim = ofClaim?.volume?.metadata.name === id ? ofClaim : undefined; // a later claim may have the same name
  const object = state.volumes.find(({ metadata }) => metadata.name === id);
  const about = claim ? [] : await new EvidenceReader(client).eventsAbout("LVMVolume", object);
  const volume = volumePage(id, { state, claim, events: about, usage, unread, target: targetOf(session) });
  return { read: now.toISOString(), ...(volume && { volume }) };
}

/** Returns what may not be read. @throws what is no refusal */
function forbidden(error: unknown): string {
  if (error instanceof ApiError && error.status === 403) return error.message;
  throw error;
}

/** Returns how full a volume is, or why that is not known. */
async function readUsage(
  session: Session,
  { node, claim, content, usedPercent }: VolumeView,
): Promise<VolumeUsage | string> {
  if (content === "Block") return "not known: it is a block device";
  if (claim === undefined) return "not known: no claim has it";
  try {
    return usageInSummary(await session.client.readPath(summaryPath(node)), claim) ??
      "not known: no running pod has it mounted";
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (usedPercent !== undefined) return `about ${usedPercent}%, as its agent last saw it`;
    return error.status === 403
      ? "not shown: kubelet's statistics need the right to get nodes/proxy"
      : `not known: ${error.message}`;
  }
}
