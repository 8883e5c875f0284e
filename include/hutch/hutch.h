/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HUTCH_H
#define HUTCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* libhutch: sandboxes for C programs.
 *
 *         HutchClient *client = NULL;
 *         HutchSandbox *sandbox = NULL;
 *         HutchOutput *output = NULL;
 *         HutchError *error = NULL;
 *
 *         if (hutch_client_new(&(HutchClientOptions){ .start_daemon = true }, &client, &error) < 0 ||
 *             hutch_sandbox_create(client, &(HutchSandboxSpec){ 0 }, &sandbox, &error) < 0 ||
 *             hutch_exec_run(client, sandbox->id, &(HutchExecSpec){ .argv = argv }, NULL, 0, &output, &error) < 0)
 *                 fprintf(stderr, "%s\n", hutch_error_message(error));
 *
 * Conventions:
 * - Functions return 0 or more when they succeed, or a negative errno. Then *ret_error, where @ret_error is not NULL,
 *   is an error that the caller frees; otherwise it is left alone.
 * - Structures are set to zero before their members are given; a member that is zero has the default that it is
 *   described with. Texts and arrays that are given are copied before the function returns.
 * - What a function returns by a pointer to a pointer is the caller's, and has a function hutch_…_free(), which takes
 *   NULL and returns nothing. Texts in it are never NULL.
 * - Times are nanoseconds since 1970, durations are nanoseconds.
 * - One client may be used by any number of threads at once; an exec's stream, a watch or a call of its own by one
 *   thread at a time, but one may feed an exec's stream while another reads it. A thread that waits in here must not be
 *   cancelled (pthread_cancel(3)).
 * - After a fork() the child leaves its parent's clients alone: calls fail with CLIENT_FORKED there, and freeing does
 *   nothing. It may make clients of its own.
 * - The library prints nothing, installs no signal handlers, raises no SIGPIPE, and ends neither the process nor any
 *   thread of it. It starts no threads, but libuv does to look up the addresses of a TCP server.
 *
 * Calls that only read, and those that carry a request id (which is made where the caller gives none), are tried again
 * when the daemon cannot be reached, as spec/behavior.md says; others only while it has certainly not seen them. */

#define HUTCH_API __attribute__((visibility("default")))

#define HUTCH_FOREVER UINT64_MAX /* a duration */

typedef struct HutchClient HutchClient;
typedef struct HutchError HutchError;

/* ---- Errors ---- */

/* The status codes of gRPC. */
typedef enum HutchCode {
        HUTCH_OK = 0,
        HUTCH_CANCELLED = 1,
        HUTCH_UNKNOWN = 2,
        HUTCH_INVALID_ARGUMENT = 3,
        HUTCH_DEADLINE_EXCEEDED = 4,
        HUTCH_NOT_FOUND = 5,
        HUTCH_ALREADY_EXISTS = 6,
        HUTCH_PERMISSION_DENIED = 7,
        HUTCH_RESOURCE_EXHAUSTED = 8,
        HUTCH_FAILED_PRECONDITION = 9,
        HUTCH_ABORTED = 10,
        HUTCH_OUT_OF_RANGE = 11,
        HUTCH_UNIMPLEMENTED = 12,
        HUTCH_INTERNAL = 13,
        HUTCH_UNAVAILABLE = 14,
        HUTCH_DATA_LOSS = 15,
        HUTCH_UNAUTHENTICATED = 16,
} HutchCode;

/* A field of the request that is to blame. */
typedef struct HutchViolation {
        const char *field;  /* its path: "spec.labels" */
        const char *reason; /* as hutch_error_reason() */
        const char *message;
} HutchViolation;

HUTCH_API HutchCode hutch_error_code(const HutchError *error);
HUTCH_API const char *hutch_error_code_name(const HutchError *error); /* "NOT_FOUND" */

/* What it is about, for programs, in UPPER_SNAKE: "SANDBOX_NOT_FOUND". Those of the daemon are hutch.v1.Reason. */
HUTCH_API const char *hutch_error_reason(const HutchError *error);

/* A sentence for people. */
HUTCH_API const char *hutch_error_message(const HutchError *error);

/* A fact that belongs to it ("limit", "state"), or NULL. */
HUTCH_API const char *hutch_error_get(const HutchError *error, const char *key);

/* The facts one by one, and the violations: false when there are no more than @i. */
HUTCH_API bool hutch_error_pair(const HutchError *error, size_t i, const char **ret_key, const char **ret_value);
HUTCH_API bool hutch_error_violation(const HutchError *error, size_t i, HutchViolation *ret_violation);

HUTCH_API void hutch_error_free(HutchError *error);

/* ---- Connecting ---- */

