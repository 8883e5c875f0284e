// SPDX-License-Identifier: Apache-2.0

package rules

const (
	idLeast       = 4
	idMost        = 200
	nameMost      = 63
	requestIDMost = 128
)

// CheckID is ID-001: ids of sandboxes and execs.
func CheckID(id string) *Refusal {
	inner := func(c byte) bool { return isLetterOrDigit(c) || c == '_' || c == '-' }
	if len(id) < idLeast || !isWord(id, idMost, inner) {
		return refuse("ID_MALFORMED", "an id has 4 to 200 letters, digits, '_' and '-', with a letter or digit at both ends")
	}
	return nil
}

// CheckName is ID-005: names of snapshots, secrets and the like.
func CheckName(name string) *Refusal {
	if !isWord(name, nameMost, func(c byte) bool { return isLower(c) || isDigit(c) || c == '-' }) {
		return refuse("NAME_MALFORMED", "a name has 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends")
	}
	return nil
}

// CheckRequestID is ID-006.
func CheckRequestID(id string) *Refusal {
	ok := len(id) > 0 && len(id) <= requestIDMost
	for i := range len(id) {
		c := id[i]
		ok = ok && (isLetterOrDigit(c) || c == '-' || c == '_' || c == '.' || c == ':')
	}
	if !ok {
		return refuse("REQUEST_ID_MALFORMED", "a request id has 1 to 128 letters, digits, '-', '_', '.' and ':'")
	}
	return nil
}
