// SPDX-License-Identifier: Apache-2.0

import { byteLength, hasControlCharacter, hasUtf8, Violated } from "./violation.js";

const LABELS_MAX = 64;
const PREFIX_MAX = 253;
const ENV_NAME_BYTES_MAX = 255;
const NAME_PART = /^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$/;
const PREFIX = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/;

/** Of a sandbox or an exec. */
export function checkId(id: string): void {
  if (!/^[A-Za-z0-9][A-Za-z0-9_-]{2,198}[A-Za-z0-9]$/.test(id)) {
    const form = "4 to 200 of letters, digits, '_' and '-', and begins and ends with a letter or digit";
    throw new Violated("ID_MALFORMED", `an id has ${form}`);
  }
}

/** Of a snapshot, provider, service, secret, companion or profile. */
export function checkName(name: string): void {
  if (!/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(name)) {
    const form = "1 to 63 of a-z, 0-9 and '-', and begins and ends with a letter or digit";
    throw new Violated("NAME_MALFORMED", `a name has ${form}`);
  }
}

export function checkRequestId(id: string): void {
  if (!/^[A-Za-z0-9_.:-]{1,128}$/.test(id)) {
    throw new Violated("REQUEST_ID_MALFORMED", "a request id has 1 to 128 of letters, digits and \"-_.:\"");
  }
}

export function isLabelKey(key: string): boolean {
  const parts = key.split("/");
  const name = parts.pop() ?? "";

  if (!NAME_PART.test(name) || parts.length > 1) {
    return false;
  }
  return parts.every((prefix) => prefix.length <= PREFIX_MAX && PREFIX.test(prefix));
}

export function isLabelValue(value: string): boolean {
  return value === "" || NAME_PART.test(value);
}

/** A label as a caller sets it. */
export function checkLabel(key: string, value: string): void {
  if (!isLabelKey(key)) {
    throw new Violated("LABEL_MALFORMED", "a label's key is a name, or a DNS name, '/' and a name");
  }
  if (!isLabelValue(value)) {
    throw new Violated("LABEL_MALFORMED", "a label's value is empty, or up to 63 of letters, digits and \"_-.\"");
  }
  if (key.startsWith("hutch/")) {
    throw new Violated("LABEL_RESERVED", "the prefix hutch/ is the daemon's own");
  }
}

export function checkLabelCount(count: number): void {
  if (count > LABELS_MAX) {
    throw new Violated("LABELS_TOO_MANY", `there are ${count} labels, and ${LABELS_MAX} is the limit`);
  }
}

export function checkEnvName(name: string): void {
  const long = byteLength(name) > ENV_NAME_BYTES_MAX;

  if (name === "" || long || name.includes("=") || hasControlCharacter(name) || !hasUtf8(name)) {
    const form = "1 to 255 bytes, no '=' and no control character";
    throw new Violated("ENV_NAME_MALFORMED", `the name of a variable has ${form}`);
  }
}

/** A value, which may name a secret. */
export function checkEnvValue(value: string): void {
  const secret = /^secret:\/\/([^]*)$/.exec(value);

  if (value.includes("\0") || !hasUtf8(value)) {
    throw new Violated("ENV_VALUE_MALFORMED", "the value of a variable has no NUL");
  }
  if (secret) {
    checkName(secret[1] ?? "");
  }
}
