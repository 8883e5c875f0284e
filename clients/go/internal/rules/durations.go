// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"
)

// DurationMost is the longest duration of the contract: ten years.
const DurationMost = 315_576_000 * time.Second

const number = `(\d+(?:\.\d+)?)`

var (
	durationForm = regexp.MustCompile(`^(?:` + number + `d)?(?:` + number + `h)?(?:` + number + `m)?(?:` + number +
		`s)?(?:` + number + `ms)?(?:` + number + `us)?(?:` + number + `ns)?$`)
	unitNanoseconds = []int64{86400e9, 3600e9, 60e9, 1e9, 1e6, 1e3, 1}
)

// ParseDuration is TIME-001 and TIME-002.
func ParseDuration(text string) (time.Duration, *Refusal) {
	if text == "0" {
		return 0, nil
	}
	parts := durationForm.FindStringSubmatch(text)
	if parts == nil || text == "" {
		return 0, refuse("DURATION_MALFORMED", "a duration is '0', or numbers with units, the largest first: '1h30m', '1.5s'")
	}

	sum, fraction := new(big.Rat), false
	for i, part := range parts[1:] {
		if part == "" {
			continue
		}
		if fraction {
			return 0, refuse("DURATION_MALFORMED", "only the last number of a duration may have a fraction")
		}
		fraction = strings.Contains(part, ".")
		value, _ := new(big.Rat).SetString(part)
		sum.Add(sum, value.Mul(value, new(big.Rat).SetInt64(unitNanoseconds[i])))
	}
	if !sum.IsInt() {
		return 0, refuse("DURATION_MALFORMED", "a duration is not finer than a nanosecond")
	}
	if sum.Cmp(new(big.Rat).SetInt64(int64(DurationMost))) > 0 {
		return 0, CheckDuration(DurationMost + 1)
	}
	return time.Duration(sum.Num().Int64()), nil
}

// CheckDuration is TIME-002.
func CheckDuration(d time.Duration) *Refusal {
	if d < 0 || d > DurationMost {
		return refuse("DURATION_OUT_OF_RANGE", "a duration is at least 0 and at most ten years")
	}
	return nil
}

// FormatDuration is TIME-003.
func FormatDuration(d time.Duration) string {
	seconds, nanos := int64(d/time.Second), int64(d%time.Second)
	text := fmt.Sprintf("%d.%09d", seconds, nanos)
	for range 3 {
		text = strings.TrimSuffix(text, "000")
	}
	return strings.TrimSuffix(text, ".") + "s"
}
