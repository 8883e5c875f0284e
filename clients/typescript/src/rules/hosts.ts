// SPDX-License-Identifier: Apache-2.0

import { isIPv6 } from "node:net";
import { Violated } from "./violation.js";

const NAME_MAX = 253;
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;

/**
 * A pattern of hosts, as an egress list has them: a DNS name, or `*.` and one.
 *
 *     HostPattern.parse("*.example.com").covers("api.example.com") // true
 */
export class HostPattern {
  private constructor(
    private readonly name: string,
    private readonly wildcard: boolean,
  ) {}

  static parse(text: string): HostPattern {
    const pattern = normalize(text);
    const wildcard = pattern.startsWith("*.");
    const name = wildcard ? pattern.slice(2) : pattern;

    if (isAddress(name)) {
      throw new Violated("HOST_PATTERN_ADDRESS", "addresses are named by CIDR");
    }
    if (name.includes("*") || (wildcard && isName(name) && !name.includes("."))) {
      throw new Violated("HOST_PATTERN_WILDCARD", "'*' stands for the whole first label, above two others");
    }
    if (!isName(name)) {
      throw new Violated("HOST_PATTERN_MALFORMED", "the pattern is no DNS name");
    }
    return new HostPattern(name, wildcard);
  }

  covers(host: string): boolean {
    const name = normalize(host);

    if (!isName(name) || isAddress(name)) {
      return false;
    }
    return this.wildcard ? name.endsWith("." + this.name) : name === this.name;
  }
}

/** In lower case (of ASCII alone) and without the last dot. */
function normalize(text: string): string {
  return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase()).replace(/\.$/, "");
}

function isName(text: string): boolean {
  return text.length <= NAME_MAX && text.split(".").every((label) => LABEL.test(label));
}

/** Whether a resolver would take it for an address. */
function isAddress(text: string): boolean {
  const last = text.split(".").pop() ?? "";

  if (isIPv6(text.replace(/^\[(.*)\]$/, "$1"))) {
    return true;
  }
  return isName(text) && /^(?:[0-9]+|0x[0-9a-f]*)$/.test(last);
}
