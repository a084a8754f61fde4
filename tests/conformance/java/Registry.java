// Usage: java -cp JARS:. Registry URL SUBJECT; Confluent's serializers against a registry; prints what it saw.

import io.confluent.kafka.serializers.KafkaAvroDeserializer;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.common.errors.SerializationException;

public class Registry {
    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of("schema.registry.url", arguments[0], "auto.register.schemas", true);
        String topic = arguments[1];
        Schema schema = new Schema.Parser().parse(
            "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"id\",\"type\":\"long\"}]}");
        Schema other = new Schema.Parser().parse(
            "{\"type\":\"record\",\"name\":\"Order\",\"fields\":[{\"name\":\"id\",\"type\":\"string\"}]}");
        try (KafkaAvroSerializer serializer = new KafkaAvroSerializer();
                KafkaAvroDeserializer deserializer = new KafkaAvroDeserializer()) {
            serializer.configure(settings, false);
            deserializer.configure(settings, false);
            GenericRecord order = new GenericData.Record(schema);
            order.put("id", 7L);
            byte[] data = serializer.serialize(topic, order);
            System.out.println("magic " + data[0] + " id " + ByteBuffer.wrap(data, 1, 4).getInt());
            System.out.println("read " + deserializer.deserialize(topic, data));
            GenericRecord wrong = new GenericData.Record(other);
            wrong.put("id", "x");
            try {
                serializer.serialize(topic, wrong);
            } catch (SerializationException problem) {
                System.out.println("refused " + problem.getCause().getMessage().contains("; error code: 409"));
            }
        }
    }
}
