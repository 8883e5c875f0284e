// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
)

const (
	selectorMost     = 4096
	requirementsMost = 32
	valuesMost       = 64
)

// Selector chooses objects by their labels.
type Selector struct {
	requirements []requirement
}

// requirement holds for a key whose value is one of the values, or, negated, is absent or is none of them. Without
// values it is about the key's presence alone.
type requirement struct {
	key     string
	values  []string
	negated bool
}

// Empty tells whether it selects everything.
func (s *Selector) Empty() bool { return len(s.requirements) == 0 }

// Matches tells whether it selects an object with these labels.
func (s *Selector) Matches(labels map[string]string) bool {
	for _, requirement := range s.requirements {
		value, found := labels[requirement.key]
		holds := found && (requirement.values == nil || slices.Contains(requirement.values, value))
		if holds == requirement.negated {
			return false
		}
	}
	return true
}

func malformed() *Refusal {
	return refuse("SELECTOR_MALFORMED", "a selector is a list, separated by ',', of: key, !key, key=value, key!=value, "+
		"key in (v1,v2), key notin (v1,v2)")
}

// ParseSelector is section 4.
func ParseSelector(text string) (*Selector, *Refusal) {
	if len(text) > selectorMost {
		return nil, malformed()
	}
	reader := selectorReader{rest: text}
	reader.skipSpaces()
	selector := &Selector{}
	if reader.rest == "" {
		return selector, nil
	}
	for {
		next, ok := reader.requirement()
		if !ok || len(selector.requirements) == requirementsMost {
			return nil, malformed()
		}
		selector.requirements = append(selector.requirements, next)
		if reader.rest == "" {
			return selector, nil
		}
		if !reader.take(",") {
			return nil, malformed()
		}
	}
}

// selectorReader reads tokens off the front of a text. Spaces after a token go with it.
type selectorReader struct {
	rest string
}

func (r *selectorReader) skipSpaces() { r.rest = strings.TrimLeft(r.rest, " ") }

func (r *selectorReader) take(token string) bool {
	rest, found := strings.CutPrefix(r.rest, token)
	if found {
		r.rest = rest
		r.skipSpaces()
	}
	return found
}

// word takes what could be a key or a value; it may be empty.
func (r *selectorReader) word() string {
	end := strings.IndexAny(r.rest, " ,=!()")
	if end < 0 {
		end = len(r.rest)
	}
	word := r.rest[:end]
	r.rest = r.rest[end:]
	r.skipSpaces()
	return word
}

func (r *selectorReader) requirement() (requirement, bool) {
	if r.take("!") {
		key := r.word()
		_, refusal := checkLabelKey(key)
		return requirement{key: key, negated: true}, refusal == nil
	}

	key := r.word()
	if _, refusal := checkLabelKey(key); refusal != nil {
		return requirement{}, false
	}
	switch {
	case r.take("!="):
		value := r.word()
		return requirement{key, []string{value}, true}, CheckLabelValue(value) == nil
	case r.take("=="), r.take("="):
		value := r.word()
		return requirement{key, []string{value}, false}, CheckLabelValue(value) == nil
	case r.rest == "" || r.rest[0] == ',':
		return requirement{key: key}, true
	}

	operator := r.word()
	values, ok := r.list()
	return requirement{key, values, operator == "notin"}, ok && (operator == "in" || operator == "notin")
}

// list takes values in parentheses.
func (r *selectorReader) list() (values []string, ok bool) {
	if !r.take("(") {
		return nil, false
	}
	for {
		value := r.word()
		if value == "" || CheckLabelValue(value) != nil || len(values) == valuesMost {
			return nil, false
		}
		values = append(values, value)
		if r.take(")") {
			return values, true
		}
		if !r.take(",") {
			return nil, false
		}
	}
}
