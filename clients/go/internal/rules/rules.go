// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of spec/behavior.md that need neither a daemon nor a clock: what a client checks before a
// call, and how it counts pauses and output. The vectors of spec/vectors hold it to them.
package rules

// Refusal is why a text breaks a rule: the reason as hutch.v1.Reason names it, and a sentence.
type Refusal struct {
	Reason  string
	Message string
}

func (r *Refusal) Error() string { return r.Message }

func refuse(reason, message string) *Refusal { return &Refusal{Reason: reason, Message: message} }

func isLetterOrDigit(c byte) bool { return isLower(c) || 'A' <= c && c <= 'Z' || isDigit(c) }
func isLower(c byte) bool         { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool         { return '0' <= c && c <= '9' }

// hasControl tells whether there is a control character of PATH-005 in a valid text.
func hasControl(text string) bool {
	for _, r := range text {
		if r < 0x20 || 0x7f <= r && r < 0xa0 {
			return true
		}
	}
	return false
}

// isWord tells whether the text has from 1 to most characters that inner allows, and its ends are letters or digits.
func isWord(text string, most int, inner func(byte) bool) bool {
	if len(text) == 0 || len(text) > most || !isLetterOrDigit(text[0]) || !isLetterOrDigit(text[len(text)-1]) {
		return false
	}
	for i := range len(text) {
		if !inner(text[i]) {
			return false
		}
	}
	return true
}
