// SPDX-License-Identifier: Apache-2.0

// The server of echo.proto on grpc-go: server PORT PATH.
package main

import (
	"context"
	"io"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"

	"bench/echo"
)

type server struct {
	echo.UnimplementedEchoServer
}

func (server) Unary(_ context.Context, request *echo.Message) (*echo.Message, error) {
	return &echo.Message{Payload: request.Payload}, nil
}

func (server) Download(request *echo.DownloadRequest, stream echo.Echo_DownloadServer) error {
	message := &echo.Message{Payload: make([]byte, request.Size)}
	for {
		if err := stream.Send(message); err != nil {
			return err
		}
	}
}

func (server) Hold(stream echo.Echo_HoldServer) error {
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: server PORT PATH")
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	unix, err := net.Listen("unix", os.Args[2])
	if err != nil {
		log.Fatal(err)
	}

	s := grpc.NewServer()
	echo.RegisterEchoServer(s, server{})
	go func() { log.Fatal(s.Serve(unix)) }()
	log.Fatal(s.Serve(tcp))
}
