/**
 * Recognizes what was said before: equal events are counted in one, and many events that differ only in their messages
 * are combined. The limits are those of client-go's EventCorrelator, so that `kubectl describe` shows what its users
 * know.
 *
 * @module
 */

import { type Clock, timestamp } from "../../base/clock.ts";
import { truncateMessage } from "../../base/error.ts";
import { withoutControls } from "../../base/text_table.ts";
import type { Event, KubeObject } from "../api/objects.ts";

/** The type of an event: `Warning` for what somebody may have to act on. */
export type EventType = "Normal" | "Warning";

/** The object of an event. */
export type ObjectReference = Event["involvedObject"] & { name: string };

/** An event, and how often it was recorded. */
export interface RecordedEvent {
  /** Names its object, for limits that hold for each object. */
  readonly objectKey: string;
  readonly object: ObjectReference;
  readonly type: EventType;
  readonly reason: string;
  /** The message; of a combined event, the last one. */
  message: string;
  readonly first: string;
  last: string;
  count: number;
  /** The name of the object of the API, and whether it was written. */
  readonly name: string;
  isWritten: boolean;
  /** When a write was last tried, in the clock's milliseconds. */
  triedAt: number;
}

/** The longest message that the API takes. */
const MAX_MESSAGE_LENGTH = 1024;

/** The number of events, and of groups of similar ones, that are remembered. */
const MAX_REMEMBERED = 4096;

/** The number of different messages for one object, type and reason; further ones are combined. */
const MAX_SIMILAR = 10;

/** The time without a similar event after which messages are not combined any more, in milliseconds. */
const SIMILAR_INTERVAL_MS = 600_000;

/** The beginning of the message of a combined event, as client-go has it. */
const COMBINED_PREFIX = "(combined from similar events): ";

/** The messages of one object, type and reason. */
interface SimilarEvents {
  readonly messages: Set<string>;
  at: number;
}

/** The events that were recorded, for as long as they are remembered. */
export class EventCorrelator {
  readonly #clock: Clock;
  readonly #events = new Map<string, RecordedEvent>();
  readonly #similar = new Map<string, SimilarEvents>();

  /** Creates a correlator that remembers nothing. */
  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Returns the event that says this, with one more count. A message is cut at the limit of the API, and has no control
   * characters: it may quote what a user wrote, and is read in a terminal.
   */
  count(object: KubeObject, type: EventType, reason: string, words: string): RecordedEvent {
    const message = withoutControls(words);
    const objectKey = `${object.kind}\n${object.metadata.uid ?? object.metadata.name}`;
    const group = [objectKey, type, reason].join("\n");
    const isCombined = this.#isCombined(group, message);
    const text = truncateMessage(isCombined ? COMBINED_PREFIX + message : message, MAX_MESSAGE_LENGTH);
    const key = isCombined ? group : `${group}\n${text}`;
    const now = timestamp(this.#clock.date());
    const event = this.#events.get(key) ?? {
      ...{ objectKey, object: referenceTo(object), type, reason, message: text, first: now, last: now },
      ...{ count: 0, name: eventName(object), isWritten: false, triedAt: -Infinity },
    };
    event.count++;
    event.last = now;
    event.message = text;
    remember(this.#events, key, event);
    return event;
  }

  /** Reports whether a message goes into the combined event of its group, because the group has many already. */
  #isCombined(group: string, message: string): boolean {
    const now = this.#clock.now();
    const known = this.#similar.get(group);
    const isRecent = known !== undefined && now - known.at <= SIMILAR_INTERVAL_MS;
    const similar = isRecent ? known : { messages: new Set<string>(), at: now };
    similar.at = now;
    remember(this.#similar, group, similar);
    if (similar.messages.has(message)) return false;
    if (similar.messages.size >= MAX_SIMILAR) return true;
    similar.messages.add(message);
    return false;
  }
}

/** Stores a value as the last one to be forgotten, and forgets the first one when there are too many. */
export function remember<T>(values: Map<string, T>, key: string, value: T): void {
  values.delete(key);
  values.set(key, value);
  if (values.size > MAX_REMEMBERED) values.delete(values.keys().next().value!);
}

function referenceTo({ apiVersion, kind, metadata }: KubeObject): ObjectReference {
  const { name, namespace, uid, resourceVersion } = metadata;
  const fields = { apiVersion, kind, namespace, uid, resourceVersion };
  return { name, ...Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) };
}

/** Names of objects may have 253 characters, and so may those of events. No part of them ends in a hyphen. */
function eventName({ metadata }: KubeObject): string {
  return `${metadata.name.slice(0, 230).replace(/[-.]+$/, "")}.${crypto.randomUUID().replaceAll("-", "").slice(0, 16)}`;
}
