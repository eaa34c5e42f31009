import { contractTests } from "./contract/all.ts";
import { layoutsContract } from "./contract/layouts.ts";
import { fakeHost, fakeMultiPvHost } from "./contract/fake_host.ts";

contractTests(fakeHost);
layoutsContract(fakeMultiPvHost);
