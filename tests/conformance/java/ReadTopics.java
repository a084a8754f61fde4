import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** ReadTopics BOOTSTRAP COUNT TOPIC...: prints so many values of each topic's first partition, a line each. */
public class ReadTopics {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        int count = Integer.parseInt(arguments[1]);
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            for (int i = 2; i < arguments.length; i++) {
                TopicPartition partition = new TopicPartition(arguments[i], 0);
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                for (int left = count; left > 0; ) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(10))) {
                        System.out.println(record.value());
                        left--;
                    }
                }
            }
        }
    }
}
