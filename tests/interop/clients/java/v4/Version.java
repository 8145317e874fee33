import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** What 4.x has elsewhere than 5.x, or not at all. */
final class Version {
    private Version() {
    }

    static void setBroadcasting(DefaultMQPushConsumer consumer, boolean broadcasting) {
        consumer.setMessageModel(broadcasting ? MessageModel.BROADCASTING : MessageModel.CLUSTERING);
    }

    static void delay(Message message, long milliseconds) {
        throw new UnsupportedOperationException("4.x has delay levels alone");
    }
}
