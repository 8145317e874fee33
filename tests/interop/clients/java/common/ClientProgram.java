import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * RocketMQ's Java client as a program: each line of stdin is a command, each line of stdout its answer, both JSON.
 *
 * <pre>
 * {"command": "producer", "name", "group", "namesrv", "transactional", "timeoutMs", "compressOver",
 *         "maxMessageSize", "retries", "accessKey", "secretKey"}
 * {"command": "send", "name", "messages": [...], "way": "sync" | "async" | "oneway", "batch": false}
 *         a message: topic, body, tags, keys, properties, delayLevel, delayMs (5.x), queueId, orderedBy
 * {"command": "sendInTransaction", "name", "messages": [...], "outcome", "checked"}
 *         what the producer says at once and when the broker asks: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW
 * {"command": "checks", "name", "atLeast", "timeoutMs"}      the transactions that a broker has asked for
 * {"command": "pushConsumer", "name", "group", "namesrv", "subscriptions": {topic: expression or {"sql": ...}},
 *         "broadcasting", "orderly", "from", "failures", "maxReconsumeTimes", "instance", "suspendMs",
 *         "accessKey", "secretKey"}
 *         failures: how often each message fails before it is taken; -1 is for ever
 * {"command": "received", "name", "atLeast", "timeoutMs"}    waits for so many messages, and answers all so far
 * {"command": "queues", "name"}                              the queues a push consumer has now, as "topic:id"
 * {"command": "pullConsumer", "name", "group", "namesrv"}
 * {"command": "pull", "name", "topic", "queueId", "offset", "most", "tags", "sql", "block"}
 * {"command": "offsets", "name", "topic", "queueId", "time"} bounds, by time, and the group's position
 * {"command": "commit", "name", "topic", "queueId", "offset"}
 * {"command": "routes", "name", "topic"}                     ids of the topic's queues
 * {"command": "view", "name", "topic", "id"}, {"command": "query", "name", "topic", "key", "most", "begin", "end"}
 * {"command": "litePull", "name", "group", "namesrv", "topic", "tags", "assign": [queue ids] or null, "seek"}
 * {"command": "poll", "name", "atLeast", "timeoutMs"}, {"command": "commitAll", "name"}
 * {"command": "mqadmin", "arguments": [...]}                 what the command printed
 * {"command": "benchmark", ...}                              Benchmark.java
 * {"command": "close", "name"}
 * </pre>
 *
 * What goes wrong is answered as {"error": ...}. When stdin ends, the program does, without closing anything.
 */
public class ClientProgram {
    private static final PrintStream ANSWERS = new PrintStream(new FileOutputStream(FileDescriptor.out), true);

    private final Producers producers = new Producers();
    private final PushConsumers pushConsumers = new PushConsumers();
    private final PullConsumers pullConsumers = new PullConsumers();

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        ClientProgram program = new ClientProgram();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject answer;
            try {
                answer = program.run(JSON.parseObject(line));
            } catch (Throwable error) {
                error.printStackTrace();
                answer = Answers.failure(error);
            }
            String text = JSON.toJSONString(
                answer, SerializerFeature.WriteMapNullValue, SerializerFeature.DisableCircularReferenceDetect);
            ANSWERS.write((text + "\n").getBytes(StandardCharsets.UTF_8));
            ANSWERS.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private JSONObject run(JSONObject asked) throws Exception {
        String command = asked.getString("command");
        switch (command) {
            case "producer":
                return producers.start(asked);
            case "send":
                return producers.send(asked);
            case "sendInTransaction":
                return producers.sendInTransaction(asked);
            case "checks":
                return producers.checks(asked);
            case "pushConsumer":
                return pushConsumers.start(asked);
            case "received":
                return pushConsumers.received(asked);
            case "queues":
                return pushConsumers.queues(asked);
            case "pullConsumer":
                return pullConsumers.start(asked);
            case "litePull":
                return pullConsumers.startLite(asked);
            case "mqadmin":
                return mqadmin(asked.getJSONArray("arguments").toArray(new String[0]));
            case "benchmark":
                return Benchmark.run(asked);
            case "close":
                producers.close(asked.getString("name"));
                pushConsumers.close(asked.getString("name"));
                pullConsumers.close(asked.getString("name"));
                return new JSONObject();
            default:
                return pullConsumers.run(command, asked);
        }
    }

    private static JSONObject mqadmin(String[] arguments) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        PrintStream errors = System.err;
        PrintStream kept = new PrintStream(printed, true, "UTF-8");
        System.setOut(kept);
        System.setErr(kept); // it prints stack traces there instead of failing
        try {
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.setOut(before);
            System.setErr(errors);
        }
        JSONObject answer = new JSONObject();
        answer.put("output", printed.toString("UTF-8"));
        return answer;
    }
}
