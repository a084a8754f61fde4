// Usage: go run . HOST:PORT TOPIC; prints one JSON object that the test compares.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 3
	records    = 300
)

func main() {
	seen, err := roundTrip(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(seen)
}

func roundTrip(bootstrap, topic string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	client, err := kgo.NewClient(secured(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	seen := map[string]any{}

	retention := "777777"
	if _, err = admin.CreateTopic(ctx, partitions, 1, map[string]*string{"retention.ms": &retention}, topic); err != nil {
		return nil, err
	}
	_, err = admin.CreateTopic(ctx, partitions, 1, nil, topic)
	seen["created again"] = fmt.Sprint(err)
	if err = produce(ctx, client, topic); err != nil {
		return nil, err
	}
	if seen["consumed"], seen["ordered"], err = consume(ctx, bootstrap, topic); err != nil {
		return nil, err
	}
	if err = groups(ctx, bootstrap, topic, seen); err != nil {
		return nil, err
	}
	return seen, ask(ctx, admin, topic, seen)
}

func produce(ctx context.Context, client *kgo.Client, topic string) error {
	batch := make([]*kgo.Record, 0, records)
	for number := range records {
		batch = append(batch, &kgo.Record{
			Topic: topic, Partition: int32(number % partitions),
			Key: []byte("key"), Value: fmt.Appendf(nil, "%06d", number),
			Headers: []kgo.RecordHeader{{Key: "number", Value: fmt.Append(nil, number)}},
		})
	}
	return client.ProduceSync(ctx, batch...).FirstErr()
}

// consume reads every partition directly, without a group.
func consume(ctx context.Context, bootstrap, topic string) (int, bool, error) {
	starts := map[int32]kgo.Offset{}
	for partition := range int32(partitions) {
		starts[partition] = kgo.NewOffset().AtStart()
	}
	reader, err := kgo.NewClient(secured(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)...)
	if err != nil {
		return 0, false, err
	}
	defer reader.Close()
	count, isOrdered, last := 0, true, map[int32]string{}
	for count < records {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return count, isOrdered, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			isOrdered = isOrdered && last[record.Partition] < string(record.Value)
			last[record.Partition] = string(record.Value)
			count++
		})
	}
	return count, isOrdered, nil
}

func ask(ctx context.Context, admin *kadm.Client, topic string, seen map[string]any) error {
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	offset, _ := ends.Lookup(topic, 1)
	seen["end"] = offset.Offset
	metadata, err := admin.Metadata(ctx, topic)
	if err != nil {
		return err
	}
	seen["brokers"] = len(metadata.Brokers)
	seen["partitions"] = len(metadata.Topics[topic].Partitions)
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" {
			seen["retention"] = *config.Value
		}
	}
	if _, err = admin.CreatePartitions(ctx, 2, topic); err != nil {
		return err
	}
	_, err = admin.DeleteTopics(ctx, topic)
	return err
}
