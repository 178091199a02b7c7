// skip_locked: an outbox as services write it by hand, for bench/run cost. It claims a batch of rows
// FOR UPDATE SKIP LOCKED under a token, publishes them, and marks them published with one UPDATE.
// The rows of a key leave in one request, in their order, and requests of several keys side by side,
// as Google's Go library sends them. When nothing is left it looks again in a second.
//
//	skip_locked DSN ADDRESS BATCH
package main

import (
	"context"
	"database/sql"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/lib/pq"
	pubsub "google.golang.org/genproto/googleapis/pubsub/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const topic = "projects/test/topics/catalog.video.events"

const claim = `WITH next AS (
    SELECT id FROM app.outbox WHERE published_at IS NULL AND (next_retry_at IS NULL OR next_retry_at <= now())
    ORDER BY occurred_at, id LIMIT $2 FOR UPDATE SKIP LOCKED),
claimed AS (UPDATE app.outbox o SET lock_token = $1, locked_at = now() FROM next WHERE o.id = next.id RETURNING o.*)
SELECT id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at FROM claimed ORDER BY occurred_at, id`

const mark = `UPDATE app.outbox SET published_at = now(), lock_token = NULL, locked_at = NULL
WHERE id = ANY($1::uuid[]) AND lock_token = $2`

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	batch, err := strconv.Atoi(os.Args[3])
	check(err)
	db, err := sql.Open("postgres", os.Args[1])
	check(err)
	connection, err := grpc.Dial(os.Args[2], grpc.WithInsecure())
	check(err)
	publisher := pubsub.NewPublisherClient(connection)
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-goog-request-params", "topic="+topic)
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
		publish(ctx, publisher, messages)
		_, err = marks.Exec(pq.Array(ids), token)
		check(err)
	}
}

// The messages of each key in their order.
func read(claims *sql.Stmt, token string, batch int) ([]string, map[string][]*pubsub.PubsubMessage) {
	rows, err := claims.Query(token, batch)
	check(err)
	defer rows.Close()
	var ids []string
	messages := map[string][]*pubsub.PubsubMessage{}
	for rows.Next() {
		var id, kind, key, event string
		var version int64
		var payload []byte
		var occurred time.Time
		check(rows.Scan(&id, &kind, &key, &event, &version, &payload, &occurred))
		ids = append(ids, id)
		messages[key] = append(messages[key], &pubsub.PubsubMessage{Data: payload, OrderingKey: key, Attributes: map[string]string{
			"event_id": id, "event_type": event, "aggregate_id": key, "aggregate_type": kind, "version": strconv.FormatInt(version, 10),
			"schema_version": "v1", "occurred_at": occurred.UTC().Format(time.RFC3339Nano)}})
	}
	check(rows.Err())
	return ids, messages
}

func publish(ctx context.Context, publisher pubsub.PublisherClient, messages map[string][]*pubsub.PubsubMessage) {
	var all sync.WaitGroup
	for _, of := range messages {
		all.Add(1)
		go func(of []*pubsub.PubsubMessage) {
			defer all.Done()
			_, err := publisher.Publish(ctx, &pubsub.PublishRequest{Topic: topic, Messages: of})
			check(err)
		}(of)
	}
	all.Wait()
}
