// Command load writes 100 bytes without pause, from workers that share a few connections: to our
// members over the stream (docs/stream.md), or to etcd with its own client. It prints, as JSON, how
// many writes were acknowledged within the seconds, and their latencies in milliseconds.
//
//	load stream|etcd HOST:PORT CONNECTIONS WORKERS SECONDS
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const warm = 500 * time.Millisecond

var value = make([]byte, 100)

func main() {
	if len(os.Args) != 6 {
		fail(fmt.Errorf("usage: load stream|etcd HOST:PORT CONNECTIONS WORKERS SECONDS"))
	}
	connections, workers := number(os.Args[3]), number(os.Args[4])
	seconds, err := strconv.ParseFloat(os.Args[5], 64)
	fail(err)
	writers := make([]func(worker int) error, connections)
	for at := range writers {
		if os.Args[1] == "stream" {
			writers[at] = stream(os.Args[2], at)
		} else {
			writers[at] = etcd(os.Args[2])
		}
	}
	measure(writers, workers, time.Duration(seconds*float64(time.Second)))
}

func measure(writers []func(int) error, workers int, length time.Duration) {
	began := time.Now().Add(warm)
	end := began.Add(length)
	var all []float64
	var mutex sync.Mutex
	var group sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			write := writers[worker%len(writers)]
			var mine []float64
			for {
				at := time.Now()
				if at.After(end) {
					break
				}
				fail(write(worker))
				if now := time.Now(); at.After(began) && now.Before(end) {
					mine = append(mine, float64(now.Sub(at).Microseconds())/1000)
				}
			}
			mutex.Lock()
			all = append(all, mine...)
			mutex.Unlock()
		}()
	}
	group.Wait()
	sort.Float64s(all)
	place := func(percent int) float64 {
		if len(all) == 0 {
			return 0
		}
		return all[(len(all)-1)*percent/100]
	}
	fail(json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"operations": float64(len(all)), "per_second": float64(len(all)) / length.Seconds(),
		"p50_ms": place(50), "p99_ms": place(99),
	}))
}

// etcd returns a write of etcd's own client.
func etcd(endpoint string) func(int) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	fail(err)
	return func(worker int) error {
		_, err := client.Put(context.Background(), fmt.Sprintf("load-%d", worker), string(value))
		return err
	}
}

// stream returns a write over one connection of the stream: many workers' requests under way at
// once, told apart by their numbers; what is ready together is sent together.
func stream(endpoint string, at int) func(int) error {
	connection, err := net.Dial("tcp", endpoint)
	fail(err)
	requests := make(chan []byte, 1024)
	var mutex sync.Mutex
	waiting := map[uint64]chan uint64{}
	last := uint64(0)
	clientID := fmt.Sprintf("load-%d-%d-%d", os.Getpid(), at, time.Now().UnixNano())
	go func() {
		writer := bufio.NewWriterSize(connection, 1<<16)
		writer.WriteString("\x00coordinator/1\r\n\x00\x00\x00\x04\x93\x01\x01\x80")
		for request := range requests {
			writer.Write(request)
			if len(requests) == 0 {
				writer.Flush()
			}
		}
	}()
	go func() {
		reader := bufio.NewReaderSize(connection, 1<<16)
		var length [4]byte
		for {
			if _, err := io.ReadFull(reader, length[:]); err != nil {
				return
			}
			frame := make([]byte, binary.BigEndian.Uint32(length[:]))
			_, err := io.ReadFull(reader, frame)
			fail(err)
			if frame[1] == 17 {
				fail(fmt.Errorf("the member said GOAWAY: %q", frame))
			}
			if frame[1] == 12 {
				id, rest := integer(frame[2:])
				status, _ := integer(rest)
				mutex.Lock()
				waiter := waiting[id]
				delete(waiting, id)
				mutex.Unlock()
				waiter <- status
			}
		}
	}()
	body := append([]byte{0x81, 0xa4, 'd', 'a', 't', 'a', 0xc4, byte(len(value))}, value...)
	ask := func(method, target string) uint64 {
		answered := make(chan uint64, 1)
		mutex.Lock()
		last++
		id := last
		waiting[id] = answered
		frame := []byte{0, 0, 0, 0, 0x96, 2, 0xcf}
		frame = binary.BigEndian.AppendUint64(frame, id)
		frame = text(text(frame, method), target)
		frame = append(frame, 0x82)
		frame = text(text(frame, "coordinator-client-id"), clientID)
		frame = text(text(frame, "coordinator-request-number"), strconv.FormatUint(id, 10))
		frame = append(append(frame, 0xc4, byte(len(body))), body...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		requests <- frame // in the order of the numbers
		mutex.Unlock()
		return <-answered
	}
	var made sync.Map
	return func(worker int) error {
		target := fmt.Sprintf("/v1/tree/load-%d-%d", os.Getpid(), worker)
		if _, is := made.LoadOrStore(worker, true); !is {
			if status := ask("POST", target); status != 201 {
				return fmt.Errorf("POST %s: %d", target, status)
			}
		}
		if status := ask("PUT", target); status != 200 {
			return fmt.Errorf("PUT %s: %d", target, status)
		}
		return nil
	}
}

func text(frame []byte, value string) []byte {
	return append(append(frame, 0xd9, byte(len(value))), value...)
}

// integer reads a number of msgpack; it returns what follows, too.
func integer(data []byte) (uint64, []byte) {
	switch data[0] {
	case 0xcc:
		return uint64(data[1]), data[2:]
	case 0xcd:
		return uint64(binary.BigEndian.Uint16(data[1:])), data[3:]
	case 0xce:
		return uint64(binary.BigEndian.Uint32(data[1:])), data[5:]
	case 0xcf:
		return binary.BigEndian.Uint64(data[1:]), data[9:]
	}
	return uint64(data[0]), data[1:]
}

func number(text string) int {
	found, err := strconv.Atoi(text)
	fail(err)
	return found
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
