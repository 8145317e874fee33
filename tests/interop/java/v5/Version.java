import com.alibaba.fastjson.JSONObject;
import java.io.IOException;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.schedule.ScheduleMessageService;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What is different in RocketMQ 5.x. */
class Version {
    private static Transactions transactions;

    private Version() {
    }

    /** logback.xml sees to it. */
    static void logToStderr() {
    }

    static DefaultMessageStore newStore(MessageStoreConfig config, BrokerStatsManager stats, BrokerConfig broker)
        throws IOException {
        return new DefaultMessageStore(
            config, stats, (topic, queueId, offset, tagsCode, time, filterBitMap, properties) -> { }, broker,
            new ConcurrentHashMap<>());
    }

    /** The store leaves this to the broker: HookUtils.transformDelayLevelMessage. */
    static void delay(MessageExtBrokerInner message, int level) {
        String queueId = String.valueOf(message.getQueueId());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_DELAY_TIME_LEVEL, String.valueOf(level));
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_TOPIC, message.getTopic());
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_REAL_QUEUE_ID, queueId);
        message.setTopic(TopicValidator.RMQ_SYS_SCHEDULE_TOPIC);
        message.setQueueId(level - 1);
    }

    /** The service is the broker's. A broker that is not started has what the service asks it for. */
    static Runnable startSchedule(DefaultMessageStore store, MessageStoreConfig config, BrokerConfig broker) {
        BrokerController controller =
            new BrokerController(broker, new NettyServerConfig(), new NettyClientConfig(), config);
        controller.setMessageStore(store);
        ScheduleMessageService service = new ScheduleMessageService(controller);
        service.start();
        return service::shutdown;
    }

    static void deleteTopic(DefaultMessageStore store, String topic) {
        store.deleteTopics(Collections.singleton(topic));
    }

    /** Without a text, empty or not, the store fails. */
    static void completeBatch(MessageExtBatch batch) {
        batch.setPropertiesString("");
    }

    /** Commands that are not the store's but a broker's. */
    static Object brokerReply(DefaultMessageStore store, JSONObject command) throws Exception {
        if (transactions == null) {
            transactions = new Transactions(store);
        }
        return transactions.reply(command);
    }

    /** The lower and the upper answer to "which offset by that time?". */
    static List<Long> offsetsByTime(DefaultMessageStore store, String topic, int queueId, long time) {
        return Arrays.asList(
            store.getOffsetInQueueByTime(topic, queueId, time, BoundaryType.LOWER),
            store.getOffsetInQueueByTime(topic, queueId, time, BoundaryType.UPPER));
    }
}