typedef struct HutchClientOptions {
        /* "unix:/path", "host:port", "dns:host:port", "[::1]:port"; or the name of a context, which excludes it. NULL,
         * both: the environment's HUTCH_ADDRESS, HUTCH_SOCKET or HUTCH_CONTEXT, else the current context of the
         * contexts file, else the daemon of this user on this machine. */
        const char *address;
        const char *context;

        /* With a Unix socket where none listens: start a daemon for this user. It stays. */
        bool start_daemon;

        /* TCP is encrypted, unless clear_text says otherwise. What is NULL here is the context's or, with an address,
         * the environment's: HUTCH_CA_FILE, HUTCH_CERTIFICATE_FILE, HUTCH_KEY_FILE, HUTCH_TOKEN. */
        bool clear_text;
        const char *ca_file;          /* whose certificates are trusted; NULL: the system's */
        const char *certificate_file; /* the client's own; NULL: none */
        const char *key_file;
        const char *server_name; /* that the certificate must be for; NULL: the address's host */

        /* A bearer token; NULL: none. Not sent to Unix sockets, whose daemons know users. Refused in clear text, unless
         * token_in_clear_text says otherwise. */
        const char *token;
        const char *token_file; /* a file that has it; read when the client is made */

        /* Or a function that is asked for the token of each call, and of each try of it: a text from malloc(), which is
         * freed, or NULL, and the call fails with CREDENTIALS_MISSING. Whichever thread waits in here runs it; it must
         * not use the client. */
        char *(*get_token)(void *user);
        void *token_user;
        bool token_in_clear_text;

        const char *user_agent; /* NULL: "hutch-c/" and the version */
        uint64_t timeout;       /* of calls that say nothing else; 0: 60 s */
} HutchClientOptions;

/* Makes a client. It connects with the first call, unless a daemon may have to be started: that is done here. @options
 * may be NULL. */
HUTCH_API int hutch_client_new(const HutchClientOptions *options, HutchClient **ret_client, HutchError **ret_error);

/* Ends what is under way with CANCELLED and frees the client, when all its streams, watches and calls are freed and no
 * other thread uses it. */
HUTCH_API void hutch_client_free(HutchClient *client);

HUTCH_API const char *hutch_client_address(const HutchClient *client);

/* Whether hutch_client_new() has started the daemon. */
HUTCH_API bool hutch_client_started_daemon(const HutchClient *client);

/* The version of this library. */
HUTCH_API const char *hutch_version(void);

/* ---- Programs with a loop of their own ----
 *
 * A program that must not wait asks the client for a descriptor and a timeout, waits for them with everything else, and
 * then has the client do its work. Then it asks which of its streams, watches and calls have something for it:
 *
 *         poll(&(struct pollfd){ .fd = hutch_client_fd(client), .events = POLLIN }, 1, hutch_client_timeout(client));
 *         hutch_client_dispatch(client);
 *         while (hutch_client_next(client, &user))
 *                 …; // hutch_call_receive() and its kin, with wait = false, until they say -EAGAIN
 */

HUTCH_API int hutch_client_fd(HutchClient *client);      /* or a negative errno: there are no descriptors left */
HUTCH_API int hutch_client_timeout(HutchClient *client); /* in milliseconds, as poll(2) takes it */
HUTCH_API void hutch_client_dispatch(HutchClient *client);

/* Takes one that has news since it was last taken: the @user that it was made with. Those made with a NULL are not
 * told. */
HUTCH_API bool hutch_client_next(HutchClient *client, void **ret_user);

/* ---- Sandboxes ---- */

/* The states of the contract. */
typedef enum HutchSandboxState {
        HUTCH_SANDBOX_PENDING = 1,
        HUTCH_SANDBOX_READY = 2,
        HUTCH_SANDBOX_PAUSED = 3,
        HUTCH_SANDBOX_STOPPING = 4,
        HUTCH_SANDBOX_STOPPED = 5,
        HUTCH_SANDBOX_FAILED = 6,
        HUTCH_SANDBOX_DELETING = 7,
        HUTCH_SANDBOX_DELETED = 8,
} HutchSandboxState;

HUTCH_API const char *hutch_sandbox_state_name(HutchSandboxState state); /* "READY" */

/* What a sandbox shall be. More can be asked for by hutch_sandbox_create_encoded(). Arrays of texts end with NULL;
 * those of pairs have "NAME=VALUE". */
typedef struct HutchSandboxSpec {
        const char *id;         /* NULL: the daemon makes one */
        const char *request_id; /* NULL: one is made */
        const char *image;      /* NULL: the daemon's default */
        const char *profile;
        const char *runtime;
        const char *working_directory;
        const char *user;
        const char *const *command; /* runs as the exec "main" */
        const char *const *env;
        const char *const *labels;
        uint64_t memory_bytes; /* 0, here and below: the profile's */
        uint32_t cpu_millis;
        uint32_t max_processes;
        uint64_t disk_bytes;
        uint64_t exec_timeout;
        uint64_t idle_ttl; /* HUTCH_FOREVER: never; 0: the daemon's */
        uint64_t max_lifetime;
        bool delete_at_lifetime; /* instead of stopping it */
        bool delete_when_idle;   /* likewise, after idle_ttl */
} HutchSandboxSpec;

