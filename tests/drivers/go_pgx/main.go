// Go's pgx: every type in binary and in text, statements that it prepares by itself or only describes, batches, COPY,
// large objects and notifications.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgconn/stmtcache"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"

	shared "../shared"
)

var ctx = context.Background()

func main() {
	for _, section := range []struct {
		name string
		run  func()
	}{
		{"types", types}, {"statements", statements}, {"batches", batches}, {"transactions", transactions},
		{"copies", copies}, {"notifications", notifications}, {"large objects", largeObjects}, {"errors", failures},
		{"cancels", cancels}, {"fifty", fifty},
	} {
		shared.Say("==", section.name)
		section.run()
	}
	shared.Say("== end")
}

// modes are pgx's ways to send a query.
var modes = []struct {
	name string
	set  func(*pgx.ConnConfig)
}{
	{"prepares", func(*pgx.ConnConfig) {}},
	{"describes", func(config *pgx.ConnConfig) {
		config.BuildStatementCache = func(conn *pgconn.PgConn) stmtcache.Cache {
			return stmtcache.New(conn, stmtcache.ModeDescribe, 100)
		}
	}},
	{"no cache", func(config *pgx.ConnConfig) { config.BuildStatementCache = nil }},
	{"simple protocol", func(config *pgx.ConnConfig) { config.PreferSimpleProtocol = true }},
}

