// Usage: go run . HOST:PORT; reads __consumer_offsets as Burrow does: a plain consumer of Sarama on every partition, from
// the oldest record to the end that the broker tells at the start. Prints a line of JSON for each commit, in the order of
// its partition, and how many records were of other kinds. Values are read in the versions that Burrow knows, 0, 1 and 3,
// and in version 4, which Apache Kafka 4.3 writes; any other one ends it.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

const (
	offsetsTopic = "__consumer_offsets"
	patience     = 3 * time.Second
)

type commit struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Timestamp int64  `json:"timestamp"`
	Deleted   bool   `json:"deleted"`
	Version   int16  `json:"version"`
}

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(bootstrap string) error {
	config := sarama.NewConfig()
	config.Version = sarama.V2_1_0_0 // kafka-version of Burrow's client-profile: brokers of today speak to no older one
	config.Consumer.Return.Errors = true
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	partitions, err := client.Partitions(offsetsTopic)
	if err != nil {
		return err
	}
	out, others := json.NewEncoder(os.Stdout), 0
	for _, partition := range partitions {
		end, err := client.GetOffset(offsetsTopic, partition, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		begin, err := client.GetOffset(offsetsTopic, partition, sarama.OffsetOldest)
		if err != nil || begin == end {
			continue
		}
		reading, err := consumer.ConsumePartition(offsetsTopic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		for at := int64(-1); at < end-1; {
			var message *sarama.ConsumerMessage
			select {
			case message = <-reading.Messages():
			case problem := <-reading.Errors():
				return problem
			case <-time.After(patience): // the last ones may be marks of transactions, which nobody is given
				at = end
				continue
			}
			at = message.Offset
			found, err := decode(message.Key, message.Value)
			if err != nil {
				return fmt.Errorf("partition %d, offset %d: %w", partition, message.Offset, err)
			}
			if found != nil {
				out.Encode(found)
			} else {
				others++
			}
		}
		reading.AsyncClose()
	}
	return out.Encode(map[string]int{"others": others})
}

// decode gives nothing for a record that is no commit.
func decode(key, value []byte) (*commit, error) {
	in := &reader{buffer: bytes.NewBuffer(key)}
	version := in.int16()
	if version != 0 && version != 1 {
		return nil, in.err
	}
	found := &commit{Group: in.text(), Topic: in.text(), Partition: in.int32()}
	if in.err != nil || value == nil {
		found.Deleted = true
		return found, in.err
	}
	in = &reader{buffer: bytes.NewBuffer(value)}
	found.Version = in.int16()
	found.Offset = in.int64()
	switch found.Version {
	case 0, 1:
		in.text() // metadata
	case 3:
		in.int32() // leader epoch
		in.text()
	case 4:
		in.int32()
		in.compactText()
	default:
		return nil, fmt.Errorf("a value of version %d", found.Version)
	}
	found.Timestamp = in.int64()
	return found, in.err
}

type reader struct {
	buffer *bytes.Buffer
	err    error
}

func (r *reader) read(target any) {
	if r.err == nil {
		r.err = binary.Read(r.buffer, binary.BigEndian, target)
	}
}

func (r *reader) int16() (value int16) { r.read(&value); return }
func (r *reader) int32() (value int32) { r.read(&value); return }
func (r *reader) int64() (value int64) { r.read(&value); return }

func (r *reader) text() string { return r.bytes(int(r.int16())) }

// compactText has its length and one more in front, seven bits a byte.
func (r *reader) compactText() string {
	length, err := binary.ReadUvarint(r.buffer)
	if r.err == nil {
		r.err = err
	}
	return r.bytes(int(length) - 1)
}

func (r *reader) bytes(length int) string {
	if r.err != nil || length < 0 {
		return ""
	}
	if r.buffer.Len() < length {
		r.err = fmt.Errorf("a text of %d bytes where there are %d", length, r.buffer.Len())
		return ""
	}
	return string(r.buffer.Next(length))
}
