package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groups lets two members of one group read everything, and then copies it exactly once with a group transaction session.
func groups(ctx context.Context, bootstrap, topic string, seen map[string]any) error {
	client, err := kgo.NewClient(secured(kgo.SeedBrokers(bootstrap))...)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	source, target := topic+"-source", topic+"-target"
	if _, err = admin.CreateTopics(ctx, partitions, 1, nil, source, target); err != nil {
		return err
	}
	sender, err := kgo.NewClient(secured(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return err
	}
	defer sender.Close()
	if err = produce(ctx, sender, source); err != nil {
		return err
	}
	for name, options := range map[string][]kgo.Opt{
		"range":       {kgo.Balancers(kgo.RangeBalancer())},
		"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	} {
		if seen["group "+name], err = readTogether(ctx, bootstrap, source, topic+"-"+name, options); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		lags, err := admin.Lag(ctx, topic+"-"+name)
		if err != nil {
			return err
		}
		seen["lag "+name] = lags[topic+"-"+name].Lag.Total()
	}
	if seen["copied"], err = copyOnce(ctx, bootstrap, source, target, topic+"-copiers"); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	seen["aborted unseen"], err = abort(ctx, bootstrap, target)
	return err
}

func readTogether(ctx context.Context, bootstrap, topic, group string, options []kgo.Opt) (int, error) {
	var lock sync.Mutex
	var problem error
	values := map[string]bool{}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var members sync.WaitGroup
	for range 2 {
		members.Add(1)
		go func() {
			defer members.Done()
			client, err := kgo.NewClient(secured(append(options, kgo.SeedBrokers(bootstrap), kgo.ConsumerGroup(group),
				kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)...)
			if err == nil {
				defer client.Close()
				err = readUntil(ctx, cancel, client, &lock, values)
			}
			if err != nil {
				lock.Lock()
				problem = err
				lock.Unlock()
			}
		}()
	}
	members.Wait()
	return len(values), problem
}

func readUntil(ctx context.Context, done func(), client *kgo.Client, lock *sync.Mutex, values map[string]bool) error {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if fetches.NumRecords() == 0 {
			continue
		}
		commitCtx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if err := client.CommitRecords(commitCtx, fetches.Records()...); err != nil {
			cancel()
			return err
		}
		cancel()
		lock.Lock()
		for _, record := range fetches.Records() {
			values[string(record.Value)] = true
		}
		if len(values) == records {
			done()
		}
		lock.Unlock()
	}
	return nil
}

func copyOnce(ctx context.Context, bootstrap, source, target, group string) (int, error) {
	session, err := kgo.NewGroupTransactSession(secured(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(group),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(source), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets())...)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	for copied := 0; copied < records; {
		fetches := session.PollFetches(ctx)
		if ctx.Err() != nil {
			return copied, ctx.Err()
		}
		if err := session.Begin(); err != nil {
			return copied, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: target, Value: record.Value}, nil)
		})
		isCommitted, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return copied, err
		}
		if isCommitted {
			copied += fetches.NumRecords()
		}
	}
	return countCommitted(ctx, bootstrap, target)
}

func abort(ctx context.Context, bootstrap, topic string) (bool, error) {
	client, err := kgo.NewClient(secured(kgo.SeedBrokers(bootstrap), kgo.TransactionalID(topic+"-aborter"),
		kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		return false, err
	}
	defer client.Close()
	before, err := countCommitted(ctx, bootstrap, topic)
	if err != nil {
		return false, err
	}
	if err := client.BeginTransaction(); err != nil {
		return false, err
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord("never seen")).FirstErr(); err != nil {
		return false, err
	}
	if err := client.EndTransaction(ctx, kgo.TryAbort); err != nil {
		return false, err
	}
	after, err := countCommitted(ctx, bootstrap, topic)
	return before == after, err
}

// countCommitted counts the distinct values that a reader of committed records sees up to the end of the topic.
func countCommitted(ctx context.Context, bootstrap, topic string) (int, error) {
	client, err := kgo.NewClient(secured(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	count := 0
	for {
		quiet, cancel := context.WithTimeout(ctx, time.Second)
		fetches := client.PollFetches(quiet)
		cancel()
		if fetches.NumRecords() == 0 {
			return count, ctx.Err()
		}
		count += fetches.NumRecords()
	}
}
