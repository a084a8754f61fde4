// Usage: go run . HOST:PORT TOPIC; two members of a group, then a copy with transactions; prints one JSON object.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions = 3
	records    = 300
)

func main() {
	seen, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(seen)
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V4_0_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	secure(config)
	return config
}

func run(bootstrap, topic string) (map[string]any, error) {
	brokers := []string{bootstrap}
	admin, err := sarama.NewClusterAdmin(brokers, settings())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	source, target := topic+"-source", topic+"-target"
	for _, name := range []string{source, target} {
		if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
			return nil, err
		}
	}
	if err := fill(brokers, source); err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	seen := map[string]any{}
	readers, copiers, counters := topic+"-readers", topic+"-copiers", topic+"-counters"
	if seen["read"], err = together(brokers, source, readers, 2, nil); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if seen["copied"], err = copyOnce(brokers, source, target, copiers); err != nil {
		return nil, fmt.Errorf("copy: %w", err)
	}
	if seen["committed"], err = together(brokers, target, counters, 1, nil); err != nil {
		return nil, fmt.Errorf("count: %w", err)
	}
	for name, group := range map[string]string{"readers": readers, "copiers": copiers} {
		offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{source: {0, 1, 2}})
		if err != nil {
			return nil, err
		}
		places := []int64{}
		for partition := range int32(partitions) {
			places = append(places, offsets.GetBlock(source, partition).Offset)
		}
		seen[name] = places
	}
	for _, group := range []string{readers, copiers, counters} {
		if err := admin.DeleteConsumerGroup(group); err != nil {
			return nil, fmt.Errorf("delete %s: %w", group, err)
		}
	}
	return seen, errors.Join(admin.DeleteTopic(source), admin.DeleteTopic(target))
}

func fill(brokers []string, topic string) error {
	config := settings()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := []*sarama.ProducerMessage{}
	for number := range records {
		value := sarama.StringEncoder(fmt.Sprintf("%06d", number))
		messages = append(messages, &sarama.ProducerMessage{Topic: topic, Partition: int32(number % partitions), Value: value})
	}
	return producer.SendMessages(messages)
}

// handler counts distinct values; with a producer it copies each of them in a transaction of its own batch.
type handler struct {
	lock     sync.Mutex
	values   map[string]bool
	done     func()
	producer sarama.AsyncProducer
	target   string
	group    string
	problem  error
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) Cleanup(session sarama.ConsumerGroupSession) error {
	if h.producer == nil {
		session.Commit()
	}
	return nil
}

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			h.take(session, message)
		case <-session.Context().Done():
			return nil
		}
	}
}

func (h *handler) take(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) {
	h.lock.Lock()
	defer h.lock.Unlock()
	if h.producer != nil {
		if err := h.copy(message); err != nil && h.problem == nil {
			h.problem = err
			h.done()
			return
		}
	} else {
		session.MarkMessage(message, "")
	}
	h.values[string(message.Value)] = true
	if len(h.values) == records {
		h.done()
	}
}

// copy takes every tenth record back first: nobody may see what was aborted.
func (h *handler) copy(message *sarama.ConsumerMessage) error {
	if message.Offset%10 == 0 {
		if err := h.send("aborted"+string(message.Value), message.Partition); err != nil {
			return err
		}
		if err := h.producer.AbortTxn(); err != nil {
			return err
		}
	}
	if err := h.send(string(message.Value), message.Partition); err != nil {
		return err
	}
	if err := h.producer.AddMessageToTxn(message, h.group, nil); err != nil {
		return err
	}
	return h.producer.CommitTxn()
}

func (h *handler) send(value string, partition int32) error {
	if err := h.producer.BeginTxn(); err != nil {
		return err
	}
	h.producer.Input() <- &sarama.ProducerMessage{Topic: h.target, Partition: partition, Value: sarama.StringEncoder(value)}
	select {
	case <-h.producer.Successes():
		return nil
	case problem := <-h.producer.Errors():
		return problem.Err
	}
}

func copyOnce(brokers []string, source, target, group string) (int, error) {
	config := settings()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Transaction.ID = group
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer(brokers, config)
	if err != nil {
		return 0, err
	}
	defer producer.Close()
	return together(brokers, source, group, 1, &handler{producer: producer, target: target, group: group})
}

// together reads a topic with so many members until everything was seen.
func together(brokers []string, topic, group string, members int, work *handler) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if work == nil {
		work = &handler{}
	}
	work.values, work.done = map[string]bool{}, cancel
	var all sync.WaitGroup
	for range members {
		member, err := sarama.NewConsumerGroup(brokers, group, settings())
		if err != nil {
			return 0, err
		}
		all.Add(1)
		go func() {
			defer all.Done()
			defer member.Close()
			for ctx.Err() == nil {
				member.Consume(ctx, []string{topic}, work)
			}
		}()
	}
	all.Wait()
	return len(work.values), work.problem
}
