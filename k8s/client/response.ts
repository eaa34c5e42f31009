/**
 * Reading what the API server answers.
 *
 * @module
 */

import { ApiError, type WatchEvent } from "./client.ts";
import type { KubeObject, Resource } from "../api/objects.ts";

/** What was asked, for messages. */
interface Asked {
  readonly verb: string;
  readonly resource: Resource;
  readonly name: string;
}

/** The error that a response tells. */
export async function errorOf(asked: Asked, response: Response): Promise<ApiError> {
  const { status } = response;
  const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
  const body = await response.text().catch(() => "");
  return statusError(asked, parsed(body) ?? { message: excerpt(body) }, {
    status,
    retryAfter: Number.isFinite(seconds) ? seconds * 1000 : undefined,
  });
}

/** The error of no answer. */
export function unreachable(asked: Asked, cause: unknown): ApiError {
  if (cause instanceof ApiError) return cause;
  return new ApiError(`${wording(asked)}: ${whole(cause)}`, { status: 0, reason: "Unreachable", cause });
}

/** The object that a body is. @throws {ApiError} when it is none */
export function parseObject<T extends KubeObject>(asked: Asked, body: string): T {
  const value = parsed(body);
  if (value === undefined) throw unreadable(asked, body);
  return value as unknown as T;
}

/** The event that a line of a watch is. @throws {ApiError} the one that it tells, or when it is none */
export function parseEvent<T extends KubeObject>(asked: Asked, line: string): WatchEvent<T> {
  const event = parsed(line);
  const object = event?.["object"];
  if (event === undefined || typeof object !== "object" || object === null) throw unreadable(asked, line);
  switch (event["type"]) {
    case "ADDED":
    case "MODIFIED":
    case "DELETED":
    case "BOOKMARK":
      return { type: event["type"], object: object as T };
    case "ERROR":
      throw statusError(asked, object as Record<string, unknown>, {});
    default:
      throw unreadable(asked, line);
  }
}

function statusError(
  asked: Asked,
  told: Record<string, unknown>,
  known: { status?: number; retryAfter?: number | undefined },
): ApiError {
  const status = known.status ?? Number(told["code"] ?? 500);
  const reason = typeof told["reason"] === "string" && told["reason"] !== "" ? told["reason"] : `HTTP ${status}`;
  const details = told["details"] as { retryAfterSeconds?: number } | undefined;
  const retryAfter = known.retryAfter ??
    (details?.retryAfterSeconds === undefined ? undefined : details.retryAfterSeconds * 1000);
  const message = told["message"] ? `${reason}: ${told["message"]}` : reason;
  return new ApiError(`${wording(asked)}: ${message}`, { status, reason, retryAfter });
}

function unreadable(asked: Asked, body: string): ApiError {
  const message = `${wording(asked)}: the answer is not what the API server answers: ${excerpt(body)}`;
  return new ApiError(message, { status: 502, reason: "Unreadable" });
}

function wording({ verb, resource, name }: Asked): string {
  return [verb, resource.plural, name].filter((part) => part !== "").join(" ");
}

function parsed(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? value as Record<string, unknown>
      : undefined;
  } catch {
    return undefined;
  }
}

/** What an error says, and what led to it: "fetch failed" alone helps nobody. */
function whole(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message}: ${whole(error.cause)}`;
}

function excerpt(text: string): string {
  return text.length > 200 ? text.slice(0, 200) + "…" : text;
}
