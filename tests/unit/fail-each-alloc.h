/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Every allocation of a unit fails, each in a run of its own, whoever makes it: we, nghttp2, OpenSSL, zlib, libuv or
 * the C library.
 *
 *         HUTCH_FAIL_ALLOC=50 test-tls                runs each test up to 50 times for each of the two ways to fail:
 *                                                     one allocation alone, and all from that one on
 *         HUTCH_FAIL_ALLOC=handshake:17 test-tls      that test alone, with its 18th failing, and tells where that is
 *         HUTCH_FAIL_ALLOC=handshake:17+ test-tls     the same with all from its 18th on failing
 *
 * A run may fail, for the test meets an error that it did not expect. It must not crash, hang, be ended by a sanitizer,
 * or pass and leak. Allocations of base/memory.h that abort are the test's own, and do not fail.
 *
 * Only in executables with a sanitizer. There is nothing to call: the linker puts this in the place of the allocators
 * and of cmocka's runner. */
