import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
// MessageExtBrokerInner is in the first package in 5.x, in the second in 4.x.
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.store.*;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** Puts messages given as JSON, as a broker does once it has taken a request apart. */
class MessagePutter {
    private static final int COMPRESSION_LEVEL = 5;

    private final DefaultMessageStore store;

    MessagePutter(DefaultMessageStore store) {
        this.store = store;
    }

    /** The status, and for each message where it went; of a batch only the first one's place is known. */
    Map<String, Object> put(String kind, JSONArray messages) throws Exception {
        boolean batch = kind.equals("batch");
        if (!batch && messages.size() != 1) {
            throw new IllegalArgumentException("RocketMQ puts one message, or a batch of one queue");
        }
        return batch ? putBatch(messages) : putMessage(messages.getJSONObject(0));
    }

    private Map<String, Object> putMessage(JSONObject given) throws Exception {
        MessageExtBrokerInner message = message(given);
        return reply(store.putMessage(message), Collections.singletonList(message));
    }

    /** The message as a broker makes it of a request. */
    static MessageExtBrokerInner message(JSONObject given) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        setHosts(message, given);
        message.setTopic(given.getString("topic"));
        message.setQueueId(given.getIntValue("queueId"));
        message.setFlag(given.getIntValue("flag"));
        message.setReconsumeTimes(given.getIntValue("reconsumeTimes"));
        message.setPreparedTransactionOffset(given.getLongValue("preparedTransactionOffset"));
        message.setSysFlag(message.getSysFlag() | given.getIntValue("sysFlag"));
        setBody(message, given);
        setProperties(message, given);
        if (given.getIntValue("delayLevel") > 0) {
            Version.delay(message, given.getIntValue("delayLevel"));
        }
        message.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(message.getTags()));
        message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
        return message;
    }

    private Map<String, Object> putBatch(JSONArray given) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < given.size(); i++) {
            JSONObject one = given.getJSONObject(i);
            Message message = new Message(one.getString("topic"), one.getBytes("body"));
            message.setFlag(one.getIntValue("flag"));
            setProperties(message, one);
            messages.add(message);
        }
        JSONObject first = given.getJSONObject(0);
        MessageExtBatch batch = new MessageExtBatch();
        setHosts(batch, first);
        batch.setTopic(first.getString("topic"));
        batch.setQueueId(first.getIntValue("queueId"));
        batch.setBody(MessageDecoder.encodeMessages(messages));
        Version.completeBatch(batch);
        return reply(store.putMessages(batch), Collections.nCopies(messages.size(), batch));
    }

    private static void setHosts(MessageExt message, JSONObject given) throws Exception {
        InetSocketAddress bornHost = address(given.getString("bornHost"));
        InetSocketAddress storeHost = address(given.getString("storeHost"));
        message.setBornHost(bornHost);
        message.setStoreHost(storeHost);
        message.setBornTimestamp(given.getLongValue("bornTimestamp"));
        int flags = isV6(bornHost) ? MessageSysFlag.BORNHOST_V6_FLAG : 0;
        flags |= isV6(storeHost) ? MessageSysFlag.STOREHOSTADDRESS_V6_FLAG : 0;
        message.setSysFlag(flags);
    }

    private static void setBody(MessageExt message, JSONObject given) throws Exception {
        byte[] body = given.getBytes("body");
        String compression = given.getString("compression");
        if (compression != null) {
            CompressionType type = CompressionType.of(compression);
            body = CompressorFactory.getCompressor(type).compress(body, COMPRESSION_LEVEL);
            message.setSysFlag(message.getSysFlag() | MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag());
        }
        message.setBody(body);
    }

    private static void setProperties(Message message, JSONObject given) {
        given.getJSONObject("properties").forEach(
            (name, value) -> MessageAccessor.putProperty(message, name, (String) value));
        if (given.getString("tags") != null) {
            message.setTags(given.getString("tags"));
        }
        if (!given.getJSONArray("keys").isEmpty()) {
            message.setKeys(given.getJSONArray("keys").toJavaList(String.class));
        }
    }

    private static InetSocketAddress address(String host) throws Exception {
        int colon = host.lastIndexOf(':');
        return new InetSocketAddress(
            InetAddress.getByName(host.substring(0, colon)), Integer.parseInt(host.substring(colon + 1)));
    }

    private static boolean isV6(InetSocketAddress host) {
        return host.getAddress() instanceof Inet6Address;
    }

    static Map<String, Object> reply(PutMessageResult result, List<? extends MessageExt> messages) {
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("status", result.getPutMessageStatus().toString());
        AppendMessageResult appended = result.getAppendMessageResult();
        if (appended == null || !appended.isOk()) {
            reply.put("reason", appended == null ? "" : appended.getStatus().toString());
            return reply;
        }
        List<Map<String, Object>> places = new ArrayList<>();
        for (int i = 0; i < messages.size(); i++) {
            Map<String, Object> place = new LinkedHashMap<>();
            place.put("topic", messages.get(i).getTopic());
            place.put("queueId", messages.get(i).getQueueId());
            place.put("queueOffset", appended.getLogicsOffset() + i);
            place.put("physicalOffset", i == 0 ? appended.getWroteOffset() : null);
            places.add(place);
        }
        reply.put("messages", places);
        return reply;
    }
}
