// Package shared is what the Go drivers share: the lists of types and errors, and fifty clients at once.
package shared

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Clients is how many clients share a few servers.
const Clients = 50

// Sleepers counts the queries that are there to be cancelled.
const Sleepers = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"

// Type is a type and a value of it as text.
type Type struct{ Name, Value string }

// Literal is the value as an expression.
func (t Type) Literal() string {
	return "'" + strings.ReplaceAll(t.Value, "'", "''") + "'::" + t.Name
}

// Types are the types that every driver shows.
func Types() []Type {
	var types []Type
	for _, line := range lines("types.txt") {
		name, value, _ := strings.Cut(line, "\t")
		types = append(types, Type{name, value})
	}
	return types
}

// Errors are statements that fail.
func Errors() []string { return lines("errors.txt") }

func lines(name string) []string {
	text, err := os.ReadFile(filepath.Join(os.Getenv("DRIVERS_SHARED"), name))
	Must(err)
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// Must ends the program at an error that the list does not expect.
func Must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		panic(err)
	}
}

// Say prints a line.
func Say(values ...interface{}) { fmt.Println(values...) }

// WhenAsleep acts when count says that the query to be cancelled runs.
func WhenAsleep(count func(sql string) int, act func()) {
	go func() {
		deadline := time.Now().Add(20 * time.Second)
		for count(Sleepers) == 0 && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		act()
	}()
}

// Fifty runs work for each number at once and shows the answers in their order.
func Fifty(work func(number int) (interface{}, error)) {
	answers := make([]string, Clients)
	var group sync.WaitGroup
	for number := range answers {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			answer, err := work(number)
			answers[number] = fmt.Sprint(answer, " ", err)
		}(number)
	}
	group.Wait()
	for number, answer := range answers {
		Say(number, answer)
	}
}
