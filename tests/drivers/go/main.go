// Go's lib/pq against the server that the PG* environment names.
//
// lib/pq sends a query with arguments in two rounds (Parse+Describe+Sync, then Bind+Execute+Sync), which breaks
// poolers that forget the unnamed statement between them, and names its prepared statements 1, 2, 3 in every client.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lib/pq"
)

const clients = 50

func main() {
	tests := []struct {
		name string
		run  func(*sql.DB) error
	}{
		{"two rounds", twoRounds},
		{"fifty clients", fiftyClients},
		{"prepare", prepare},
		{"transaction", transaction},
		{"copy in", copyIn},
		{"errors", errors},
		{"cancel", cancel},
	}
	for _, test := range tests {
		fmt.Println(test.name)
		db, err := sql.Open("postgres", "sslmode=disable")
		if err == nil {
			err = test.run(db)
			db.Close()
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", test.name, err)
			os.Exit(1)
		}
	}
}

func twoRounds(db *sql.DB) error {
	for number := 0; number < 50; number++ {
		var sum int
		if err := db.QueryRow("select $1::int + $2::int", number, 1).Scan(&sum); err != nil {
			return err
		}
		if sum != number+1 {
			return fmt.Errorf("%d for %d", sum, number)
		}
	}
	return nil
}

func fiftyClients(db *sql.DB) error {
	db.SetMaxOpenConns(clients)
	db.SetMaxIdleConns(clients)
	if _, err := db.Exec("create table if not exists gopq(a int, b text)"); err != nil {
		return err
	}
	failures := make(chan error, clients)
	var group sync.WaitGroup
	for worker := 0; worker < clients; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for round := 0; round < 10; round++ {
				var got string
				want := fmt.Sprintf("%d/%d", worker, round)
				if err := db.QueryRow("select $1::text", want).Scan(&got); err != nil || got != want {
					failures <- fmt.Errorf("worker %d: %q for %q: %v", worker, got, want, err)
					return
				}
				if _, err := db.Exec("insert into gopq values ($1, $2)", worker, want); err != nil {
					failures <- fmt.Errorf("worker %d: %v", worker, err)
					return
				}
			}
		}(worker)
	}
	group.Wait()
	close(failures)
	for err := range failures {
		return err
	}
	var count int
	if err := db.QueryRow("select count(*) from gopq").Scan(&count); err != nil || count != clients*10 {
		return fmt.Errorf("%d rows: %v", count, err)
	}
	_, err := db.Exec("drop table gopq")
	return err
}

func prepare(db *sql.DB) error {
	var group sync.WaitGroup
	failures := make(chan error, 10)
	for worker := 0; worker < 10; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			statement, err := db.Prepare(fmt.Sprintf("select $1::int * %d", worker))
			if err != nil {
				failures <- err
				return
			}
			defer statement.Close()
			for round := 0; round < 20; round++ {
				var got int
				if err := statement.QueryRow(round).Scan(&got); err != nil || got != round*worker {
					failures <- fmt.Errorf("%d*%d = %d: %v", round, worker, got, err)
					return
				}
			}
		}(worker)
	}
	group.Wait()
	close(failures)
	for err := range failures {
		return err
	}
	return nil
}

func transaction(db *sql.DB) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	var first, second, value int
	if err := tx.QueryRow("select pg_backend_pid()").Scan(&first); err != nil {
		return err
	}
	if err := tx.QueryRow("select $1::int", 1).Scan(&value); err != nil {
		return err
	}
	if err := tx.QueryRow("select pg_backend_pid()").Scan(&second); err != nil {
		return err
	}
	if first != second || value != 1 {
		return fmt.Errorf("servers %d and %d, value %d", first, second, value)
	}
	return tx.Rollback()
}

func copyIn(db *sql.DB) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	if _, err := tx.Exec("create table gocopy(a int, b text)"); err != nil {
		return err
	}
	statement, err := tx.Prepare(pq.CopyIn("gocopy", "a", "b"))
	if err != nil {
		return err
	}
	for number := 0; number < 1000; number++ {
		if _, err := statement.Exec(number, fmt.Sprintf("row %d", number)); err != nil {
			return err
		}
	}
	if _, err := statement.Exec(); err != nil {
		return err
	}
	if err := statement.Close(); err != nil {
		return err
	}
	var count int
	if err := tx.QueryRow("select count(*) from gocopy").Scan(&count); err != nil || count != 1000 {
		return fmt.Errorf("%d rows: %v", count, err)
	}
	return tx.Rollback()
}

func errors(db *sql.DB) error {
	db.SetMaxOpenConns(1)
	for _, query := range []string{"select 1/0", "selec", "select * from no_such_table"} {
		if _, err := db.Exec(query); err == nil {
			return fmt.Errorf("%s: no error", query)
		}
		if _, err := db.Exec("select $1::int", "no number"); err == nil {
			return fmt.Errorf("a bad parameter: no error")
		}
		var one int
		if err := db.QueryRow("select $1::int", 1).Scan(&one); err != nil || one != 1 {
			return fmt.Errorf("after %s: %v", query, err)
		}
	}
	return nil
}

func cancel(db *sql.DB) error {
	ctx, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer stop()
	if _, err := db.ExecContext(ctx, "select pg_sleep(30)"); err == nil {
		return fmt.Errorf("not cancelled")
	}
	var one int
	if err := db.QueryRow("select 1").Scan(&one); err != nil || one != 1 {
		return fmt.Errorf("after the cancel: %v", err)
	}
	return nil
}
