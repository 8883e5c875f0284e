// SPDX-License-Identifier: Apache-2.0

// Measures the Go client, and the stubs that it is written on.
//
//	go SOCKET SANDBOX hutch|raw exec|up|down BYTES COUNT
//
// Prints the microseconds that each took: a command; sending a file of BYTES from memory; taking it to nowhere.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"time"

	hutch "github.com/hutch-sandbox/hutch/clients/go"
	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const name = "measured"

var (
	argv  = []string{"true"}
	piece = make([]byte, 1<<20)
)

type zeros struct{}

func (zeros) Read(bytes []byte) (int, error) { return len(bytes), nil }

func check(came, size int64) error {
	if came != size {
		return fmt.Errorf("%d bytes came, not %d", came, size)
	}
	return nil
}

// What is measured: one command, or one file.
type measure func(ctx context.Context, what string, size int64) error

func ofClient(address, sandbox string) (measure, error) {
	client, err := hutch.Connect(context.Background(), hutch.WithAddress(address))
	if err != nil {
		return nil, err
	}
	box := client.Sandbox(sandbox)
	return func(ctx context.Context, what string, size int64) error {
		switch what {
		case "exec":
			_, err := box.Run(ctx, argv)
			return err
		case "up":
			_, err := box.Files().Upload(ctx, name, io.LimitReader(zeros{}, size),
				hutch.WithSize(uint64(size)), hutch.WithOverwrite(), hutch.WithMaxSize(uint64(size)))
			return err
		default:
			file, err := box.Files().Open(ctx, name, hutch.WithMaxSize(uint64(size)))
			if err != nil {
				return err
			}
			defer file.Close()
			came, err := io.Copy(io.Discard, file)
			return errors.Join(err, check(came, size))
		}
	}, nil
}

func upload(ctx context.Context, files hutchv1.FileServiceClient, sandbox string, size int64) error {
	stream, err := files.UploadFile(ctx)
	if err != nil {
		return err
	}
	bytes := uint64(size)
	header := &hutchv1.UploadFileHeader{
		SandboxId: sandbox, Path: name, SizeBytes: &bytes, Overwrite: true, MaxSizeBytes: bytes,
	}
	err = stream.Send(&hutchv1.UploadFileRequest{Item: &hutchv1.UploadFileRequest_Header{Header: header}})
	for left := size; err == nil && left > 0; left -= int64(len(piece)) {
		data := piece[:min(int64(len(piece)), left)]
		err = stream.Send(&hutchv1.UploadFileRequest{Item: &hutchv1.UploadFileRequest_Data{Data: data}})
	}
	_, ended := stream.CloseAndRecv()
	return errors.Join(err, ended)
}

func download(ctx context.Context, files hutchv1.FileServiceClient, sandbox string, size int64) error {
	stream, err := files.DownloadFile(ctx, &hutchv1.DownloadFileRequest{
		SandboxId: sandbox, Path: name, MaxSizeBytes: uint64(size),
	})
	for came := int64(0); ; {
		if err != nil {
			return err
		}
		var answer *hutchv1.DownloadFileResponse
		if answer, err = stream.Recv(); errors.Is(err, io.EOF) {
			return check(came, size)
		}
		came += int64(len(answer.GetData()))
	}
}

func ofStubs(address, sandbox string) (measure, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	execs, files := hutchv1.NewExecServiceClient(conn), hutchv1.NewFileServiceClient(conn)
	return func(ctx context.Context, what string, size int64) error {
		switch what {
		case "exec":
			_, err := execs.RunCommand(ctx, &hutchv1.RunCommandRequest{
				SandboxId: sandbox, Spec: &hutchv1.ExecSpec{Argv: argv},
			})
			return err
		case "up":
			return upload(ctx, files, sandbox, size)
		default:
			return download(ctx, files, sandbox, size)
		}
	}, nil
}

func run(arguments []string) error {
	address, sandbox, client, what := "unix:"+arguments[0], arguments[1], arguments[2], arguments[3]
	size, err := strconv.ParseInt(arguments[4], 10, 64)
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(arguments[5])
	if err != nil {
		return err
	}
	prepare := ofClient
	if client == "raw" {
		prepare = ofStubs
	}
	one, err := prepare(address, sandbox)
	for ; err == nil && count > 0; count-- {
		started := time.Now()
		if err = one(context.Background(), what, size); err == nil {
			fmt.Println(float64(time.Since(started).Nanoseconds()) / 1000)
		}
	}
	return err
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}
