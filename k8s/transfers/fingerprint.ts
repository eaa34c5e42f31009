/**
 * Fingerprints of certificates.
 *
 * @module
 */

/** The maximum length of a certificate of an agent, as PEM: what is longer is none of ours. */
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
