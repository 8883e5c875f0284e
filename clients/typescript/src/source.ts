// SPDX-License-Identifier: Apache-2.0

import { bytesOf } from "./rules/violation.js";

const DATA_BYTES = 1 << 20; // in one message

/** Bytes to send: all of them, or as they come. */
export type Source = string | Uint8Array | AsyncIterable<Uint8Array> | Iterable<Uint8Array>;

/** The bytes in pieces that fit into a message. */
export async function* piecesOf(source: Source): AsyncGenerator<Uint8Array, void, undefined> {
  const parts = typeof source === "string" ? [bytesOf(source)] : source instanceof Uint8Array ? [source] : source;

  for await (const part of parts) {
    for (let at = 0; at < part.length; at += DATA_BYTES) {
      yield part.subarray(at, at + DATA_BYTES);
    }
  }
}
