// Usage: go run . URL SUBJECT; prints one JSON object that the test compares.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

const order = `{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}`
const other = `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}`

func main() {
	ctx := context.Background()
	subject := os.Args[2]
	client, err := sr.NewClient(sr.URLs(os.Args[1]))
	check(err)
	seen := map[string]any{}
	types, err := client.SupportedTypes(ctx)
	check(err)
	seen["types"] = len(types)
	made, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: order})
	check(err)
	seen["version"] = made.Version
	found, err := client.LookupSchema(ctx, subject, sr.Schema{Schema: order})
	check(err)
	seen["found"] = found.ID == made.ID
	byID, err := client.SchemaByID(ctx, made.ID)
	check(err)
	seen["text"] = byID.Schema == order
	verdict, err := client.CheckCompatibility(ctx, subject, -1, sr.Schema{Schema: other})
	check(err)
	seen["compatible"] = verdict.Is
	_, err = client.CreateSchema(ctx, subject, sr.Schema{Schema: other})
	seen["refused"] = code(err)
	for _, result := range client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatNone}, subject) {
		check(result.Err)
	}
	second, err := client.CreateSchema(ctx, subject, sr.Schema{Schema: other})
	check(err)
	seen["second"] = second.Version
	versions, err := client.SubjectVersions(ctx, subject)
	check(err)
	seen["versions"] = versions
	deleted, err := client.DeleteSubject(ctx, subject, sr.SoftDelete)
	check(err)
	seen["deleted"] = deleted
	_, err = client.SchemaByVersion(ctx, subject, -1)
	seen["gone"] = code(err)
	text, err := json.Marshal(seen)
	check(err)
	fmt.Println(string(text))
}

func code(err error) int {
	var refused *sr.ResponseError
	if errors.As(err, &refused) {
		return refused.ErrorCode
	}
	return 0
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
