/**
 * The specs that csi-sanity skipped, by topic. A spec that is skipped for a reason that is not listed here counts as
 * failed.
 *
 * @module
 */

import { asArray, asObject, asString } from "../../../base/json.ts";

/** The reasons why specs are skipped: a pattern of their names, and what they wait for. */
const TOPICS: readonly (readonly [RegExp, string])[] = [
  [
    /ControllerPublishVolume|ControllerUnpublishVolume|Controller Server\] volume lifecycle/,
    "attaching: never, a node-local volume is where it is",
  ],
  [
    /snapshot with accessibility requirements/,
    "csi-sanity 5.6.0 compares a message that it has sent, whose size it keeps then, to one that came: none is equal; the " +
    "contract tests have it",
  ],
  [
    /pagination should detect volumes added between pages/,
    "switched off in csi-sanity itself; the contract tests have it",
  ],
];

/**
 * Returns the skipped specs of a ginkgo JSON report, one line for each topic, and those of no topic.
 *
 * @throws {StorageError} when the text is no such report
 */
export function skippedByTopic(report: string): { topics: string[]; unlisted: string[] } {
  const skipped = asArray(JSON.parse(report)).flatMap((suite) => asArray(asObject(suite).SpecReports)).map(asObject)
    .filter((spec) => spec.LeafNodeType === "It" && (spec.State === "skipped" || spec.State === "pending"))
    .map((spec) => [...asArray(spec.ContainerHierarchyTexts).map(asString), asString(spec.LeafNodeText)].join(" "));
  const topicOf = (name: string) => TOPICS.find(([names]) => names.test(name))?.[1];
  const counts = Map.groupBy(skipped.filter((name) => topicOf(name) !== undefined), (name) => topicOf(name)!);
  return {
    topics: [...counts].map(([topic, names]) => `${String(names.length).padStart(3)} skipped: ${topic}`),
    unlisted: skipped.filter((name) => topicOf(name) === undefined),
  };
}
