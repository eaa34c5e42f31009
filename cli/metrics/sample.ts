/**
 * Gauges whose samples are read at each scrape.
 *
 * @module
 */

/** A value with its labels. */
export interface Sample {
  /** The labels by their names. */
  readonly labels: Readonly<Record<string, string>>;
  /** The value. */
  readonly value: number;
}

/** A gauge without samples of its own: it has those of the moment in which it is scraped. */
export interface ReadAtScrape {
  /** The name, with the unit at its end. */
  readonly name: string;
  /** One sentence on what it measures, without the full stop. */
  readonly help: string;
  /** The names of its labels. */
  readonly labels: readonly string[];
  /** Returns the samples; called on each scrape. */
  readonly samples: () => readonly Sample[];
}
