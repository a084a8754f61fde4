import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's own Java clients against a broker: every check prints one JSON line {"name": ..., "result": ...},
 * or {"name": ..., "error": class of the exception}. The test that starts this program knows what is right.
 *
 * Usage: java -cp 'jars/*' Conformance.java HOST:PORT TOPIC_PREFIX
 */
public class Conformance {
    private static final Duration WAIT = Duration.ofSeconds(15);
    private static final long WAIT_MS = WAIT.toMillis();

    private final String bootstrap;
    private final String prefix;
    private final Admin admin;

    Conformance(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
        this.admin = Admin.create(clientProperties());
    }

    public static void main(String[] arguments) {
        Conformance conformance = new Conformance(arguments[0], arguments[1]);
        conformance.checkProducers();
        conformance.checkConsumers();
        conformance.checkTopics();
        conformance.checkConfigs();
        conformance.checkOffsets();
        conformance.checkCluster();
        conformance.admin.close(WAIT);
    }

    // ---- producers

    private void checkProducers() {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            check("round trip " + codec, () -> roundTrip(codec));
        }
        for (String acks : List.of("0", "1", "all")) {
            check("acks " + acks, () -> produceWithAcks(acks));
        }
        check("idempotent pipelining", this::idempotentPipelining);
        check("too large", this::tooLarge);
        check("topic created by sending", this::topicCreatedBySending);
        check("keys keep their partition", this::keysKeepTheirPartition);
        check("log append time", this::logAppendTime);
        check("compacted topic without key", this::compactedWithoutKey);
    }

    private Object roundTrip(String codec) throws Exception {
        String topic = createTopic("codec-" + codec, 1, Map.of());
        List<Long> offsets = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(Map.of("compression.type", codec, "linger.ms", "20"))) {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (int number = 0; number < 200; number++) {
                ProducerRecord<String, String> record =
                    new ProducerRecord<>(topic, null, 1_000L + now(), "key " + number, "value " + number);
                record.headers().add("number", Integer.toString(number).getBytes(StandardCharsets.UTF_8));
                futures.add(producer.send(record));
            }
            for (Future<RecordMetadata> future : futures) {
                offsets.add(future.get().offset());
            }
        }
        List<ConsumerRecord<String, String>> records = readAll(topic, 200, Map.of());
        boolean areEqual = true;
        for (int number = 0; number < records.size(); number++) {
            ConsumerRecord<String, String> record = records.get(number);
            String header = new String(record.headers().lastHeader("number").value(), StandardCharsets.UTF_8);
            areEqual &= record.key().equals("key " + number) && record.value().equals("value " + number)
                && header.equals(Integer.toString(number)) && record.offset() == number
                && record.leaderEpoch().equals(Optional.of(0));
        }
        return List.of(offsets.get(0), offsets.get(199), records.size(), areEqual);
    }

    private Object produceWithAcks(String acks) throws Exception {
        String topic = createTopic("acks-" + acks, 1, Map.of());
        boolean isIdempotent = acks.equals("all");
        RecordMetadata metadata;
        try (KafkaProducer<String, String> producer =
                 producer(Map.of("acks", acks, "enable.idempotence", Boolean.toString(isIdempotent)))) {
            metadata = producer.send(new ProducerRecord<>(topic, "value")).get();
        }
        return List.of(metadata.hasOffset() ? metadata.offset() : -1, readAll(topic, 1, Map.of()).size());
    }

    private Object idempotentPipelining() throws Exception {
        String topic = createTopic("idempotent", 1, Map.of());
        try (KafkaProducer<String, String> producer = producer(Map.of("batch.size", "100"))) {
            for (int number = 0; number < 500; number++) {
                producer.send(new ProducerRecord<>(topic, Integer.toString(number)));
            }
            producer.flush();
        }
        List<ConsumerRecord<String, String>> records = readAll(topic, 500, Map.of("isolation.level", "read_committed"));
        boolean isOrdered = true;
        for (int number = 0; number < records.size(); number++) {
            isOrdered &= records.get(number).value().equals(Integer.toString(number));
        }
        return List.of(records.size(), isOrdered);
    }

    private Object tooLarge() throws Exception {
        String topic = createTopic("large", 1, Map.of());
        try (KafkaProducer<String, String> producer = producer(Map.of("max.request.size", "5000000"))) {
            String problem = causeOf(() -> producer.send(new ProducerRecord<>(topic, "x".repeat(2_000_000))).get());
            return List.of(problem, producer.send(new ProducerRecord<>(topic, "small")).get().offset());
        }
    }

    private Object topicCreatedBySending() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            return producer.send(new ProducerRecord<>(prefix + "-sent", "value")).get().offset();
        }
    }

    private Object keysKeepTheirPartition() throws Exception {
        String topic = createTopic("keys", 4, Map.of());
        Map<String, Object> homes = new TreeMap<>();
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (String key : List.of("a", "b", "c", "d", "e", "f")) {
                homes.put(key, producer.send(new ProducerRecord<>(topic, key, "value")).get().partition());
            }
        }
        return homes;
    }

    private Object logAppendTime() throws Exception {
        String topic = createTopic("append-time", 1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = now();
        long told;
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            told = producer.send(new ProducerRecord<>(topic, null, 5L, "key", "value")).get().timestamp();
        }
        ConsumerRecord<String, String> record = readAll(topic, 1, Map.of()).get(0);
        return List.of(record.timestampType().toString(), record.timestamp() == told, told >= before);
    }

    private Object compactedWithoutKey() throws Exception {
        String topic = createTopic("compacted", 1, Map.of("cleanup.policy", "compact"));
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            return causeOf(() -> producer.send(new ProducerRecord<>(topic, "value")).get());
        }
    }

    // ---- consumers

    private void checkConsumers() {
        check("consumer offsets", this::consumerOffsets);
        check("consumer out of range", this::consumerOutOfRange);
        check("consumer woken", this::consumerWoken);
        check("consumer many partitions", this::consumerManyPartitions);
        for (String level : List.of("read_committed", "read_uncommitted")) {
            check("consumer " + level, () -> readAll(prefix + "-idempotent", 500, Map.of("isolation.level", level)).size());
        }
    }

    private Object consumerOffsets() throws Exception {
        String topic = createTopic("offsets", 2, Map.of());
        TopicPartition home = new TopicPartition(topic, 0);
        TopicPartition other = new TopicPartition(topic, 1);
        long start = now() - 100_000;
        fill(topic, start);
        Map<String, Object> result = new LinkedHashMap<>();
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            consumer.assign(List.of(home, other));
            result.put("beginning", consumer.beginningOffsets(List.of(home, other)).values().stream().mapToLong(n -> n).sum());
            result.put("end", consumer.endOffsets(List.of(home, other)).get(home));
            Map<TopicPartition, OffsetAndTimestamp> found = consumer.offsetsForTimes(Map.of(home, start + 4500, other, start));
            result.put("by time", found.get(home).offset());
            result.put("by time, epoch", found.get(home).leaderEpoch().orElse(-1));
            result.put("by time, none", found.get(other) == null);
            consumer.seek(home, 8);
            result.put("position", consumer.position(home));
            result.put("value", consumer.poll(WAIT).iterator().next().value());
            consumer.seekToBeginning(List.of(home));
            result.put("again", consumer.poll(WAIT).iterator().next().value());
            consumer.seekToEnd(List.of(home));
            result.put("end position", consumer.position(home));
            result.put("lag", consumer.currentLag(home).orElse(-1));
            result.put("partitions", consumer.partitionsFor(topic).size());
            result.put("listed", consumer.listTopics().containsKey(topic));
        }
        return result;
    }

    private Object consumerOutOfRange() throws Exception {
        TopicPartition home = new TopicPartition(createTopic("range", 1, Map.of()), 0);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("auto.offset.reset", "none"))) {
            consumer.assign(List.of(home));
            consumer.seek(home, 77);
            try {
                consumer.poll(WAIT);
                return "nothing";
            } catch (OffsetOutOfRangeException problem) {
                return problem.offsetOutOfRangePartitions().get(home);
            }
        }
    }

    private Object consumerWoken() throws Exception {
        String topic = createTopic("woken", 1, Map.of());
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("fetch.max.wait.ms", "2500"));
             KafkaProducer<String, String> producer = producer(Map.of())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(consumer.assignment());
            consumer.poll(Duration.ofMillis(300));
            long started = now();
            producer.send(new ProducerRecord<>(topic, "news")).get();
            String value = consumer.poll(WAIT).iterator().next().value();
            return List.of(value, now() - started < 1500);
        }
    }

    private Object consumerManyPartitions() throws Exception {
        String topic = createTopic("many", 20, Map.of());
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int number = 0; number < 1000; number++) {
                producer.send(new ProducerRecord<>(topic, number % 20, "key", Integer.toString(number)));
            }
        }
        Map<Integer, Integer> last = new HashMap<>();
        int count = 0;
        boolean isOrdered = true;
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("max.poll.records", "37"))) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int partition = 0; partition < 20; partition++) {
                partitions.add(new TopicPartition(topic, partition));
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = now() + WAIT_MS;
            while (count < 1000 && now() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    int number = Integer.parseInt(record.value());
                    isOrdered &= last.getOrDefault(record.partition(), -1) < number;
                    last.put(record.partition(), number);
                    count++;
                }
            }
        }
        return List.of(count, isOrdered);
    }

    // ---- admin: topics

    private void checkTopics() {
        check("create with configs", this::createWithConfigs);
        check("create by assignment", this::createByAssignment);
        check("validate only", this::validateOnly);
        check("create refusals", this::createRefusals);
        check("describe", this::describe);
        check("create partitions", this::createPartitions);
        check("delete by name", this::deleteByName);
        check("delete by id", this::deleteById);
        check("delete refusals", this::deleteRefusals);
    }

    private Object createWithConfigs() throws Exception {
        String topic = prefix + "-configs";
        Map<String, String> configs = Map.of("retention.ms", "4321", "cleanup.policy", "compact,delete");
        CreateTopicsResult created = admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1).configs(configs)));
        created.all().get();
        Config config = created.config(topic).get();
        return List.of(
            created.numPartitions(topic).get(), created.replicationFactor(topic).get(),
            !created.topicId(topic).get().equals(Uuid.ZERO_UUID),
            config.get("retention.ms").value(), config.get("retention.ms").source().toString(),
            config.get("cleanup.policy").value(), config.get("max.message.bytes").source().toString());
    }

    private Object createByAssignment() throws Exception {
        String topic = prefix + "-assigned";
        int broker = admin.describeCluster().nodes().get().iterator().next().id();
        admin.createTopics(List.of(new NewTopic(topic, Map.of(0, List.of(broker), 1, List.of(broker))))).all().get();
        await(() -> listed(topic));
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
    }

    private Object validateOnly() throws Exception {
        String topic = prefix + "-validated";
        CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(true);
        CreateTopicsResult created = admin.createTopics(List.of(new NewTopic(topic, Optional.of(2), Optional.empty())), options);
        created.all().get();
        Thread.sleep(100);
        return List.of(created.numPartitions(topic).get(), created.replicationFactor(topic).get(), listed(topic));
    }

    private Object createRefusals() throws Exception {
        String topic = prefix + "-refused";
        String existing = createTopic("existing", 1, Map.of());
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("exists", refusal(new NewTopic(existing, 1, (short) 1)));
        result.put("name", refusal(new NewTopic("a/b", 1, (short) 1)));
        result.put("partitions", refusal(new NewTopic(topic, 0, (short) 1)));
        result.put("replication factor", refusal(new NewTopic(topic, 1, (short) 5)));
        result.put("config value", refusal(new NewTopic(topic, 1, (short) 1).configs(Map.of("retention.ms", "x"))));
        result.put("config name", refusal(new NewTopic(topic, 1, (short) 1).configs(Map.of("no.such", "1"))));
        result.put("unknown broker", refusal(new NewTopic(topic, Map.of(0, List.of(4711)))));
        result.put("gap", refusal(new NewTopic(topic, Map.of(0, List.of(1), 2, List.of(1)))));
        result.put("listed", listed(topic));
        return result;
    }

    private String refusal(NewTopic topic) {
        return causeOf(() -> admin.createTopics(List.of(topic)).all().get());
    }

    private Object describe() throws Exception {
        String topic = createTopic("described", 2, Map.of());
        TopicDescription byName = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        Uuid id = byName.topicId();
        TopicDescription byId =
            admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("name", byId.name().equals(topic) && byName.name().equals(topic));
        result.put("partitions", byId.partitions().size());
        result.put("isr", byName.partitions().get(1).isr().equals(byName.partitions().get(1).replicas()));
        result.put("leader", byName.partitions().get(1).leader().id());
        result.put("internal", byName.isInternal());
        result.put("listed id", admin.listTopics().namesToListings().get().get(topic).topicId().equals(id));
        result.put("unknown name", causeOf(() -> admin.describeTopics(List.of(prefix + "-no")).allTopicNames().get()));
        TopicCollection unknown = TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()));
        result.put("unknown id", causeOf(() -> admin.describeTopics(unknown).allTopicIds().get()));
        return result;
    }

    private Object createPartitions() throws Exception {
        String topic = createTopic("grown", 1, Map.of());
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        await(() -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 4);
        return List.of(
            causeOf(() -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get()),
            causeOf(() -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get()),
            causeOf(() -> admin.createPartitions(Map.of(prefix + "-no", NewPartitions.increaseTo(2))).all().get()));
    }

    private Object deleteByName() throws Exception {
        String topic = createTopic("deleted", 1, Map.of());
        admin.deleteTopics(List.of(topic)).all().get();
        await(() -> !listed(topic));
        return listed(topic);
    }

    private Object deleteById() throws Exception {
        String topic = createTopic("deleted-by-id", 1, Map.of());
        Uuid id = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        await(() -> !listed(topic));
        return listed(topic);
    }

    private Object deleteRefusals() {
        TopicCollection unknown = TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()));
        return List.of(
            causeOf(() -> admin.deleteTopics(List.of(prefix + "-no")).all().get()),
            causeOf(() -> admin.deleteTopics(unknown).all().get()));
    }

    // ---- admin: configurations

    private void checkConfigs() {
        check("describe topic configs", this::describeTopicConfigs);
        check("alter topic configs", this::alterTopicConfigs);
        check("alter refusals", this::alterRefusals);
        check("describe broker configs", this::describeBrokerConfigs);
        check("alter broker config", this::alterBrokerConfig);
    }

    private Object describeTopicConfigs() throws Exception {
        String topic = createTopic("described-configs", 1, Map.of("segment.bytes", "2097152"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        Config config = admin.describeConfigs(List.of(resource), options).all().get().get(resource);
        ConfigEntry segment = config.get("segment.bytes");
        List<Object> synonyms = new ArrayList<>();
        segment.synonyms().forEach(row -> synonyms.add(List.of(row.name(), row.value(), row.source().toString())));
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("value", segment.value());
        result.put("type", segment.type().toString());
        result.put("source", segment.source().toString());
        result.put("synonyms", synonyms);
        result.put("has documentation", segment.documentation() != null && !segment.documentation().isBlank());
        result.put("default", config.get("retention.ms").isDefault());
        Map<String, Object> names = new TreeMap<>();
        config.entries().forEach(entry -> names.put(entry.name(), entry.value()));
        result.put("values", names);
        return result;
    }

    private Object alterTopicConfigs() throws Exception {
        String topic = createTopic("altered", 1, Map.of("max.message.bytes", "5000"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        alter(resource, "retention.ms", "999", AlterConfigOp.OpType.SET);
        alter(resource, "max.message.bytes", "", AlterConfigOp.OpType.DELETE);
        alter(resource, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        await(() -> value(resource, "cleanup.policy").equals("delete,compact"));
        List<Object> first = List.of(value(resource, "retention.ms"), value(resource, "max.message.bytes"));
        alter(resource, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
        await(() -> value(resource, "cleanup.policy").equals("compact"));
        return List.of(first, value(resource, "cleanup.policy"));
    }

    private Object alterRefusals() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, prefix + "-altered");
        ConfigResource unknown = new ConfigResource(ConfigResource.Type.TOPIC, prefix + "-no");
        return List.of(
            causeOf(() -> alter(topic, "retention.ms", "soon", AlterConfigOp.OpType.SET)),
            causeOf(() -> alter(topic, "no.such.key", "1", AlterConfigOp.OpType.SET)),
            causeOf(() -> alter(topic, "retention.ms", "1", AlterConfigOp.OpType.APPEND)),
            causeOf(() -> alter(unknown, "retention.ms", "1", AlterConfigOp.OpType.SET)),
            causeOf(() -> value(unknown, "retention.ms")));
    }

    private Object describeBrokerConfigs() throws Exception {
        ConfigResource resource = brokerResource();
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        return List.of(
            config.get("log.segment.bytes").value(), config.get("log.segment.bytes").source().toString(),
            config.get("message.max.bytes").value(), config.get("message.max.bytes").isReadOnly(),
            config.get("log.dirs").source().toString(), config.get("log.dirs").isReadOnly());
    }

    private Object alterBrokerConfig() throws Exception {
        ConfigResource resource = brokerResource();
        alter(resource, "log.cleaner.backoff.ms", "15001", AlterConfigOp.OpType.SET);
        await(() -> value(resource, "log.cleaner.backoff.ms").equals("15001"));
        alter(resource, "log.cleaner.backoff.ms", "", AlterConfigOp.OpType.DELETE);
        await(() -> value(resource, "log.cleaner.backoff.ms").equals("15000"));
        return List.of(
            value(resource, "log.cleaner.backoff.ms"),
            causeOf(() -> alter(resource, "log.dirs", "/tmp/elsewhere", AlterConfigOp.OpType.SET)));
    }

    private ConfigResource brokerResource() throws Exception {
        int id = admin.describeCluster().nodes().get().iterator().next().id();
        return new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(id));
    }

    private Object alter(ConfigResource resource, String key, String value, AlterConfigOp.OpType kind) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(key, value), kind);
        Collection<AlterConfigOp> changes = List.of(change);
        return admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    private String value(ConfigResource resource, String key) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key).value();
    }

    // ---- admin: offsets and cluster

    private void checkOffsets() {
        check("list offsets", this::listOffsets);
    }

    private Object listOffsets() throws Exception {
        String topic = createTopic("listed", 1, Map.of());
        long start = now() - 50_000;
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (long moment : new long[] {1000, 9000, 2000}) {
                producer.send(new ProducerRecord<>(topic, 0, start + moment, "key", "value")).get();
            }
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("earliest", offset(topic, OffsetSpec.earliest()).offset());
        result.put("latest", offset(topic, OffsetSpec.latest()).offset());
        ListOffsetsResultInfo newest = offset(topic, OffsetSpec.maxTimestamp());
        result.put("max timestamp", List.of(newest.offset(), newest.timestamp() - start, newest.leaderEpoch().orElse(-1)));
        result.put("by time", offset(topic, OffsetSpec.forTimestamp(start + 1500)).offset());
        result.put("after all", offset(topic, OffsetSpec.forTimestamp(start + 9001)).offset());
        result.put("earliest local", offset(topic, OffsetSpec.earliestLocal()).offset());
        result.put("latest tiered", offset(topic, OffsetSpec.latestTiered()).offset());
        result.put("unknown partition", causeOf(() -> {
            TopicPartition nowhere = new TopicPartition(topic, 9);
            var options = new org.apache.kafka.clients.admin.ListOffsetsOptions();
            options.timeoutMs(1500);
            return admin.listOffsets(Map.of(nowhere, OffsetSpec.latest()), options).all().get();
        }));
        return result;
    }

    private ListOffsetsResultInfo offset(String topic, OffsetSpec spec) throws Exception {
        TopicPartition home = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(home, spec)).partitionResult(home).get();
    }

    private void checkCluster() {
        check("describe cluster", this::describeCluster);
        check("describe features", this::describeFeatures);
    }

    private Object describeCluster() throws Exception {
        var cluster = admin.describeCluster();
        List<Object> nodes = new ArrayList<>();
        for (Node node : cluster.nodes().get()) {
            nodes.add(List.of(node.id(), node.host() + ":" + node.port(), node.hasRack()));
        }
        return List.of(nodes, cluster.controller().get().id(), cluster.clusterId().get().length() == 22);
    }

    private Object describeFeatures() throws Exception {
        FeatureMetadata features = admin.describeFeatures().featureMetadata().get();
        boolean areSound = true;
        for (var entry : features.finalizedFeatures().entrySet()) {
            var supported = features.supportedFeatures().get(entry.getKey());
            areSound &= supported != null && entry.getValue().maxVersionLevel() <= supported.maxVersion();
        }
        return areSound;
    }

    // ---- helpers

    private void check(String name, Callable<Object> body) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("name", name);
        try {
            line.put("result", body.call());
        } catch (Exception problem) {
            Throwable cause = problem instanceof ExecutionException ? problem.getCause() : problem;
            line.put("error", cause.toString());
        }
        System.out.println(json(line));
        System.out.flush();
    }

    private String causeOf(Callable<Object> body) {
        try {
            body.call();
            return "no error";
        } catch (ExecutionException problem) {
            return problem.getCause().getClass().getSimpleName();
        } catch (Exception problem) {
            return problem.getClass().getSimpleName();
        }
    }

    private String createTopic(String suffix, int partitions, Map<String, String> configs) throws Exception {
        String topic = prefix + "-" + suffix;
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
        await(() -> listed(topic));
        return topic;
    }

    private boolean listed(String topic) throws Exception {
        return admin.listTopics().names().get().contains(topic);
    }

    /** Apache Kafka publishes metadata a little after it has answered. */
    private void await(Callable<Boolean> check) throws Exception {
        long deadline = now() + 5000;
        while (!check.call() && now() < deadline) {
            TimeUnit.MILLISECONDS.sleep(10);
        }
    }

    private void fill(String topic, long start) throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int number = 0; number < 10; number++) {
                producer.send(new ProducerRecord<>(topic, 0, start + number * 1000L, "key", Integer.toString(number))).get();
            }
        }
    }

    private List<ConsumerRecord<String, String>> readAll(String topic, int count, Map<String, String> settings) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(settings)) {
            TopicPartition home = new TopicPartition(topic, 0);
            consumer.assign(List.of(home));
            consumer.seekToBeginning(List.of(home));
            long deadline = now() + WAIT_MS;
            while (records.size() < count && now() < deadline) {
                consumer.poll(Duration.ofMillis(500)).forEach(records::add);
            }
        }
        return records;
    }

    private Properties clientProperties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("default.api.timeout.ms", Long.toString(WAIT_MS));
        properties.put("request.timeout.ms", "12000");
        String file = System.getenv("OTTLA_TEST_CLIENT_PROPERTIES"); // how to log in, if the broker asks for it
        if (file != null) {
            try (java.io.FileReader reader = new java.io.FileReader(file)) {
                properties.load(reader);
            } catch (java.io.IOException problem) {
                throw new java.io.UncheckedIOException(problem);
            }
        }
        return properties;
    }

    private KafkaProducer<String, String> producer(Map<String, String> settings) {
        Properties properties = clientProperties();
        properties.remove("default.api.timeout.ms");
        properties.put("acks", "all");
        properties.put("delivery.timeout.ms", Long.toString(WAIT_MS));
        properties.putAll(settings);
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(Map<String, String> settings) {
        Properties properties = clientProperties();
        properties.put("enable.auto.commit", "false");
        properties.putAll(settings);
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    private static long now() {
        return System.currentTimeMillis();
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            List<String> rows = new ArrayList<>();
            map.forEach((key, content) -> rows.add(json(key) + ": " + json(content)));
            return "{" + String.join(", ", rows) + "}";
        }
        if (value instanceof Collection<?> items) {
            return "[" + String.join(", ", items.stream().map(Conformance::json).toList()) + "]";
        }
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        String text = value.toString().replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n").replace("\t", "\\t");
        return '"' + text + '"';
    }
}
