import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A broker's positions of consumer groups, without the rest of the broker: each line of stdin is a command, each line
 * of stdout its reply, both JSON.
 *
 * <pre>
 * {"command": "open", "path": ..., "settings": {}}                     loads consumerOffset.json
 * {"command": "commit", "positions": [[group, topic, queueId, offset], ...]}
 * {"command": "positions"}                                             {"topic@group": {"queueId": offset}}
 * {"command": "persist"}                                               writes it, as every 5 seconds
 * {"command": "close"}                                                 writes it, as at shutdown
 * </pre>
 */
public class BrokerPositions {
    private BrokerPositions() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream replies = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            ConsumerOffsetManager manager = null;
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                JSONObject command = JSON.parseObject(line);
                if (command.getString("command").equals("open")) {
                    manager = open(command.getString("path"));
                }
                replies.println(
                    JSON.toJSONString(reply(manager, command), SerializerFeature.WriteNonStringKeyAsString));
                replies.flush();
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
            replies.println(JSON.toJSONString(Collections.singletonMap("error", problem.toString())));
            replies.flush();
        }
        // The broker's threads, which are no daemons, would keep the program alive.
        Runtime.getRuntime().halt(1);
    }

    private static ConsumerOffsetManager open(String path) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(path);
        ConsumerOffsetManager manager = new BrokerController(
            new BrokerConfig(), new NettyServerConfig(), new NettyClientConfig(), config).getConsumerOffsetManager();
        if (!manager.load()) {
            throw new IllegalStateException("RocketMQ could not load " + manager.configFilePath());
        }
        return manager;
    }

    private static Object reply(ConsumerOffsetManager manager, JSONObject command) {
        switch (command.getString("command")) {
            case "commit":
                JSONArray positions = command.getJSONArray("positions");
                for (int i = 0; i < positions.size(); i++) {
                    JSONArray one = positions.getJSONArray(i);
                    manager.commitOffset(
                        "interop", one.getString(0), one.getString(1), one.getIntValue(2), one.getLongValue(3));
                }
                break;
            case "persist":
            case "close":
                manager.persist();
                break;
            default:
                break;
        }
        return Collections.singletonMap("positions", manager.getOffsetTable());
    }
}
