import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's own tools, many in one JVM: each line of standard input is a class name and its arguments, tabs
 * between; each line of output is the exit code, what went to stdout and what went to stderr (both in base64).
 */
public class Tools {
    static class Ended extends RuntimeException {
        final int code;

        Ended(int code) {
            super(null, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        int[] first = {-1}; // the tools catch what their own exit throws, and exit again
        Exit.setExitProcedure((code, message) -> {
            if (first[0] < 0)
                first[0] = code;
            throw new Ended(code);
        });
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t", -1);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            first[0] = -1;
            int code = run(words[0], Arrays.copyOfRange(words, 1, words.length));
            answers.println((first[0] < 0 ? code : first[0]) + "\t" + encode(out) + "\t" + encode(err));
            answers.flush();
        }
    }

    static int run(String name, String[] arguments) throws Exception {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException problem) {
            if (problem.getCause() instanceof Ended)
                return ((Ended) problem.getCause()).code;
            problem.getCause().printStackTrace();
            return 1; // as a JVM ends whose main method throws
        }
    }

    static String encode(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
