// SPDX-License-Identifier: Apache-2.0

import type { ReasonName } from "../errors.js";

/** What a rule throws: why a value is refused. Callers turn it into an error that names the field. */
export class Violated extends Error {
  constructor(
    readonly reason: ReasonName,
    message: string,
  ) {
    super(message);
  }
}

const encoder = new TextEncoder();

/** How many bytes a text has in UTF-8. */
export function byteLength(text: string): number {
  return Buffer.byteLength(text);
}

/** A text's bytes. */
export function bytesOf(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Whether a text has UTF-8: JavaScript's strings may hold halves of characters, which have none. */
export function hasUtf8(text: string): boolean {
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text);
}

/** U+0000 to U+001F, U+007F to U+009F. */
export function hasControlCharacter(text: string): boolean {
  return /[\u0000-\u001f\u007f-\u009f]/.test(text);
}
