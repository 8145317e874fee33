import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Pull consumers of both kinds by name, and what they can ask of a queue. */
@SuppressWarnings("deprecation")
final class PullConsumers {
    private final Map<String, DefaultMQPullConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, DefaultLitePullConsumer> lite = new ConcurrentHashMap<>();

    JSONObject start(JSONObject asked) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(asked.getString("group"));
        consumer.setNamesrvAddr(asked.getString("namesrv"));
        consumer.setInstanceName(asked.getString("name"));
        consumer.start();
        consumers.put(asked.getString("name"), consumer);
        return new JSONObject();
    }

    JSONObject startLite(JSONObject asked) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(asked.getString("group"));
        consumer.setNamesrvAddr(asked.getString("namesrv"));
        consumer.setInstanceName(asked.getString("name"));
        consumer.setAutoCommit(false);
        String topic = asked.getString("topic");
        if (asked.getJSONArray("assign") == null) {
            consumer.subscribe(topic, asked.containsKey("tags") ? asked.getString("tags") : "*");
            consumer.start();
        } else {
            consumer.start();
            Set<Integer> ids = Set.copyOf(asked.getJSONArray("assign").toJavaList(Integer.class));
            List<MessageQueue> queues = consumer.fetchMessageQueues(topic).stream()
                .filter(queue -> ids.contains(queue.getQueueId())).collect(Collectors.toList());
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                consumer.seek(queue, asked.getLongValue("seek"));
            }
        }
        lite.put(asked.getString("name"), consumer);
        return new JSONObject();
    }

    JSONObject run(String command, JSONObject asked) throws Exception {
        String name = asked.getString("name");
        switch (command) {
            case "poll":
                return poll(asked, lite.get(name));
            case "commitAll":
                lite.get(name).commitSync();
                return new JSONObject();
            case "pull":
                return pull(asked, consumers.get(name));
            case "offsets":
                return offsets(asked, consumers.get(name));
            case "commit":
                consumers.get(name).updateConsumeOffset(queue(asked, consumers.get(name)), asked.getLongValue("offset"));
                consumers.get(name).getOffsetStore().persistAll(Set.of(queue(asked, consumers.get(name))));
                return new JSONObject();
            case "routes":
                return Answers.of("queues", consumers.get(name).fetchSubscribeMessageQueues(asked.getString("topic"))
                    .stream().map(MessageQueue::getQueueId).sorted().collect(Collectors.toList()));
            case "view":
                return Answers.message(consumers.get(name).viewMessage(asked.getString("topic"), asked.getString("id")));
            case "query":
                return Answers.messages(consumers.get(name).queryMessage(asked.getString("topic"), asked.getString("key"),
                    asked.getIntValue("most"), asked.getLongValue("begin"), asked.getLongValue("end")).getMessageList());
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    private static JSONObject poll(JSONObject asked, DefaultLitePullConsumer consumer) {
        int wanted = asked.getIntValue("atLeast");
        long end = System.nanoTime() + asked.getLongValue("timeoutMs") * 1_000_000;
        List<MessageExt> all = new ArrayList<>();
        do {
            all.addAll(consumer.poll(200));
        } while (all.size() < wanted && System.nanoTime() < end);
        return Answers.messages(all);
    }

    private static JSONObject pull(JSONObject asked, DefaultMQPullConsumer consumer) throws Exception {
        MessageQueue queue = queue(asked, consumer);
        long offset = asked.getLongValue("offset");
        int most = asked.getIntValue("most");
        String tags = asked.containsKey("tags") ? asked.getString("tags") : "*";
        PullResult result;
        if (asked.containsKey("sql")) {
            result = pullBySql(consumer, queue, asked.getString("sql"), offset, most);
        } else if (asked.getBooleanValue("block")) {
            result = consumer.pullBlockIfNotFound(queue, tags, offset, most);
        } else {
            result = consumer.pull(queue, tags, offset, most);
        }
        JSONObject answer = Answers.messages(result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList());
        answer.put("status", String.valueOf(result.getPullStatus()));
        answer.put("nextBeginOffset", result.getNextBeginOffset());
        answer.put("minOffset", result.getMinOffset());
        answer.put("maxOffset", result.getMaxOffset());
        return answer;
    }

    /** A client refuses it before a heartbeat's answer, which has the broker's version; the next one is in 30 s. */
    private static PullResult pullBySql(
        DefaultMQPullConsumer consumer, MessageQueue queue, String expression, long offset, int most) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                return consumer.pull(queue, MessageSelector.bySql(expression), offset, most);
            } catch (MQClientException error) {
                if (tries == 1_000 || !String.valueOf(error).contains("does not upgrade")) {
                    throw error;
                }
                consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
                    .sendHeartbeatToAllBrokerWithLock();
                Thread.sleep(10);
            }
        }
    }

    private static JSONObject offsets(JSONObject asked, DefaultMQPullConsumer consumer) throws Exception {
        MessageQueue queue = queue(asked, consumer);
        JSONObject answer = new JSONObject();
        answer.put("min", consumer.minOffset(queue));
        answer.put("max", consumer.maxOffset(queue));
        answer.put("atTime", consumer.searchOffset(queue, asked.getLongValue("time")));
        answer.put("earliestStoreTime", consumer.earliestMsgStoreTime(queue));
        answer.put("position", consumer.fetchConsumeOffset(queue, true));
        return answer;
    }

    private static MessageQueue queue(JSONObject asked, DefaultMQPullConsumer consumer) throws Exception {
        return consumer.fetchSubscribeMessageQueues(asked.getString("topic")).stream()
            .filter(queue -> queue.getQueueId() == asked.getIntValue("queueId")).findFirst().get();
    }

    void close(String name) {
        DefaultMQPullConsumer consumer = consumers.remove(name);
        if (consumer != null) {
            consumer.shutdown();
        }
        DefaultLitePullConsumer litePull = lite.remove(name);
        if (litePull != null) {
            litePull.shutdown();
        }
    }
}
