/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "control/control.h"
#include "runtime/runtime.h"

#include "test.h"

/* A control plane on a store in a temporary folder, over a runtime that is only pretended. The pretended runtime does
 * what it is asked at once and tells so in the next turn, unless the test holds it back and tells by itself. What runs
 * in it outlives the control plane, as keepers do. */

typedef struct FakeExec {
        char id[64];
        bool started, ended, forgotten, cancelled;
        RuntimeExecEnd end;
        int following;
        uint64_t timeout;
        char environment[512]; /* all of it, with spaces between */
        bool set_home, set_user;
} FakeExec;

typedef struct FakeRemote FakeRemote;
typedef struct FakeSandbox FakeSandbox;

/* File work that was asked for. */
typedef struct FakeCall {
        RuntimeCall base;
        FakeSandbox *sandbox;
        const RuntimeCallEvents *events;
        void *user;
        char path[64], user_name[64], key[256];
        uint64_t deadline;
        uint8_t *messages[8]; /* that were sent */
        size_t lens[8], n_messages;
        bool is_whole; /* no more will be sent */
        bool is_full;
        unsigned demand;
} FakeCall;

struct FakeSandbox {
        char id[64];
        bool exists, runs, is_paused;
        unsigned n_start, n_recover, n_stop, n_remove, n_pause; /* how often it was asked */
        uint64_t stop_grace;
        uint32_t uid_slot;
        char spared[64];   /* execs that the latest start was told of, with spaces between */
        char expected[64]; /* users, likewise */
        FakeExec execs[16];
        size_t n_execs;
        char input[64]; /* bytes, "|" for a close, "!" for a signal, "#" for a size */
        bool input_is_full;
        RuntimeInput *last_input; /* that was opened; NULL: it was freed */
        FakeCall *last_call;      /* the same */
        unsigned n_calls;         /* ever */
        FakeRemote *remote;
};

typedef struct Fake {
        Runtime runtime;
        char folder[64];
        bool hold_start, hold_recover, hold_stop, hold_remove, hold_pause, hold_exec; /* nothing is told by itself */
        FakeSandbox *sandboxes[256];
        size_t n_sandboxes;
} Fake;

typedef struct Fixture {
        uv_loop_t loop;
        Fake fake;
        Store *store;
        Runtime *runtimes[2];
        ControlOptions options;
        Control *control;
        HutchError err; /* of the last request that failed */
        HutchError durable_err;
        unsigned n_durable, n_not_durable;
} Fixture;

extern const Caller alice, bob, root;

int fixture_set_up(void **state);
int fixture_tear_down(void **state);

/* Ends the control plane without a word, as a crash does, and starts another on the same store. */
void fixture_restart(Fixture *fixture);
void fixture_stop(Fixture *fixture);
void fixture_start(Fixture *fixture);

/* Goes on until nothing more happens, but for what takes time. */
void fixture_turn(Fixture *fixture);
/* Runs the loop for that long. */
void fixture_wait(Fixture *fixture, unsigned milliseconds);

/* Makes commits fail, or work again. */
void fixture_break_store(Fixture *fixture, bool broken);

/* "idle=MS life=MS delete=0|1 timeout=MS command=TEXT labels=k=v,…" in this order; each may be left out. */
SandboxSpec *fixture_spec(const char *text);
/* "argv0 timeout=MS stdin=0|1 tty=0|1" likewise. */
ExecSpec *fixture_exec_spec(const char *text);

/* Requests of alice's that must succeed, followed by a turn. */
void create(Fixture *fixture, const char *id, const char *spec);
void create_exec(Fixture *fixture, const char *sandbox_id, const char *exec_id, const char *spec);
/* What they are now; fails the test when there are none. */
SandboxView sandbox(Fixture *fixture, const char *id);
ExecView exec(Fixture *fixture, const char *sandbox_id, const char *exec_id);
#define assert_state(fixture, id, expected)                                                                            \
        assert_string_equal(sandbox_state_name(sandbox(fixture, id).record->state), expected)
#define assert_exec_state(fixture, sandbox_id, id, expected)                                                           \
        assert_string_equal(exec_state_name(exec(fixture, sandbox_id, id).record->state), expected)

/* Brings the sandbox @id, which is made for it, into @state. Nothing is held afterwards but what keeps it there. */
void bring_to(Fixture *fixture, const char *id, SandboxState state);

/* Holds when @r is an error with @reason; clears the fixture's error. */
void assert_refused(Fixture *fixture, int r, const char *reason);

/* Appends to the text in @buffer, an array, what fits. */
#define append(buffer, text) append_text((buffer), sizeof(buffer), (text))
void append_text(char *buffer, size_t size, const char *text);

/* The pretended runtime. */
FakeSandbox *fake_sandbox(Fixture *fixture, const char *id);
FakeExec *fake_exec(Fixture *fixture, const char *sandbox_id, const char *exec_id);
const RuntimeEvents *fake_events(FakeSandbox *sandbox, void **ret_user);
void fake_start_exec(Fixture *fixture, const char *sandbox_id, const char *exec_id);
void fake_end_exec(Fixture *fixture, const char *sandbox_id, const char *exec_id, RuntimeExecEnd end);
void fake_lose(Fixture *fixture, const char *id);
void fake_break_input(Fixture *fixture, const char *sandbox_id); /* the one that was opened last */
void fake_answer(FakeCall *call, const void *bytes, size_t len);
void fake_end_call(FakeCall *call, Reason reason); /* REASON_UNSPECIFIED: well */
void fake_write(Fixture *fixture, const char *sandbox_id, const char *exec_id, int stream, const char *text);

/* All events so far as one text: "sequence:sandbox:what from>to; …"; the caller frees it. */
char *events_after(Fixture *fixture, uint64_t cursor);
/* Reads @watch until it has none. */
char *read_watch(Watch *watch);
