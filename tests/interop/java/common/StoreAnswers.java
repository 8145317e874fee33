import com.alibaba.fastjson.JSONArray;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** What RocketMQ reads in its store, through the methods that a broker serves its clients with. */
class StoreAnswers {
    /** More than any key of the tests has messages: queries find all there are. */
    static final int MOST_FOUND = 10_000;

    private static final int BLANK_MAGIC_CODE = 0xCBD43194;
    private static final int UNIT_SIZE = 20;
    private static final int MESSAGES_PER_GET = 32;

    private final DefaultMessageStore store;

    StoreAnswers(DefaultMessageStore store) {
        this.store = store;
    }

    Map<String, Object> describe() throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("minPhysicalOffset", Math.max(store.getMinPhyOffset(), 0));
        answer.put("maxPhysicalOffset", store.getMaxPhyOffset());
        answer.put("messages", messages());
        answer.put("queues", queues());
        return answer;
    }

    Map<String, Object> query(JSONArray keys) {
        List<Object> found = new ArrayList<>();
        for (int i = 0; i < keys.size(); i++) {
            found.add(query(keys.getJSONArray(i).getString(0), keys.getJSONArray(i).getString(1)));
        }
        return Collections.singletonMap("found", found);
    }

    Map<String, Object> offsetsByTime(JSONArray times) {
        List<Object> offsets = new ArrayList<>();
        for (int i = 0; i < times.size(); i++) {
            JSONArray asked = times.getJSONArray(i);
            offsets.add(Version.offsetsByTime(
                store, asked.getString(0), asked.getIntValue(1), asked.getLongValue(2)));
        }
        return Collections.singletonMap("offsets", offsets);
    }

    /** Status, next offset, bounds and the physical offsets of the messages, as getMessage answers for each position. */
    Map<String, Object> getMessage(JSONArray positions) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (int i = 0; i < positions.size(); i++) {
            JSONArray asked = positions.getJSONArray(i);
            String tags = asked.getString(4);
            GetMessageResult got = store.getMessage(
                "interop", asked.getString(0), asked.getIntValue(1), asked.getLongValue(2), asked.getIntValue(3),
                tags == null ? null : new TagsFilter(tags));
            List<Long> places = new ArrayList<>();
            for (ByteBuffer record : got.getMessageBufferList()) {
                places.add(MessageDecoder.decode(record, false, false).getCommitLogOffset());
            }
            answers.add(Arrays.asList(
                got.getStatus().name(), got.getNextBeginOffset(), got.getMinOffset(), got.getMaxOffset(), places));
            got.release();
        }
        return Collections.singletonMap("answers", answers);
    }

    /** What a broker asks of the unit for a subscription to one tag. */
    private static class TagsFilter implements MessageFilter {
        private final long tagsCode;

        TagsFilter(String tags) {
            tagsCode = tags.hashCode();
        }

        @Override
        public boolean isMatchedByConsumeQueue(Long code, ConsumeQueueExt.CqExtUnit unit) {
            return code != null && code == tagsCode;
        }

        @Override
        public boolean isMatchedByCommitLog(ByteBuffer record, Map<String, String> properties) {
            return true;
        }
    }

    /** All messages in the log's order: some, such as prepared ones, are in no queue. */
    private List<Object> messages() throws Exception {
        List<Object> messages = new ArrayList<>();
        long fileSize = store.getMessageStoreConfig().getMappedFileSizeCommitLog();
        long offset = Math.max(store.getMinPhyOffset(), 0);
        while (offset < store.getMaxPhyOffset()) {
            SelectMappedBufferResult head = store.getCommitLogData(offset);
            int size = head.getByteBuffer().getInt();
            int magicCode = head.getByteBuffer().getInt();
            head.release();
            if (magicCode == BLANK_MAGIC_CODE) {
                offset = (offset / fileSize + 1) * fileSize;
                continue;
            }
            SelectMappedBufferResult record = store.selectOneMessageByOffset(offset, size);
            messages.add(message(record.getByteBuffer()));
            record.release();
            offset += size;
        }
        return messages;
    }

    private static Map<String, Object> message(ByteBuffer record) throws Exception {
        // Decoding may take the compression out of the flag, so the record itself is asked.
        int sysFlag = record.getInt(MessageDecoder.SYSFLAG_POSITION);
        MessageExt message = MessageDecoder.decode(record, true, true);
        Map<String, String> properties = message.getProperties();
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("topic", message.getTopic());
        fields.put("queueId", message.getQueueId());
        fields.put("queueOffset", message.getQueueOffset());
        fields.put("physicalOffset", message.getCommitLogOffset());
        fields.put("storeSize", message.getStoreSize());
        fields.put("bodyCrc", message.getBodyCRC());
        fields.put("flag", message.getFlag());
        fields.put("sysFlag", sysFlag);
        fields.put("bornTimestamp", message.getBornTimestamp());
        fields.put("bornHost", host(message.getBornHost()));
        fields.put("storeTimestamp", message.getStoreTimestamp());
        fields.put("storeHost", host(message.getStoreHost()));
        fields.put("reconsumeTimes", message.getReconsumeTimes());
        fields.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        fields.put("msgId", message.getMsgId());
        fields.put("properties", properties == null ? new TreeMap<>() : new TreeMap<>(properties));
        fields.put("bodySha256", sha256(body));
        return fields;
    }

    private List<Object> queues() throws Exception {
        List<Object> queues = new ArrayList<>();
        for (String topic : new TreeSet<>(store.getConsumeQueueTable().keySet())) {
            for (int queueId : new TreeSet<>(store.getConsumeQueueTable().get(topic).keySet())) {
                long min = store.getMinOffsetInQueue(topic, queueId);
                long max = store.getMaxOffsetInQueue(topic, queueId);
                Map<String, Object> queue = new LinkedHashMap<>();
                queue.put("topic", topic);
                queue.put("queueId", queueId);
                queue.put("minOffset", min);
                queue.put("maxOffset", max);
                queue.put("units", units(topic, queueId, min, max));
                queue.put("consumed", consumed(topic, queueId, min, max));
                queues.add(queue);
            }
        }
        return queues;
    }

    /** Each unit's physical offset, size and tags code. */
    private List<List<Long>> units(String topic, int queueId, long min, long max) {
        ConsumeQueue queue = (ConsumeQueue) store.findConsumeQueue(topic, queueId);
        List<List<Long>> units = new ArrayList<>();
        long offset = min;
        while (offset < max) {
            SelectMappedBufferResult restOfFile = queue.getIndexBuffer(offset);
            ByteBuffer bytes = restOfFile.getByteBuffer();
            for (int left = restOfFile.getSize() / UNIT_SIZE; left > 0 && offset < max; left--, offset++) {
                units.add(Arrays.asList(bytes.getLong(), (long) bytes.getInt(), bytes.getLong()));
            }
            restOfFile.release();
        }
        return units;
    }

    /** Physical offsets of the messages that a consumer of the queue is given. */
    private List<Long> consumed(String topic, int queueId, long min, long max) {
        List<Long> consumed = new ArrayList<>();
        long offset = min;
        while (offset < max) {
            GetMessageResult got = store.getMessage("interop", topic, queueId, offset, MESSAGES_PER_GET, null);
            if (got.getStatus() == GetMessageStatus.FOUND) {
                for (ByteBuffer record : got.getMessageBufferList()) {
                    MessageExt message = MessageDecoder.decode(record, false, false);
                    if (message == null) {
                        throw new IllegalStateException("No message is at or after " + offset + " of " + topic + "/" + queueId
                            + ", but " + record);
                    }
                    consumed.add(message.getCommitLogOffset());
                }
            }
            got.release();
            if (got.getNextBeginOffset() <= offset) {
                break;
            }
            offset = got.getNextBeginOffset();
        }
        return consumed;
    }

    /** Physical offsets in order. The index knows hashes of keys, so what it gives is looked at, as clients do. */
    private TreeSet<Long> query(String topic, String key) {
        TreeSet<Long> found = new TreeSet<>();
        QueryMessageResult result = store.queryMessage(topic, key, MOST_FOUND, 0, Long.MAX_VALUE);
        for (ByteBuffer record : result.getMessageBufferList()) {
            MessageExt message = MessageDecoder.decode(record, false, false);
            boolean hasKey = Arrays.asList(String.valueOf(message.getKeys()).split(" ")).contains(key)
                || key.equals(message.getProperty("UNIQ_KEY"));
            if (message.getTopic().equals(topic) && hasKey) {
                found.add(message.getCommitLogOffset());
            }
        }
        result.release();
        return found;
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }

    private static String sha256(byte[] bytes) throws Exception {
        StringBuilder hex = new StringBuilder();
        for (byte one : MessageDigest.getInstance("SHA-256").digest(bytes)) {
            hex.append(String.format("%02x", one));
        }
        return hex.toString();
    }
}
