// Beam copies a topic into another one on its direct runner: java BeamCopy HOST:PORT INPUT OUTPUT HOW.
//   committed      reads without end and commits what is done; runs until it is ended, and goes on at the committed offsets
//   exactly-once   reads COUNT records (fifth argument) and writes them in transactions, then ends
import java.util.Map;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.io.kafka.KafkaIO;
import org.apache.beam.sdk.options.PipelineOptions;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.transforms.MapElements;
import org.apache.beam.sdk.values.KV;
import org.apache.beam.sdk.values.TypeDescriptor;
import org.apache.beam.sdk.values.TypeDescriptors;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class BeamCopy {
    public static void main(String[] arguments) {
        String servers = arguments[0], input = arguments[1], output = arguments[2];
        boolean isExactlyOnce = arguments[3].equals("exactly-once");
        PipelineOptions options = PipelineOptionsFactory.fromArgs("--targetParallelism=2").create();
        Pipeline pipeline = Pipeline.create(options);

        KafkaIO.Read<String, String> read = KafkaIO.<String, String>read()
            .withBootstrapServers(servers)
            .withTopic(input)
            .withKeyDeserializer(StringDeserializer.class)
            .withValueDeserializer(StringDeserializer.class)
            .withConsumerConfigUpdates(Map.of(
                "group.id", "beam-" + input, "auto.offset.reset", "earliest", "enable.auto.commit", false));
        KafkaIO.Write<String, String> write = KafkaIO.<String, String>write()
            .withBootstrapServers(servers)
            .withTopic(output)
            .withKeySerializer(StringSerializer.class)
            .withValueSerializer(StringSerializer.class);
        if (isExactlyOnce) {
            read = read.withMaxNumRecords(Long.parseLong(arguments[4]));
            write = write.withEOS(2, "beam-" + output);
        } else {
            read = read.commitOffsetsInFinalize();
        }
        TypeDescriptor<String> text = TypeDescriptors.strings();
        pipeline.apply(read.withoutMetadata())
            .apply(MapElements.into(TypeDescriptors.kvs(text, text))
                .via(record -> KV.of(record.getValue(), record.getValue() + " copied")))
            .apply(write);
        int code = 0;
        try {
            pipeline.run().waitUntilFinish();
        } catch (RuntimeException problem) {
            problem.printStackTrace();
            code = 1;
        }
        System.exit(code); // Beam keeps producers, and a thread that closes them some day
    }
}
