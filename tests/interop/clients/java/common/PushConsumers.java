import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers by name; what their listeners took and refused. */
final class PushConsumers {
    private final Map<String, DefaultMQPushConsumer> consumers = new ConcurrentHashMap<>();
    private final Map<String, List<JSONObject>> received = new ConcurrentHashMap<>();

    JSONObject start(JSONObject asked) throws Exception {
        String name = asked.getString("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
            asked.getString("group"), Answers.hook(asked), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(asked.getString("namesrv"));
        consumer.setInstanceName(asked.containsKey("instance") ? asked.getString("instance") : name);
        String from = asked.containsKey("from") ? asked.getString("from") : "CONSUME_FROM_FIRST_OFFSET";
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(from));
        if (asked.containsKey("fromTime")) {
            consumer.setConsumeTimestamp(asked.getString("fromTime"));
        }
        Version.setBroadcasting(consumer, asked.getBooleanValue("broadcasting"));
        if (asked.containsKey("maxReconsumeTimes")) {
            consumer.setMaxReconsumeTimes(asked.getIntValue("maxReconsumeTimes"));
        }
        if (asked.containsKey("suspendMs")) {
            consumer.setSuspendCurrentQueueTimeMillis(asked.getLongValue("suspendMs"));
        }
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setPersistConsumerOffsetInterval(500);
        for (Map.Entry<String, Object> one : asked.getJSONObject("subscriptions").entrySet()) {
            if (one.getValue() instanceof JSONObject) {
                String expression = ((JSONObject) one.getValue()).getString("sql");
                consumer.subscribe(one.getKey(), MessageSelector.bySql(expression));
            } else {
                consumer.subscribe(one.getKey(), String.valueOf(one.getValue()));
            }
        }
        List<JSONObject> all = new CopyOnWriteArrayList<>();
        int failures = asked.getIntValue("failures");
        if (asked.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                take(messages, all, failures)
                    ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                take(messages, all, failures)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        consumers.put(name, consumer);
        received.put(name, all);
        return new JSONObject();
    }

    /** Whether a listener takes what it is given; a message that failed often enough is taken. */
    private static boolean take(List<MessageExt> messages, List<JSONObject> all, int failures) {
        boolean takes = true;
        for (MessageExt message : messages) {
            boolean takesThis = failures >= 0 && message.getReconsumeTimes() >= failures;
            takes &= takesThis;
            JSONObject answer = Answers.message(message);
            answer.put("taken", takesThis);
            all.add(answer);
        }
        return takes;
    }

    JSONObject received(JSONObject asked) throws Exception {
        List<JSONObject> all = received.get(asked.getString("name"));
        Answers.await(asked, all::size);
        return Answers.of("messages", new ArrayList<>(all));
    }

    JSONObject queues(JSONObject asked) {
        DefaultMQPushConsumer consumer = consumers.get(asked.getString("name"));
        return Answers.of("queues", consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
            .keySet().stream().map(queue -> queue.getTopic() + ":" + queue.getQueueId()).collect(Collectors.toList()));
    }

    void close(String name) {
        DefaultMQPushConsumer consumer = consumers.remove(name);
        if (consumer != null) {
            consumer.shutdown();
        }
    }
}
