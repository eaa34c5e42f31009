/**
 * What a release was made of, and by whom: an in-toto statement with SLSA's provenance.
 *
 * @module
 */

import type { Addresses } from "./addresses.ts";
import type { Source } from "./source.ts";

/** Type of the statement's predicate. */
export const PREDICATE_TYPE = "https://slsa.dev/provenance/v1";

/** How `deno task release` makes a release: docs/release.md describes it. */
const BUILD_TYPE = "https://lvm.denolith.dev/release/v1";

/** A part of a release, or what it was made of. */
export interface Resource {
  readonly name?: string;
  /** Its package URL. */
  readonly uri?: string;
  /** Checksums in hexadecimal, by algorithm; absent for the runtime of `deno compile`, which is changed by it. */
  readonly digest?: Readonly<Record<string, string>>;
}

/** What {@linkcode provenance} states. */
export interface ProvenanceFacts {
  readonly version: string;
  readonly source: Source;
  /** The architectures, as images name them. */
  readonly architectures: readonly string[];
  /** Where the standard library comes from. */
  readonly std: string;
  /** The addresses that were given. */
  readonly addresses: Addresses;
  /** A URI of the machine or the person that made the release. */
  readonly builder: string;
  readonly startedOn: Date;
  readonly finishedOn: Date;
  /** The files, images and artifacts of the release. */
  readonly subjects: readonly Resource[];
  /** What it was made of, beside the commit. */
  readonly materials: readonly Resource[];
}

/** Returns the statement (in-toto Statement v1, SLSA Provenance v1). */
export function provenance(facts: ProvenanceFacts): object {
  const { version, source, architectures, std, addresses, builder, startedOn, finishedOn, subjects, materials } = facts;
  return {
    _type: "https://in-toto.io/Statement/v1",
    subject: subjects,
    predicateType: PREDICATE_TYPE,
    predicate: {
      buildDefinition: {
        buildType: BUILD_TYPE,
        externalParameters: { version, architectures, std, ...addresses },
        internalParameters: { deno: Deno.version.deno, hasUncommittedChanges: source.isChanged },
        resolvedDependencies: [{ name: "commit", digest: { gitCommit: source.commit } }, ...materials],
      },
      runDetails: {
        builder: { id: builder },
        metadata: { startedOn: startedOn.toISOString(), finishedOn: finishedOn.toISOString() },
      },
    },
  };
}
