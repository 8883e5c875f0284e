// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math"
	"time"
)

// RetryPolicy is how often and after which pauses a call is tried again.
type RetryPolicy struct {
	Attempts int
	Initial  time.Duration
	Most     time.Duration
}

// DefaultRetry is that of RETRY-001.
var DefaultRetry = RetryPolicy{Attempts: 6, Initial: 500 * time.Millisecond, Most: 8 * time.Second}

// Forever is the time that is left without a deadline.
const Forever = time.Duration(math.MaxInt64)

// Pause is RETRY-001, RETRY-002 and RETRY-004: the pause after so many tries, of which there was at least one, when
// there is so much time left. false: there is no other try.
func (p RetryPolicy) Pause(tries int, random uint32, left time.Duration) (time.Duration, bool) {
	pause := time.Duration(0)
	if tries > 1 {
		base := min(p.Initial, p.Most)
		for range tries - 2 {
			base = min(2*base, p.Most)
		}
		ms := uint64(base / time.Millisecond)
		ms = ms - ms/4 + (ms/2*uint64(random))>>32
		pause = time.Duration(ms) * time.Millisecond
	}
	return pause, tries < p.Attempts && pause < left
}

// Try is how a try of a call went.
type Try struct {
	Unavailable bool // UNAVAILABLE, or a lost connection
	Sent        bool // false: the daemon has certainly not seen it
	Safe        bool // it may be repeated: it only reads, or has a request id
	Answered    bool // a stream that had its first answer
}

// Again is RETRY-003 and RETRY-006: whether another try is allowed.
func (t Try) Again() bool { return t.Unavailable && !t.Answered && (t.Safe || !t.Sent) }
