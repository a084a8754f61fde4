// Usage: node groups.js HOST:PORT TOPIC; two members of a group, and a copy with transactions; prints one JSON object.
const { connect } = require("./connection");

const RECORDS = 100;

function until(check) {
  return new Promise((resolve, reject) => {
    const deadline = Date.now() + 30000;
    const timer = setInterval(() => {
      if (check()) { clearInterval(timer); resolve(); }
      else if (Date.now() > deadline) { clearInterval(timer); reject(new Error("too late")); }
    }, 20);
  });
}

async function readTogether(kafka, topic, groupId) {
  const values = new Set();
  const members = [kafka.consumer({ groupId, sessionTimeout: 6000 }), kafka.consumer({ groupId, sessionTimeout: 6000 })];
  const joined = [];
  for (const member of members) {
    member.on(member.events.GROUP_JOIN, ({ payload }) => joined.push(payload.groupId));
    await member.connect();
    await member.subscribe({ topics: [topic], fromBeginning: true });
    await member.run({ eachMessage: async ({ message }) => { values.add(message.value.toString()); } });
  }
  await until(() => values.size === RECORDS && joined.length >= 2);
  for (const member of members) await member.disconnect(); // commits, then leaves
  return values.size;
}

// Consume, produce and commit the place in one transaction; the first one is taken back and done again.
async function copy(kafka, source, target, groupId) {
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, readUncommitted: false });
  const producer = kafka.producer({ transactionalId: groupId, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topics: [source], fromBeginning: true });
  let copied = 0;
  let aborted = 0;
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch }) => {
      const messages = batch.messages.map(({ value }) => ({ value }));
      if (aborted === 0) {
        const taken = await producer.transaction();
        await taken.send({ topic: target, messages });
        await taken.abort();
        aborted = messages.length;
      }
      const kept = await producer.transaction();
      await kept.send({ topic: target, messages });
      const offset = (BigInt(batch.lastOffset()) + 1n).toString();
      await kept.sendOffsets({
        consumerGroupId: groupId, topics: [{ topic: source, partitions: [{ partition: batch.partition, offset }] }],
      });
      await kept.commit();
      copied += messages.length;
    },
  });
  await until(() => copied === RECORDS);
  await consumer.disconnect();
  await producer.disconnect();
  return { copied, aborted: aborted > 0 };
}

async function countCommitted(kafka, topic, groupId) {
  const consumer = kafka.consumer({ groupId, readUncommitted: false });
  let count = 0;
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({ eachMessage: async () => { count += 1; } });
  await until(() => count >= RECORDS);
  await new Promise((resolve) => setTimeout(resolve, 500));
  await consumer.disconnect();
  return count;
}

async function main(bootstrap, topic) {
  const kafka = connect("conformance", bootstrap);
  const admin = kafka.admin();
  const [source, target] = [`${topic}-source`, `${topic}-target`];
  await admin.connect();
  await admin.createTopics({
    waitForLeaders: true, topics: [source, target].map((name) => ({ topic: name, numPartitions: 2 })),
  });
  const producer = kafka.producer();
  await producer.connect();
  const messages = Array.from({ length: RECORDS }, (_, n) => ({ value: `value ${n}`, partition: n % 2 }));
  await producer.send({ topic: source, messages });
  await producer.disconnect();
  const seen = {};
  const [readers, copiers] = [`${topic}-readers`, `${topic}-copiers`];
  seen.read = await readTogether(kafka, source, readers);
  Object.assign(seen, await copy(kafka, source, target, copiers));
  seen.committed = await countCommitted(kafka, target, `${topic}-counters`);
  for (const groupId of [readers, copiers]) {
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [source] });
    seen[groupId.slice(topic.length + 1)] = partitions.map(({ partition, offset }) => [partition, offset]).sort();
  }
  const { groups } = await admin.describeGroups([readers]);
  seen.state = groups[0].state;
  seen.listed = (await admin.listGroups()).groups.some(({ groupId }) => groupId === readers);
  await admin.setOffsets({ groupId: readers, topic: source, partitions: [{ partition: 0, offset: "7" }] });
  const [{ partitions }] = await admin.fetchOffsets({ groupId: readers, topics: [source] });
  seen.reset = partitions.find(({ partition }) => partition === 0).offset;
  await admin.deleteGroups([readers, copiers, `${topic}-counters`]);
  await admin.deleteTopics({ topics: [source, target] });
  await admin.disconnect();
  console.log(JSON.stringify(seen));
}

main(process.argv[2], process.argv[3]).catch((problem) => {
  console.error(problem);
  process.exit(1);
});
