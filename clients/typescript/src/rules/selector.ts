// SPDX-License-Identifier: Apache-2.0

import { isLabelKey, isLabelValue } from "./names.js";
import { byteLength, Violated } from "./violation.js";

const BYTES_MAX = 4096;
const REQUIREMENTS_MAX = 32;
const VALUES_MAX = 64;

interface Requirement {
  key: string;
  /** Whether a label with one of the values is wanted, or none such. */
  wanted: boolean;
  /** Undefined: any value. */
  values: ReadonlySet<string> | undefined;
}

/**
 * What labels an object must have: `app=web, tier in (front, back), !old`.
 *
 *     Selector.parse("app=web").matches({ app: "web" }) // true
 */
export class Selector {
  private constructor(private readonly requirements: readonly Requirement[]) {}

  /** It selects everything. */
  get isEmpty(): boolean {
    return this.requirements.length === 0;
  }

  static parse(text: string): Selector {
    return new Selector(new Parser(text).parse());
  }

  matches(labels: Readonly<Record<string, string>>): boolean {
    return this.requirements.every(({ key, wanted, values }) => {
      const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
      return (value !== undefined && (!values || values.has(value))) === wanted;
    });
  }
}

class Parser {
  private readonly tokens: string[];
  private at = 0;

  constructor(text: string) {
    if (byteLength(text) > BYTES_MAX) {
      throw malformed(`has more than ${BYTES_MAX} bytes`);
    }
    this.tokens = text.match(/[^ ,()=!]+|==|!=|[,()=!]/g) ?? [];
  }

  parse(): Requirement[] {
    const requirements: Requirement[] = [];

    while (this.at < this.tokens.length) {
      requirements.push(this.requirement());
      if (this.at < this.tokens.length) {
        this.expect(",");
        if (this.at === this.tokens.length) {
          throw malformed("ends with a comma");
        }
      }
    }
    if (requirements.length > REQUIREMENTS_MAX) {
      throw malformed(`has more than ${REQUIREMENTS_MAX} requirements`);
    }
    return requirements;
  }

  private requirement(): Requirement {
    if (this.take("!")) {
      return { key: this.key(), wanted: false, values: undefined };
    }
    const key = this.key();
    if (this.take("=") || this.take("==")) {
      return { key, wanted: true, values: new Set([this.value()]) };
    }
    if (this.take("!=")) {
      return { key, wanted: false, values: new Set([this.value()]) };
    }
    const operator = this.tokens[this.at];
    if ((operator === "in" || operator === "notin") && this.tokens[this.at + 1] === "(") {
      this.at += 2;
      return { key, wanted: operator === "in", values: this.values() };
    }
    return { key, wanted: true, values: undefined };
  }

  /** The rest of a list of values. */
  private values(): ReadonlySet<string> {
    const list: string[] = [];

    do {
      list.push(this.value());
    } while (this.take(","));
    this.expect(")");
    if (list.includes("")) {
      throw malformed("has an empty value in a list");
    }
    if (list.length > VALUES_MAX) {
      throw malformed(`has more than ${VALUES_MAX} values in one requirement`);
    }
    return new Set(list);
  }

  private key(): string {
    const key = this.tokens[this.at++] ?? "";

    if (!isLabelKey(key)) {
      throw malformed(`has '${key}' where a key should be`);
    }
    return key;
  }

  /** A value, which may be missing: then it is empty. */
  private value(): string {
    const next = this.tokens[this.at];

    if (next === undefined || next === "," || next === ")") {
      return "";
    }
    this.at++;
    if (!isLabelValue(next)) {
      throw malformed(`has '${next}' where a value should be`);
    }
    return next;
  }

  private take(token: string): boolean {
    const found = this.tokens[this.at] === token;

    this.at += found ? 1 : 0;
    return found;
  }

  private expect(token: string): void {
    if (!this.take(token)) {
      throw malformed(`misses '${token}'`);
    }
  }
}

function malformed(what: string): Violated {
  return new Violated("SELECTOR_MALFORMED", `the selector ${what}`);
}
