// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"
)

const vectorsFolder = "../../../../spec/vectors"

// vector is a case of spec/vectors. Its values are compared as JSON reads them.
type vector struct {
	Name     string
	Requires []string
	In       map[string]any
	Out      map[string]any
	Error    *struct{ Reason string }
}

// text is an input that may stand in base64.
func (v vector) text(key string) string {
	if encoded, found := v.In[key+"_base64"].(string); found {
		decoded, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			panic(err)
		}
		return string(decoded)
	}
	text, _ := v.In[key].(string)
	return text
}

func (v vector) number(key string, otherwise uint64) uint64 {
	if value, found := v.In[key].(float64); found {
		return uint64(value)
	}
	return otherwise
}

func (v vector) flag(key string) bool {
	value, _ := v.In[key].(bool)
	return value
}

type result = map[string]any

// suites run a case each, as spec/vectors/README.md says.
var suites = map[string]func(vector) (result, *Refusal){
	"paths":           runPath,
	"ids":             runID,
	"labels":          runLabel,
	"selectors":       runSelector,
	"env":             runEnv,
	"durations":       runDuration,
	"retry":           runRetry,
	"retry-decisions": runRetryDecision,
	"errors":          runError,
	"output":          runOutput,
	"host-patterns":   runHostPattern,
}

// notClients are cases of rules that bind daemons alone: what a client has no use for.
func notClients(suite string, v vector) bool {
	_, errno := v.In["errno"]
	return suite == "errors" && errno || suite == "output" && v.In["kind"] == "read"
}

func TestVectors(t *testing.T) {
	for _, suite := range slices.Sorted(maps.Keys(suites)) {
		t.Run(suite, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(vectorsFolder, suite+".json"))
			if err != nil {
				t.Fatal(err)
			}
			var file struct{ Cases []vector }
			if err := json.Unmarshal(data, &file); err != nil {
				t.Fatal(err)
			}
			for _, v := range file.Cases {
				if !notClients(suite, v) {
					t.Run(v.Name, func(t *testing.T) { runVector(t, suite, v) })
				}
			}
		})
	}
}

func runVector(t *testing.T, suite string, v vector) {
	out, refusal := suites[suite](v)
	switch {
	case v.Error != nil && (refusal == nil || refusal.Reason != v.Error.Reason):
		t.Errorf("got %v, %v; want %s", out, refusal, v.Error.Reason)
	case v.Error == nil && refusal != nil:
		t.Errorf("refused with %s: %s", refusal.Reason, refusal.Message)
	case v.Error == nil && !reflect.DeepEqual(asJSON(out), v.Out):
		t.Errorf("got %v, want %v", asJSON(out), v.Out)
	}
	report(t, suite, v)
}

// asJSON gives numbers and lists the types that the JSON reader gives them.
func asJSON(out result) (read result) {
	data, err := json.Marshal(out)
	if err == nil {
		err = json.Unmarshal(data, &read)
	}
	if err != nil {
		panic(err)
	}
	return read
}

