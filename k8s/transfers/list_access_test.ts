import { assertEquals, assertRejects } from "@std/assert";
import { StorageError } from "../../base/error.ts";
import { snapshotIdOf } from "../../base/ids.ts";
import { FakeClock } from "../../tests/fake/clock.ts";
import type { LvmSnapshot } from "../api/lvm_objects.ts";
import { formatListGrant, listGrantAnnotation } from "../api/transfers.ts";
import { requireListAllowed } from "./access.ts";
import type { Peer } from "./listener.ts";

const driver = "lvm.denolith.dev";
const target = snapshotIdOf("s");
const [fingerprint, other] = ["ab".repeat(32), "cd".repeat(32)];
const clock = new FakeClock();
const now = clock.date().getTime();
const peer: Peer = { address: "10.0.0.1", fingerprint, validUntil: now + 1 };

/** Returns an LVMSnapshot with a permission. */
function snapshotWith(annotations: Record<string, string>, driverName = driver): LvmSnapshot {
  return { metadata: { name: target, annotations }, spec: { driverName } } as unknown as LvmSnapshot;
}

const grant = (value = formatListGrant({ fingerprint, until: now + 1 })) => ({
  [listGrantAnnotation({ fingerprint })]: value,
});

/** Asks for a list. @returns whether it is allowed, or the reason of the refusal */
async function ask(object: LvmSnapshot | undefined, as: Peer = peer, ofDriver = driver): Promise<string> {
  const waitFor = (_key: string, isSo: (object: LvmSnapshot | undefined) => boolean) =>
    isSo(object) ? Promise.resolve(object) : Promise.reject(new Error("not so in time"));
  const call = () => requireListAllowed({ driver: ofDriver, target }, as, { driver, snapshots: { waitFor }, clock });
  try {
    await call();
    return "allowed";
  } catch {
    const error = await assertRejects(call, StorageError);
    return `${error.kind}: ${error.message.replace(/^.*?: /, "")}`;
  }
}

Deno.test("a list is allowed to the connection that the LVMSnapshot names, and to nobody else", async () => {
  assertEquals(await ask(snapshotWith(grant())), "allowed");
  const nobody = "Unavailable: there is no permission for its connection yet";
  assertEquals(await ask(undefined), nobody);
  assertEquals(await ask(snapshotWith({})), nobody);
  assertEquals(await ask(snapshotWith(grant(), "other.driver")), nobody);
  assertEquals(await ask(snapshotWith(grant()), { ...peer, fingerprint: other }), nobody);
  // a name that fits, and another certificate
  assertEquals(await ask(snapshotWith(grant(formatListGrant({ fingerprint: other, until: now + 1 })))), nobody);
  const longer = fingerprint.slice(0, 60) + "ffff";
  assertEquals(await ask(snapshotWith(grant(formatListGrant({ fingerprint: longer, until: now + 1 })))), nobody);
  for (const value of ["", fingerprint, `${fingerprint} soon`, `x ${new Date(now + 1).toISOString()}`]) {
    assertEquals(await ask(snapshotWith(grant(value))), nobody, value);
  }
});

Deno.test("neither a permission nor a certificate is used that is over, nor that of another driver", async () => {
  const over = snapshotWith(grant(formatListGrant({ fingerprint, until: now })));
  assertEquals(await ask(over), "Unavailable: the permission is over");
  const allowed = snapshotWith(grant());
  for (const validUntil of [now, NaN]) {
    assertEquals(
      await ask(allowed, { ...peer, validUntil }),
      "Unavailable: the certificate of the controller is no longer valid",
    );
  }
  assertEquals(await ask(allowed, peer, "other.driver"), "Unavailable: it is of another driver");
});