typedef struct HutchSandbox {
        const char *id;
        HutchSandboxState state;
        const char *state_reason;  /* "" or as hutch_error_reason() */
        const char *state_message; /* why it is in that state, where there is something to say */
        const char *image;         /* as it was asked for; "": the daemon's default */
        const char *owner;
        const char *runtime;
        const char *profile;
        const char *const *labels; /* "NAME=VALUE", ends with NULL */
        uint64_t create_time;
        uint64_t state_time;
        uint64_t sequence; /* of its last event */
        uint32_t active_execs;

        /* All of it: a hutch.v1.Sandbox, encoded. */
        const void *encoded;
        size_t encoded_len;
} HutchSandbox;

HUTCH_API void hutch_sandbox_free(HutchSandbox *sandbox);

/* Each returns when it is accepted; the work goes on. hutch_sandbox_wait() waits for its end. @ret_sandbox may be NULL
 * everywhere. @spec may be NULL. */
HUTCH_API int hutch_sandbox_create(HutchClient *client, const HutchSandboxSpec *spec, HutchSandbox **ret_sandbox,
                                   HutchError **ret_error);
/* The same with an encoded hutch.v1.SandboxSpec. @id and @request_id may be NULL. */
HUTCH_API int hutch_sandbox_create_encoded(HutchClient *client, const char *id, const char *request_id,
                                           const void *spec, size_t spec_len, HutchSandbox **ret_sandbox,
                                           HutchError **ret_error);
HUTCH_API int hutch_sandbox_get(HutchClient *client, const char *id, HutchSandbox **ret_sandbox,
                                HutchError **ret_error);
HUTCH_API int hutch_sandbox_stop(HutchClient *client, const char *id, uint64_t grace, HutchSandbox **ret_sandbox,
                                 HutchError **ret_error); /* @grace 0: the daemon's default */
HUTCH_API int hutch_sandbox_resume(HutchClient *client, const char *id, HutchSandbox **ret_sandbox,
                                   HutchError **ret_error);
HUTCH_API int hutch_sandbox_pause(HutchClient *client, const char *id, HutchSandbox **ret_sandbox,
                                  HutchError **ret_error);
HUTCH_API int hutch_sandbox_unpause(HutchClient *client, const char *id, HutchSandbox **ret_sandbox,
                                    HutchError **ret_error);
HUTCH_API int hutch_sandbox_delete(HutchClient *client, const char *id, HutchSandbox **ret_sandbox,
                                   HutchError **ret_error);

/* Gives the sandbox exactly these labels ("NAME=VALUE", ends with NULL). */
HUTCH_API int hutch_sandbox_set_labels(HutchClient *client, const char *id, const char *const *labels,
                                       HutchSandbox **ret_sandbox, HutchError **ret_error);
/* HUTCH_FOREVER: never. */
HUTCH_API int hutch_sandbox_set_idle_ttl(HutchClient *client, const char *id, uint64_t idle_ttl,
                                         HutchSandbox **ret_sandbox, HutchError **ret_error);

/* Deletes all that @selector selects, and tells how many. An empty selector is refused. */
HUTCH_API int hutch_sandboxes_delete(HutchClient *client, const char *selector, size_t *ret_count,
                                     HutchError **ret_error);

/* Calls @callback with each sandbox that @selector selects and that is in one of @states (bits 1 << state; 0: all but
 * DELETED), oldest first, until it returns other than 0, which is then returned. @selector may be NULL. @callback may
 * call the library. */
HUTCH_API int hutch_sandbox_list(HutchClient *client, const char *selector, uint32_t states,
                                 int (*callback)(const HutchSandbox *sandbox, void *user), void *user,
                                 HutchError **ret_error);

/* Waits until the sandbox is in one of @states (bits 1 << state). 0 @timeout: 180 s; HUTCH_FOREVER. Fails with
 * SANDBOX_WRONG_STATE when it has come to a state that it cannot leave for one of these without being asked. */
HUTCH_API int hutch_sandbox_wait(HutchClient *client, const char *id, uint32_t states, uint64_t timeout,
                                 HutchSandbox **ret_sandbox, HutchError **ret_error);

/* ---- Execs ---- */

typedef enum HutchExecState {
        HUTCH_EXEC_PENDING = 1,
        HUTCH_EXEC_RUNNING = 2,
        HUTCH_EXEC_EXITED = 3,
        HUTCH_EXEC_CANCELLED = 4,
        HUTCH_EXEC_TIMED_OUT = 5,
        HUTCH_EXEC_FAILED = 6,
        HUTCH_EXEC_LOST = 7,
} HutchExecState;

HUTCH_API const char *hutch_exec_state_name(HutchExecState state); /* "RUNNING" */

typedef struct HutchExecSpec {
        const char *const *argv; /* ends with NULL */
        const char *id;          /* NULL: the daemon makes one */
        const char *request_id;  /* NULL: one is made */
        const char *const *env;  /* "NAME=VALUE", ends with NULL */
        const char *const *unset_env;
        const char *working_directory;
        const char *user;
        uint64_t timeout;    /* 0: the sandbox's */
        uint64_t kill_grace; /* 0: the daemon's default */
        bool stdin_stream;   /* hutch_exec_stream_write() feeds it; otherwise stdin is empty */
        bool terminal;
        uint32_t rows, columns;
        uint64_t output_limit; /* that is kept, of each stream; 0: the daemon's */
        bool bound;            /* hutch_exec_start(): it is cancelled when nobody is attached to it any more */
} HutchExecSpec;

