import { differencesContract } from "./differences_suite.ts";
import { fakeHost } from "./helpers/fake_host.ts";
import { metadataSnapshotsContract } from "./metadata_snapshots_suite.ts";

differencesContract(fakeHost);
metadataSnapshotsContract(fakeHost);
