// inbox: applying as services write it by hand in Go, for bench/run cost. For each message a transaction inserts its id into an
// inbox and upserts the newer version; the message is acked when that is committed. Where the servers are
// is in PUBSUB_EMULATOR_HOST and in libpq's variables.
//
//	inbox CONNECTIONS
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"log"
	"os"
	"strconv"

	"cloud.google.com/go/pubsub"
	_ "github.com/lib/pq"
)

const seen = `INSERT INTO by_hand.inbox (event_id) VALUES ($1) ON CONFLICT (event_id) DO NOTHING`

const upsert = `INSERT INTO by_hand.video AS v (video_id, title, version) VALUES ($1, $2, $3)
ON CONFLICT (video_id) DO UPDATE SET title = EXCLUDED.title, version = EXCLUDED.version WHERE v.version < EXCLUDED.version`

type video struct {
	VideoID string `json:"video_id"`
	Title   string `json:"title"`
}

type consumer struct {
	db           *sql.DB
	seen, upsert *sql.Stmt
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	connections, err := strconv.Atoi(os.Args[1])
	check(err)
	db, err := sql.Open("postgres", "")
	check(err)
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	c := consumer{db: db}
	c.seen, err = db.Prepare(seen)
	check(err)
	c.upsert, err = db.Prepare(upsert)
	check(err)
	ctx := context.Background()
	client, err := pubsub.NewClient(ctx, os.Getenv("PUBSUB_PROJECT_ID"))
	check(err)
	subscription := client.Subscription("catalog.video.events.bench-reader")
	subscription.ReceiveSettings.NumGoroutines = 1 // streams
	check(subscription.Receive(ctx, func(ctx context.Context, message *pubsub.Message) {
		if err := c.apply(ctx, message); err != nil {
			log.Print(err)
			message.Nack()
			return
		}
		message.Ack()
	}))
}

func (c *consumer) apply(ctx context.Context, message *pubsub.Message) error {
	var body video
	if err := json.Unmarshal(message.Data, &body); err != nil {
		return err
	}
	version, err := strconv.ParseInt(message.Attributes["version"], 10, 64)
	if err != nil {
		return err
	}
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	inserted, err := tx.StmtContext(ctx, c.seen).ExecContext(ctx, message.Attributes["event_id"])
	if err != nil {
		return err
	}
	if count, err := inserted.RowsAffected(); err != nil || count == 0 {
		return err
	}
	if _, err := tx.StmtContext(ctx, c.upsert).ExecContext(ctx, body.VideoID, body.Title, version); err != nil {
		return err
	}
	return tx.Commit()
}
