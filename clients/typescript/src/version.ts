// SPDX-License-Identifier: Apache-2.0

/** The version of this library; a test compares it with package.json. */
export const VERSION = "0.1.0";