// report writes a line for the conformance table for each rule.
func report(t *testing.T, suite string, v vector) {
	folder := os.Getenv("HUTCH_CONFORMANCE_DIR")
	if folder == "" {
		return
	}
	file, err := os.OpenFile(filepath.Join(folder, "go-"+suite+".tsv"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	verdict := map[bool]string{true: "fail", false: "pass"}[t.Failed()]
	for _, rule := range v.Requires {
		if _, err := fmt.Fprintf(file, "%s\t%s\t%s/%s\n", rule, verdict, suite, v.Name); err != nil {
			t.Fatal(err)
		}
	}
}

func runPath(v vector) (result, *Refusal) {
	context := PathContext{
		WorkingDirectory: v.text("working_directory"),
		Workspace:        v.text("workspace"),
		Use:              map[string]PathUse{"absolute": UseAbsolute, "remove": UseRemove}[v.text("use")],
	}
	if context.WorkingDirectory == "" {
		context.WorkingDirectory = DefaultWorkspace
	}
	path, refusal := ResolvePath(v.text("path"), context)
	return result{"path": path.Text, "directory": path.Directory}, refusal
}

func runID(v vector) (result, *Refusal) {
	check := map[string]func(string) *Refusal{"id": CheckID, "name": CheckName, "request-id": CheckRequestID}
	return result{}, check[v.text("kind")](v.text("text"))
}

func runLabel(v vector) (result, *Refusal) {
	if refusal := CheckLabelKey(v.text("key")); refusal != nil {
		return nil, refusal
	}
	return result{}, CheckLabelValue(v.text("value"))
}

func runSelector(v vector) (result, *Refusal) {
	selector, refusal := ParseSelector(v.text("selector"))
	if refusal != nil {
		return nil, refusal
	}
	labels := map[string]string{}
	for key, value := range v.In["labels"].(map[string]any) {
		labels[key] = value.(string)
	}
	return result{"matches": selector.Matches(labels), "empty": selector.Empty()}, nil
}

// runEnv merges the layers itself: a client checks names and values, and the daemon merges.
func runEnv(v vector) (result, *Refusal) {
	merged := map[string]string{}
	for _, layer := range v.In["layers"].([]any) {
		for name, value := range layer.(map[string]any) {
			if refusal := CheckEnvName(name); refusal != nil {
				return nil, refusal
			}
			if refusal := CheckEnvValue(value.(string)); refusal != nil {
				return nil, refusal
			}
			merged[name] = value.(string)
		}
	}
	for _, name := range v.In["unset"].([]any) {
		if refusal := CheckEnvName(name.(string)); refusal != nil {
			return nil, refusal
		}
		delete(merged, name.(string))
	}
	env := []string{}
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		env = append(env, name+"="+merged[name])
	}
	return result{"env": env}, nil
}

func runDuration(v vector) (result, *Refusal) {
	d, refusal := ParseDuration(v.text("text"))
	return result{
		"seconds": int64(d / time.Second), "nanos": int64(d % time.Second), "canonical": FormatDuration(d),
	}, refusal
}

func runRetry(v vector) (result, *Refusal) {
	ms := func(key string, otherwise uint64) time.Duration {
		return time.Duration(v.number(key, otherwise)) * time.Millisecond
	}
	policy := RetryPolicy{int(v.number("attempts", 6)), ms("initial_ms", 500), ms("max_ms", 8000)}
	left := Forever
	if _, found := v.In["deadline_ms"]; found {
		left = ms("deadline_ms", 0)
	}
	pauses := []int64{}
	for i, random := range v.In["random"].([]any) {
		left -= ms("attempt_ms", 0)
		pause, again := policy.Pause(i+1, uint32(random.(float64)), left)
		if !again {
			break
		}
		left -= pause
		pauses = append(pauses, pause.Milliseconds())
	}
	return result{"pauses_ms": pauses}, nil
}

func runRetryDecision(v vector) (result, *Refusal) {
	try := Try{
		Unavailable: v.text("code") == "UNAVAILABLE" || v.flag("connection_lost"),
		Sent:        v.flag("sent"),
		Safe:        v.flag("safe"),
		Answered:    v.flag("answered"),
	}
	return result{"retry": try.Again()}, nil
}

func runError(v vector) (result, *Refusal) {
	code, found := CodeOf(v.text("reason"))
	if !found {
		return nil, refuse("UNKNOWN", "no such reason")
	}
	return result{"code": CodeName(code)}, nil
}

func runOutput(v vector) (result, *Refusal) {
	limit := v.number("limit", 0)
	switch v.text("kind") {
	case "stream":
		kept := Keep(limit, v.number("total", 0))
		return result{
			"head": kept.Head, "tail_start": kept.TailStart, "dropped": kept.Dropped, "truncated": kept.Truncated(),
		}, nil
	case "bytes":
		collector := NewCollector(limit)
		for _, chunk := range v.In["chunks"].([]any) {
			_, _ = collector.Write([]byte(chunk.(string)))
		}
		head, tail := collector.Parts()
		return result{"head": string(head), "tail": string(tail), "dropped": collector.Kept().Dropped}, nil
	default:
		stdout, stderr := ShareLimit(limit, v.number("stdout", 0), v.number("stderr", 0))
		return result{"stdout_limit": stdout, "stderr_limit": stderr}, nil
	}
}

func runHostPattern(v vector) (result, *Refusal) {
	pattern, refusal := ParseHostPattern(v.text("pattern"))
	return result{"covers": pattern.Covers(v.text("name"))}, refusal
}