typedef struct HutchExec {
        const char *id;
        const char *sandbox_id;
        HutchExecState state;
        bool has_exit_code;
        int exit_code;          /* 128 + signal; 124: timed out; 126, 127: it could not be started */
        int signal;             /* 0: none */
        const char *end_reason; /* "" or why it ended: "EXITED", "TIMED_OUT", "OUT_OF_MEMORY" */
        const char *failure;    /* "" or why it could not be started, as hutch_error_reason() */
        const char *message;    /* the same in words */
        uint64_t stdout_bytes;  /* that it wrote */
        uint64_t stderr_bytes;
        uint64_t stdout_dropped; /* of these, that were not kept */
        uint64_t stderr_dropped;
        uint64_t create_time, start_time, end_time; /* 0: not yet */
        uint64_t cpu_time;
        uint64_t peak_memory;

        /* All of it: a hutch.v1.Exec, encoded. */
        const void *encoded;
        size_t encoded_len;
} HutchExec;

HUTCH_API void hutch_exec_free(HutchExec *exec);

/* What a command has printed: as much as the daemon collects. */
typedef struct HutchOutput {
        HutchExec *exec;
        const char *stdout_data; /* followed by a NUL that does not count */
        size_t stdout_len;
        const char *stderr_data;
        size_t stderr_len;
        bool truncated; /* in the middle of either */
} HutchOutput;

HUTCH_API void hutch_output_free(HutchOutput *output);

/* Runs a command to its end, with @input (up to 3 MiB) as its stdin. A command that fails is no error. When the client
 * gives up, because its timeout has passed, the daemon ends the command; a timeout in @spec is allowed for. @spec has
 * no id, no stdin_stream and no terminal here. */
HUTCH_API int hutch_exec_run(HutchClient *client, const char *sandbox_id, const HutchExecSpec *spec, const void *input,
                             size_t input_len, HutchOutput **ret_output, HutchError **ret_error);

/* Starts a command that goes on without the client. */
HUTCH_API int hutch_exec_create(HutchClient *client, const char *sandbox_id, const HutchExecSpec *spec,
                                HutchExec **ret_exec, HutchError **ret_error);
HUTCH_API int hutch_exec_get(HutchClient *client, const char *sandbox_id, const char *exec_id, HutchExec **ret_exec,
                             HutchError **ret_error);
HUTCH_API int hutch_exec_cancel(HutchClient *client, const char *sandbox_id, const char *exec_id, uint64_t grace,
                                HutchExec **ret_exec, HutchError **ret_error); /* @grace 0: the exec's own */
/* As hutch_sandbox_list(). */
HUTCH_API int hutch_exec_list(HutchClient *client, const char *sandbox_id, uint32_t states,
                              int (*callback)(const HutchExec *exec, void *user), void *user, HutchError **ret_error);

/* Streams of an exec: what it prints as it comes, and what it reads. */
typedef struct HutchExecStream HutchExecStream;

typedef struct HutchChunk {
        int stream;      /* 1 or 2 */
        uint64_t offset; /* of its first byte in all that the stream had; a jump tells what was dropped */
        const char *data;
        size_t len;
} HutchChunk;

typedef struct HutchReadOptions {
        uint64_t stdout_offset;
        uint64_t stderr_offset;
        bool only_stdout;
        bool only_stderr;
        bool follow; /* until the exec ends */
        bool has_tail_lines;
        uint64_t tail_lines;
} HutchReadOptions;

/* Starts a command and attaches to it. It is cancelled when the stream is freed before its end; when the connection is
 * lost or the client vanishes it goes on, unless it is bound. @user is for hutch_client_next(). */
HUTCH_API int hutch_exec_start(HutchClient *client, const char *sandbox_id, const HutchExecSpec *spec, void *user,
                               HutchExecStream **ret_stream, HutchError **ret_error);

/* Attaches to one that is there; it goes on when the stream is freed. */
HUTCH_API int hutch_exec_attach(HutchClient *client, const char *sandbox_id, const char *exec_id,
                                uint64_t stdout_offset, uint64_t stderr_offset, void *user,
                                HutchExecStream **ret_stream, HutchError **ret_error);

/* Reads what one has printed, also when it has ended. A lost connection is resumed from the offsets reached. */
HUTCH_API int hutch_exec_read(HutchClient *client, const char *sandbox_id, const char *exec_id,
                              const HutchReadOptions *options, void *user, HutchExecStream **ret_stream,
                              HutchError **ret_error);

/* Takes the next chunk, which is valid until the next call: 1. 0: the exec has ended (or, for hutch_exec_read() without
 * follow, there is no more so far), and hutch_exec_stream_exec() tells how. -EAGAIN, without an error, when @wait is
 * false and there is nothing yet. A stream that ends without telling how the exec did fails with STREAM_INCOMPLETE. */
