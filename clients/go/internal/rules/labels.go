// SPDX-License-Identifier: Apache-2.0

package rules

import "strings"

const (
	labelsMost    = 64
	prefixMost    = 253
	labelNameMost = 63
	ownPrefix     = "hutch"
)

func isLabelName(text string) bool {
	return isWord(text, labelNameMost, func(c byte) bool { return isLetterOrDigit(c) || c == '_' || c == '-' || c == '.' })
}

func isPrefix(text string) bool {
	if len(text) > prefixMost {
		return false
	}
	for _, label := range strings.Split(text, ".") {
		if !isWord(label, labelNameMost, func(c byte) bool { return isLower(c) || isDigit(c) || c == '-' }) {
			return false
		}
	}
	return true
}

func checkLabelKey(key string) (prefix string, refusal *Refusal) {
	prefix, name, found := strings.Cut(key, "/")
	if !found {
		prefix, name = "", key
	}
	if found && !isPrefix(prefix) || !isLabelName(name) {
		return "", refuse("LABEL_MALFORMED", "a label's key is a name of letters, digits, '_', '-' and '.', "+
			"or a DNS name in lower case, '/' and such a name")
	}
	return prefix, nil
}

// CheckLabelKey is LABEL-001 and LABEL-003, for a label that a caller sets.
func CheckLabelKey(key string) *Refusal {
	prefix, refusal := checkLabelKey(key)
	if refusal == nil && prefix == ownPrefix {
		return refuse("LABEL_RESERVED", "labels that begin with 'hutch/' are the daemon's own")
	}
	return refusal
}

// CheckLabelValue is LABEL-002.
func CheckLabelValue(value string) *Refusal {
	if value != "" && !isLabelName(value) {
		return refuse("LABEL_MALFORMED", "a label's value is empty, or up to 63 letters, digits, '_', '-' and '.' "+
			"with a letter or digit at both ends")
	}
	return nil
}

// CheckLabelCount is LABEL-004.
func CheckLabelCount(n int) *Refusal {
	if n > labelsMost {
		return refuse("LABELS_TOO_MANY", "there are more than 64 labels")
	}
	return nil
}
