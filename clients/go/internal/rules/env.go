// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"unicode/utf8"
)

const (
	envNameMost  = 255
	secretPrefix = "secret://"
)

// CheckEnvName is ENV-001.
func CheckEnvName(name string) *Refusal {
	if name == "" || len(name) > envNameMost || !utf8.ValidString(name) || strings.Contains(name, "=") ||
		hasControl(name) {
		return refuse("ENV_NAME_MALFORMED", "a variable's name has 1 to 255 bytes, no '=' and no control character")
	}
	return nil
}

// CheckEnvValue is ENV-002.
func CheckEnvValue(value string) *Refusal {
	if !utf8.ValidString(value) || strings.Contains(value, "\x00") {
		return refuse("ENV_VALUE_MALFORMED", "a variable's value is valid UTF-8 without NUL")
	}
	return nil
}

// CheckSecretReference is the client's part of SECRET-001: the name in a value that refers to a secret.
func CheckSecretReference(value string) *Refusal {
	name, found := strings.CutPrefix(value, secretPrefix)
	if !found {
		return nil
	}
	return CheckName(name)
}
