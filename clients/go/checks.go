// SPDX-License-Identifier: Apache-2.0

package hutch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hutch-sandbox/hutch/clients/go/hutchv1"
	"github.com/hutch-sandbox/hutch/clients/go/internal/rules"
)

const keyShownMost = 64 // bytes of a map's key in a field's name

// checks collects what is wrong with a request before it is sent: the same as the daemon would find.
type checks struct {
	above      string // what stands before every field: "header."
	violations []Violation
}

func (c *checks) note(field string, refusal *rules.Refusal) {
	if refusal != nil {
		field = strings.ToValidUTF8(c.above+field, "?")
		c.violations = append(c.violations, Violation{field, refusal.Reason, refusal.Message})
	}
}

func (c *checks) result() error {
	if len(c.violations) == 0 {
		return nil
	}
	first := c.violations[0]
	failure := newError(first.Reason, "%s: %s", first.Field, first.Message)
	if more := len(c.violations) - 1; more > 0 {
		failure.Message += fmt.Sprintf(" (and %d more)", more)
	}
	failure.Violations = c.violations
	return failure
}

// violated is the error of one field.
func violated(field string, refusal *rules.Refusal) error {
	c := checks{}
	c.note(field, refusal)
	return c.result()
}

func (c *checks) required(field, text string) bool {
	if text == "" {
		c.note(field, &rules.Refusal{Reason: "FIELD_REQUIRED", Message: "the field is required"})
	}
	return text != ""
}

func (c *checks) id(field, id string) {
	if c.required(field, id) {
		c.note(field, rules.CheckID(id))
	}
}

func (c *checks) newID(field, id string) {
	if id != "" {
		c.note(field, rules.CheckID(id))
	}
}

func (c *checks) requestID(id string) {
	if id != "" {
		c.note("request_id", rules.CheckRequestID(id))
	}
}

func (c *checks) selector(text string, mayBeEmpty bool) {
	selector, refusal := rules.ParseSelector(text)
	if refusal == nil && !mayBeEmpty && selector.Empty() {
		refusal = &rules.Refusal{Reason: "SELECTOR_EMPTY", Message: "an empty selector would mean everything"}
	}
	c.note("selector", refusal)
}

func (c *checks) labels(field string, labels map[string]string) {
	c.note(field, rules.CheckLabelCount(len(labels)))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		c.note(entry(field, key), rules.CheckLabelKey(key))
		c.note(entry(field, key), rules.CheckLabelValue(labels[key]))
	}
}

func (c *checks) env(field string, env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.note(entry(field, name), rules.CheckEnvName(name))
		c.note(entry(field, name), rules.CheckEnvValue(env[name]))
		c.note(entry(field, name), rules.CheckSecretReference(env[name]))
	}
}

// entry names an entry of a map.
func entry(field, key string) string {
	return fmt.Sprintf("%s[%s]", field, key[:min(len(key), keyShownMost)])
}

func (c *checks) argv(field string, argv []string) {
	if len(argv) == 0 || argv[0] == "" {
		c.note(field, &rules.Refusal{Reason: "ARGV_EMPTY", Message: "there is no program to run"})
	}
	for i, argument := range argv {
		if strings.Contains(argument, "\x00") {
			c.note(fmt.Sprintf("%s[%d]", field, i), &rules.Refusal{Reason: "ARGV_MALFORMED", Message: "an argument has no NUL"})
		}
	}
}

// path checks one that is relative to what only the daemon may know.
func (c *checks) path(field, path string) {
	_, refusal := rules.ResolvePath(path, rules.PathContext{WorkingDirectory: "/"})
	c.note(field, refusal)
}

func (c *checks) directory(field, path string, use rules.PathUse) {
	if path != "" {
		_, refusal := rules.ResolvePath(path, rules.PathContext{WorkingDirectory: "/", Use: use})
		c.note(field, refusal)
	}
}

func (c *checks) mode(field string, mode *uint32) {
	if mode != nil && *mode > 0o777 {
		c.note(field, &rules.Refusal{Reason: "FIELD_INVALID", Message: "a mode is 0 to 0777"})
	}
}

func (c *checks) sandboxSpec(spec *hutchv1.SandboxSpec) {
	if len(spec.GetCommand()) > 0 {
		c.argv("spec.command", spec.GetCommand())
	}
	c.env("spec.env", spec.GetEnv())
	c.labels("spec.labels", spec.GetLabels())
	c.directory("spec.working_directory", spec.GetWorkingDirectory(), rules.UseAbsolute)
}

func (c *checks) execSpec(spec *hutchv1.ExecSpec) {
	c.argv("spec.argv", spec.GetArgv())
	c.env("spec.env", spec.GetEnv())
	c.directory("spec.working_directory", spec.GetWorkingDirectory(), rules.UseAny)
	for i, name := range spec.GetUnsetEnv() {
		c.note(fmt.Sprintf("spec.unset_env[%d]", i), rules.CheckEnvName(name))
	}
}
