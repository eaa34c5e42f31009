/**
 * Signatures by a key, in the forms that `cosign verify --key`, `cosign verify-blob --key` and openssl accept.
 *
 * @module
 */

import { createPrivateKey, createPublicKey, type KeyObject, sign } from "node:crypto";
import { type Descriptor, OCI_TYPES, type OciLayout } from "./oci.ts";

/** Type of the payload of an attestation (in-toto). */
const STATEMENT_TYPE = "application/vnd.in-toto+json";

/** A private key on the curve P-256, as `cosign generate-key-pair` and openssl make them. */
export class Signer {
  readonly #key: KeyObject;

  /**
   * Reads a key.
   *
   * @param pem PKCS#8 or SEC 1 in PEM, without a password
   * @throws {Error} when it is no such key
   */
  constructor(pem: string) {
    try {
      this.#key = createPrivateKey(pem);
    } catch (cause) {
      throw new Error(`read the key: it is no private key in PEM without a password`, { cause });
    }
    const { asymmetricKeyType, asymmetricKeyDetails } = this.#key;
    if (asymmetricKeyType !== "ec" || asymmetricKeyDetails?.namedCurve !== "prime256v1") {
      throw new Error("read the key: it must be an ECDSA key on the curve P-256");
    }
  }

  /** The public key in PEM, for those who verify. */
  get publicKey(): string {
    return createPublicKey(this.#key).export({ type: "spki", format: "pem" }) as string;
  }

  /** Returns a signature of the bytes' SHA-256, in DER and base64. Two signatures of the same bytes differ. */
  sign(bytes: Uint8Array): string {
    return sign("sha256", bytes, this.#key).toString("base64");
  }
}

/**
 * Returns a signed statement as an envelope (DSSE 1.0, protocol.md).
 *
 * @param statement an in-toto statement
 */
export function envelopeOf(statement: object, signer: Signer): string {
  const encoder = new TextEncoder();
  const body = encoder.encode(JSON.stringify(statement));
  const head = encoder.encode(`DSSEv1 ${STATEMENT_TYPE.length} ${STATEMENT_TYPE} ${body.length} `);
  const sig = signer.sign(new Uint8Array([...head, ...body]));
  return JSON.stringify({ payloadType: STATEMENT_TYPE, payload: body.toBase64(), signatures: [{ keyid: "", sig }] });
}

/** Returns the tag under which cosign looks for what is said of an image: `sig`, its signature, or `att`, its provenance. */
export function cosignTag(digest: string, kind: "sig" | "att"): string {
  return `${digest.replace(":", "-")}.${kind}`;
}

/** Adds the signature of an image or artifact to a layout of its own (cosign, specs/SIGNATURE_SPEC.md). */
export async function addSignature(layout: OciLayout, digest: string, signer: Signer): Promise<Descriptor> {
  const payload = JSON.stringify({
    critical: {
      identity: { "docker-reference": "" },
      image: { "docker-manifest-digest": digest },
      type: "cosign container image signature",
    },
    optional: null,
  });
  const layer = await layout.add(payload, "application/vnd.dev.cosign.simplesigning.v1+json");
  return await addStatement(layout, layer, {
    "dev.cosignproject.cosign/signature": signer.sign(new TextEncoder().encode(payload)),
  });
}

/** Adds a signed statement about an image or artifact to a layout of its own (cosign, specs/ATTESTATION_SPEC.md). */
export async function addAttestation(
  layout: OciLayout,
  envelope: string,
  predicateType: string,
): Promise<Descriptor> {
  const layer = await layout.add(envelope, "application/vnd.dsse.envelope.v1+json");
  return await addStatement(layout, layer, { "dev.cosignproject.cosign/signature": "", predicateType });
}

/** Adds a manifest of one layer, whose annotations have what cosign reads. */
async function addStatement(
  layout: OciLayout,
  layer: Descriptor,
  annotations: Readonly<Record<string, string>>,
): Promise<Descriptor> {
  const rootfs = { type: "layers", diff_ids: [layer.digest] };
  const config = await layout.add({ architecture: "", os: "", config: {}, rootfs }, OCI_TYPES.config);
  return await layout.addManifest({ config, layers: [{ ...layer, annotations }] });
}
