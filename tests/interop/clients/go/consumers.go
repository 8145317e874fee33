package main

import (
	"context"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// listening is a push consumer and what its listener was given.
type listening struct {
	consumer rocketmq.PushConsumer
	lock     sync.Mutex
	messages []Answer
}

var consumers = map[string]*listening{}

func startConsumer(asked Asked) (Answer, error) {
	instance := asked.Instance
	if instance == "" {
		instance = asked.Name
	}
	from := map[string]consumer.ConsumeFromWhere{
		"":                          consumer.ConsumeFromFirstOffset,
		"CONSUME_FROM_FIRST_OFFSET": consumer.ConsumeFromFirstOffset,
		"CONSUME_FROM_LAST_OFFSET":  consumer.ConsumeFromLastOffset,
		"CONSUME_FROM_TIMESTAMP":    consumer.ConsumeFromTimestamp,
	}[asked.From]
	model := consumer.Clustering
	if asked.Broadcasting {
		model = consumer.BroadCasting
	}
	options := []consumer.Option{
		consumer.WithGroupName(asked.Group),
		consumer.WithInstance(instance),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{asked.Namesrv})),
		consumer.WithConsumeFromWhere(from),
		consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(asked.Orderly),
	}
	if asked.FromTime != "" {
		options = append(options, consumer.WithConsumeTimestamp(asked.FromTime))
	}
	if asked.MaxReconsumeTimes > 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(asked.MaxReconsumeTimes)))
	}
	if asked.SuspendMs > 0 {
		pause := time.Duration(asked.SuspendMs) * time.Millisecond
		options = append(options, consumer.WithSuspendCurrentQueueTimeMillis(pause))
	}
	one, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	listener := &listening{consumer: one}
	for topic, wanted := range asked.Subscriptions {
		selector := consumer.MessageSelector{Type: consumer.TAG}
		switch expression := wanted.(type) {
		case string:
			selector.Expression = expression
		case map[string]any:
			selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: expression["sql"].(string)}
		}
		take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if listener.take(messages, asked.Failures) {
				return consumer.ConsumeSuccess, nil
			}
			if asked.Orderly {
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			return consumer.ConsumeRetryLater, nil
		}
		if err := one.Subscribe(topic, selector, take); err != nil {
			return nil, err
		}
	}
	consumers[asked.Name] = listener
	return Answer{}, one.Start()
}

// take is whether a listener takes what it is given; a message that failed often enough is taken.
func (l *listening) take(messages []*primitive.MessageExt, failures int) bool {
	l.lock.Lock()
	defer l.lock.Unlock()
	takes := true
	for _, message := range messages {
		takesThis := failures >= 0 && int(message.ReconsumeTimes) >= failures
		takes = takes && takesThis
		queueID := -1
		if message.Queue != nil {
			queueID = message.Queue.QueueId
		}
		l.messages = append(l.messages, Answer{
			"topic": message.Topic, "queueId": queueID, "queueOffset": message.QueueOffset,
			"body": string(message.Body), "tags": message.GetTags(), "keys": message.GetKeys(), "msgId": message.MsgId,
			"reconsumeTimes": message.ReconsumeTimes, "bornTimestamp": message.BornTimestamp,
			"storeTimestamp": message.StoreTimestamp, "receivedTimestamp": time.Now().UnixMilli(),
			"properties": message.GetProperties(), "taken": takesThis,
		})
	}
	return takes
}

func (l *listening) count() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return len(l.messages)
}

func received(asked Asked) (Answer, error) {
	listener := consumers[asked.Name]
	await(asked, listener.count)
	listener.lock.Lock()
	defer listener.lock.Unlock()
	return Answer{"messages": append([]Answer{}, listener.messages...)}, nil
}