HUTCH_API int hutch_exec_stream_next(HutchExecStream *stream, bool wait, HutchChunk *ret_chunk, HutchError **ret_error);

/* The exec as last told; NULL before that. Valid until the next call with @stream. */
HUTCH_API const HutchExec *hutch_exec_stream_exec(const HutchExecStream *stream);

/* Feeds stdin. With @wait it returns when all is taken; otherwise -EAGAIN when the command does not keep up, or the
 * daemon has not answered yet, and nothing was taken. After the end it goes nowhere and is no error. */
HUTCH_API int hutch_exec_stream_write(HutchExecStream *stream, bool wait, const void *data, size_t len,
                                      HutchError **ret_error);
/* Whether a write would be taken. */
HUTCH_API bool hutch_exec_stream_is_writable(const HutchExecStream *stream);
HUTCH_API int hutch_exec_stream_close_input(HutchExecStream *stream, HutchError **ret_error);
HUTCH_API int hutch_exec_stream_resize(HutchExecStream *stream, uint32_t rows, uint32_t columns,
                                       HutchError **ret_error);
HUTCH_API int hutch_exec_stream_signal(HutchExecStream *stream, int signal, HutchError **ret_error);

/* Ends a stream of hutch_exec_start(), hutch_exec_attach() or hutch_once_start() with CANCELLED, also for another
 * thread that waits for its next chunk. */
HUTCH_API void hutch_exec_stream_cancel(HutchExecStream *stream);
HUTCH_API void hutch_exec_stream_free(HutchExecStream *stream);

/* ---- One-shots ----
 *
 * A command in a sandbox that exists only for it: one call, after which nothing is left, whatever happens. */

/* More can be asked for by hutch_once_start_encoded(). */
typedef struct HutchOnceSpec {
        const char *const *argv; /* ends with NULL */
        const char *profile;     /* NULL: "standard", or the operator's choice */
        const char *image;       /* NULL: the daemon's default */
        const char *const *env;  /* "NAME=VALUE", ends with NULL */
        const char *const *labels;
        const char *working_directory;
        const void *input; /* what its stdin holds, up to 3 MiB */
        size_t input_len;
        uint64_t timeout;       /* 0: the profile's */
        const char *request_id; /* NULL: one is made */
} HutchOnceSpec;

/* Runs a command. The stream takes no input; the exec that it tells of has no id, and only what is known of it: the
 * sandbox from the beginning, the result at the end. The command ends with the stream, and with the client. */
HUTCH_API int hutch_once_start(HutchClient *client, const HutchOnceSpec *spec, void *user, HutchExecStream **ret_stream,
                               HutchError **ret_error);
/* The same with an encoded hutch.v1.ExecRequest. */
HUTCH_API int hutch_once_start_encoded(HutchClient *client, const void *request, size_t request_len, void *user,
                                       HutchExecStream **ret_stream, HutchError **ret_error);

/* The limits in force, as the daemon told first: a hutch.v1.EffectiveLimits, encoded. NULL before, and for streams of
 * other execs. */
HUTCH_API const void *hutch_exec_stream_limits(const HutchExecStream *stream, size_t *ret_len);

/* Runs a command to its end. Of each stream up to 8 MiB are kept, the beginning and the end. */
HUTCH_API int hutch_run_once(HutchClient *client, const HutchOnceSpec *spec, HutchOutput **ret_output,
                             HutchError **ret_error);

/* ---- Events ---- */

typedef struct HutchWatch HutchWatch;

typedef struct HutchWatchOptions {
        const char *const *sandbox_ids; /* NULL: all of them */
        const char *selector;
        bool has_after_cursor; /* otherwise: from now on */
        uint64_t after_cursor;
        bool snapshot; /* begin with the sandboxes as they are */
        void *user;    /* for hutch_client_next() */
} HutchWatchOptions;

/* One of the two: an event, or, of a snapshot, a sandbox. */
typedef struct HutchEvent {
        const HutchSandbox *sandbox; /* NULL: it is an event */

        uint64_t cursor;
        const char *sandbox_id;
        uint64_t sequence;
        uint64_t time;
        const char *type;       /* "SANDBOX_STATE_CHANGED" */
        const char *exec_id;    /* "": of the sandbox itself */
        const char *from_state; /* "" where the event is none of a state */
        const char *to_state;
        const char *reason;
        const char *message;

        /* All of it: a hutch.v1.Event, encoded. */
        const void *encoded;
        size_t encoded_len;
} HutchEvent;

/* Watches what happens. When the connection is lost or the watch did not keep up it goes on from its cursor by itself:
 * no event is lost and none comes twice. A snapshot that was interrupted begins again. */
HUTCH_API int hutch_watch_new(HutchClient *client, const HutchWatchOptions *options, HutchWatch **ret_watch,
                              HutchError **ret_error);

/* Takes the next event, which is valid until the next call: 1. -EAGAIN, without an error, when @wait is false and there
 * is none yet. */
HUTCH_API int hutch_watch_next(HutchWatch *watch, bool wait, HutchEvent *ret_event, HutchError **ret_error);

/* The cursor up to which everything was told: where another watch could go on. */
HUTCH_API uint64_t hutch_watch_cursor(const HutchWatch *watch);

