// Flink copies a topic into another one, exactly once: java FlinkCopy.java HOST:PORT INPUT OUTPUT CHECKPOINTS GUARANTEE.
// It goes on from the newest checkpoint in the folder, if there is one, and runs until it is ended.
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;

public class FlinkCopy {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0], input = arguments[1], output = arguments[2];
        Path folder = Path.of(arguments[3]);
        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, folder.toUri().toString());
        settings.set(
            CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
            ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        newestCheckpoint(folder).ifPresent(found -> {
            System.out.println("goes on from " + found.getFileName());
            settings.set(StateRecoveryOptions.SAVEPOINT_PATH, found.toUri().toString());
        });
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        environment.enableCheckpointing(500);

        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(servers)
            .setTopics(input)
            .setGroupId("flink-" + input)
            .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(servers)
            .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                .setTopic(output)
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .setDeliveryGuarantee(DeliveryGuarantee.valueOf(arguments[4]))
            .setTransactionalIdPrefix("flink-" + output)
            .setProperty("transaction.timeout.ms", "60000") // brokers allow at most 15 minutes, Flink asks for an hour
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "input")
            .map(value -> value + " copied")
            .sinkTo(sink);
        environment.execute("copy " + input);
    }

    private static Optional<Path> newestCheckpoint(Path folder) throws IOException {
        if (!Files.isDirectory(folder)) {
            return Optional.empty();
        }
        try (Stream<Path> found = Files.walk(folder)) {
            return found.filter(path -> path.endsWith("_metadata"))
                .max(Comparator.comparing(path -> path.toFile().lastModified()))
                .map(Path::getParent);
        }
    }
}
