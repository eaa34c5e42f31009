/**
 * Reading what the API server answers.
 *
 * @module
 */

import { truncate } from "../../base/error.ts";
import { ApiError, type WatchEvent } from "./client.ts";
import type { KubeObject, Resource } from "../api/objects.ts";

/** The maximum length of an excerpt of a body, in characters. */
const MAX_EXCERPT_LENGTH = 200;

/** The maximum length of the server's message in an error, in characters. */
const MAX_MESSAGE_LENGTH = 4_096;

/** A request, for messages. */
interface ApiRequestInfo {
  readonly verb: string;
  readonly resource: Resource;
  readonly name: string;
}

/** Creates the error for a response that is not OK. */
export async function errorFromResponse(request: ApiRequestInfo, response: Response): Promise<ApiError> {
  const { status } = response;
  const body = await response.text().catch(() => "");
  return statusError(request, parseJsonObject(body) ?? { message: excerpt(body) }, {
    status,
    retryAfter: retryAfterMs(response.headers.get("retry-after")),
  });
}

/** Creates the error for a request without a response. */
export function unreachableError(request: ApiRequestInfo, cause: unknown): ApiError {
  if (cause instanceof ApiError) return cause;
  return new ApiError(`${describeRequest(request)}: ${messageWithCauses(cause)}`, {
    status: 0,
    reason: "Unreachable",
    cause,
  });
}

/** Parses a response body as an object. @throws {ApiError} when it is not an object with metadata */
export function parseObject<T extends KubeObject>(request: ApiRequestInfo, body: string): T {
  return requireObject(request, body, parseJsonObject(body));
}

function requireObject<T extends KubeObject>(
  request: ApiRequestInfo,
  body: string,
  value: Record<string, unknown> | undefined,
): T {
  if (!isJsonObject(value?.["metadata"])) throw unreadableError(request, body);
  return value as unknown as T;
}

/** A page of a list. */
export interface Page<T> {
  /** Its objects. */
  readonly items: readonly T[];
  /** The revision of the list; empty when the server names none. */
  readonly resourceVersion: string;
  /** The token of the next page; absent on the last one. */
  readonly continue?: string;
}

/**
 * Parses a response body as a page of a list, without managedFields.
 *
 * @throws {ApiError} when it is not a list of objects with names
 */
export function parsePage<T extends KubeObject>(request: ApiRequestInfo, body: string): Page<T> {
  const { metadata, items: list } = requireObject<KubeObject & { items?: unknown }>(
    request,
    body,
    parseWithoutManagedFields(body),
  );
  const items = list ?? []; // Go writes an empty list as null
  if (!Array.isArray(items) || !items.every(isNamedObject)) throw unreadableError(request, body);
  const { resourceVersion, continue: next } = metadata as { resourceVersion?: unknown; continue?: unknown };
  return {
    items: items as T[],
    resourceVersion: typeof resourceVersion === "string" ? resourceVersion : "",
    ...(typeof next === "string" && next !== "" ? { continue: next } : {}),
  };
}

/**
 * Parses a line of a watch as an event, without managedFields.
 *
 * @throws {ApiError} when the line is an error, or no event
 */
export function parseEvent<T extends KubeObject>(request: ApiRequestInfo, line: string): WatchEvent<T> {
  const { type, object } = parseWithoutManagedFields(line) ?? {};
  if (type === "ERROR" && isJsonObject(object)) throw statusError(request, object, {});
  if (type === "BOOKMARK" && isJsonObject(object) && isJsonObject(object["metadata"])) {
    return { type, object: object as unknown as T };
  }
  if ((type === "ADDED" || type === "MODIFIED" || type === "DELETED") && isNamedObject(object)) {
    return { type, object: object as unknown as T };
  }
  throw unreadableError(request, line);
}

function statusError(
  request: ApiRequestInfo,
  statusBody: Record<string, unknown>,
  fromHeaders: { status?: number; retryAfter?: number | undefined },
): ApiError {
  const { code, reason: named, details, message: text } = statusBody;
  const status = fromHeaders.status ?? (Number.isInteger(code) && isHttpStatus(code as number) ? code as number : 500);
  const reason = typeof named === "string" && named !== "" ? excerpt(named) : `HTTP ${status}`;
  const retryAfter = fromHeaders.retryAfter ??
    (isJsonObject(details) ? retryAfterMs(details["retryAfterSeconds"]) : undefined);
  const message = typeof text === "string" && text !== "" ? `${reason}: ${truncate(text, MAX_MESSAGE_LENGTH)}` : reason;
  return new ApiError(`${describeRequest(request)}: ${message}`, { status, reason, retryAfter });
}

function unreadableError(request: ApiRequestInfo, body: string): ApiError {
  // errors are in logs and events
  const quoted = request.resource.plural === "secrets" ? "" : `: ${excerpt(body)}`;
  const message = `${describeRequest(request)}: the answer is not what the API server answers${quoted}`;
  return new ApiError(message, { status: 502, reason: "Unreadable" });
}

/** Returns a request in words, such as `get leases name`. */
export function describeRequest({ verb, resource, name }: ApiRequestInfo): string {
  return [verb, resource.plural, name].filter((part) => part !== "").join(" ");
}

/**
 * The managedFields of an object in a JSON text. A quote after a comma begins a text, and a text before a colon is a name,
 * so nothing else looks like them. Their values have no lists inside (structured-merge-diff, FieldsV1), so the list ends
 * with the first bracket outside of a text.
 */
const MANAGED_FIELDS = /,"managedFields":\[[^"\]]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"\]]*)*\]/g;

/**
 * Parses a JSON text without managedFields: nobody reads them, and they take half of the time of the parser. A text that
 * makes no sense without them is parsed with them.
 */
function parseWithoutManagedFields(json: string): Record<string, unknown> | undefined {
  return parseJsonObject(json.replace(MANAGED_FIELDS, "")) ?? parseJsonObject(json);
}

function parseJsonObject(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isJsonObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Reports whether a value is an object with a name, as all objects of the API server have it. */
function isNamedObject(value: unknown): boolean {
  return isJsonObject(value) && isJsonObject(value["metadata"]) && typeof value["metadata"]["name"] === "string";
}

function isHttpStatus(code: number): boolean {
  return code >= 100 && code <= 599;
}

/** Returns a number of seconds, from JSON or a header, in milliseconds; `undefined` when it is not one, as a date. */
function retryAfterMs(seconds: unknown): number | undefined {
  const number = typeof seconds === "string" && /^\d{1,9}$/.test(seconds) ? Number(seconds) : seconds;
  return typeof number === "number" && number >= 0 && number < 1e9 ? number * 1000 : undefined;
}

/** Returns the message of an error with those of its causes: "fetch failed" alone explains nothing. */
export function messageWithCauses(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message}: ${messageWithCauses(error.cause)}`;
}

function excerpt(text: string): string {
  return truncate(text, MAX_EXCERPT_LENGTH);
}

/** Reads the lines of a text stream, without line ends. An incomplete last line is dropped: the stream was cut. */
export async function* readLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let parts: string[] = [];
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = decoder.decode(value, { stream: true }).split("\n");
      const remainder = lines.pop()!;
      for (const line of lines) {
        parts.push(line);
        const complete = parts.join("");
        parts = [];
        if (complete !== "") yield complete;
      }
      parts.push(remainder);
    }
  } finally {
    // The body may have failed already, with nothing left to cancel.
    await reader.cancel().catch(() => {});
  }
}
