import { assertEquals } from "@std/assert";
import { makeCredentials } from "./certificate.ts";
import { CHALLENGE_BYTES, fingerprintOfPem, isProof, makeProof, PROOF_BYTES } from "./proof.ts";

Deno.test("a proof is for one certificate, one client and one challenge", async () => {
  const [a, other] = await Promise.all([makeCredentials("a", new Date()), makeCredentials("a", new Date())]);
  const [challenge, changed] = [new Uint8Array(CHALLENGE_BYTES).fill(7), new Uint8Array(CHALLENGE_BYTES).fill(8)];
  const proof = await makeProof(a.key, challenge, "ab".repeat(32));
  assertEquals(proof.length, PROOF_BYTES);
  const asked = { challenge, fingerprint: "ab".repeat(32) };
  assertEquals(await isProof(a.certificate, proof, asked), true);
  assertEquals(await isProof(other.certificate, proof, asked), false);
  assertEquals(await isProof(a.certificate, proof, { ...asked, challenge: changed }), false);
  assertEquals(await isProof(a.certificate, proof, { ...asked, fingerprint: "cd".repeat(32) }), false);
  assertEquals(await isProof(a.certificate, new Uint8Array(PROOF_BYTES), asked), false);
});

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
