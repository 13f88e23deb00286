// asynq: as many jobs at once as there are cores by default. It has no bulk call. The order is that of order.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/hibiken/asynq"
)

const (
	enqueued = iota
	started
	ended
	startedAgain
)

type order struct {
	Role     string         `json:"role"`
	Host     string         `json:"host"`
	Port     int            `json:"port"`
	Queue    string         `json:"queue"`
	Jobs     int            `json:"jobs"`
	Payload  map[string]any `json:"payload"`
	Records  string         `json:"records"`
	Settings map[string]int `json:"settings"`
	HandlerS float64        `json:"handler_s"`
	Way      string         `json:"way"`
	InFlight int            `json:"in_flight"`
	WarmUp   int            `json:"warm_up"`
	Rate     float64        `json:"rate"`
	History  *history       `json:"history"`
}

var todo order
var cells []int64

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// The clock of the other adapters: CLOCK_MONOTONIC.
func monotonicNs() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func record(which, number int) {
	if number >= 0 {
		atomic.StoreInt64(&cells[which*todo.Jobs+number], monotonicNs())
	}
}

func openRecords() {
	file, err := os.OpenFile(todo.Records, os.O_RDWR, 0)
	must(err)
	raw, err := syscall.Mmap(int(file.Fd()), 0, todo.Jobs*32, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	must(err)
	cells = unsafe.Slice((*int64)(unsafe.Pointer(&raw[0])), todo.Jobs*4)
}

func handle(_ context.Context, task *asynq.Task) error {
	var payload struct {
		Number int `json:"number"`
	}
	must(json.Unmarshal(task.Payload(), &payload))
	if todo.History != nil {
		handleDrilled(payload.Number)
		return nil
	}
	number, which := payload.Number, started
	if number >= 0 && atomic.LoadInt64(&cells[started*todo.Jobs+number]) != 0 {
		which = startedAgain
	}
	record(which, number)
	if number >= 0 {
		time.Sleep(time.Duration(todo.HandlerS * float64(time.Second)))
	}
	record(ended, number)
	return nil
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

func produce(client *asynq.Client) {
	enqueue := func(number int) {
		record(enqueued, number)
		data := map[string]any{"number": number}
		for name, value := range todo.Payload {
			data[name] = value
		}
		raw, err := json.Marshal(data)
		must(err)
		_, err = client.Enqueue(asynq.NewTask("job", raw), asynq.Queue(todo.Queue))
		must(err)
	}
	for turn := 0; turn < todo.WarmUp; turn++ {
		enqueue(-1)
	}
	flights := 1
	if todo.Way == "in_flight" {
		flights = todo.InFlight
	}
	cpu, from := cpuSeconds(), time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	for flight := 0; flight < flights; flight++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				number := int(next.Add(1)) - 1
				if number >= todo.Jobs {
					return
				}
				if todo.Way == "paced" {
					time.Sleep(time.Until(from.Add(50*time.Millisecond + time.Duration(float64(number)/todo.Rate*float64(time.Second)))))
				}
				enqueue(number)
			}
		}()
	}
	all.Wait()
	fmt.Printf("{\"seconds\": %f, \"cpu_s\": %f}\n", time.Since(from).Seconds(), cpuSeconds()-cpu)
}

func main() {
	must(json.Unmarshal([]byte(os.Getenv("PEERS_ORDER")), &todo))
	if todo.History != nil {
		openHistory()
	} else {
		openRecords()
	}
	server := asynq.RedisClientOpt{Addr: fmt.Sprintf("%s:%d", todo.Host, todo.Port)}
	if todo.Role == "work" {
		mux := asynq.NewServeMux()
		mux.HandleFunc("job", handle)
		must(asynq.NewServer(server, asynq.Config{
			Concurrency: todo.Settings["concurrency"], Queues: map[string]int{todo.Queue: 1}, LogLevel: asynq.ErrorLevel,
		}).Run(mux))
		return
	}
	client := asynq.NewClient(server)
	defer client.Close()
	if todo.History != nil {
		produceDrilled(client)
	} else {
		produce(client)
	}
}
