import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.PutMessageStatus;
import org.apache.rocketmq.store.config.FlushDiskType;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * How fast RocketMQ's store is: puts single messages, or reads all of them as objects. Prints messages a second for
 * each round; the first ones warm the Java machine.
 *
 * With many queues it prints seconds. queues puts a message into each of so many topics of one queue a round, after
 * messages into one other topic, which warm the Java machine: for each round the time of the puts, and until all queues
 * have their units. load prints how long the store takes to load and start.
 *
 * <pre>
 * put PATH ASYNC_FLUSH|SYNC_FLUSH THREADS BODY_SIZE MESSAGES_A_THREAD ROUNDS
 * read PATH ROUNDS
 * queues PATH QUEUES BODY_SIZE WARM_UP_MESSAGES ROUNDS
 * load PATH
 * </pre>
 */
public class StoreBenchmark {
    private static final String TOPIC = "orders";
    private static final int QUEUES = 4;
    private static final InetSocketAddress HOST = new InetSocketAddress("127.0.0.1", 10911);
    private static final int MESSAGES_A_GET = 4096;
    private static final int BYTES_A_GET = 4 << 20;

    private StoreBenchmark() {
    }

    public static void main(String[] arguments) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(arguments[1]);
        config.setStorePathCommitLog(arguments[1] + "/commitlog");
        config.setHaListenPort(0);
        config.setDiskMaxUsedSpaceRatio(95);
        config.setCleanFileForciblyEnable(false);
        config.setOsPageCacheBusyTimeOutMills(60_000);
        config.setMaxMsgsNumBatch(MESSAGES_A_GET);
        config.setMaxTransferCountOnMessageInMemory(MESSAGES_A_GET);
        config.setMaxTransferCountOnMessageInDisk(MESSAGES_A_GET);
        config.setMaxTransferBytesOnMessageInMemory(BYTES_A_GET);
        config.setMaxTransferBytesOnMessageInDisk(BYTES_A_GET);
        boolean puts = arguments[0].equals("put");
        if (puts) {
            config.setFlushDiskType(FlushDiskType.valueOf(arguments[2]));
        }
        long opened = System.nanoTime();
        DefaultMessageStore store =
            Version.newStore(config, new BrokerStatsManager("benchmark", false), new BrokerConfig());
        if (!store.load()) {
            throw new IllegalStateException("RocketMQ could not load " + arguments[1]);
        }
        store.start();
        if (arguments[0].equals("load")) {
            System.out.println(secondsSince(opened));
            Runtime.getRuntime().halt(0);
        }
        int rounds = Integer.parseInt(arguments[arguments.length - 1]);
        if (arguments[0].equals("queues")) {
            putIntoQueues(store, Integer.parseInt(arguments[2]), new byte[Integer.parseInt(arguments[3])],
                Integer.parseInt(arguments[4]), rounds);
            rounds = 0;
        }
        for (int round = 0; round < rounds; round++) {
            long begun = System.nanoTime();
            long count = puts
                ? putAll(store, Integer.parseInt(arguments[3]), Integer.parseInt(arguments[4]),
                    Integer.parseInt(arguments[5]))
                : readAll(store);
            System.out.println(count / secondsSince(begun));
            waitForDispatch(store);
        }
        store.shutdown();
        // RocketMQ's threads, which are no daemons, would keep the program alive.
        Runtime.getRuntime().halt(0);
    }

    private static double secondsSince(long begun) {
        return (System.nanoTime() - begun) / 1e9;
    }

    private static void waitForDispatch(DefaultMessageStore store) throws InterruptedException {
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(1);
        }
    }

    private static void putIntoQueues(DefaultMessageStore store, int queues, byte[] body, int warmUp, int rounds)
        throws Exception {
        for (int number = 0; number < warmUp; number++) {
            put(store, TOPIC, 0, number, body);
        }
        waitForDispatch(store);
        for (int round = 0; round < rounds; round++) {
            long begun = System.nanoTime();
            for (int queue = 0; queue < queues; queue++) {
                put(store, String.format("topic-%06d", queue), 0, queue, body);
            }
            double puts = secondsSince(begun);
            waitForDispatch(store);
            System.out.println(puts + " " + secondsSince(begun));
        }
    }

    private static long putAll(DefaultMessageStore store, int threads, int bodySize, int count) throws Exception {
        byte[] body = new byte[bodySize];
        Thread[] putters = new Thread[threads];
        for (int thread = 0; thread < threads; thread++) {
            int queueId = thread;
            putters[thread] = new Thread(() -> {
                for (int number = 0; number < count; number++) {
                    put(store, TOPIC, threads == 1 ? number % QUEUES : queueId, number, body);
                }
            });
            putters[thread].start();
        }
        for (Thread putter : putters) {
            putter.join();
        }
        return (long) threads * count;
    }

    /** Makes a message as a broker does of a request, and puts it. */
    private static void put(DefaultMessageStore store, String topic, int queueId, int number, byte[] body) {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setQueueId(queueId);
        message.setBody(body);
        message.setBornHost(HOST);
        message.setStoreHost(HOST);
        message.setBornTimestamp(System.currentTimeMillis());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_TAGS, "paid");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_KEYS, "order-" + number);
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode("paid"));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        PutMessageStatus status = store.putMessage(message).getPutMessageStatus();
        if (status != PutMessageStatus.PUT_OK) {
            throw new IllegalStateException("RocketMQ answered " + status);
        }
    }

    private static long readAll(DefaultMessageStore store) throws Exception {
        long bodies = 0;
        long count = 0;
        for (int queueId = 0; queueId < QUEUES; queueId++) {
            long offset = store.getMinOffsetInQueue(TOPIC, queueId);
            long end = store.getMaxOffsetInQueue(TOPIC, queueId);
            while (offset < end) {
                GetMessageResult found = store.getMessage("benchmark", TOPIC, queueId, offset, MESSAGES_A_GET, null);
                try {
                    for (ByteBuffer buffer : found.getMessageBufferList()) {
                        bodies += MessageDecoder.decode(buffer).getBody().length;
                        count++;
                    }
                } finally {
                    found.release();
                }
                offset = found.getNextBeginOffset();
            }
        }
        if (bodies == 0) {
            throw new IllegalStateException("RocketMQ found no message");
        }
        return count;
    }
}
