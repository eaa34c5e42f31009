/**
 * What concurrent callers know from the driver's answers: what must exist, and what must be gone.
 *
 * @module
 */

import { SNAPSHOT, VOLUME } from "../../lvm/model/tags.ts";
import { contentOf, ownerOf } from "../fake/machine/luks.ts";
import type { FakeLv, FakeMachine } from "../fake/machine/machine.ts";
import {
  type CallerRequest,
  GROUP,
  memberId,
  snapshotId,
  stagingPath,
  targetPath,
  volumeId,
  VOLUMES,
} from "./concurrent_callers.ts";
import { type Acknowledged, describeContent, nothingAcknowledged } from "./invariants.ts";

/** The answer to a request: success, a refusal after which nothing has changed, or another failure, or none. */
export interface Answer {
  readonly request: CallerRequest;
  readonly result: "ok" | "refused" | "failed" | "none";
}

/** The name of something that requests make and unmake. */
type Thing = `${"volume" | "snapshot" | "member" | "staged" | "published"} ${number}`;

/** The expectations of the callers. */
export class Expectations {
  /** What must exist at any moment. */
  readonly acknowledged: Acknowledged;
  readonly #machine: FakeMachine;
  readonly #folder: string;
  /** What was acknowledged before the requests that are now being answered. */
  #before: Acknowledged = nothingAcknowledged();
  #writeCount = 0;

  /** Creates a expectations of an orchestrator, of which the driver has acknowledged something. */
  constructor(machine: FakeMachine, folder: string, acknowledged = nothingAcknowledged()) {
    this.#machine = machine;
    this.#folder = folder;
    this.acknowledged = acknowledged;
  }

  /** Records that requests are sent at the same time. What they may unmake need not exist from now on. */
  begin(requests: readonly CallerRequest[]): void {
    this.#before = structuredClone(this.acknowledged);
    for (const request of requests) {
      for (const unmade of unmadeBy(request)) this.#forget(unmade);
    }
  }

  /**
   * Records the answers. What was acknowledged must exist, unless somebody has undone it at the same time, and what was
   * undone must not.
   *
   * @throws {Error} when something exists that was undone
   */
  end(answers: readonly Answer[]): void {
    for (const { request } of answers) {
      for (const thing of unmadeBy(request)) {
        const unmaking = answers.filter((answer) => unmadeBy(answer.request).includes(thing));
        const isMade = answers.some((answer) => madeBy(answer.request).includes(thing));
        if (unmaking.every(({ result }) => result === "refused")) this.#restore(thing);
        else if (unmaking.some(({ result }) => result === "ok") && !isMade && this.#exists(thing)) {
          throw new Error(`${thing} exists, although it was undone`);
        }
      }
    }
    for (const { request, result } of answers) {
      for (const made of result === "ok" ? madeBy(request) : []) {
        const undoing = answers.filter((other) => unmadeBy(other.request).includes(made));
        if (undoing.every((other) => other.result === "refused")) this.#acknowledge(request, made);
      }
    }
  }

