// Usage: node registry.js URL SUBJECT; prints one JSON object that the test compares.
const { SchemaRegistry, SchemaType } = require("@kafkajs/confluent-schema-registry");

const ORDER = { type: "record", name: "Order", fields: [{ name: "id", type: "long" }, { name: "item", type: "string" }] };

async function main(host, subject) {
  const registry = new SchemaRegistry({ host });
  const seen = {};
  const { id } = await registry.register({ type: SchemaType.AVRO, schema: JSON.stringify(ORDER) }, { subject });
  seen.again = (await registry.register({ type: SchemaType.AVRO, schema: JSON.stringify(ORDER) }, { subject })).id === id;
  seen.latest = (await registry.getLatestSchemaId(subject)) === id;
  const data = await registry.encode(id, { id: 7, item: "tea" });
  seen.magic = [data[0], data.readInt32BE(1) === id];
  const fresh = new SchemaRegistry({ host });
  const read = await fresh.decode(data);
  seen.read = [Number(read.id), read.item];
  try {
    await registry.register({ type: SchemaType.AVRO, schema: '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}' }, { subject });
  } catch (problem) {
    seen.refused = problem.status || problem.message;
  }
  try {
    await registry.getSchema(123456);
  } catch (problem) {
    seen.missing = problem.status || problem.message;
  }
  console.log(JSON.stringify(seen));
}

main(...process.argv.slice(2)).catch((problem) => {
  console.error(problem);
  process.exit(1);
});
