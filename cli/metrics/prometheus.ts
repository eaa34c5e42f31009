/**
 * The parts of prom-client that the driver uses. The package as a whole also loads Node's HTTP client, cluster and
 * OpenTelemetry, which take several megabytes.
 *
 * @module
 */

import type * as whole from "prom-client";
import counter from "prom-client/lib/counter.js";
import gauge from "prom-client/lib/gauge.js";
import histogram from "prom-client/lib/histogram.js";
import registry from "prom-client/lib/registry.js";

/** A number that only grows. */
export type Counter<T extends string = string> = whole.Counter<T>;
export const Counter: typeof whole.Counter = counter;

/** A number. */
export type Gauge<T extends string = string> = whole.Gauge<T>;
export const Gauge: typeof whole.Gauge = gauge;

/** Numbers of observations by size. */
export type Histogram<T extends string = string> = whole.Histogram<T>;
export const Histogram: typeof whole.Histogram = histogram;

/** Metrics that are printed together. */
export type Registry = whole.Registry;
export const Registry: typeof whole.Registry = registry;
