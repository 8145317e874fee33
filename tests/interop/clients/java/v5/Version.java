import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** What 5.x has elsewhere than 4.x, or alone. */
final class Version {
    private Version() {
    }

    static void setBroadcasting(DefaultMQPushConsumer consumer, boolean broadcasting) {
        consumer.setMessageModel(broadcasting ? MessageModel.BROADCASTING : MessageModel.CLUSTERING);
    }

    static void delay(Message message, long milliseconds) {
        message.setDelayTimeMs(milliseconds);
    }
}
