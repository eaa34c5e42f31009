import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { offlineGuide } from "./offline.ts";

const DIGEST = `sha256:${"ab".repeat(32)}`;

Deno.test("the guide names the image as the chart does", () => {
  const text = offlineGuide({ registry: "registry.example/team" }, DIGEST);
  assertStringIncludes(text, "--base-name registry.example/team/denolith ");
  assertStringIncludes(text, "Or apply `install.yaml`.\n");
  assert(!text.includes(DIGEST));
});

Deno.test("without a registry, the guide's commands make the chart take the image that was imported, and no manifests are named", () => {
  const text = offlineGuide({}, DIGEST);
  assertStringIncludes(text, "--base-name docker.io/library/denolith ");
  assertEquals(text.match(/^helm install .*image\.digest.*$/gm), [
    text.match(/^helm install .* --set image\.digest=sha256:(?:ab){32},image\.pullPolicy=Never$/m)?.[0] ?? "none",
  ]);
  assert(!text.includes("install.yaml"));
});
