import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.logging.InternalLoggerFactory;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What is different in RocketMQ 4.x. */
class Version {
    private Version() {
    }

    static void logToStderr() {
        InternalLoggerFactory.setCurrentLoggerType("slf4j");
    }

    static DefaultMessageStore newStore(MessageStoreConfig config, BrokerStatsManager stats, BrokerConfig broker)
        throws IOException {
        return new DefaultMessageStore(
            config, stats, (topic, queueId, offset, tagsCode, time, filterBitMap, properties) -> { }, broker);
    }

    /** The store itself sends it to the schedule's topic. */
    static void delay(MessageExtBrokerInner message, int level) {
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_DELAY_TIME_LEVEL, String.valueOf(level));
    }

    /** The store itself has begun to deliver what is due, and notes how far when it shuts down. */
    static Runnable startSchedule(DefaultMessageStore store, MessageStoreConfig config, BrokerConfig broker) {
        return () -> { };
    }

    /** As the broker does, which names the topics that stay. */
    static void deleteTopic(DefaultMessageStore store, String topic) {
        Set<String> others = new HashSet<>(store.getConsumeQueueTable().keySet());
        others.remove(topic);
        store.cleanUnusedTopic(others);
    }

    static void completeBatch(MessageExtBatch batch) {
    }

    /** The jar of the broker is not on Maven Central for this version. */
    static Object brokerReply(DefaultMessageStore store, JSONObject command) {
        throw new IllegalArgumentException("Unknown command " + command);
    }

    /** The one answer there is to "which offset by that time?". */
    static List<Long> offsetsByTime(DefaultMessageStore store, String topic, int queueId, long time) {
        return Collections.singletonList(store.getOffsetInQueueByTime(topic, queueId, time));
    }
}
