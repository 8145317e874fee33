import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Collections;

/**
 * Reads bodies of RocketMQ's remoting protocol with the classes by which its clients and brokers read them, and writes
 * them again. Each line of stdin is {"class": "body.ConsumerConnection", "body": "..."}; each line of stdout is
 * {"value": ..., "body": ...}: what was read, names of members as texts, and what RocketMQ writes of it.
 */
public class BodyReader {
    // Of 5.x and of 4.x.
    private static final String[] PACKAGES = {
        "org.apache.rocketmq.remoting.protocol.", "org.apache.rocketmq.common.protocol.",
        "org.apache.rocketmq.common.",
    };

    private BodyReader() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream replies = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject command = JSON.parseObject(line);
            replies.println(JSON.toJSONString(answer(command)));
            replies.flush();
        }
    }

    private static Object answer(JSONObject command) {
        try {
            Class<?> type = find(command.getString("class"));
            byte[] body = command.getString("body").getBytes(StandardCharsets.UTF_8);
            Class<?> codec = find("RemotingSerializable");
            Object value = codec.getMethod("decode", byte[].class, Class.class).invoke(null, body, type);
            JSONObject found = new JSONObject();
            found.put("value", JSON.toJSONString(value, SerializerFeature.WriteNonStringKeyAsString));
            Method encode = codec.getMethod("encode", Object.class);
            found.put("body", new String((byte[]) encode.invoke(null, value), StandardCharsets.UTF_8));
            return found;
        } catch (Throwable problem) {
            Throwable cause = problem.getCause() == null ? problem : problem.getCause();
            return Collections.singletonMap("error", cause.toString());
        }
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String start : PACKAGES) {
            try {
                return Class.forName(start + name);
            } catch (ClassNotFoundException ignored) {
                continue;
            }
        }
        return Class.forName("org.apache.rocketmq.remoting.protocol." + name);
    }
}
