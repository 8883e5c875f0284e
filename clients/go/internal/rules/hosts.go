// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"net/netip"
	"strings"
)

const hostMost = 253

// HostPattern is a DNS name, or all names below one.
type HostPattern struct {
	name     string // in lower case, without a trailing dot
	wildcard bool
}

// ParseHostPattern is HOST-001 to HOST-005.
func ParseHostPattern(text string) (HostPattern, *Refusal) {
	rest, wildcard := strings.CutPrefix(text, "*.")
	if rest == "" {
		rest, wildcard = text, false
	}
	if strings.Contains(rest, "*") {
		return HostPattern{}, refuse("HOST_PATTERN_WILDCARD",
			"'*' may only be the whole first label of a host pattern, above at least two others")
	}
	if isAddress(rest) {
		return HostPattern{}, refuse("HOST_PATTERN_ADDRESS", "the host pattern is an address: name addresses by CIDR")
	}
	name, ok := hostName(rest)
	if !ok {
		return HostPattern{}, refuse("HOST_PATTERN_MALFORMED",
			"the host pattern is not a DNS name: write other scripts in their xn-- form")
	}
	if wildcard && !strings.Contains(name, ".") {
		return HostPattern{}, refuse("HOST_PATTERN_WILDCARD", "at least two labels must follow '*'")
	}
	return HostPattern{name, wildcard}, nil
}

// Covers tells whether the pattern is for that host.
func (p HostPattern) Covers(host string) bool {
	name, ok := hostName(host)
	if !ok || isAddress(host) {
		return false
	}
	if p.wildcard {
		return strings.HasSuffix(name, "."+p.name)
	}
	return name == p.name
}

// hostName gives a DNS name in the form in which it is compared.
func hostName(text string) (string, bool) {
	text = strings.TrimSuffix(text, ".")
	if text == "" || len(text) > hostMost {
		return "", false
	}
	for _, label := range strings.Split(text, ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", false
		}
		for i := range len(label) {
			if c := label[i]; !isLetterOrDigit(c) && c != '-' && c != '_' {
				return "", false
			}
		}
	}
	return strings.ToLower(text), true
}

// isAddress tells whether a resolver could take the text for an IP address.
func isAddress(text string) bool {
	if inner, found := strings.CutPrefix(text, "["); found && strings.HasSuffix(inner, "]") {
		text = strings.TrimSuffix(inner, "]")
	}
	if strings.Contains(text, ":") {
		_, err := netip.ParseAddr(text)
		return err == nil
	}
	text = strings.ToLower(strings.TrimSuffix(text, "."))
	last := text[strings.LastIndex(text, ".")+1:]
	if digits, found := strings.CutPrefix(last, "0x"); found {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}
