import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Two Java consumers in one group, with the classic and with the new protocol: they share the partitions of a topic, and
 * one takes over when the other leaves. Prints one line for each protocol.
 *
 * Usage: java -cp 'jars/*' Groups.java HOST:PORT TOPIC_FOR_CLASSIC TOPIC_FOR_CONSUMER
 */
public class Groups {
    private static final long WAIT_MS = 40_000;

    public static void main(String[] arguments) throws Exception {
        String[] protocols = {"classic", "consumer"};
        for (int index = 0; index < protocols.length; index++) {
            run(arguments[0], protocols[index], arguments[index + 1]);
        }
    }

    private static void run(String bootstrap, String protocol, String topic) throws Exception {
        Map<String, AtomicInteger> seen = new ConcurrentHashMap<>();
        Member first = new Member(bootstrap, protocol, topic, seen);
        await(() -> first.owned == 4);
        Member second = new Member(bootstrap, protocol, topic, seen);
        await(() -> first.owned == 2 && second.owned == 2);
        String shared = first.owned + "/" + second.owned;
        await(() -> seen.size() >= 80);
        first.leave();
        await(() -> second.owned == 4);
        int takenOver = second.owned;
        second.leave();
        long twice = seen.values().stream().filter(count -> count.get() > 1).count();
        System.out.printf(
            "%s shared %s, taken over %d, read %d, twice %d%n", protocol, shared, takenOver, seen.size(), twice);
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!condition.getAsBoolean() && System.currentTimeMillis() < deadline) {
            Thread.sleep(10);
        }
    }

    /** A consumer in a thread of its own that commits what it has read before it reads on. */
    private static class Member extends Thread {
        private final KafkaConsumer<String, String> consumer;
        private final Map<String, AtomicInteger> seen;
        private volatile boolean leaving;
        volatile int owned;

        Member(String bootstrap, String protocol, String topic, Map<String, AtomicInteger> seen) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", topic);
            settings.put("group.protocol", protocol);
            settings.put("auto.offset.reset", "earliest");
            settings.put("enable.auto.commit", "false");
            if (protocol.equals("classic")) {
                settings.put("heartbeat.interval.ms", "100");
                settings.put("session.timeout.ms", "6000");
            }
            this.consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            this.seen = seen;
            consumer.subscribe(List.of(topic));
            start();
        }

        @Override
        public void run() {
            while (!leaving) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    seen.computeIfAbsent(record.value(), key -> new AtomicInteger()).incrementAndGet();
                }
                consumer.commitSync();
                Set<TopicPartition> assignment = new HashSet<>(consumer.assignment());
                owned = assignment.size();
            }
            consumer.close();
        }

        void leave() throws InterruptedException {
            leaving = true;
            join(WAIT_MS);
        }
    }
}
