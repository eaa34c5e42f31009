/**
 * Assertions of the lifecycles in which a driver crashes.
 *
 * @module
 */

import { assertEquals } from "@std/assert";
import type { Capability } from "../contract/helpers/host.ts";
import type { FakeMachine } from "../fake/machine/machine.ts";

/** Asserts that a target has one mount, with all its flags. */
export function assertPublished(
  { mounts }: FakeMachine,
  request: { readonly targetPath: string; readonly readonly: boolean; readonly volumeCapability: Capability },
): void {
  const { targetPath, readonly, volumeCapability: { accessType } } = request;
  const [mount, ...more] = mounts.filter(({ target }) => target === targetPath);
  assertEquals([mount?.readOnly, more], [readonly, []], "mounts of the target");
  const flags = accessType?.case === "mount" ? accessType.value.mountFlags ?? [] : [];
  assertEquals(flags.filter((flag) => !mount?.flags?.includes(flag)), [], "flags that the mount lacks");
}