/* Whether the daemon has begun to tell: what happens after that is not missed. */
HUTCH_API bool hutch_watch_has_started(const HutchWatch *watch);
HUTCH_API void hutch_watch_free(HutchWatch *watch);

/* ---- Any method of the contract ----
 *
 * Messages are encoded as protobuf does. Methods are named as in proto/hutch/v1, without the package:
 * "SystemService/GetInfo". */

typedef struct HutchBuffer {
        uint8_t *data; /* free it with hutch_buffer_clear() */
        size_t len;
} HutchBuffer;

HUTCH_API void hutch_buffer_clear(HutchBuffer *buffer);

/* Makes a call with one message each way. @timeout 0: the client's; HUTCH_FOREVER. */
HUTCH_API int hutch_call_unary(HutchClient *client, const char *method, const void *request, size_t request_len,
                               uint64_t timeout, HutchBuffer *ret_reply, HutchError **ret_error);

typedef struct HutchCall HutchCall;

/* Starts a call; @timeout as above, but 0 is HUTCH_FOREVER for methods that stream. @user: for hutch_client_next(). */
HUTCH_API int hutch_call_new(HutchClient *client, const char *method, uint64_t timeout, void *user,
                             HutchCall **ret_call, HutchError **ret_error);

/* Queues a message. With @wait it returns when there is room for the next; otherwise -EAGAIN when there was none for
 * this one. -EPIPE, without an error: the call is over, and hutch_call_receive() tells how. */
HUTCH_API int hutch_call_send(HutchCall *call, bool wait, const void *message, size_t len, HutchError **ret_error);
HUTCH_API bool hutch_call_is_writable(const HutchCall *call);

/* No more messages will be sent. */
HUTCH_API void hutch_call_end(HutchCall *call);

/* Takes the next message: 1. 0: the call has ended well. -EAGAIN, without an error, when @wait is false and there is
 * none yet. */
HUTCH_API int hutch_call_receive(HutchCall *call, bool wait, HutchBuffer *ret_message, HutchError **ret_error);

/* Ends the call with CANCELLED, if it has not ended, and frees it. */
HUTCH_API void hutch_call_free(HutchCall *call);

/* The protobuf-c descriptor of a message or of a method's request and reply, or NULL: for programs that work with
 * messages by their description. */
struct ProtobufCMessageDescriptor;
HUTCH_API const struct ProtobufCMessageDescriptor *hutch_message_descriptor(const char *name); /* "Sandbox" */
HUTCH_API bool hutch_method_descriptors(const char *method, const struct ProtobufCMessageDescriptor **ret_request,
                                        const struct ProtobufCMessageDescriptor **ret_reply);

/* ---- Files ----
 *
 * Paths are inside the sandbox: absolute, or below its working directory. What spec/behavior.md does not allow in one
 * is refused before a call is made. Modes are permission bits, 0 to 0777. */

typedef enum HutchFileType {
        HUTCH_FILE_REGULAR = 1,
        HUTCH_FILE_DIRECTORY = 2,
        HUTCH_FILE_SYMLINK = 3,
        HUTCH_FILE_FIFO = 4,
        HUTCH_FILE_SOCKET = 5,
        HUTCH_FILE_CHARACTER_DEVICE = 6,
        HUTCH_FILE_BLOCK_DEVICE = 7,
} HutchFileType;

HUTCH_API const char *hutch_file_type_name(HutchFileType type); /* "DIRECTORY" */

typedef struct HutchFile {
        const char *path; /* absolute */
        const char *name; /* with U+FFFD for bytes that are not UTF-8 */
        HutchFileType type;
        uint64_t size;
        uint32_t mode; /* with the setuid, setgid and sticky bits */
        uint32_t uid;  /* inside */
        uint32_t gid;
        uint64_t modify_time;
        const char *symlink_target; /* "": it is no symlink */
        const char *version;        /* another one: the content has changed */
        uint64_t links;
        uint64_t disk_bytes;

        /* All of it: a hutch.v1.FileInfo, encoded. */
        const void *encoded;
        size_t encoded_len;
} HutchFile;

HUTCH_API void hutch_file_free(HutchFile *file);

/* @follow: a symlink at the end of the path. @ret_file may be NULL here and below. */
HUTCH_API int hutch_file_stat(HutchClient *client, const char *sandbox_id, const char *path, bool follow,
                              HutchFile **ret_file, HutchError **ret_error);

typedef struct HutchListFilesOptions {
        uint32_t depth;   /* 0: the folder's own entries */
        const char *glob; /* of paths below the folder; NULL: all of them */
} HutchListFilesOptions;

/* Calls @callback with each entry, in byte order, until it returns other than 0, which is then returned. Entries may be
 * missing or come twice when the folder changes meanwhile: then @ret_changed, which may be NULL, is set. @options may
 * be NULL. */
HUTCH_API int hutch_file_list(HutchClient *client, const char *sandbox_id, const char *path,
                              const HutchListFilesOptions *options, int (*callback)(const HutchFile *file, void *user),
                              void *user, bool *ret_changed, HutchError **ret_error);

