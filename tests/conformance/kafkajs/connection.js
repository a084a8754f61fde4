// How the broker is reached: over TLS with a login, if the test says so.
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

exports.connect = (clientId, bootstrap) => {
  const { OTTLA_TEST_CA: ca, OTTLA_TEST_USER: username, OTTLA_TEST_PASSWORD: password } = process.env;
  const security = ca
    ? { ssl: { ca: [fs.readFileSync(ca, "utf-8")] }, sasl: { mechanism: "scram-sha-512", username, password } }
    : {};
  return new Kafka({ clientId, brokers: [bootstrap], logLevel: logLevel.ERROR, ...security });
};
