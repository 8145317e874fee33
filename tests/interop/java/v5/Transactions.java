import com.alibaba.fastjson.JSONObject;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.embedded.EmbeddedChannel;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.processor.EndTransactionProcessor;
import org.apache.rocketmq.broker.transaction.queue.DefaultTransactionalMessageCheckListener;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageBridge;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageServiceImpl;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.EndTransactionRequestHeader;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;

/**
 * A broker's transactions, without its network: the service, the processor of requests that end one, and its positions.
 *
 * <pre>
 * {"command": "prepare", "message": {...}}                 a message as for "put"
 * {"command": "endTransaction", "how": "commit" | "rollback", "physicalOffset", "queueOffset", "group", "isCheck"}
 * {"command": "writeOps"}                                  now, and not after the interval of a batch
 * {"command": "checkTransactions", "timeOut": ms, "checkMax": n}  one round; the messages that producers are asked for
 * {"command": "endTransactions"}                           write the positions, as a broker that stops
 * </pre>
 */
class Transactions {
    private final BrokerController controller;
    private final TransactionalMessageServiceImpl service;
    private final EndTransactionProcessor processor;
    private final ChannelHandlerContext context;

    Transactions(DefaultMessageStore store) {
        BrokerConfig config = new BrokerConfig();
        config.setTransactionOpBatchInterval(Integer.MAX_VALUE); // "writeOps" does it
        config.setBrokerIP1("127.0.0.1");
        controller = new BrokerController(
            config, new NettyServerConfig(), new NettyClientConfig(), store.getMessageStoreConfig());
        controller.setMessageStore(store);
        if (!controller.initializeMetadata()) {
            throw new IllegalStateException("RocketMQ could not read the broker's config");
        }
        service = new TransactionalMessageServiceImpl(new TransactionalMessageBridge(controller, store));
        controller.setTransactionalMessageService(service);
        processor = new EndTransactionProcessor(controller);
        context = new EmbeddedChannel(new ChannelInboundHandlerAdapter()).pipeline().firstContext();
    }

    Object reply(JSONObject command) throws Exception {
        switch (command.getString("command")) {
            case "prepare":
                MessageExtBrokerInner message = MessagePutter.message(command.getJSONObject("message"));
                PutMessageResult result = service.prepareMessage(message);
                return MessagePutter.reply(result, Collections.singletonList(message));
            case "endTransaction":
                return end(command);
            case "writeOps":
                service.getDeleteContext().values().forEach(one -> one.setLastWriteTimestamp(Long.MIN_VALUE / 2));
                service.batchSendOpMessage();
                return Collections.emptyMap();
            case "checkTransactions":
                Listener listener = new Listener();
                listener.setBrokerController(controller);
                service.check(command.getLongValue("timeOut"), command.getIntValue("checkMax"), listener);
                Map<String, Object> found = new LinkedHashMap<>();
                found.put("asked", listener.asked);
                found.put("givenUp", listener.givenUp);
                return found;
            case "endTransactions":
                controller.getConsumerOffsetManager().persist();
                service.close();
                return Collections.emptyMap();
            default:
                throw new IllegalArgumentException("Unknown command " + command);
        }
    }

    private Object end(JSONObject command) throws Exception {
        boolean commit = command.getString("how").equals("commit");
        EndTransactionRequestHeader header = new EndTransactionRequestHeader();
        header.setTopic("");
        header.setProducerGroup(command.getString("group"));
        header.setTranStateTableOffset(command.getLong("queueOffset"));
        header.setCommitLogOffset(command.getLong("physicalOffset"));
        header.setCommitOrRollback(
            commit ? MessageSysFlag.TRANSACTION_COMMIT_TYPE : MessageSysFlag.TRANSACTION_ROLLBACK_TYPE);
        header.setFromTransactionCheck(command.getBooleanValue("isCheck"));
        header.setMsgId("");
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.END_TRANSACTION, header);
        request.makeCustomHeaderToNet();
        RemotingCommand response = processor.processRequest(context, request);
        return Collections.singletonMap("code", response.getCode());
    }

    /** Gives up as a broker does, and notes whom it would ask. */
    private static class Listener extends DefaultTransactionalMessageCheckListener {
        private final List<Map<String, Object>> asked = new ArrayList<>();
        private final List<Map<String, Object>> givenUp = new ArrayList<>();

        @Override
        public void resolveHalfMsg(MessageExt message) {
            asked.add(fields(message));
        }

        @Override
        public void resolveDiscardMsg(MessageExt message) {
            givenUp.add(fields(message));
            super.resolveDiscardMsg(message);
        }

        private static Map<String, Object> fields(MessageExt message) {
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("body", message.getBody());
            fields.put("queueOffset", message.getQueueOffset());
            fields.put("physicalOffset", message.getCommitLogOffset());
            fields.put("properties", message.getProperties());
            return fields;
        }
    }
}
