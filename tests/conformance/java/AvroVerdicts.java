import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;
import org.apache.avro.SchemaCompatibility.Incompatibility;

/** Reads pairs of schemas, one a line, and tells how Avro prints both, and why the first cannot read the second. */
class AvroVerdicts {
  public static void main(String[] arguments) throws Exception {
    List<String> answers = new ArrayList<>();
    for (String line : Files.readAllLines(Path.of(arguments[0]))) {
      List<String> answer = new ArrayList<>();
      try {
        String[] pair = line.split(" ");
        Schema reader = new Schema.Parser().parse(decoded(pair[0]));
        Schema writer = new Schema.Parser().parse(decoded(pair[1]));
        answer.add(reader.toString());
        answer.add(writer.toString());
        for (Incompatibility each : SchemaCompatibility.checkReaderWriterCompatibility(reader, writer)
            .getResult().getIncompatibilities()) {
          answer.add(each.getType() + " " + each.getLocation() + " " + each.getMessage());
        }
      } catch (Exception problem) {
        answer = List.of("refused");
      }
      List<String> encoded = new ArrayList<>();
      for (String each : answer) {
        encoded.add(Base64.getEncoder().encodeToString(each.getBytes(StandardCharsets.UTF_8)));
      }
      answers.add(String.join(" ", encoded));
    }
    Files.write(Path.of(arguments[1]), answers);
  }

  private static String decoded(String text) {
    return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
  }
}