func connect(set func(*pgx.ConnConfig)) *pgx.Conn {
	config, err := pgx.ParseConfig("")
	shared.Must(err)
	set(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	shared.Must(err)
	return conn
}

func plain() *pgx.Conn { return connect(modes[0].set) }

func types() {
	for _, mode := range modes {
		conn := connect(mode.set)
		for _, t := range shared.Types() {
			for _, format := range []int16{pgx.TextFormatCode, pgx.BinaryFormatCode} {
				var arguments []interface{}
				if mode.name != "simple protocol" {
					arguments = append(arguments, pgx.QueryResultFormats{format})
				}
				rows, err := conn.Query(ctx, "select "+t.Literal()+" /* "+fmt.Sprint(format)+" */", arguments...)
				shared.Must(err)
				for rows.Next() {
					shared.Say(mode.name, t.Name, rows.FieldDescriptions()[0].DataTypeOID < 16384, rows.RawValues())
				}
				if rows.Err() != nil {
					shared.Say(t.Name, rows.Err())
				}
			}
			var text string
			shared.Must(conn.QueryRow(ctx, "select $1::text::"+t.Name+"::text", t.Value).Scan(&text))
			shared.Say(t.Name, text)
		}
		var sum float64
		var array []int32
		var facts map[string]interface{}
		shared.Must(conn.QueryRow(ctx, "select $1::float8, $2::int[], $3::jsonb", 1.5, []int32{1, 2, 3}, `{"a": 1}`).
			Scan(&sum, &array, &facts))
		shared.Say(sum, array, facts)
		conn.Close(ctx)
	}
}

func statements() {
	for _, mode := range modes {
		conn := connect(mode.set)
		sum := 0
		for round := 0; round < 3; round++ {
			for number := 0; number < 60; number++ {
				var got int
				shared.Must(conn.QueryRow(ctx, fmt.Sprintf("select $1::int * %d", number), round).Scan(&got))
				sum += got
			}
		}
		shared.Say(mode.name, sum)
		conn.Close(ctx)
	}
	conn := plain()
	for round := 0; round < 3; round++ {
		_, err := conn.Prepare(ctx, "named", fmt.Sprintf("select $1::text || '%d'", round))
		shared.Must(err)
		var got string
		shared.Must(conn.QueryRow(ctx, "named", "x").Scan(&got))
		shared.Say(got, conn.Deallocate(ctx, "named"))
	}
	conn.Close(ctx)
}

func batches() {
	for _, mode := range modes {
		conn := connect(mode.set)
		for failing := -1; failing < 3; failing++ {
			batch := &pgx.Batch{}
			for number := 0; number < 3; number++ {
				divisor := 1
				if number == failing {
					divisor = 0
				}
				batch.Queue("select $1::int / $2::int", number, divisor)
			}
			results := conn.SendBatch(ctx, batch)
			for number := 0; number < 3; number++ {
				var got int
				err := results.QueryRow().Scan(&got)
				shared.Say(mode.name, failing, number, got, err)
			}
			results.Close()
		}
		conn.Close(ctx)
	}
}

func transactions() {
	conn := plain()
	defer conn.Close(ctx)
	_, err := conn.Exec(ctx, "create table pgx(a int primary key)")
	shared.Must(err)
	for _, failing := range []string{"", "outer", "inner"} {
		err := conn.BeginFunc(ctx, func(outer pgx.Tx) error {
			if _, err := outer.Exec(ctx, "insert into pgx select coalesce(max(a), 0) + 1 from pgx"); err != nil {
				return err
			}
			inner := outer.BeginFunc(ctx, func(inner pgx.Tx) error {
				if failing == "inner" {
					_, err := inner.Exec(ctx, "insert into pgx values (1)")
					return err
				}
				_, err := inner.Exec(ctx, "insert into pgx select max(a) + 10 from pgx")
				return err
			})
			shared.Say("inner:", inner)
			if failing == "outer" {
				return errors.New("given up")
			}
			return nil
		})
		var sum int
		shared.Must(conn.QueryRow(ctx, "select sum(a) from pgx").Scan(&sum))
		shared.Say(failing, err, sum)
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	shared.Must(err)
	_, err = tx.Exec(ctx, "delete from pgx")
	shared.Say(err, tx.Rollback(ctx))
}

func copies() {
	conn := plain()
	defer conn.Close(ctx)
	_, err := conn.Exec(ctx, "create table pgxc(a int, b text, c numeric)")
	shared.Must(err)
	rows := [][]interface{}{}
	for number := 0; number < 3000; number++ {
		rows = append(rows, []interface{}{number, strings.Repeat("x", number%100), nil})
	}
	count, err := conn.CopyFrom(ctx, pgx.Identifier{"pgxc"}, []string{"a", "b", "c"}, pgx.CopyFromRows(rows))
	shared.Say(count, err)
	out := &bytes.Buffer{}
	tag, err := conn.PgConn().CopyTo(ctx, out, "copy (select a, b from pgxc order by a) to stdout")
	shared.Say(string(tag), out.Len(), err)
	tag, err = conn.PgConn().CopyFrom(ctx, strings.NewReader(strings.Repeat("no number\tx\t\\N\n", 1000)), "copy pgxc from stdin")
	shared.Say(string(tag), err)
	tag, err = conn.PgConn().CopyFrom(ctx, io.MultiReader(strings.NewReader("1\tx\t2\n"), brokenReader{}), "copy pgxc from stdin")
	shared.Say(string(tag), err)
	shared.Must(conn.QueryRow(ctx, "select count(*) from pgxc").Scan(&count))
	shared.Say(count)
}

// brokenReader has the client end a COPY by CopyFail.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the source is broken") }

func notifications() {
	listener, sender := plain(), plain()
	defer listener.Close(ctx)
	defer sender.Close(ctx)
	_, err := listener.Exec(ctx, "listen pgxn")
	shared.Must(err)
	for _, word := range []string{"one", "two"} {
		_, err := sender.Exec(ctx, "select pg_notify('pgxn', $1)", word)
		shared.Must(err)
	}
	for count := 0; count < 2; count++ {
		got, err := listener.WaitForNotification(ctx)
		shared.Must(err)
		shared.Say(got.Channel, got.Payload)
	}
}

func largeObjects() {
	conn := plain()
	defer conn.Close(ctx)
	shared.Must(conn.BeginFunc(ctx, func(tx pgx.Tx) error {
		objects := tx.LargeObjects()
		oid, err := objects.Create(ctx, 0)
		shared.Must(err)
		object, err := objects.Open(ctx, oid, pgx.LargeObjectModeRead|pgx.LargeObjectModeWrite)
		shared.Must(err)
		written, err := object.Write(bytes.Repeat([]byte("0123456789"), 20000))
		shared.Say(written, err)
		place, err := object.Seek(-5, io.SeekEnd)
		shared.Say(place, err)
		rest, err := io.ReadAll(object)
		shared.Say(string(rest), err)
		shared.Say(object.Truncate(7), object.Close(), objects.Unlink(ctx, oid))
		return nil
	}))
}

func failures() {
	for _, mode := range modes {
		conn := connect(mode.set)
		for _, statement := range shared.Errors() {
			_, err := conn.Exec(ctx, statement)
			var failure *pgconn.PgError
			if errors.As(err, &failure) {
				shared.Say(failure.Code, failure.Message, failure.Detail, failure.Hint, failure.Position)
			} else {
				shared.Say("no error of the server:", err)
			}
			var three int
			shared.Must(conn.QueryRow(ctx, "select $1::int", 3).Scan(&three))
		}
		conn.Close(ctx)
	}
}

func cancels() {
	conn, other := plain(), plain()
	defer conn.Close(ctx)
	defer other.Close(ctx)
	count := func(text string) (count int) {
		shared.Must(other.QueryRow(ctx, text).Scan(&count))
		return count
	}
	shared.WhenAsleep(count, func() { shared.Must(conn.PgConn().CancelRequest(ctx)) })
	_, err := conn.Exec(ctx, "select pg_sleep(30)")
	shared.Say(err)
	var four int
	shared.Must(conn.QueryRow(ctx, "select 4").Scan(&four))
	shared.Say(four)
}

func fifty() {
	config, err := pgxpool.ParseConfig("pool_max_conns=50")
	shared.Must(err)
	pool, err := pgxpool.ConnectConfig(ctx, config)
	shared.Must(err)
	defer pool.Close()
	shared.Fifty(func(number int) (interface{}, error) {
		sum := 0
		for round := 0; round < 10; round++ {
			err := pool.BeginFunc(ctx, func(tx pgx.Tx) error {
				var got int
				err := tx.QueryRow(ctx, "select $1::int + $2::int", number, round).Scan(&got)
				sum += got
				return err
			})
			if err != nil {
				return sum, err
			}
		}
		return sum, nil
	})
}