typedef enum HutchImageChangeType {
        HUTCH_IMAGE_ADDED = 1,
        HUTCH_IMAGE_MODIFIED = 2,
        HUTCH_IMAGE_DELETED = 3,
} HutchImageChangeType;

HUTCH_API const char *hutch_image_change_name(HutchImageChangeType type); /* "ADDED" */

typedef struct HutchImageChange {
        HutchImageChangeType type;
        const char *path;
        const HutchFile *file; /* what is there now; NULL when it was deleted */

        /* All of it: a hutch.v1.ImageChange, encoded. */
        const void *encoded;
        size_t encoded_len;
} HutchImageChange;

/* Calls @callback with each thing in which the sandbox's own files differ from its image, at @path and below, until it
 * returns other than 0, which is then returned. "/" is all. @ret_incomplete, which may be NULL: something was left
 * out, which the sandbox's user may not read or lies too deep. */
HUTCH_API int hutch_file_changes(HutchClient *client, const char *sandbox_id, const char *path,
                                 int (*callback)(const HutchImageChange *change, void *user), void *user,
                                 bool *ret_incomplete, HutchError **ret_error);

/* @parents: make those that are missing, too, and be content with a folder that is there. @mode 0: 0755. */
HUTCH_API int hutch_file_make_directory(HutchClient *client, const char *sandbox_id, const char *path, uint32_t mode,
                                        bool parents, HutchFile **ret_file, HutchError **ret_error);

/* Renames. @target is the new path itself. @overwrite: a file that is there is replaced. */
HUTCH_API int hutch_file_move(HutchClient *client, const char *sandbox_id, const char *source, const char *target,
                              bool overwrite, bool parents, HutchFile **ret_file, HutchError **ret_error);

/* @recursive: a folder with all that is in it. @ret_removed, which may be NULL: how many things. */
HUTCH_API int hutch_file_remove(HutchClient *client, const char *sandbox_id, const char *path, bool recursive,
                                bool ignore_missing, uint64_t *ret_removed, HutchError **ret_error);

typedef struct HutchWriteOptions {
        uint32_t mode; /* 0: that of the file that is replaced, or 0644 */
        bool parents;  /* make those that are missing */
        bool overwrite;
        const char *expected_version; /* of the file that is replaced; NULL: any; not for uploads */

        /* For uploads only. */
        bool has_size;
        uint64_t size;         /* that will come */
        const uint8_t *sha256; /* 32 bytes; NULL: not checked */
        const char *upload_id; /* what came is kept for an hour when the upload breaks; NULL: it is not */
        uint64_t offset;       /* how much of @upload_id is there, as hutch_upload_stat() told */
        uint64_t max_size;     /* 0: the daemon's default; UINT64_MAX: what it allows at most */
} HutchWriteOptions;

/* Small files (up to 3 MiB), in one call each: all of it or nothing. @options may be NULL. @ret_data is followed by a
 * NUL that does not count. */
HUTCH_API int hutch_file_read(HutchClient *client, const char *sandbox_id, const char *path, HutchBuffer *ret_data,
                              HutchFile **ret_file, HutchError **ret_error);
HUTCH_API int hutch_file_write(HutchClient *client, const char *sandbox_id, const char *path, const void *data,
                               size_t len, const HutchWriteOptions *options, HutchFile **ret_file,
                               HutchError **ret_error);

/* Bytes that come out of a sandbox: of a file, or of an archive. */
typedef struct HutchDownload HutchDownload;

typedef struct HutchDownloadOptions {
        uint64_t offset;
        bool has_length;
        uint64_t length;
        const char *expected_version; /* NULL: any */
        uint64_t max_size;            /* as HutchWriteOptions has it */
        void *user;                   /* for hutch_client_next() */
} HutchDownloadOptions;

/* A lost connection is resumed from where it had come to, when the file has not changed. @options may be NULL. */
HUTCH_API int hutch_download_new(HutchClient *client, const char *sandbox_id, const char *path,
                                 const HutchDownloadOptions *options, HutchDownload **ret_download,
                                 HutchError **ret_error);

typedef enum HutchCompression {
        HUTCH_COMPRESSION_DEFAULT = 0, /* none; of an upload: found out */
        HUTCH_COMPRESSION_NONE = 1,
        HUTCH_COMPRESSION_GZIP = 2,
        HUTCH_COMPRESSION_ZSTD = 3,
} HutchCompression;

typedef struct HutchArchiveOptions {
        HutchCompression compression;
        const char *const *include; /* patterns as in .gitignore; end with NULL; NULL: everything */
        const char *const *exclude;
        const char *ignore_file; /* the name of files with further patterns to exclude; NULL: none */
        bool parents;            /* of an upload: make the folder and those that are missing */
        bool overwrite;          /* of an upload */
        uint64_t max_size;       /* as HutchWriteOptions has it */
        void *user;              /* for hutch_client_next() */
} HutchArchiveOptions;

