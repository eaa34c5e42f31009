/**
 * The key of an agent, and a certificate that it signs itself. Both are new with each process, and are only in its memory.
 *
 * WebCrypto makes keys and signatures, and no certificates: so the few parts of one are written here, as DER (RFC 5280,
 * RFC 5480, ITU-T X.690).
 *
 * @module
 */

import { concatenate } from "../../lvm/transfers/protocol.ts";

/** The certificate and the key of an agent, as PEM. */
export interface Credentials {
  /** The certificate. */
  readonly certificate: string;
  /** The key. It never leaves the process. */
  readonly key: string;
  /** The time until which the certificate is valid, in milliseconds since 1970. */
  readonly validUntil: number;
}

/** How long a certificate is valid, in milliseconds. */
export const VALIDITY_MS: number = 48 * 60 * 60 * 1000;

/** How much the clock of another node may be behind, in milliseconds. */
const CLOCK_SKEW_MS = 60 * 60 * 1000;

const CURVE = { name: "ECDSA", namedCurve: "P-256" } as const;

/** Tags of DER. */
const TAG = { integer: 2, bits: 3, octets: 4, oid: 6, utf8: 12, utcTime: 23, time: 24, sequence: 0x30, set: 0x31 };

/** Object identifiers, encoded. */
const OID = {
  ecdsaWithSha256: [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
  commonName: [0x55, 0x04, 0x03],
  basicConstraints: [0x55, 0x1d, 0x13],
  keyUsage: [0x55, 0x1d, 0x0f],
  extendedKeyUsage: [0x55, 0x1d, 0x25],
  subjectAltName: [0x55, 0x1d, 0x11],
  serverAuth: [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01],
  clientAuth: [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02],
};

/** The maximum length of a common name (RFC 5280, ub-common-name). */
const MAX_COMMON_NAME_LENGTH = 64;

/**
 * Makes a key and a certificate for an agent.
 *
 * @param name the name of the node, which is informative: what counts is where the certificate stands
 * @param now the time
 */
export async function makeCredentials(name: string, now: Date): Promise<Credentials> {
  const pair = await crypto.subtle.generateKey(CURVE, true, ["sign", "verify"]);
  const publicKey = new Uint8Array(await crypto.subtle.exportKey("spki", pair.publicKey));
  const validUntil = now.getTime() + VALIDITY_MS;
  const signed = signedPart({ name, publicKey, from: now.getTime() - CLOCK_SKEW_MS, until: validUntil });
  const signature = await crypto.subtle.sign({ ...CURVE, hash: "SHA-256" }, pair.privateKey, signed);
  const certificate = sequence(signed, ALGORITHM, bits(encodeSignature(new Uint8Array(signature))));
  const key = new Uint8Array(await crypto.subtle.exportKey("pkcs8", pair.privateKey));
  return { certificate: pem("CERTIFICATE", certificate), key: pem("PRIVATE KEY", key), validUntil };
}

const ALGORITHM = sequence(der(TAG.oid, OID.ecdsaWithSha256));

/** Returns the part of a certificate that is signed (TBSCertificate). */
function signedPart({ name, publicKey, from, until }: {
  readonly name: string;
  readonly publicKey: Uint8Array;
  readonly from: number;
  readonly until: number;
}): Uint8Array<ArrayBuffer> {
  const commonName = new TextEncoder().encode(name.slice(0, MAX_COMMON_NAME_LENGTH));
  const distinguishedName = sequence(
    der(TAG.set, sequence(der(TAG.oid, OID.commonName), der(TAG.utf8, commonName))),
  );
  const serial = crypto.getRandomValues(new Uint8Array(16));
  serial[0]! = serial[0]! & 0x7f | 0x40; // positive, and without zeros that DER would leave out
  const extensions = sequence(
    extension(OID.basicConstraints, sequence(), { critical: true }), // no authority
    extension(OID.keyUsage, der(TAG.bits, [7, 0x80]), { critical: true }), // digitalSignature
    extension(OID.extendedKeyUsage, sequence(der(TAG.oid, OID.serverAuth), der(TAG.oid, OID.clientAuth))),
    extension(OID.subjectAltName, sequence(der(0x82, new TextEncoder().encode(name)))), // dNSName
  );
  return sequence(
    der(0xa0, der(TAG.integer, [2])), // version 3
    der(TAG.integer, serial),
    ALGORITHM,
    distinguishedName,
    sequence(encodeTime(from), encodeTime(until)),
    distinguishedName,
    publicKey,
    der(0xa3, extensions),
  );
}

function extension(oid: readonly number[], value: Uint8Array, { critical = false } = {}): Uint8Array {
  const parts = [der(TAG.oid, oid), ...(critical ? [der(1, [0xff])] : []), der(TAG.octets, value)];
  return sequence(...parts);
}

/** Encodes a time: up to the year 2049 with two digits of the year (RFC 5280, 4.1.2.5). */
function encodeTime(ms: number): Uint8Array {
  const digits = new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, "");
  const [tag, text] = digits < "2050" ? [TAG.utcTime, digits.slice(2)] : [TAG.time, digits];
  return der(tag, new TextEncoder().encode(text));
}

/** Encodes a signature of WebCrypto, two numbers in a row, as a certificate has it (RFC 3279, 2.2.3). */
function encodeSignature(signature: Uint8Array): Uint8Array {
  const [r, s] = [signature.subarray(0, 32), signature.subarray(32)].map((number) => {
    const first = number.findIndex((byte) => byte !== 0);
    const digits = number.subarray(first < 0 ? number.length - 1 : first);
    return der(TAG.integer, digits[0]! < 0x80 ? digits : [0, ...digits]);
  });
  return sequence(r!, s!);
}

function sequence(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  return der(TAG.sequence, concatenate(...parts));
}

function bits(bytes: Uint8Array): Uint8Array {
  return der(TAG.bits, [0, ...bytes]);
}

/** Encodes a value with its tag and its length. */
function der(tag: number, value: Uint8Array | readonly number[]): Uint8Array<ArrayBuffer> {
  const { length } = value;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return new Uint8Array([tag, ...size, ...value]);
}

function pem(label: string, bytes: Uint8Array<ArrayBuffer>): string {
  const lines = bytes.toBase64().match(/.{1,64}/g)!;
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ""].join("\n");
}
