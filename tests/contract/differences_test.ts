import { differencesContract } from "./differences.ts";
import { fakeHost } from "./fake_host.ts";

differencesContract(fakeHost);
