// SPDX-License-Identifier: Apache-2.0

package rules

// Kept is what is kept of a stream of output with a limit (OUT-003).
type Kept struct {
	Head      uint64 // bytes at the beginning
	TailStart uint64 // offset of the kept tail
	Dropped   uint64 // bytes between them
}

// Truncated is OUT-004.
func (k Kept) Truncated() bool { return k.Dropped > 0 }

// Keep tells what is kept of a stream of so many bytes.
func Keep(limit, total uint64) Kept {
	if total <= limit {
		return Kept{Head: total, TailStart: total}
	}
	return Kept{Head: limit - limit/2, TailStart: total - limit/2, Dropped: total - limit}
}

// ShareLimit is OUT-005: each stream's part of a limit over both.
func ShareLimit(limit, stdout, stderr uint64) (stdoutLimit, stderrLimit uint64) {
	half := limit - limit/2
	stdoutLimit, stderrLimit = half, limit/2
	if stderr < stderrLimit {
		stdoutLimit = limit - stderr
	}
	if stdout < half {
		stderrLimit = limit - stdout
	}
	return stdoutLimit, stderrLimit
}

// Collector keeps head and tail of a stream that is larger than its limit. What it holds is bounded by the limit.
type Collector struct {
	limit uint64
	total uint64
	head  []byte // at most the limit; while nothing is dropped, everything
	tail  []byte // a ring, once the head is full
	next  uint64 // where the ring is written next
}

// NewCollector makes one.
func NewCollector(limit uint64) *Collector { return &Collector{limit: limit} }

// Write takes the next bytes of the stream.
func (c *Collector) Write(data []byte) (int, error) {
	n := len(data)
	c.total += uint64(n)
	headLimit, tailLimit := c.limit-c.limit/2, c.limit/2
	if room := headLimit - uint64(len(c.head)); room > 0 {
		take := min(room, uint64(len(data)))
		c.head = append(c.head, data[:take]...)
		data = data[take:]
	}
	if tailLimit == 0 {
		return n, nil
	}
	if skip := uint64(len(data)); skip > tailLimit {
		data = data[skip-tailLimit:]
	}
	for len(data) > 0 {
		if room := tailLimit - uint64(len(c.tail)); room > 0 {
			take := min(room, uint64(len(data)))
			c.tail = append(c.tail, data[:take]...)
			c.next = uint64(len(c.tail)) % tailLimit
			data = data[take:]
			continue
		}
		copied := copy(c.tail[c.next:], data)
		c.next = (c.next + uint64(copied)) % tailLimit
		data = data[copied:]
	}
	return n, nil
}

// Kept tells what is kept so far.
func (c *Collector) Kept() Kept { return Keep(c.limit, c.total) }

// Total is how many bytes came.
func (c *Collector) Total() uint64 { return c.total }

// Parts are the bytes that are kept. Nothing lies between them unless the output is truncated.
func (c *Collector) Parts() (head, tail []byte) {
	if c.total <= c.limit {
		return append(c.head, c.tail...), nil
	}
	return c.head, append(c.tail[c.next:len(c.tail):len(c.tail)], c.tail[:c.next]...)
}

// BytesWithin gives head and tail next to each other, of no more than a limit that is not above the collector's.
func (c *Collector) BytesWithin(limit uint64) []byte {
	head, tail := c.Parts()
	kept := Keep(limit, c.total)
	if !kept.Truncated() {
		return append(head, tail...)
	}
	after := c.total - kept.TailStart // bytes of the tail
	all := append(head[:len(head):len(head)], tail...)
	return append(all[:kept.Head:kept.Head], all[uint64(len(all))-after:]...)
}
