// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
)

const shownMost = 65536 // bytes that are told in full

// codeName is a code's name as the specification of gRPC writes it.
func codeName(code codes.Code) string {
	if code == codes.Canceled {
		return "CANCELLED"
	}
	var name strings.Builder
	for i, r := range code.String() {
		if i > 0 && unicode.IsUpper(r) {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToUpper(r))
	}
	return name.String()
}

// parse reads the arguments.
func parse[T any](c *call) T {
	var args T
	if len(c.Args) > 0 {
		if err := json.Unmarshal(c.Args, &args); err != nil {
			panic(fmt.Sprintf("%s: %v", c.Op, err))
		}
	}
	return args
}

// message is a message of the contract within arguments.
type message[T any, P interface {
	*T
	proto.Message
}] struct{ value P }

func (m *message[T, P]) UnmarshalJSON(data []byte) error {
	m.value = P(new(T))
	return protojson.Unmarshal(data, m.value)
}

// asJSON is a message in an answer.
func asJSON(message proto.Message) json.RawMessage {
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	if err != nil {
		panic(err)
	}
	return data
}

func allAsJSON[M proto.Message](messages []M) []json.RawMessage {
	all := []json.RawMessage{}
	for _, message := range messages {
		all = append(all, asJSON(message))
	}
	return all
}

// enum is a value of an enum by its full name, looked up in its type's table.
func enum[E ~int32](name string, values map[string]int32) E {
	value, found := values[name]
	if !found {
		panic("no such value: " + name)
	}
	return E(value)
}

func enums[E ~int32](names []string, values map[string]int32) []E {
	read := make([]E, len(names))
	for i, name := range names {
		read[i] = enum[E](name, values)
	}
	return read
}

// content is bytes within arguments.
type content []byte

func (c *content) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte(`"`)) {
		return json.Unmarshal(data, (*[]byte)(c))
	}
	var repeated struct {
		Repeat []byte
		Times  int
	}
	err := json.Unmarshal(data, &repeated)
	*c = bytes.Repeat(repeated.Repeat, repeated.Times)
	return err
}

// told is bytes in an answer.
func told(data []byte) object {
	digest := sha256.Sum256(data)
	answer := object{"len": len(data), "sha256": hex.EncodeToString(digest[:])}
	if len(data) <= shownMost {
		answer["base64"] = base64.StdEncoding.EncodeToString(data)
	}
	return answer
}

// collected is the output of a stream.
type collected struct {
	data  []byte
	start uint64
	next  uint64
	gaps  []any
	begun bool
}

func (c *collected) add(chunk *hutchv1.OutputChunk) {
	if !c.begun {
		c.begun, c.start = true, chunk.GetOffset()
	} else if chunk.GetOffset() != c.next {
		c.gaps = append(c.gaps, object{"offset": c.next, "length": chunk.GetOffset() - c.next})
	}
	c.data = append(c.data, chunk.GetData()...)
	c.next = chunk.GetOffset() + uint64(len(chunk.GetData()))
}

func (c *collected) told() object {
	answer := told(c.data)
	answer["start"], answer["gaps"] = c.start, c.gaps
	if c.gaps == nil {
		answer["gaps"] = []any{}
	}
	return answer
}
