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

	shared "../shared"
)

const clients = shared.Clients

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
		{"types", types},
		{"list of errors", listOfErrors},
		{"savepoints", savepoints},
		{"notifications", notifications},
		{"large objects", largeObjects},
	}
	for _, test := range tests {
		fmt.Println("==", test.name)
		db, err := sql.Open("postgres", "sslmode="+sslmode())
		if err == nil {
			err = test.run(db)
			db.Close()
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", test.name, err)
			os.Exit(1)
		}
	}
	fmt.Println("== end")
}

// sslmode is the environment's, but that lib/pq has no prefer.
func sslmode() string {
	switch mode := os.Getenv("PGSSLMODE"); mode {
	case "", "allow", "prefer":
		return "disable"
	default:
		return mode
	}
}

func types(db *sql.DB) error {
	for _, binary := range []string{"no", "yes"} {
		db, err := sql.Open("postgres", "binary_parameters="+binary+" sslmode="+sslmode())
		if err != nil {
			return err
		}
		for _, t := range shared.Types() {
			for _, arguments := range [][]interface{}{nil, {t.Value}} {
				var value, null interface{}
				text := "select " + t.Literal()
				if arguments != nil {
					text = "select $1::" + t.Name
				}
				if err := db.QueryRow(text+", null::"+t.Name, arguments...).Scan(&value, &null); err != nil {
					return err
				}
				fmt.Printf("%s %T %v %v\n", t.Name, value, value, null)
			}
		}
		db.Close()
	}
	return nil
}

func listOfErrors(db *sql.DB) error {
	db.SetMaxOpenConns(1)
	for _, statement := range shared.Errors() {
		for _, arguments := range [][]interface{}{nil, {1}} {
			if arguments != nil {
				statement = "select $1::int; " + statement
			}
			_, err := db.Exec(statement, arguments...)
			if failure, ok := err.(*pq.Error); ok {
				fmt.Println(failure.Code, failure.Message, failure.Detail, failure.Hint, failure.Position)
			} else {
				fmt.Println("no error of the server:", err)
			}
			var three int
			if err := db.QueryRow("select $1::int", 3).Scan(&three); err != nil {
				return err
			}
		}
	}
	return nil
}

func savepoints(db *sql.DB) error {
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	if err != nil {
		return err
	}
	for _, statement := range []string{
		"create table gosave(a int)", "savepoint one", "insert into gosave values (1)", "savepoint two",
		"insert into gosave values (1/0)", "select 1", "rollback to two", "insert into gosave values (2)", "release one",
	} {
		_, err := tx.Exec(statement)
		fmt.Println(statement, err)
	}
	var level string
	var sum int
	if err := tx.QueryRow("select sum(a), current_setting('transaction_isolation') from gosave").Scan(&sum, &level); err != nil {
		return err
	}
	fmt.Println(sum, level)
	return tx.Commit()
}

func notifications(db *sql.DB) error {
	listener := pq.NewListener("sslmode="+sslmode(), time.Second, time.Second, nil)
	defer listener.Close()
	if err := listener.Listen("gonotify"); err != nil {
		return err
	}
	for _, word := range []string{"one", "two"} {
		if _, err := db.Exec("select pg_notify('gonotify', $1)", word); err != nil {
			return err
		}
	}
	for count := 0; count < 2; count++ {
		select {
		case got := <-listener.Notify:
			fmt.Println(got.Channel, got.Extra)
		case <-time.After(20 * time.Second):
			return fmt.Errorf("no notification")
		}
	}
	return listener.Unlisten("gonotify")
}

func largeObjects(db *sql.DB) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	var oid, fd, count int
	var piece []byte
	steps := []error{
		tx.QueryRow("select lo_create(0)").Scan(&oid),
		tx.QueryRow("select lo_open($1, 393216)", oid).Scan(&fd),
		tx.QueryRow("select lowrite($1, $2)", fd, make([]byte, 9000)).Scan(&count),
		tx.QueryRow("select lo_lseek($1, 8998, 0)", fd).Scan(&count),
		tx.QueryRow("select loread($1, 10)", fd).Scan(&piece),
		tx.QueryRow("select lo_unlink($1)", oid).Scan(&count),
	}
	fmt.Println(count, piece, steps)
	return tx.Commit()
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
	count := func(text string) (count int) {
		shared.Must(db.QueryRow(text).Scan(&count))
		return count
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	shared.WhenAsleep(count, stop)
	_, err := db.ExecContext(ctx, "select pg_sleep(30)")
	fmt.Println(err)
	var one int
	if err := db.QueryRow("select 1").Scan(&one); err != nil || one != 1 {
		return fmt.Errorf("after the cancel: %v", err)
	}
	return nil
}
