import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's message store as a program: each line of stdin is a command, each line of stdout its reply, both JSON.
 *
 * <pre>
 * {"command": "open", "path": ..., "settings": {...}}      settings by the names that broker.conf has; and
 *                                                          scheduleEnable: deliver delayed messages, as a broker
 * {"command": "put", "kind": "message" | "batch", "messages": [...]}
 * {"command": "describe"}                                  the log, every message and every queue
 * {"command": "query", "keys": [[topic, key], ...]}        physical offsets for each
 * {"command": "offsetsByTime", "times": [[topic, queueId, time], ...]}
 * {"command": "getMessage", "positions": [[topic, queueId, offset, most messages, tags or null], ...]}
 * {"command": "deleteTopic", "topic": ...}                its queues; the list of topics is the broker's
 * {"command": "close"}
 * and, with 5.x, those of a broker's transactions: Transactions.java
 * </pre>
 *
 * What goes wrong is replied as {"error": ...}. When stdin ends, the program does, as if it had been killed.
 */
public class RocketMqStore {
    private static final long DISPATCH_TIMEOUT_MS = 30_000;

    private final DefaultMessageStore store;
    private final Runnable stopSchedule;

    private RocketMqStore(String path, Map<String, Object> settings) throws Exception {
        Properties properties = new Properties();
        settings.forEach((name, value) -> properties.setProperty(name, String.valueOf(value)));
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(properties, config);
        config.setStorePathRootDir(path);
        config.setStorePathCommitLog(path + "/commitlog");
        if (!settings.containsKey("haListenPort")) {
            config.setHaListenPort(0);
        }
        config.setMaxMsgsNumBatch(StoreAnswers.MOST_FOUND);
        // A disk of which more is used would make the store delete its files.
        config.setDiskMaxUsedSpaceRatio(95);
        config.setCleanFileForciblyEnable(false);
        BrokerConfig broker = new BrokerConfig();
        if (config.getBrokerRole() == BrokerRole.SLAVE) {
            broker.setBrokerId(1); // a master, which is 0, skips a record of which a part has come yet
        }
        store = Version.newStore(config, new BrokerStatsManager("interop", true), broker);
        if (!store.load()) {
            throw new IllegalStateException("RocketMQ could not load " + path);
        }
        store.start();
        if (config.getHaMasterAddress() != null) {
            store.updateHaMasterAddress(config.getHaMasterAddress()); // as its broker does
        }
        waitForDispatch();
        boolean delivers = Boolean.parseBoolean(properties.getProperty("scheduleEnable"));
        stopSchedule = delivers ? Version.startSchedule(store, config, broker) : () -> { };
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream replies = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        Version.logToStderr();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try {
            RocketMqStore opened = null;
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                JSONObject command = JSON.parseObject(line);
                Object reply;
                if (command.getString("command").equals("open")) {
                    opened = new RocketMqStore(command.getString("path"), command.getJSONObject("settings"));
                    reply = Collections.singletonMap("opened", true);
                } else {
                    reply = opened.reply(command);
                }
                send(replies, reply);
            }
        } catch (Throwable problem) {
            problem.printStackTrace();
            send(replies, Collections.singletonMap("error", problem.toString()));
        }
        // RocketMQ's threads, which are no daemons, would keep the program alive.
        Runtime.getRuntime().halt(1);
    }

    private static void send(PrintStream replies, Object reply) {
        replies.println(JSON.toJSONString(
            reply, SerializerFeature.WriteMapNullValue, SerializerFeature.DisableCircularReferenceDetect));
        replies.flush();
    }

    private Object reply(JSONObject command) throws Exception {
        switch (command.getString("command")) {
            case "put":
                return new MessagePutter(store).put(command.getString("kind"), command.getJSONArray("messages"));
            case "describe":
                waitForDispatch();
                return new StoreAnswers(store).describe();
            case "query":
                return new StoreAnswers(store).query(command.getJSONArray("keys"));
            case "offsetsByTime":
                return new StoreAnswers(store).offsetsByTime(command.getJSONArray("times"));
            case "getMessage":
                return new StoreAnswers(store).getMessage(command.getJSONArray("positions"));
            case "deleteTopic":
                waitForDispatch();
                Version.deleteTopic(store, command.getString("topic"));
                return Collections.singletonMap("deleted", true);
            case "close":
                stopSchedule.run();
                store.shutdown();
                return Collections.singletonMap("closed", true);
            default:
                return Version.brokerReply(store, command);
        }
    }

    /** RocketMQ says how far dispatch is behind what the transient pool has committed, but not when all is done. */
    private void waitForDispatch() throws InterruptedException {
        long deadline = System.currentTimeMillis() + DISPATCH_TIMEOUT_MS;
        while (uncommittedBytes() > 0 || store.dispatchBehindBytes() > 0) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("Still " + uncommittedBytes() + " bytes uncommitted, "
                    + store.dispatchBehindBytes() + " bytes undispatched");
            }
            Thread.sleep(1);
        }
    }

    /** Without the pool nothing is ever committed, and the number means nothing. */
    private long uncommittedBytes() {
        boolean pool = store.getMessageStoreConfig().isTransientStorePoolEnable();
        return pool ? store.getCommitLog().remainHowManyDataToCommit() : 0;
    }
}
