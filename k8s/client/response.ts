/**
 * Reading what the API server answers.
 *
 * @module
 */

import { ApiError, type WatchEvent } from "./client.ts";
import type { KubeObject, Resource } from "../api/objects.ts";

/** A request, for messages. */
interface ApiRequestInfo {
  readonly verb: string;
  readonly resource: Resource;
  readonly name: string;
}

/** Creates the error for a response that is not OK. */
export async function errorFromResponse(request: ApiRequestInfo, response: Response): Promise<ApiError> {
  const { status } = response;
  const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
  const body = await response.text().catch(() => "");
  return statusError(request, parseJsonObject(body) ?? { message: excerpt(body) }, {
    status,
    retryAfter: Number.isFinite(seconds) ? seconds * 1000 : undefined,
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

/** Parses a response body as an object. @throws {ApiError} when it is not an object */
export function parseObject<T extends KubeObject>(request: ApiRequestInfo, body: string): T {
  const value = parseJsonObject(body);
  if (value === undefined) throw unreadableError(request, body);
  return value as unknown as T;
}

/** Parses a line of a watch as an event. @throws {ApiError} when the line is an error, or no event */
export function parseEvent<T extends KubeObject>(request: ApiRequestInfo, line: string): WatchEvent<T> {
  const event = parseJsonObject(line);
  const object = event?.["object"];
  if (event === undefined || typeof object !== "object" || object === null) throw unreadableError(request, line);
  switch (event["type"]) {
    case "ADDED":
    case "MODIFIED":
    case "DELETED":
    case "BOOKMARK":
      return { type: event["type"], object: object as T };
    case "ERROR":
      throw statusError(request, object as Record<string, unknown>, {});
    default:
      throw unreadableError(request, line);
  }
}

function statusError(
  request: ApiRequestInfo,
  statusBody: Record<string, unknown>,
  fromHeaders: { status?: number; retryAfter?: number | undefined },
): ApiError {
  const status = fromHeaders.status ?? Number(statusBody["code"] ?? 500);
  const reason = typeof statusBody["reason"] === "string" && statusBody["reason"] !== ""
    ? statusBody["reason"]
    : `HTTP ${status}`;
  const details = statusBody["details"] as { retryAfterSeconds?: number } | undefined;
  const retryAfter = fromHeaders.retryAfter ??
    (details?.retryAfterSeconds === undefined ? undefined : details.retryAfterSeconds * 1000);
  const message = statusBody["message"] ? `${reason}: ${statusBody["message"]}` : reason;
  return new ApiError(`${describeRequest(request)}: ${message}`, { status, reason, retryAfter });
}

function unreadableError(request: ApiRequestInfo, body: string): ApiError {
  const message = `${describeRequest(request)}: the answer is not what the API server answers: ${excerpt(body)}`;
  return new ApiError(message, { status: 502, reason: "Unreadable" });
}

function describeRequest({ verb, resource, name }: ApiRequestInfo): string {
  return [verb, resource.plural, name].filter((part) => part !== "").join(" ");
}

function parseJsonObject(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? value as Record<string, unknown>
      : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the message of an error with those of its causes: "fetch failed" alone explains nothing. */
export function messageWithCauses(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause === undefined ? error.message : `${error.message}: ${messageWithCauses(error.cause)}`;
}

function excerpt(text: string): string {
  return text.length > 200 ? text.slice(0, 200) + "…" : text;
}
