package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var (
	producers    = map[string]rocketmq.Producer{}
	transactions = map[string]rocketmq.TransactionProducer{}
	deciders     = map[string]*decider{}
	outcomes     = map[string]primitive.LocalTransactionState{
		"COMMIT_MESSAGE":   primitive.CommitMessageState,
		"ROLLBACK_MESSAGE": primitive.RollbackMessageState,
		"UNKNOW":           primitive.UnkonwnState,
		"":                 primitive.UnkonwnState,
	}
)

// decider answers for the transactions of one producer.
type decider struct {
	lock    sync.Mutex
	now     primitive.LocalTransactionState
	later   primitive.LocalTransactionState
	checked map[string]primitive.LocalTransactionState
	checks  []string
}

func (d *decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.checked[message.TransactionId] = d.later
	return d.now
}

func (d *decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.checks = append(d.checks, message.TransactionId)
	if outcome, known := d.checked[message.TransactionId]; known {
		return outcome
	}
	return primitive.UnkonwnState
}

// chosenQueue takes the queue that a message is asked to go to, or one by its sharding key; else any.
type chosenQueue struct {
	others producer.QueueSelector
}

func (c chosenQueue) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, lastBrokerName string,
) *primitive.MessageQueue {
	if id := message.GetProperty("queueId"); id != "" {
		for _, queue := range queues {
			if fmt.Sprint(queue.QueueId) == id {
				message.RemoveProperty("queueId")
				return queue
			}
		}
	}
	if key := message.GetShardingKey(); key != "" {
		hash := fnv.New32a()
		hash.Write([]byte(key))
		return queues[hash.Sum32()%uint32(len(queues))]
	}
	return c.others.Select(message, queues, lastBrokerName)
}

func startProducer(asked Asked) (Answer, error) {
	timeout := 30 * time.Second
	if asked.TimeoutMs != nil {
		timeout = time.Duration(*asked.TimeoutMs) * time.Millisecond
	}
	options := []producer.Option{
		producer.WithGroupName(asked.Group),
		producer.WithInstanceName(asked.Name),
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{asked.Namesrv})),
		producer.WithSendMsgTimeout(timeout),
		producer.WithQueueSelector(chosenQueue{producer.NewRoundRobinQueueSelector()}),
	}
	if asked.CompressOver > 0 {
		options = append(options, producer.WithCompressMsgBodyOverHowmuch(asked.CompressOver))
	}
	if asked.Transactional {
		listener := &decider{checked: map[string]primitive.LocalTransactionState{}}
		one, err := rocketmq.NewTransactionProducer(listener, options...)
		if err != nil {
			return nil, err
		}
		transactions[asked.Name], deciders[asked.Name] = one, listener
		return Answer{}, one.Start()
	}
	one, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	producers[asked.Name] = one
	return Answer{}, one.Start()
}

func toSend(asking Asking) *primitive.Message {
	message := primitive.NewMessage(asking.Topic, []byte(asking.Body))
	if asking.Tags != "" {
		message.WithTag(asking.Tags)
	}
	if asking.Keys != "" {
		message.WithKeys(strings.Split(asking.Keys, " "))
	}
	for name, value := range asking.Properties {
		message.WithProperty(name, fmt.Sprint(value))
	}
	if asking.DelayLevel > 0 {
		message.WithDelayTimeLevel(asking.DelayLevel)
	}
	if asking.DelayMs > 0 {
		message.WithDelayTimestamp(time.Now().Add(time.Duration(asking.DelayMs) * time.Millisecond))
	}
	if asking.QueueID != nil {
		message.WithProperty("queueId", fmt.Sprint(*asking.QueueID))
	}
	if asking.OrderedBy != nil {
		message.WithShardingKey(*asking.OrderedBy)
	}
	return message
}

func result(sent *primitive.SendResult, err error) Answer {
	if err != nil {
		return Answer{"error": err.Error()}
	}
	status := map[primitive.SendStatus]string{
		primitive.SendOK:                "SEND_OK",
		primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
		primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
		primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	}[sent.Status]
	queueID := -1
	if sent.MessageQueue != nil {
		queueID = sent.MessageQueue.QueueId
	}
	return Answer{
		"status": status, "msgId": sent.MsgID, "offsetMsgId": sent.OffsetMsgID, "queueId": queueID,
		"queueOffset": sent.QueueOffset, "transactionId": sent.TransactionID,
	}
}

func send(asked Asked) (Answer, error) {
	one, known := producers[asked.Name]
	if !known {
		return nil, fmt.Errorf("no producer %q", asked.Name)
	}
	ctx := context.Background()
	results := make([]Answer, len(asked.Messages))
	if asked.Batch {
		var batch []*primitive.Message
		for _, asking := range asked.Messages {
			batch = append(batch, toSend(asking))
		}
		return Answer{"results": []Answer{result(one.SendSync(ctx, batch...))}}, nil
	}
	var left sync.WaitGroup
	for number, asking := range asked.Messages {
		message := toSend(asking)
		switch asked.Way {
		case "oneway":
			results[number] = Answer{}
			if err := one.SendOneWay(ctx, message); err != nil {
				return nil, err
			}
		case "async":
			left.Add(1)
			callback := func(_ context.Context, sent *primitive.SendResult, err error) {
				results[number] = result(sent, err)
				left.Done()
			}
			if err := one.SendAsync(ctx, callback, message); err != nil {
				return nil, err
			}
		default:
			results[number] = result(one.SendSync(ctx, message))
		}
	}
	left.Wait()
	return Answer{"results": results}, nil
}

func sendInTransaction(asked Asked) (Answer, error) {
	one, listener := transactions[asked.Name], deciders[asked.Name]
	listener.lock.Lock()
	listener.now, listener.later = outcomes[asked.Outcome], outcomes[asked.Checked]
	listener.lock.Unlock()
	results := []Answer{}
	for _, asking := range asked.Messages {
		sent, err := one.SendMessageInTransaction(context.Background(), toSend(asking))
		if err != nil {
			return nil, err
		}
		answer := result(sent.SendResult, nil)
		answer["state"] = asked.Outcome
		results = append(results, answer)
	}
	return Answer{"results": results}, nil
}

func checks(asked Asked) (Answer, error) {
	listener := deciders[asked.Name]
	count := func() int {
		listener.lock.Lock()
		defer listener.lock.Unlock()
		return len(listener.checks)
	}
	await(asked, count)
	listener.lock.Lock()
	defer listener.lock.Unlock()
	return Answer{"checks": append([]string{}, listener.checks...)}, nil
}

func closeNamed(name string) error {
	if one, known := producers[name]; known {
		delete(producers, name)
		return one.Shutdown()
	}
	if one, known := transactions[name]; known {
		delete(transactions, name)
		return one.Shutdown()
	}
	if one, known := consumers[name]; known {
		delete(consumers, name)
		return one.consumer.Shutdown()
	}
	return nil
}
