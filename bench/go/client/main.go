// SPDX-License-Identifier: Apache-2.0

// Reads one call of Download with grpc-go for a while, and prints how many bytes came in a second:
// client PATH SIZE SECONDS.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"bench/echo"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: client PATH SIZE SECONDS")
	}
	size, err := strconv.ParseUint(os.Args[2], 10, 32)
	check(err)
	seconds, err := strconv.Atoi(os.Args[3])
	check(err)

	conn, err := grpc.NewClient("unix:"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	defer conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := echo.NewEchoClient(conn).Download(ctx, &echo.DownloadRequest{Size: uint32(size)})
	check(err)

	_, err = stream.Recv()
	check(err)
	started, bytes := time.Now(), 0
	for time.Since(started) < time.Duration(seconds)*time.Second {
		message, err := stream.Recv()
		check(err)
		bytes += len(message.Payload)
	}
	fmt.Printf("%.0f\n", float64(bytes)/time.Since(started).Seconds())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