  /** Lets each pod write to its volume. The COW space of the volume's snapshots becomes fuller by that. */
  write(): void {
    for (const [volume, { readOnly }] of VOLUMES.entries()) {
      const id = volumeId(volume);
      if (readOnly || !this.acknowledged.mounts.has(targetPath(this.#folder, volume))) continue;
      const mount = this.#machine.mounts.findLast(({ target }) => target === targetPath(this.#folder, volume))!;
      const { group, lv } = ownerOf(this.#machine, mount.lv!);
      contentOf(lv).data.add(`write ${++this.#writeCount} to volume ${volume}`);
      if (this.acknowledged.volumes.has(id)) this.acknowledged.contents.set(id, describeContent(lv));
      for (const snapshot of group.lvs) {
        if (snapshot.origin?.name === lv.name && snapshot.pool === undefined && snapshot.active) {
          snapshot.cowPercent = Math.min(95, snapshot.cowPercent + 40);
        }
      }
    }
  }

  #acknowledge(request: CallerRequest, made: Thing): void {
    const { volumes, mounts } = this.acknowledged;
    const id = volumeId(request.volume);
    switch (request.call) {
      case "create":
      case "copy":
        if (!volumes.has(id)) volumes.set(id, this.#lv(made)!.size);
        if (request.call === "copy") this.#acknowledgeContent(id, made);
        return;
      case "expand":
        return void (volumes.has(id) && volumes.set(id, this.#lv(made)!.size));
      case "stage":
        if (VOLUMES[request.volume]!.content === "raw") return;
        return void mounts.set(stagingPath(this.#folder, request.volume), { readOnly: false, flags: [] });
      case "publish": {
        const { readOnly } = VOLUMES[request.volume]!;
        return void mounts.set(targetPath(this.#folder, request.volume), { readOnly, flags: [] });
      }
      case "snapshot":
        return this.#acknowledgeContent(snapshotId(request.snapshot), made);
      case "group":
        return this.#acknowledgeContent(this.#idOf(made), made);
    }
  }

  /** Acknowledges the content of a new snapshot or of a complete copy. It has nothing but what pods wrote. */
  #acknowledgeContent(id: string, thing: Thing): void {
    const { contents } = this.acknowledged;
    if (contents.has(id)) return;
    const lv = this.#lv(thing)!;
    // A copy of a volume that was never in use is formatted when it is first staged.
    const { signatures, data } = contentOf(lv);
    // The filesystem of an encrypted one gets another UUID then.
    if (thing.startsWith("volume") && (signatures.length === 0 || lv.content.luks !== undefined)) return;
    const others = [...data].filter((name) => !name.startsWith("write "));
    if (others.length > 0) throw new Error(`${thing} has ${others}`);
    contents.set(id, describeContent(lv));
  }

  #forget(thing: Thing): void {
    this.#change(thing, (map, key) => map.delete(key));
  }

  #restore(thing: Thing): void {
    this.#change(thing, (map, key, before) => before.has(key) && map.set(key, before.get(key)));
  }

  #change(thing: Thing, change: (map: Map<string, unknown>, key: string, before: Map<string, unknown>) => void): void {
    const [kind, number] = thing.split(" ") as [string, string];
    const id = this.#idOf(thing);
    const path = kind === "staged"
      ? stagingPath(this.#folder, Number(number))
      : targetPath(this.#folder, Number(number));
    const isMount = kind === "staged" || kind === "published";
    const names = isMount ? ["mounts"] as const : ["volumes", "contents"] as const;
    for (const name of names) change(this.acknowledged[name], isMount ? path : id, this.#before[name]);
  }

  #exists(thing: Thing): boolean {
    const [kind, number] = thing.split(" ") as [string, string];
    if (kind !== "staged" && kind !== "published") return this.#lv(thing) !== undefined;
    const path = (kind === "staged" ? stagingPath : targetPath)(this.#folder, Number(number));
    return this.#machine.mounts.some(({ target }) => target === path);
  }

  #lv(thing: Thing): FakeLv | undefined {
    const tag = `${thing.startsWith("volume") ? VOLUME : SNAPSHOT}${this.#idOf(thing)}`;
    return this.#machine.allLvs().find(({ lv }) => lv.tags.has(tag))?.lv;
  }

  #idOf(thing: Thing): string {
    const [kind, number] = thing.split(" ") as [string, string];
    const idOf = kind === "snapshot" ? snapshotId : kind === "member" ? memberId : volumeId;
    return idOf(Number(number));
  }
}

const MEMBERS = GROUP.map((volume): Thing => `member ${volume}`);

function madeBy(request: CallerRequest): Thing[] {
  switch (request.call) {
    case "create":
    case "copy":
    case "expand":
      return [`volume ${request.volume}`];
    case "stage":
      return [`staged ${request.volume}`];
    case "publish":
      return [`published ${request.volume}`];
    case "snapshot":
      return [`snapshot ${request.snapshot}`];
    case "group":
      return MEMBERS;
    default:
      return [];
  }
}

function unmadeBy(request: CallerRequest): Thing[] {
  switch (request.call) {
    case "delete":
      return [`volume ${request.volume}`];
    case "unstage":
      return [`staged ${request.volume}`];
    case "unpublish":
      return [`published ${request.volume}`];
    case "deleteSnapshot":
      return [`snapshot ${request.snapshot}`];
    case "deleteGroup":
      return MEMBERS;
    default:
      return [];
  }
}
