import { run } from "./process.ts";
import type { RunFolder } from "./run_folder.ts";

/** The subject of a client certificate. */
export interface Identity {
  readonly user: string;
  readonly groups: readonly string[];
}

/** For how long certificates hold, in days. */
const DAYS = "365";

/** The file of the authority's certificate. */
export const CA = "certs/ca.crt";

/**
 * Makes a certificate authority in `certs` of the folder, and the key pair that signs tokens of service accounts.
 *
 * @throws {Error} when openssl is missing or fails
 */
export async function makeAuthority(folder: RunFolder): Promise<void> {
  await Deno.mkdir(folder.file("certs"), { mode: 0o700 });
  await openssl(folder, ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "certs/sa.key"]);
  await openssl(folder, [
    ...["req", "-x509", ...NEW_KEY, "-keyout", "certs/ca.key", "-out", CA, "-days", DAYS, "-subj", "/CN=denolith-rig"],
    // An authority and nothing else: rustls, and so Deno's fetch, refuses one that serves as well.
    ...["-addext", "keyUsage=critical,keyCertSign,cRLSign"],
  ]);
}

/** Makes `certs/NAME.crt` and `.key` for a server that is called by these names and addresses. */
export async function makeServerCertificate(folder: RunFolder, name: string, hosts: readonly string[]): Promise<void> {
  const names = hosts.map((host) => `${/^[\d.]+$/.test(host) ? "IP" : "DNS"}:${host}`).join(",");
  await sign(folder, name, { subject: `/CN=${name}`, usage: "serverAuth", extension: `subjectAltName=${names}` });
}

/** Makes `certs/NAME.crt` and `.key` for a client, and answers the paths. */
export async function makeClientCertificate(
  folder: RunFolder,
  name: string,
  identity: Identity,
): Promise<{ cert: string; key: string }> {
  // A subject for each group: openssl reads "/" as the end of one, which no group here has in its name.
  const subject = [...identity.groups.map((group) => `/O=${group}`), `/CN=${identity.user}`].join("");
  await sign(folder, name, { subject, usage: "clientAuth" });
  return { cert: folder.file(`certs/${name}.crt`), key: folder.file(`certs/${name}.key`) };
}

/** Returns the text of a kubeconfig with everything in it. */
export async function kubeconfigText(
  folder: RunFolder,
  server: string,
  user: { token: string } | { cert: string; key: string },
): Promise<string> {
  const data = async (path: string) => (await Deno.readFile(path)).toBase64();
  const login = "token" in user
    ? { token: user.token }
    : { "client-certificate-data": await data(user.cert), "client-key-data": await data(user.key) };
  const config = {
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "rig", cluster: { server, "certificate-authority-data": await data(folder.file(CA)) } }],
    users: [{ name: "user", user: login }],
    contexts: [{ name: "rig", context: { cluster: "rig", user: "user" } }],
    "current-context": "rig",
  };
  return JSON.stringify(config, null, 2) + "\n";
}

const NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

interface CertificateRequest {
  readonly subject: string;
  readonly usage: "serverAuth" | "clientAuth";
  /** A further extension. */
  readonly extension?: string;
}

async function sign(folder: RunFolder, name: string, { subject, usage, extension }: CertificateRequest): Promise<void> {
  const [key, csr, ext, crt] = ["key", "csr", "ext", "crt"].map((end) => `certs/${name}.${end}`) as [
    string,
    string,
    string,
    string,
  ];
  await openssl(folder, ["req", ...NEW_KEY, "-keyout", key, "-out", csr, "-subj", subject]);
  const extensions = [
    "basicConstraints=critical,CA:FALSE",
    `extendedKeyUsage=${usage}`,
    ...(extension ? [extension] : []),
  ];
  await Deno.writeTextFile(folder.file(ext), extensions.join("\n") + "\n");
  const ca = ["-CA", CA, "-CAkey", "certs/ca.key", "-set_serial", `0x${crypto.randomUUID().replaceAll("-", "")}`];
  await openssl(folder, ["x509", "-req", "-in", csr, ...ca, "-days", DAYS, "-extfile", ext, "-out", crt]);
}

async function openssl(folder: RunFolder, args: readonly string[]): Promise<void> {
  await run("make certificates", "openssl", args, { cwd: folder.path });
}
