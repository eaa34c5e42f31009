/**
 * Comparison of the page about support with what suites run with.
 *
 * @module
 */

import { assert, assertEquals } from "@std/assert";
import { parse } from "@std/yaml";
import { CSI_SANITY_VERSION } from "../rig/csi_sanity.ts";
import { DEBIAN_RELEASES, type DebianRelease } from "../rig/guest_image.ts";
import { RELEASES, VERSIONS } from "../rig/kubernetes.ts";
import { chapter } from "./markdown.ts";

const ROOT = new URL("../../", import.meta.url).pathname;

/** The numbers of Debian's releases. */
const DEBIAN_NUMBERS = { bookworm: 12, trixie: 13 } as const satisfies Record<DebianRelease, number>;

const page = Deno.readTextFileSync(`${ROOT}docs/reference/support.md`);

Deno.test("docs/reference/support.md names the releases that suites run with, and no others", () => {
  const kubernetes = chapter(page, "Kubernetes");
  const tested = [...kubernetes.matchAll(/^- (1\.\d+) \(([\d.]+)\):/gm)].map((
    [, release, version],
  ) => [release, version]);
  const known = Object.entries(RELEASES).map(([release, { kubernetes }]) => [release, kubernetes]);
  assertEquals(tested.toSorted(), known.toSorted());
  const others = { ...VERSIONS, "snapshot-controller": VERSIONS["csi-snapshotter"], "csi-sanity": CSI_SANITY_VERSION };
  for (const [program, version] of Object.entries(others)) {
    const named = new RegExp(`\\b${program}\\s+([\\d.]+\\d)`, "i").exec(kubernetes)?.[1];
    assertEquals(named, version, program);
  }
  const debian = [...chapter(page, "Nodes").matchAll(/LVM: tested with (.*?)\. The/gs)].flatMap(([, list]) =>
    [...list!.matchAll(/Debian (\d+)/g)].map(([, number]) => Number(number))
  );
  assertEquals(debian, DEBIAN_RELEASES.map((release) => DEBIAN_NUMBERS[release]));
});

Deno.test("the chart takes the oldest release of Kubernetes that is tested, and later ones", async () => {
  const { kubeVersion } = parse(await Deno.readTextFile(`${ROOT}deploy/chart/Chart.yaml`)) as { kubeVersion: string };
  const [oldest] = Object.keys(RELEASES).sort();
  assert(oldest !== undefined);
  assertEquals(kubeVersion, `>=${oldest}.0-0`);
});
