// outbox: publishing as services write it by hand in Go, for bench/run cost. It claims a batch of rows FOR UPDATE SKIP LOCKED
// under a token, publishes them with Google's library, and marks them as published with one UPDATE. When nothing is left it looks
// again in a second. Where the servers are is in PUBSUB_EMULATOR_HOST and in libpq's variables.
//
//	outbox BATCH
package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"strconv"
	"time"

	"cloud.google.com/go/pubsub"
	"github.com/lib/pq"
)

const claim = `WITH next AS (
    SELECT id FROM by_hand.outbox WHERE published_at IS NULL AND (next_retry_at IS NULL OR next_retry_at <= now())
    ORDER BY occurred_at, id LIMIT $2 FOR UPDATE SKIP LOCKED),
claimed AS (UPDATE by_hand.outbox o SET lock_token = $1, locked_at = now() FROM next WHERE o.id = next.id RETURNING o.*)
SELECT id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at FROM claimed ORDER BY occurred_at, id`

const mark = `UPDATE by_hand.outbox SET published_at = now(), lock_token = NULL, locked_at = NULL
WHERE id = ANY($1::uuid[]) AND lock_token = $2`

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	batch, err := strconv.Atoi(os.Args[1])
	check(err)
	db, err := sql.Open("postgres", "")
	check(err)
	ctx := context.Background()
	client, err := pubsub.NewClient(ctx, os.Getenv("PUBSUB_PROJECT_ID"))
	check(err)
	topic := client.Topic("catalog.video.events")
	topic.EnableMessageOrdering = true
	claims, err := db.Prepare(claim)
	check(err)
	marks, err := db.Prepare(mark)
	check(err)
	for token := "worker-" + strconv.Itoa(os.Getpid()); ; {
		ids, messages := read(claims, token, batch)
		if len(ids) == 0 {
			time.Sleep(time.Second)
			continue
		}
		var results []*pubsub.PublishResult
		for _, message := range messages {
			results = append(results, topic.Publish(ctx, message))
		}
		for _, result := range results {
			_, err := result.Get(ctx)
			check(err)
		}
		_, err = marks.Exec(pq.Array(ids), token)
		check(err)
	}
}

func read(claims *sql.Stmt, token string, batch int) ([]string, []*pubsub.Message) {
	rows, err := claims.Query(token, batch)
	check(err)
	defer rows.Close()
	var ids []string
	var messages []*pubsub.Message
	for rows.Next() {
		var id, kind, key, event string
		var version int64
		var payload []byte
		var occurred time.Time
		check(rows.Scan(&id, &kind, &key, &event, &version, &payload, &occurred))
		ids = append(ids, id)
		messages = append(messages, &pubsub.Message{Data: payload, OrderingKey: key, Attributes: map[string]string{
			"event_id": id, "event_type": event, "aggregate_id": key, "aggregate_type": kind, "version": strconv.FormatInt(version, 10),
			"schema_version": "v1", "occurred_at": occurred.UTC().Format(time.RFC3339Nano)}})
	}
	check(rows.Err())
	return ids, messages
}
