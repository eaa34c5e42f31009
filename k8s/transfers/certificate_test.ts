import { assert, assertEquals } from "@std/assert";
import { X509Certificate } from "node:crypto";
import { makeCredentials } from "./certificate.ts";

/** The identifiers of extensions, and whether who does not know them must refuse the certificate (RFC 5280, 4.2). */
const EXTENSIONS = {
  basicConstraints: "0603551d130101ff04",
  keyUsage: "0603551d0f0101ff04",
  extendedKeyUsage: "0603551d2504",
  subjectAltName: "0603551d1104",
};

Deno.test("a certificate is one that others read: its names, its times, its use, and its own signature", async () => {
  // the length of a value of up to 127 bytes takes one byte, of up to 255 two
  for (const name of ["node-1", "a".repeat(127), "a".repeat(128), `${"a".repeat(63)}.${"b".repeat(63)}.example.com`]) {
    const { certificate, key, validUntil } = await makeCredentials(name, new Date("2026-03-01T12:00:00Z"));
    const read = new X509Certificate(certificate);
    assertEquals(read.subject, `CN=${name.slice(0, 64)}`);
    assertEquals([read.subjectAltName, read.ca], [`DNS:${name}`, false]);
    assertEquals([Date.parse(read.validFrom), Date.parse(read.validTo)], [
      Date.parse("2026-03-01T11:00:00Z"),
      validUntil,
    ]);
    assertEquals(new Date(validUntil).toISOString(), "2026-03-03T12:00:00.000Z");
    assert(read.verify(read.publicKey), "it is signed by its own key");
    const hex = read.raw.toString("hex");
    for (const [extension, begin] of Object.entries(EXTENSIONS)) assert(hex.includes(begin), extension);
    assert(key.startsWith("-----BEGIN PRIVATE KEY-----\n"), key);
  }
});

Deno.test("a hundred certificates are all valid: numbers of any length, with any first digit", async () => {
  const serials = new Set<string>();
  for (let count = 0; count < 100; count++) {
    const read = new X509Certificate((await makeCredentials("node-1", new Date())).certificate);
    assert(read.verify(read.publicKey));
    serials.add(read.serialNumber);
  }
  assertEquals(serials.size, 100);
});

Deno.test("a certificate is valid beyond the year 2049", async () => {
  const read = new X509Certificate((await makeCredentials("node-1", new Date("2055-06-01T00:00:00Z"))).certificate);
  assertEquals(new Date(read.validTo).toISOString(), "2055-06-03T00:00:00.000Z");
});
