import { apiContract, type ApiHost, networkContract, things } from "../contract/api_suite.ts";
import { FakeApiServer } from "../fake/cluster/api_server.ts";

const host: ApiHost = {
  name: "the fake API server",
  start: () => {
    const fake = FakeApiServer.start({ resources: [things] });
    const server = { url: fake.url };
    return Promise.resolve({ server, [Symbol.asyncDispose]: () => fake[Symbol.asyncDispose]() });
  },
};

apiContract(host);
networkContract(host);
