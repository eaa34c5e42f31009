import { assertEquals } from "@std/assert";
import { fingerprintOfPem } from "./fingerprint.ts";

Deno.test("fingerprintOfPem() is that of one certificate of up to 4096 characters, and of nothing else", async () => {
  const pem = (body: string) => `-----BEGIN CERTIFICATE-----\n${body}-----END CERTIFICATE-----\n`;
  const longest = `${"A".repeat(4040)}\n\n`;
  assertEquals(pem(longest).length, 4096);
  const digest = (bytes: number) => crypto.subtle.digest("SHA-256", new Uint8Array(bytes));
  assertEquals(await fingerprintOfPem(pem(longest)), new Uint8Array(await digest(3030)).toHex());
  assertEquals(await fingerprintOfPem(pem("AAAA\n")), new Uint8Array(await digest(3)).toHex());
  for (const wrong of ["", "AAAA", pem(`${longest}\n`), pem("A\n"), pem("AAAA\n") + pem("AAAA\n")]) {
    assertEquals(await fingerprintOfPem(wrong), undefined, wrong);
  }
});
