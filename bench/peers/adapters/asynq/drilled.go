// What main.go does in a drill: histories instead of times, and load at a steady rate until SIGTERM (see drilled.py).
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

const (
	look   = 50 * time.Millisecond
	golden = 0.6180339887498949
)

type history struct {
	Path    string     `json:"path"`
	Proc    string     `json:"proc"`
	Version int        `json:"version"`
	WorkS   [2]float64 `json:"work_s"`
}

type row map[string]any

var rows struct {
	sync.Mutex
	file            *os.File
	proc            string
	seq, operations int
}

func openHistory() {
	file, err := os.OpenFile(todo.History.Path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	must(err)
	rows.file, rows.proc = file, fmt.Sprintf("%s.%d", todo.History.Proc, os.Getpid())
	role := "sink"
	if todo.Role == "produce" {
		role = "producer"
	}
	appendRow("open", row{"role": role, "pid": os.Getpid()})
}

func appendRow(kind string, columns row) {
	rows.Lock()
	defer rows.Unlock()
	whole := row{"v": todo.History.Version, "seq": rows.seq, "proc": rows.proc, "t_ns": monotonicNs(), "kind": kind}
	for name, value := range columns {
		whole[name] = value
	}
	rows.seq++
	line, err := json.Marshal(whole)
	must(err)
	_, err = rows.file.Write(append(line, '\n'))
	must(err)
}

// A row before an operation on a job; what is returned writes the one after it. The operation stands in for a lease's nonce.
func begin(f string, number int) func(kind string, failure error) {
	rows.Lock()
	rows.operations++
	op := fmt.Sprintf("%s-%d", rows.proc, rows.operations)
	rows.Unlock()
	item := row{"job": fmt.Sprint(number), "nonce": op}
	head := func(kind string) row {
		return row{"f": f, "op": op, "queue": todo.Queue, "type": kind, "items": []row{item}}
	}
	sent := monotonicNs()
	invoke := head("invoke")
	invoke["first_send_ns"] = sent
	appendRow("operation", invoke)
	return func(kind string, failure error) {
		if f == "enqueue" && kind == "ok" {
			item["result"] = "created"
		}
		done := head(kind)
		done["first_send_ns"], done["done_ns"] = sent, monotonicNs()
		if failure != nil {
			done["error"] = failure.Error()
		}
		appendRow("operation", done)
	}
}

func handleDrilled(number int) {
	end := begin("handle", number)
	least, most := todo.History.WorkS[0], todo.History.WorkS[1]
	workS := least + (most-least)*math.Mod(float64(number)*golden, 1)
	time.Sleep(time.Duration(workS * float64(time.Second)))
	end("ok", nil)
}

// A job whose call fails may have been sent all the same. The mark is how the harness finds a job in the keys of the server.
func produceDrilled(client *asynq.Client) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	from := time.Now()
	for number := 0; ; {
		due := from.Add(time.Duration(float64(number) / todo.Rate * float64(time.Second)))
		select {
		case <-ended:
			appendRow("close", row{})
			return
		case <-time.After(min(look, max(0, time.Until(due)))):
		}
		if time.Now().Before(due) {
			continue
		}
		data := map[string]any{"number": number, "mark": fmt.Sprintf("job-mark:%d:", number)}
		for name, value := range todo.Payload {
			data[name] = value
		}
		raw, err := json.Marshal(data)
		must(err)
		end := begin("enqueue", number)
		if _, err = client.Enqueue(asynq.NewTask("job", raw), asynq.Queue(todo.Queue)); err != nil {
			end("info", err)
		} else {
			end("ok", nil)
		}
		number++
	}
}
