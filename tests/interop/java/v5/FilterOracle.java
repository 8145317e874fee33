import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.SqlFilter;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * RocketMQ's SQL92 filter as a program: each line of stdin is an expression and messages, each line of stdout what the
 * filter says of them, both JSON.
 *
 * <pre>
 * {"filter": "a > 5", "messages": [{"a": "6"}, {}, {"a": "x"}]}
 * {"results": ["TRUE", "NULL", "failed"]}    TRUE, FALSE, NULL, "failed" for an exception; or
 * {"refused": "..."}                         for an expression that the parser refuses
 * </pre>
 */
public class FilterOracle {
    private FilterOracle() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream replies = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject asked = JSON.parseObject(line);
            JSONObject reply = new JSONObject();
            try {
                Expression expression = new SqlFilter().compile(asked.getString("filter"));
                JSONArray results = new JSONArray();
                for (Object message : asked.getJSONArray("messages")) {
                    results.add(evaluate(expression, (JSONObject) message));
                }
                reply.put("results", results);
            } catch (Exception refused) {
                reply.put("refused", String.valueOf(refused.getCause()));
            }
            replies.println(reply.toJSONString());
        }
        replies.flush();
    }

    private static String evaluate(Expression expression, JSONObject message) {
        Map<String, Object> properties = new HashMap<>(message);
        try {
            Object value = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return properties;
                }
            });
            return value == null ? "NULL" : value instanceof Boolean ? value.toString().toUpperCase() : "no boolean";
        } catch (Exception failed) {
            return "failed";
        }
    }
}
