import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Map;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** Messages and results as JSON, and waiting. */
final class Answers {
    private Answers() {
    }

    static JSONObject failure(Throwable error) {
        JSONObject answer = new JSONObject();
        answer.put("error", String.valueOf(error));
        answer.put("cause", String.valueOf(error.getCause()));
        if (error instanceof MQBrokerException) {
            answer.put("code", ((MQBrokerException) error).getResponseCode());
        } else if (error instanceof MQClientException) {
            answer.put("code", ((MQClientException) error).getResponseCode());
        }
        return answer;
    }

    /** Signs requests, where a command has the keys of an account. */
    static RPCHook hook(JSONObject asked) {
        if (!asked.containsKey("accessKey")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(asked.getString("accessKey"), asked.getString("secretKey")));
    }

    static JSONObject of(String name, Object value) {
        JSONObject answer = new JSONObject();
        answer.put(name, value);
        return answer;
    }

    static JSONObject result(SendResult result) {
        JSONObject answer = new JSONObject();
        answer.put("status", String.valueOf(result.getSendStatus()));
        answer.put("msgId", result.getMsgId());
        answer.put("offsetMsgId", result.getOffsetMsgId());
        answer.put("queueId", result.getMessageQueue() == null ? null : result.getMessageQueue().getQueueId());
        answer.put("queueOffset", result.getQueueOffset());
        answer.put("transactionId", result.getTransactionId());
        return answer;
    }

    static JSONObject message(MessageExt message) {
        JSONObject answer = new JSONObject();
        answer.put("topic", message.getTopic());
        answer.put("queueId", message.getQueueId());
        answer.put("queueOffset", message.getQueueOffset());
        answer.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        answer.put("tags", message.getTags());
        answer.put("keys", message.getKeys());
        answer.put("msgId", message.getMsgId());
        answer.put("reconsumeTimes", message.getReconsumeTimes());
        answer.put("bornTimestamp", message.getBornTimestamp());
        answer.put("storeTimestamp", message.getStoreTimestamp());
        answer.put("receivedTimestamp", System.currentTimeMillis());
        answer.put("properties", message.getProperties());
        return answer;
    }

    static JSONObject messages(Collection<MessageExt> messages) {
        return of("messages", messages.stream().map(Answers::message).collect(Collectors.toList()));
    }

    static Message asked(JSONObject asked) {
        Message message = new Message(asked.getString("topic"), asked.getString("body").getBytes(StandardCharsets.UTF_8));
        if (asked.containsKey("tags")) {
            message.setTags(asked.getString("tags"));
        }
        if (asked.containsKey("keys")) {
            message.setKeys(asked.getString("keys"));
        }
        if (asked.containsKey("properties")) {
            for (Map.Entry<String, Object> one : asked.getJSONObject("properties").entrySet()) {
                message.putUserProperty(one.getKey(), String.valueOf(one.getValue()));
            }
        }
        if (asked.containsKey("delayLevel")) {
            message.setDelayTimeLevel(asked.getIntValue("delayLevel"));
        }
        if (asked.containsKey("delayMs")) {
            Version.delay(message, asked.getLongValue("delayMs"));
        }
        return message;
    }

    /** Waits until so many are there, or for the time that is asked for; 60 s by default. */
    static void await(JSONObject asked, Supplier<Integer> count) throws InterruptedException {
        int wanted = asked.getIntValue("atLeast");
        long limit = asked.containsKey("timeoutMs") ? asked.getLongValue("timeoutMs") : 60_000;
        long end = System.nanoTime() + limit * 1_000_000;
        while (count.get() < wanted && System.nanoTime() < end) {
            Thread.sleep(5);
        }
    }
}
