// Usage: node round_trip.js HOST:PORT TOPIC; prints one JSON object that the test compares.
const { connect } = require("./connection");

async function main(bootstrap, topic) {
  const kafka = connect("conformance", bootstrap);
  const admin = kafka.admin();
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 5 });
  const seen = {};
  await admin.connect();
  await producer.connect();
  seen.created = await admin.createTopics({
    waitForLeaders: true,
    topics: [{ topic, numPartitions: 2, configEntries: [{ name: "retention.ms", value: "777777" }] }],
  });
  seen.createdAgain = await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] });
  const messages = Array.from({ length: 50 }, (_, n) => ({
    key: `key ${n}`, value: `value ${n}`, headers: { number: `${n}` }, partition: n % 2,
  }));
  const sent = await producer.send({ topic, messages, acks: -1 });
  seen.sent = sent.map(({ partition, errorCode, baseOffset }) => [partition, errorCode, baseOffset]).sort();
  const packed = await producer.send({ topic, messages: [{ value: "x".repeat(1000), partition: 0 }], compression: 1 });
  seen.packed = packed[0].baseOffset;
  const offsets = await admin.fetchTopicOffsets(topic);
  seen.offsets = offsets.map(({ partition, low, high }) => [partition, low, high]).sort();
  const later = await admin.fetchTopicOffsetsByTimestamp(topic, Date.now() + 60000);
  seen.later = later.map(({ partition, offset }) => [partition, offset]).sort();
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] });
  seen.partitions = metadata.topics[0].partitions.length;
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] });
  const cluster = await admin.describeCluster();
  seen.brokers = cluster.brokers.map(({ nodeId, host, port }) => [nodeId, `${host}:${port}`]);
  seen.controller = cluster.controller;
  const configs = await admin.describeConfigs({
    includeSynonyms: false, resources: [{ type: 2, name: topic, configNames: ["retention.ms"] }],
  });
  seen.retention = configs.resources[0].configEntries.map(({ configValue }) => configValue);
  await admin.alterConfigs({
    validateOnly: false,
    resources: [{ type: 2, name: topic, configEntries: [{ name: "retention.ms", value: "888888" }] }],
  });
  seen.listed = (await admin.listTopics()).includes(topic);
  await admin.deleteTopics({ topics: [topic] });
  await producer.disconnect();
  await admin.disconnect();
  console.log(JSON.stringify(seen));
}

main(process.argv[2], process.argv[3]).catch((problem) => {
  console.error(problem);
  process.exit(1);
});
