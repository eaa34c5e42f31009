import { contractTests } from "./contract/all.ts";
import { layoutsContract } from "./contract/layouts.ts";
import { fakeDisksHost, fakeHost } from "./contract/fake_host.ts";

contractTests(fakeHost);
layoutsContract(fakeDisksHost);
