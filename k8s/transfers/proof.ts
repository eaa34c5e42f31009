/**
 * Fingerprints of certificates, and the proof of an agent that it has the key of the certificate in its LVMNode.
 *
 * TLS alone does not prove it to the client: beside that certificate, Deno accepts those that any public authority signed, for
 * any name. So the client sends bytes that it chooses, and the agent signs them with the fingerprint of the client's
 * certificate. Who stands between the two cannot pass the signature on: it has no key for that certificate, so the agent
 * signs another fingerprint for it.
 *
 * @module
 */

import { type Bytes, concatenate } from "../../lvm/transfers/protocol.ts";

/** The number of bytes that a client chooses. */
export const CHALLENGE_BYTES = 32;

/** The number of bytes of a proof: two numbers of 32 bytes. */
export const PROOF_BYTES = 64;

/** What sets these signatures apart from any other of the same key. */
const PURPOSE = "denolith: the agent that answers ";

const CURVE = { name: "ECDSA", namedCurve: "P-256" } as const;
const SIGNATURE = { name: "ECDSA", hash: "SHA-256" } as const;

/**
 * Makes a proof.
 *
 * @param key the key of the agent, as PEM
 * @param fingerprint that of the client's certificate
 */
export async function makeProof(key: string, challenge: Bytes, fingerprint: string): Promise<Bytes> {
  const der = Uint8Array.fromBase64(key.replaceAll(/-----[A-Z ]+-----|\n/g, ""));
  const privateKey = await crypto.subtle.importKey("pkcs8", der, CURVE, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign(SIGNATURE, privateKey, signedBytes(challenge, fingerprint)));
}

/**
 * Reports whether a proof is that of the agent with a certificate.
 *
 * @param certificate the certificate, as PEM
 * @param fingerprint that of the client's certificate
 * @throws {Error} when the certificate has no key of this kind
 */
export async function isProof(
  certificate: string,
  proof: Bytes,
  { challenge, fingerprint }: { readonly challenge: Bytes; readonly fingerprint: string },
): Promise<boolean> {
  const { X509Certificate } = await import("node:crypto"); // needed only where transfers are on
  const der = new X509Certificate(certificate).publicKey.export({ format: "der", type: "spki" });
  const publicKey = await crypto.subtle.importKey("spki", new Uint8Array(der), CURVE, false, ["verify"]);
  return await crypto.subtle.verify(SIGNATURE, publicKey, proof, signedBytes(challenge, fingerprint));
}

function signedBytes(challenge: Bytes, fingerprint: string): Bytes {
  return concatenate(new TextEncoder().encode(`${PURPOSE}${fingerprint} `), challenge);
}

/** The maximum length of a certificate of an agent, as PEM: what is longer is not ours. */
const MAX_PEM_LENGTH = 4096;

/** Returns the fingerprint of a certificate: the SHA-256 of its DER, in hexadecimal. */
export async function fingerprintOf(der: Uint8Array<ArrayBuffer>): Promise<string> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", der)).toHex();
}

/** Returns the fingerprint of a certificate as PEM; `undefined` when it is not one certificate. */
export async function fingerprintOfPem(pem: string): Promise<string | undefined> {
  if (pem.length > MAX_PEM_LENGTH) return undefined;
  const [, text] = /^-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)-----END CERTIFICATE-----\n?$/.exec(pem) ?? [];
  if (text === undefined) return undefined;
  try {
    return await fingerprintOf(Uint8Array.fromBase64(text.replaceAll("\n", "")));
  } catch {
    return undefined;
  }
}
