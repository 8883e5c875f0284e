/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A keeper that keeps nothing, for the odd cases: it behaves as the id of its sandbox says.
 *
 *   fake-plain…    as it should
 *   fake-slow…     is STARTING for a while
 *   fake-fails…    FAILED, with DISK_FULL
 *   fake-other…    says that it keeps another sandbox
 *   fake-dies…     exits with 3 at once
 *   fake-hangs…    listens, and never answers
 *   fake-sticks…   answers Shutdown, and stays
 *   fake-flaps…    breaks all connections as soon as it has told of itself, each time
 *
 * and its execs as their ids say:
 *
 *   exec-runs…     runs until it is cancelled
 *   exec-early…    ends, by the watch, before its start is answered
 *   exec-lies…     ends with numbers, times and texts that cannot be
 *   exec-refused…  is refused by a status
 *   exec-drops…    breaks all connections before it is answered, and ends; the first of them only
 *   exec-lingers…  runs, and ends a while after it was cancelled
 *   …vanishes…     runs or ends as its id begins, and is not known any more when connections were broken
 *   exec-kills…    has the keeper die before it is answered
 *   exec-hits…     hits limits of its own and of the sandbox a thousand times, and ends
 *   exec-turns-1   has started, by the watch, and is refused
 *   exec-revives-1 is refused, and has started then, by the watch
 *
 * Of FileService it has UploadFile, which answers each message with "USER KEY MESSAGE", until one says "fail"
 * (FILE_NOT_FOUND) or "lie" (a reason that there is not), or the end comes.
 *
 * Beside what it keeps it tells of an exec that nobody has started. Its log says "cancel ID NANOSECONDS", "forget
 * ID" and "describe" for each call of these. */

/* Takes the place of hutch-keeper's main(). */
int fake_keeper_main(int argc, char *argv[]);
