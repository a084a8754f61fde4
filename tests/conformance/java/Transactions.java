import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies 200 records from one topic to another in transactions of 20, together with the offsets. The first process dies
 * in the middle of a transaction, the second goes on; then the first comes back as a zombie.
 *
 * Usage: java -cp 'jars/*' Transactions.java HOST:PORT SOURCE TARGET
 */
public class Transactions {
    private static final int SIZE = 20;

    public static void main(String[] arguments) {
        KafkaProducer<String, String> zombie = copy(arguments, 4, "classic");
        KafkaProducer<String, String> successor = copy(arguments, 5, "consumer");
        try {
            zombie.commitTransaction();
            System.out.println("zombie committed");
        } catch (KafkaException fenced) {
            System.out.println("zombie fenced: " + fenced.getClass().getSimpleName());
        }
        successor.commitTransaction();
        successor.close();
    }

    /** Commits so many transactions and leaves one more open. */
    private static KafkaProducer<String, String> copy(String[] arguments, int transactions, String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[1]);
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        try (KafkaConsumer<String, String> consumer = consumer(arguments, protocol)) {
            for (int number = 0; number <= transactions; number++) {
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (int taken = 0; taken < SIZE; ) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                        producer.send(new ProducerRecord<>(arguments[2], record.value()));
                        TopicPartition place = new TopicPartition(record.topic(), record.partition());
                        offsets.put(place, new OffsetAndMetadata(record.offset() + 1));
                        taken++;
                    }
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (number < transactions) {
                    producer.commitTransaction();
                }
            }
        }
        producer.flush();
        return producer;
    }

    private static KafkaConsumer<String, String> consumer(String[] arguments, String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", String.valueOf(SIZE));
        var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(arguments[1]));
        return consumer;
    }
}
