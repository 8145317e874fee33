import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers by name: sync, async, one-way, batches, ordered, in a queue, and with transactions. */
final class Producers {
    private static final MessageQueueSelector BY_ID = (queues, message, id) ->
        queues.stream().filter(queue -> queue.getQueueId() == (Integer) id).findFirst().get();

    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Decider> deciders = new ConcurrentHashMap<>();

    /** Answers for the transactions of one producer. */
    private static final class Decider implements TransactionListener {
        private final Map<String, LocalTransactionState> checked = new ConcurrentHashMap<>();
        private final List<String> checks = new CopyOnWriteArrayList<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object outcomes) {
            String[] both = (String[]) outcomes;
            checked.put(message.getTransactionId(), LocalTransactionState.valueOf(both[1]));
            return LocalTransactionState.valueOf(both[0]);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            checks.add(message.getTransactionId());
            return checked.getOrDefault(message.getTransactionId(), LocalTransactionState.UNKNOW);
        }
    }

    JSONObject start(JSONObject asked) throws Exception {
        String name = asked.getString("name");
        DefaultMQProducer producer;
        if (asked.getBooleanValue("transactional")) {
            TransactionMQProducer transactional = new TransactionMQProducer(asked.getString("group"), Answers.hook(asked));
            Decider decider = new Decider();
            transactional.setTransactionListener(decider);
            deciders.put(name, decider);
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(asked.getString("group"), Answers.hook(asked));
        }
        producer.setNamesrvAddr(asked.getString("namesrv"));
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(asked.containsKey("timeoutMs") ? asked.getIntValue("timeoutMs") : 30_000);
        if (asked.containsKey("compressOver")) {
            producer.setCompressMsgBodyOverHowmuch(asked.getIntValue("compressOver"));
        }
        if (asked.containsKey("maxMessageSize")) {
            producer.setMaxMessageSize(asked.getIntValue("maxMessageSize"));
        }
        if (asked.containsKey("retries")) {
            producer.setRetryTimesWhenSendFailed(asked.getIntValue("retries"));
        }
        producer.start();
        producers.put(name, producer);
        return new JSONObject();
    }

    JSONObject send(JSONObject asked) throws Exception {
        DefaultMQProducer producer = producers.get(asked.getString("name"));
        JSONArray messages = asked.getJSONArray("messages");
        if (asked.getBooleanValue("batch")) {
            List<Message> batch = new ArrayList<>();
            for (int number = 0; number < messages.size(); number++) {
                batch.add(Answers.asked(messages.getJSONObject(number)));
            }
            return Answers.of("results", List.of(Answers.result(producer.send(batch))));
        }
        JSONObject[] results = new JSONObject[messages.size()];
        CountDownLatch left = new CountDownLatch(messages.size());
        String way = asked.containsKey("way") ? asked.getString("way") : "sync";
        for (int number = 0; number < messages.size(); number++) {
            results[number] = new JSONObject();
            if (way.equals("async")) {
                sendAsync(producer, messages.getJSONObject(number), results[number], left);
            } else {
                results[number] = sendOne(producer, messages.getJSONObject(number), way.equals("oneway"));
            }
        }
        if (way.equals("async") && !left.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " callbacks were not called within 60 s");
        }
        return Answers.of("results", List.of(results));
    }

    private static JSONObject sendOne(DefaultMQProducer producer, JSONObject asked, boolean isOneWay) throws Exception {
        Message message = Answers.asked(asked);
        Object argument = asked.containsKey("queueId") ? asked.getInteger("queueId") : asked.getString("orderedBy");
        MessageQueueSelector selector = asked.containsKey("queueId") ? BY_ID : new SelectMessageQueueByHash();
        if (isOneWay) {
            if (argument == null) {
                producer.sendOneway(message);
            } else {
                producer.sendOneway(message, selector, argument);
            }
            return new JSONObject();
        }
        try {
            return Answers.result(argument == null ? producer.send(message) : producer.send(message, selector, argument));
        } catch (Exception error) {
            return Answers.failure(error);
        }
    }

    private static void sendAsync(DefaultMQProducer producer, JSONObject asked, JSONObject result, CountDownLatch left)
        throws Exception {
        producer.send(Answers.asked(asked), new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                result.putAll(Answers.result(sent));
                left.countDown();
            }

            @Override
            public void onException(Throwable error) {
                result.putAll(Answers.failure(error));
                left.countDown();
            }
        });
    }

    JSONObject sendInTransaction(JSONObject asked) throws Exception {
        TransactionMQProducer producer = (TransactionMQProducer) producers.get(asked.getString("name"));
        String[] outcomes = {asked.getString("outcome"), asked.getString("checked")};
        if (outcomes[1] == null) {
            outcomes[1] = "UNKNOW";
        }
        JSONArray results = new JSONArray();
        for (Object one : asked.getJSONArray("messages")) {
            TransactionSendResult sent = producer.sendMessageInTransaction(Answers.asked((JSONObject) one), outcomes);
            JSONObject result = Answers.result(sent);
            result.put("state", String.valueOf(sent.getLocalTransactionState()));
            results.add(result);
        }
        return Answers.of("results", results);
    }

    JSONObject checks(JSONObject asked) throws Exception {
        List<String> checks = deciders.get(asked.getString("name")).checks;
        Answers.await(asked, checks::size);
        return Answers.of("checks", new ArrayList<>(checks));
    }

    void close(String name) {
        DefaultMQProducer producer = producers.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
    }
}
