import com.alibaba.fastjson.JSONObject;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Rates and latencies of one client.
 *
 * <pre>
 * {"command": "benchmark", "kind": "send", "namesrv", "topic", "threads", "batch", "size", "seconds"}
 *         {"messages", "seconds", "perSecond", "p50Ms", "p99Ms"}: of the sends
 * {"command": "benchmark", "kind": "consume", "namesrv", "topic", "messages", "timeoutSeconds"}
 *         from the first message to the last, by a new group
 * {"command": "benchmark", "kind": "latency", "namesrv", "topic", "size", "seconds", "perSecond"}
 *         from before a send to the listener, at so many sends a second
 * </pre>
 */
final class Benchmark {
    private Benchmark() {
    }

    static JSONObject run(JSONObject asked) throws Exception {
        switch (asked.getString("kind")) {
            case "send":
                return send(asked);
            case "consume":
                return consume(asked);
            case "latency":
                return latency(asked);
            default:
                throw new IllegalArgumentException("kind is send, consume or latency");
        }
    }

    private static DefaultMQProducer producer(JSONObject asked) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("benchmark" + System.nanoTime());
        producer.setNamesrvAddr(asked.getString("namesrv"));
        producer.setInstanceName("benchmark" + System.nanoTime());
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        return producer;
    }

    private static DefaultMQPushConsumer consumer(JSONObject asked, MessageListenerConcurrently listener)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("benchmark" + System.nanoTime());
        consumer.setNamesrvAddr(asked.getString("namesrv"));
        consumer.setInstanceName("benchmark" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(asked.getString("topic"), "*");
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    private static byte[] body(JSONObject asked) {
        byte[] body = new byte[asked.getIntValue("size")];
        Arrays.fill(body, (byte) 'x');
        return body;
    }

    private static JSONObject send(JSONObject asked) throws Exception {
        DefaultMQProducer producer = producer(asked);
        int batch = asked.getIntValue("batch");
        byte[] body = body(asked);
        String topic = asked.getString("topic");
        producer.send(new Message(topic, body)); // the route, and the connection
        long start = System.nanoTime();
        long end = start + (long) (asked.getDoubleValue("seconds") * 1e9);
        List<List<Long>> times = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        List<Throwable> errors = new ArrayList<>();
        for (int number = 0; number < asked.getIntValue("threads"); number++) {
            List<Long> mine = new ArrayList<>();
            times.add(mine);
            Thread thread = new Thread(() -> {
                try {
                    for (long before = System.nanoTime(); before < end; before = System.nanoTime()) {
                        if (batch > 1) {
                            List<Message> messages = new ArrayList<>();
                            for (int one = 0; one < batch; one++) {
                                messages.add(new Message(topic, body));
                            }
                            producer.send(messages);
                        } else {
                            producer.send(new Message(topic, body));
                        }
                        mine.add(System.nanoTime() - before);
                    }
                } catch (Exception error) {
                    synchronized (errors) {
                        errors.add(error);
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        producer.shutdown();
        if (!errors.isEmpty()) {
            throw new IllegalStateException(errors.get(0));
        }
        long[] all = times.stream().flatMap(List::stream).mapToLong(Long::longValue).sorted().toArray();
        return answer(all, (long) all.length * Math.max(batch, 1), seconds);
    }

    private static JSONObject answer(long[] sorted, long messages, double seconds) {
        JSONObject answer = new JSONObject();
        answer.put("messages", messages);
        answer.put("seconds", seconds);
        answer.put("perSecond", messages / seconds);
        answer.put("p50Ms", sorted.length == 0 ? null : sorted[sorted.length / 2] / 1e6);
        answer.put("p99Ms", sorted.length == 0 ? null : sorted[sorted.length * 99 / 100] / 1e6);
        return answer;
    }

    private static JSONObject consume(JSONObject asked) throws Exception {
        AtomicLong count = new AtomicLong();
        AtomicLong first = new AtomicLong();
        AtomicLong last = new AtomicLong();
        long wanted = asked.getLongValue("messages");
        DefaultMQPushConsumer consumer = consumer(asked, (messages, context) -> {
            long now = System.nanoTime();
            first.compareAndSet(0, now);
            if (count.addAndGet(messages.size()) >= wanted) {
                last.compareAndSet(0, now);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        long end = System.nanoTime() + (long) (asked.getDoubleValue("timeoutSeconds") * 1e9);
        while (last.get() == 0 && System.nanoTime() < end) {
            Thread.sleep(5);
        }
        consumer.shutdown();
        if (last.get() == 0) {
            throw new IllegalStateException(count.get() + " of " + wanted + " messages were consumed in time");
        }
        return answer(new long[0], count.get(), (last.get() - first.get()) / 1e9);
    }

    private static JSONObject latency(JSONObject asked) throws Exception {
        List<Long> times = new ArrayList<>();
        // A consumer that knows the topic and has its queues before it is measured.
        DefaultMQProducer producer = producer(asked);
        byte[] body = body(asked);
        long warm = 100;
        sendStamped(producer, asked.getString("topic"), body);
        DefaultMQPushConsumer consumer = consumer(asked, (messages, context) -> {
            long now = System.nanoTime();
            synchronized (times) {
                messages.forEach(message -> times.add(now - Long.parseLong(message.getUserProperty("sent"))));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        awaitSize(times, 1);
        for (long number = 1; number < warm; number++) {
            sendStamped(producer, asked.getString("topic"), body);
        }
        awaitSize(times, warm);
        double perSecond = asked.getDoubleValue("perSecond");
        long count = (long) (asked.getDoubleValue("seconds") * perSecond);
        long start = System.nanoTime();
        for (long number = 0; number < count; number++) {
            long due = start + (long) (number / perSecond * 1e9);
            while (System.nanoTime() < due) {
                Thread.sleep(0, 100_000);
            }
            sendStamped(producer, asked.getString("topic"), body);
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        awaitSize(times, warm + count);
        producer.shutdown();
        consumer.shutdown();
        synchronized (times) {
            return answer(times.stream().skip(warm).mapToLong(Long::longValue).sorted().toArray(), count, seconds);
        }
    }

    private static void sendStamped(DefaultMQProducer producer, String topic, byte[] body) throws Exception {
        Message message = new Message(topic, body);
        message.putUserProperty("sent", String.valueOf(System.nanoTime()));
        producer.send(message);
    }

    private static void awaitSize(List<Long> times, long wanted) throws InterruptedException {
        for (int waits = 0; waits < 6_000; waits++) {
            synchronized (times) {
                if (times.size() >= wanted) {
                    return;
                }
            }
            Thread.sleep(10);
        }
        throw new IllegalStateException(times.size() + " of " + wanted + " messages came within 60 s");
    }
}
