import { assertEquals } from "@std/assert";
import { FakeControlPlane, waitUntil } from "../../tests/fake/control_plane.ts";
import { persistentVolumeClaims } from "../api/objects.ts";
import { CloningProtection } from "./cloning_protection.ts";
import { CLONING_FINALIZER } from "./content_source.ts";

Deno.test("CloningProtection keeps a claim until no pending claim of its namespace is cloned from it", async () => {
  await using cluster = await FakeControlPlane.start({ withBinder: false });
  const { client } = cluster;
  const dataSource = { kind: "PersistentVolumeClaim", name: "source" };
  const finalizers = ["example.com/other", CLONING_FINALIZER];
  cluster.addClaim("source", {}, { finalizers });
  cluster.addClaim("clone", { dataSource });
  cluster.addClaim("unrelated", { dataSource: { ...dataSource, name: "other" } });
  cluster.addClaim("elsewhere", { dataSource }, { namespace: "elsewhere" });
  await client.delete(persistentVolumeClaims, { namespace: "default", name: "source" });

  const attempts: string[] = [];
  const options = { ...cluster.controllerOptions(), onReconciled: ({ key }: { key: string }) => attempts.push(key) };
  await options.claims.synced;
  cluster.run((signal) => new CloningProtection(options).run(signal));
  const isDone = () => attempts.includes("default/source");
  await waitUntil(isDone, "a reconcile attempt");
  assertEquals(cluster.storedClaim("source")?.metadata.finalizers, finalizers);

  const bound = { merge: { status: { phase: "Bound" } }, subresource: "status" } as const;
  await client.patch(persistentVolumeClaims, { namespace: "default", name: "clone" }, bound);
  await waitUntil(() => cluster.storedClaim("source")?.metadata.finalizers?.length === 1, "the finalizer's removal");
  assertEquals(cluster.storedClaim("source")?.metadata.finalizers, ["example.com/other"]);
});
