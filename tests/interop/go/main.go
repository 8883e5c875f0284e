// SPDX-License-Identifier: Apache-2.0

// Runs one case of the interoperability tests that grpc-go's own interop client does not have: those with compression,
// and any with a client certificate. Exits with 0 when the case passed.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

const limit = 60 * time.Second

var (
	target = flag.String("target", "", "what to connect to, as gRPC names it")
	name   = flag.String("case", "", "the case to run")
	ca     = flag.String("ca", "", "file with the certificates to trust; without it nothing is encrypted")
	cert   = flag.String("cert", "", "file with a client certificate")
	key    = flag.String("key", "", "file with its key")
)

var compressed = grpc.UseCompressor(gzip.Name)

func main() {
	flag.Parse()
	log.SetFlags(0)
	creds, err := transportCredentials()
	check(err)
	conn, err := grpc.NewClient(*target, grpc.WithTransportCredentials(creds))
	check(err)
	defer conn.Close()

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client := pb.NewTestServiceClient(conn)
	switch *name {
	case "empty_unary":
		interop.DoEmptyUnaryCall(ctx, client)
	case "large_unary":
		interop.DoLargeUnaryCall(ctx, client)
	case "client_compressed_unary":
		check(clientCompressedUnary(ctx, client))
	case "server_compressed_unary":
		check(serverCompressedUnary(ctx, client))
	case "client_compressed_streaming":
		check(clientCompressedStreaming(ctx, client))
	case "server_compressed_streaming":
		check(serverCompressedStreaming(ctx, client))
	default:
		log.Fatalf("no case %q", *name)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func transportCredentials() (credentials.TransportCredentials, error) {
	if *ca == "" {
		return insecure.NewCredentials(), nil
	}
	pem, err := os.ReadFile(*ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}

func payload(size int) *pb.Payload {
	return interop.ClientNewPayload(pb.PayloadType_COMPRESSABLE, size)
}

func expectCode(err error, code codes.Code) error {
	if status.Code(err) != code {
		return fmt.Errorf("got %v, expected %v", err, code)
	}
	return nil
}

func expectSize(payload *pb.Payload, size int) error {
	if len(payload.GetBody()) != size {
		return fmt.Errorf("got %d bytes, expected %d", len(payload.GetBody()), size)
	}
	return nil
}

func clientCompressedUnary(ctx context.Context, client pb.TestServiceClient) error {
	call := func(expected bool, options ...grpc.CallOption) error {
		reply, err := client.UnaryCall(ctx, &pb.SimpleRequest{
			ExpectCompressed: &pb.BoolValue{Value: expected},
			ResponseSize:     314159,
			Payload:          payload(271828),
		}, options...)
		if err != nil {
			return err
		}
		return expectSize(reply.Payload, 314159)
	}

	if err := expectCode(call(true), codes.InvalidArgument); err != nil {
		return err
	}
	if err := call(true, compressed); err != nil {
		return err
	}
	return call(false)
}

func serverCompressedUnary(ctx context.Context, client pb.TestServiceClient) error {
	for _, wanted := range []bool{true, false} {
		reply, err := client.UnaryCall(ctx, &pb.SimpleRequest{
			ResponseCompressed: &pb.BoolValue{Value: wanted},
			ResponseSize:       314159,
			Payload:            payload(271828),
		})
		if err != nil {
			return err
		}
		if err := expectSize(reply.Payload, 314159); err != nil {
			return err
		}
	}
	return nil
}

// grpc-go compresses all messages of a call or none: what the case sends in one call goes in two.
func clientCompressedStreaming(ctx context.Context, client pb.TestServiceClient) error {
	call := func(expected bool, size int, options ...grpc.CallOption) error {
		stream, err := client.StreamingInputCall(ctx, options...)
		if err != nil {
			return err
		}
		// What failed, if anything did, is told by the answer.
		_ = stream.Send(&pb.StreamingInputCallRequest{
			ExpectCompressed: &pb.BoolValue{Value: expected},
			Payload:          payload(size),
		})
		reply, err := stream.CloseAndRecv()
		if err == nil && reply.AggregatedPayloadSize != int32(size) {
			return fmt.Errorf("got a sum of %d, expected %d", reply.AggregatedPayloadSize, size)
		}
		return err
	}

	if err := expectCode(call(true, 27182), codes.InvalidArgument); err != nil {
		return err
	}
	if err := call(true, 27182, compressed); err != nil {
		return err
	}
	return call(false, 45904)
}

func serverCompressedStreaming(ctx context.Context, client pb.TestServiceClient) error {
	stream, err := client.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{
		ResponseParameters: []*pb.ResponseParameters{
			{Size: 31415, Compressed: &pb.BoolValue{Value: true}},
			{Size: 92653, Compressed: &pb.BoolValue{Value: false}},
		},
	})
	if err != nil {
		return err
	}
	for _, size := range []int{31415, 92653} {
		reply, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := expectSize(reply.Payload, size); err != nil {
			return err
		}
	}
	if _, err := stream.Recv(); err != io.EOF {
		return fmt.Errorf("got %v, expected the end", err)
	}
	return nil
}
