import java.io.PrintStream;
import java.util.Scanner;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

/** Encrypts the lines that begin with "E " as a broker of Apache Kafka 3.9 does, and decrypts those with "D ". */
public class Encoder {
    public static void main(String[] words) throws Exception {
        PasswordEncoder encoder =
            PasswordEncoder.encrypting(new Password(words[0]), null, words[1], Integer.parseInt(words[2]), 4096);
        PrintStream output = new PrintStream(System.out, true, "UTF-8");
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String line = lines.nextLine();
            String text = line.substring(2);
            output.println(
                line.startsWith("E ") ? encoder.encode(new Password(text)) : encoder.decode(text).value());
        }
    }
}
