// RocketMQ's Go client as a program: each line of stdin is a command, each line of stdout its answer, both JSON.
//
// The commands are those of ../java/common/ClientProgram.java, but for pull consumers and mqadmin. What goes wrong is
// answered as {"error": ...}. When stdin ends, the program does, without closing anything.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// Asked is a command, of any kind.
type Asked struct {
	Command           string
	Name              string
	Group             string
	Namesrv           string
	Transactional     bool
	Way               string
	Batch             bool
	Messages          []Asking
	Outcome           string
	Checked           string
	AtLeast           int
	TimeoutMs         *int
	CompressOver      int
	Subscriptions     map[string]any
	Broadcasting      bool
	Orderly           bool
	From              string
	FromTime          string
	Failures          int
	MaxReconsumeTimes int
	SuspendMs         int
	Instance          string
}

// Asking is a message to send.
type Asking struct {
	Topic      string
	Body       string
	Tags       string
	Keys       string
	Properties map[string]any
	DelayLevel int
	DelayMs    int
	QueueID    *int
	OrderedBy  *string
}

// Answer is one line of JSON.
type Answer map[string]any

func main() {
	rlog.SetLogger(toStderr{})
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	answers.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		answer, err := runLine(line)
		if err != nil {
			answer = Answer{"error": err.Error()}
		}
		if answers.Encode(answer) != nil {
			return
		}
	}
}

func runLine(line []byte) (answer Answer, err error) {
	defer func() {
		if wrong := recover(); wrong != nil {
			err = fmt.Errorf("panic: %v", wrong)
		}
	}()
	var asked Asked
	if err := json.Unmarshal(line, &asked); err != nil {
		return nil, err
	}
	switch asked.Command {
	case "producer":
		return startProducer(asked)
	case "send":
		return send(asked)
	case "sendInTransaction":
		return sendInTransaction(asked)
	case "checks":
		return checks(asked)
	case "pushConsumer":
		return startConsumer(asked)
	case "received":
		return received(asked)
	case "close":
		return Answer{}, closeNamed(asked.Name)
	default:
		return nil, fmt.Errorf("the Go client has no command %q", asked.Command)
	}
}

// await waits until so many are there, or for the time that is asked for; 60 s by default.
func await(asked Asked, count func() int) {
	limit := 60 * time.Second
	if asked.TimeoutMs != nil {
		limit = time.Duration(*asked.TimeoutMs) * time.Millisecond
	}
	for end := time.Now().Add(limit); count() < asked.AtLeast && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

// toStderr logs warnings and worse.
type toStderr struct{}

func (toStderr) Debug(string, map[string]interface{}) {}
func (toStderr) Info(string, map[string]interface{})  {}
func (toStderr) Warning(text string, more map[string]interface{}) {
	fmt.Fprintln(os.Stderr, "WARN", text, more)
}
func (toStderr) Error(text string, more map[string]interface{}) {
	fmt.Fprintln(os.Stderr, "ERROR", text, more)
}
func (toStderr) Fatal(text string, more map[string]interface{}) {
	fmt.Fprintln(os.Stderr, "FATAL", text, more)
}
func (toStderr) Level(string)            {}
func (toStderr) OutputPath(string) error { return nil }