/* A folder, or a file, as a tar stream. @options may be NULL. */
HUTCH_API int hutch_archive_download(HutchClient *client, const char *sandbox_id, const char *path,
                                     const HutchArchiveOptions *options, HutchDownload **ret_download,
                                     HutchError **ret_error);

/* Takes the next bytes, which are valid until the next call: 1. 0: that was all. -EAGAIN, without an error, when @wait
 * is false and there are none yet. */
HUTCH_API int hutch_download_next(HutchDownload *download, bool wait, const void **ret_data, size_t *ret_len,
                                  HutchError **ret_error);

/* The file, once hutch_download_next() has returned something else than -EAGAIN; NULL before, and of an archive. */
HUTCH_API const HutchFile *hutch_download_file(const HutchDownload *download);
HUTCH_API void hutch_download_free(HutchDownload *download);

/* Bytes that go into a sandbox: a file, or an archive. */
typedef struct HutchUpload HutchUpload;

/* @options may be NULL. @user is for hutch_client_next(). */
HUTCH_API int hutch_upload_new(HutchClient *client, const char *sandbox_id, const char *path,
                               const HutchWriteOptions *options, void *user, HutchUpload **ret_upload,
                               HutchError **ret_error);
HUTCH_API int hutch_archive_upload(HutchClient *client, const char *sandbox_id, const char *path,
                                   const HutchArchiveOptions *options, HutchUpload **ret_upload,
                                   HutchError **ret_error);

/* Sends bytes. With @wait it returns when there is room for more; otherwise -EAGAIN when there was none, and nothing
 * was taken. An upload that the daemon has refused takes them as well: hutch_upload_finish() tells. */
HUTCH_API int hutch_upload_write(HutchUpload *upload, bool wait, const void *data, size_t len, HutchError **ret_error);

/* Whether the daemon has given it up: the rest need not be sent. */
HUTCH_API bool hutch_upload_is_over(const HutchUpload *upload);

/* Waits until all is written, checked and in its place. Of an archive there is no @ret_file. With @wait false -EAGAIN
 * until that is so. */
HUTCH_API int hutch_upload_finish(HutchUpload *upload, bool wait, HutchFile **ret_file, HutchError **ret_error);

/* Of an archive that is finished. */
HUTCH_API uint64_t hutch_upload_entries(const HutchUpload *upload);

/* An upload that is not finished leaves nothing behind, unless it has an upload id. */
HUTCH_API void hutch_upload_free(HutchUpload *upload);

/* How far a broken upload has come: its size tells. */
HUTCH_API int hutch_upload_stat(HutchClient *client, const char *sandbox_id, const char *upload_id,
                                HutchFile **ret_file, HutchError **ret_error);

/* What changes below a folder. */
typedef struct HutchFileWatch HutchFileWatch;

typedef enum HutchFileChangeType {
        HUTCH_FILE_CREATED = 1,
        HUTCH_FILE_WRITTEN = 2,
        HUTCH_FILE_MOVED = 3,
        HUTCH_FILE_DELETED = 4,
} HutchFileChangeType;

HUTCH_API const char *hutch_file_change_name(HutchFileChangeType type); /* "CREATED" */

typedef struct HutchFileChange {
        bool overflow;            /* some changes are lost: look at the folder anew; nothing else is set */
        HutchFileChangeType type; /* 0: the watch has started */
        const char *path;
        const char *old_path; /* "" or where it was before */
        HutchFileType file_type;

        /* All of it: a hutch.v1.WatchFilesResponse, encoded. */
        const void *encoded;
        size_t encoded_len;
} HutchFileChange;

HUTCH_API int hutch_file_watch_new(HutchClient *client, const char *sandbox_id, const char *path, bool recursive,
                                   void *user, HutchFileWatch **ret_watch, HutchError **ret_error);

/* Takes the next change, which is valid until the next call: 1. The first tells that the watch stands. -EAGAIN as
 * elsewhere. A lost connection ends it: what happened meanwhile is not known. */
HUTCH_API int hutch_file_watch_next(HutchFileWatch *watch, bool wait, HutchFileChange *ret_change,
                                    HutchError **ret_error);
HUTCH_API void hutch_file_watch_free(HutchFileWatch *watch);

/* ---- The daemon of this user ---- */

/* Where the daemon of this user listens: HUTCH_SOCKET, or the default. The caller frees it with free(). */
HUTCH_API int hutch_daemon_socket(char **ret_path, HutchError **ret_error);

/* The pid of the daemon that listens on @socket; 0: none does. Where a service manager listens in its place, it is that
 * of the daemon with this user's state folder. */
HUTCH_API int hutch_daemon_pid(const char *socket, int *ret_pid, HutchError **ret_error);

/* Starts one, if none listens there, and waits until it serves: 1; 0: there was one. However many ask at once, one is
 * started. */
HUTCH_API int hutch_daemon_start(const char *socket, HutchError **ret_error);

/* Has it end, and waits for that: 1; 0: there was none. Sandboxes go on. 0 @timeout: 60 s. */
HUTCH_API int hutch_daemon_stop(const char *socket, uint64_t timeout, HutchError **ret_error);

#ifdef __cplusplus
}
#endif

#endif
