/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the table of all commands and their options. What does not: what they do. */

#include "cli/commands.h"

#include <stdint.h>
#include <string.h>

#include "base/strings.h"
#include "cli/complete.h"
#include "cli/context-commands.h"
#include "cli/copy.h"
#include "cli/doctor.h"
#include "cli/events-command.h"
#include "cli/exec-commands.h"
#include "cli/file-commands.h"
#include "cli/help.h"
#include "cli/output.h"
#include "cli/run.h"
#include "cli/sandbox-commands.h"
#include "cli/spec-options.h"
#include "cli/system-commands.h"
#include "cli/token-commands.h"
#include "cli/top-command.h"

#define ANY SIZE_MAX

const Option global_options[] = {
        { "socket", 0, "PATH", .help = "the daemon's Unix socket (HUTCH_SOCKET)", COMPLETES_FILES },
        { "address", 0, "ADDRESS", .help = "the daemon's address: unix:/path or host:port (HUTCH_ADDRESS)" },
        { "context", 0, "NAME", .help = "a daemon of the contexts file (HUTCH_CONTEXT)", COMPLETES_CONTEXTS },
        { "ca", 0, "FILE", .help = "who signs the daemon's certificate (HUTCH_CA_FILE)", COMPLETES_FILES },
        { "cert", 0, "FILE", .help = "this client's certificate (HUTCH_CERTIFICATE_FILE)", COMPLETES_FILES },
        { "key", 0, "FILE", .help = "its key (HUTCH_KEY_FILE)", COMPLETES_FILES },
        { "server-name", 0, "NAME", .help = "what the daemon's certificate must be for, if not the address" },
        { "token-file", 0, "FILE", .help = "a file with the bearer token (HUTCH_TOKEN has one, too)", COMPLETES_FILES },
        { "help", 'h', NULL, .help = "print help, and end" },
        {},
};

static const Option run_options[] = {
        { "timeout", 0, "DURATION", .help = "end the command after that long: 30s, 1h30m" },
        { "keep", 0, NULL, .help = "do not delete the sandbox at the end" },
        { "rm", 0, NULL, .help = "delete it at the end, as is done anyway" },
        { "once", 0, NULL, .help = "in one call: no stdin, a signal ends it, profile standard" },
        { "quiet", 'q', NULL, .help = "say nothing but what the command prints, and errors" },
        {},
};

/* Of run, exec and shell. */
static const Option tty_options[] = {
        { "interactive", 'i', NULL, .help = "pass stdin on, also when it is no terminal" },
        { "tty", 't', NULL, .help = "give the command a terminal, also when there is none here" },
        { "no-tty", 'T', NULL, .help = "give it none, also when there is one here" },
        {},
};

static const Option process_options[] = {
        { "env", 'e', "NAME[=VALUE]", .help = "an environment variable; without a value the caller's own" },
        { "env-file", 0, "FILE", .help = "a file with environment variables", COMPLETES_FILES },
        { "workdir", 'w', "PATH", .help = "the working directory inside" },
        { "user", 'u', "USER", .help = "the user inside: a name, uid or uid:gid" },
        {},
};

static const Option exec_options[] = {
        { "detach", 'd', NULL, .help = "start it, print its id and end" },
        { "timeout", 0, "DURATION", .help = "end the command after that long: 30s, 1h30m" },
        {},
};

static const Option create_options[] = {
        { "timeout", 0, "DURATION", .help = "the longest that any command in it may run" },
        { "wait", 0, NULL, .help = "wait until it is READY" },
        { "quiet", 'q', NULL, .help = "say nothing but its id, and errors" },
        {},
};

static const Option list_options[] = {
        { "all", 'a', NULL, .help = "deleted ones, too" },
        { "selector", 'l', "SELECTOR", .help = "those with these labels: app=web,!old" },
        { "state", 0, "STATE[,STATE]", .help = "those in these states", COMPLETES_STATES },
        { "quiet", 'q', NULL, .help = "print ids only" },
        {},
};

static const Option get_options[] = {
        { "usage", 0, NULL, .help = "measure what it uses now, too" },
        {},
};

static const Option top_options[] = {
        { "sort", 's', TOP_SORT_KEYS, .help = "the order (cpu)" },
        { "iterations", 'n', "NUMBER", .help = "end after having shown it so many times" },
        { "interval", 'd', "DURATION", .help = "the time from one to the next (2s)" },
        { "once", 0, NULL, .help = "print it once, as a plain table" },
        {},
};

static const Option wait_options[] = {
        { "wait", 0, NULL, .help = "wait until that is done" },
        {},
};

static const Option stop_options[] = {
        { "grace", 0, "DURATION", .help = "the time between SIGTERM and SIGKILL (10s); 0: kill at once" },
        {},
};

static const Option delete_options[] = {
        { "selector", 'l', "SELECTOR", .help = "those with these labels: app=web,!old" },
        { "all", 'a', NULL, .help = "all of yours" },
        { "force", 'f', NULL, .help = "do not ask" },
        {},
};

static const Option update_options[] = {
        { "label", 'l', "NAME[=VALUE]", .help = "set a label" },
        { "remove-label", 0, "NAME", .help = "remove a label" },
        { "idle-ttl", 0, "DURATION", .help = "stop it when it was idle for that long; 0: never" },
        { "idle-action", 0, "stop|delete", .help = "what happens to it then" },
        { "max-lifetime", 0, "DURATION", .help = "stop it that long after its creation" },
        {},
};

static const Option wait_for_options[] = {
        { "for", 0, "STATE[,STATE]", .help = "until it is in one of these (READY)", COMPLETES_STATES },
        { "timeout", 0, "DURATION", .help = "give up after that long, with exit code 124" },
        {},
};

static const Option cancel_options[] = {
        { "grace", 0, "DURATION", .help = "the time between SIGTERM and SIGKILL (5s); 0: kill at once" },
        {},
};

static const Option logs_options[] = {
        { "follow", 'f', NULL, .help = "go on until the command ends" },
        { "tail", 'n', "NUMBER", .help = "only that many lines from the end" },
        { "stdout", 0, NULL, .help = "only what it printed on stdout" },
        { "stderr", 0, NULL, .help = "only what it printed on stderr" },
        {},
};

static const Option events_options[] = {
        { "follow", 'f', NULL, .help = "go on with what happens, until Ctrl-C" },
        { "since", 0, "CURSOR", .help = "only those after this cursor; a duration as in 10m: not older than that" },
        { "selector", 'l', "SELECTOR", .help = "of sandboxes with these labels" },
        { "type", 0, "TYPE", .help = "only of this type, as in SANDBOX_STATE_CHANGED; may be repeated" },
        {},
};

static const Option copy_options[] = {
        { "parents", 'p', NULL, .help = "make folders that are missing" },
        { "no-clobber", 'n', NULL, .help = "do not replace what is there" },
        { "resume", 0, NULL, .help = "go on where an earlier copy of the same file was interrupted" },
        { "quiet", 'q', NULL, .help = "show no progress" },
        {},
};

static const Option file_list_options[] = {
        { "long", 'l', NULL, .help = "with mode, owner, size and time" },
        { "recursive", 'R', NULL, .help = "folders below it, too" },
        { "glob", 0, "PATTERN", .help = "only what matches: '*' and '?' within a name, '**' across folders" },
        {},
};

static const Option file_stat_options[] = {
        { "follow", 'L', NULL, .help = "what a symlink points to" },
        {},
};

static const Option file_remove_options[] = {
        { "recursive", 'r', NULL, .help = "folders with all that is in them" },
        { "force", 'f', NULL, .help = "it is no error when nothing is there" },
        {},
};

static const Option file_make_options[] = {
        { "parents", 'p', NULL, .help = "make folders that are missing, and be content with one that is there" },
        { "mode", 'm', "MODE", .help = "its permissions, octal (755)" },
        {},
};

static const Option file_move_options[] = {
        { "parents", 'p', NULL, .help = "make folders that are missing" },
        { "no-clobber", 'n', NULL, .help = "do not replace what is there" },
        {},
};

static const Option file_watch_options[] = {
        { "recursive", 'r', NULL, .help = "folders below it, too" },
        {},
};

static const Option daemon_stop_options[] = {
        { "timeout", 0, "DURATION", .help = "how long it may take (30s)" },
        {},
};

static const Option token_file_options[] = {
        { "file", 0, "FILE", .help = "the file, if it is not the one that hutchd is configured to read",
          COMPLETES_FILES },
        {},
};

static const Option token_create_options[] = {
        { "expires", 0, "DURATION", .help = "when it ends: 90d; otherwise never" },
        {},
};

static const Option context_add_options[] = {
        { "token-stdin", 0, NULL, .help = "read the bearer token from stdin" },
        {},
};

const Command commands[] = {
        {
                .name = "run",
                .operands = "[--] COMMAND [ARGUMENT]...",
                .summary = "Run a command in a sandbox of its own",
                .details =
                        "The sandbox is deleted at the end, whatever the end is. The command has this stdin, and a\n"
                        "terminal where there is one. Ends with the command's exit code; 125 when Hutch failed, 124\n"
                        "when the time was over. Without a daemon one is started for this user, and stays.",
                .options = { run_options, spec_options, tty_options, global_options },
                .min_operands = 1,
                .max_operands = ANY,
                .runs_program = true,
                .completes = { COMPLETES_PROGRAMS, COMPLETES_FILES },
                .run = command_run,
        },
        {
                .name = "create",
                .operands = "[--] [COMMAND [ARGUMENT]...]",
                .summary = "Create a sandbox and print its id",
                .details = "A command, if there is one, runs in it as the exec \"main\"; its end is not the sandbox's.",
                .options = { create_options, spec_options, output_options, global_options },
                .max_operands = ANY,
                .runs_program = true,
                .completes = { COMPLETES_PROGRAMS, COMPLETES_FILES },
                .run = command_create,
        },
        {
                .name = "list",
                .alias = "ps",
                .operands = "",
                .summary = "List sandboxes",
                .options = { list_options, output_options, global_options },
                .run = command_list,
        },
        {
                .name = "get",
                .operands = "ID",
                .summary = "Show a sandbox",
                .options = { get_options, output_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .completes = { COMPLETES_SANDBOXES },
                .run = command_get,
        },
        {
                .name = "top",
                .operands = "[ID]...",
                .summary = "Show what sandboxes use, again and again",
                .details =
                        "Without ids: all of yours. q or Ctrl-C ends it. Where stdin or stdout is no terminal it is\n"
                        "printed once, or --iterations times. CPU is in percent of one core.",
                .options = { top_options, output_options, global_options },
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_top,
        },
        {
                .name = "update",
                .operands = "ID",
                .summary = "Change a sandbox's labels and times to live",
                .options = { update_options, output_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .completes = { COMPLETES_SANDBOXES },
                .run = command_update,
        },
        {
                .name = "stop",
                .operands = "ID...",
                .summary = "End all processes of sandboxes, and keep their files",
                .options = { stop_options, wait_options, output_options, global_options },
                .min_operands = 1,
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_stop,
        },
        {
                .name = "resume",
                .alias = "start",
                .operands = "ID...",
                .summary = "Start stopped sandboxes again, on their files",
                .options = { wait_options, output_options, global_options },
                .min_operands = 1,
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_resume,
        },
        {
                .name = "pause",
                .operands = "ID...",
                .summary = "Freeze all processes of sandboxes where they are",
                .options = { wait_options, output_options, global_options },
                .min_operands = 1,
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_pause,
        },
        {
                .name = "unpause",
                .operands = "ID...",
                .summary = "Let paused sandboxes go on",
                .options = { wait_options, output_options, global_options },
                .min_operands = 1,
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_unpause,
        },
        {
                .name = "delete",
                .operands = "ID... | --selector SELECTOR | --all",
                .summary = "Delete sandboxes with all that is in them",
                .options = { delete_options, wait_options, output_options, global_options },
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_delete,
        },
        {
                .name = "wait",
                .operands = "ID",
                .summary = "Wait until a sandbox is in a state, and print that",
                .options = { wait_for_options, output_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .completes = { COMPLETES_SANDBOXES },
                .run = command_wait,
        },
        {
                .name = "exec",
                .operands = "ID [--] COMMAND [ARGUMENT]...",
                .summary = "Run a command in a sandbox that is there",
                .details =
                        "A person at a terminal gets one inside; otherwise stdin is empty without --interactive. Ends\n"
                        "as 'hutch run' does. A sandbox called like a command below: hutch exec -- list COMMAND.",
                .options = { exec_options, process_options, tty_options, output_options, global_options },
                .min_operands = 2,
                .max_operands = ANY,
                .runs_program = true,
                .leading = 1,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_PROGRAMS },
                .run = command_exec,
        },
        {
                .name = "exec list",
                .alias = "exec ls",
                .operands = "ID",
                .summary = "List the execs of a sandbox",
                .options = { output_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .completes = { COMPLETES_SANDBOXES },
                .run = command_exec_list,
        },
        {
                .name = "exec get",
                .operands = "ID EXEC",
                .summary = "Show an exec",
                .options = { output_options, global_options },
                .min_operands = 2,
                .max_operands = 2,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_EXECS },
                .run = command_exec_get,
        },
        {
                .name = "exec cancel",
                .operands = "ID EXEC",
                .summary = "End an exec and every process that it started",
                .options = { cancel_options, output_options, global_options },
                .min_operands = 2,
                .max_operands = 2,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_EXECS },
                .run = command_exec_cancel,
        },
        {
                .name = "exec logs",
                .operands = "ID EXEC",
                .summary = "Print what an exec printed",
                .options = { logs_options, global_options },
                .min_operands = 2,
                .max_operands = 2,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_EXECS },
                .run = command_exec_logs,
        },
        {
                .name = "shell",
                .operands = "ID",
                .summary = "Open a shell in a sandbox: bash if it has one, else sh",
                .options = { process_options, tty_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .completes = { COMPLETES_SANDBOXES },
                .run = command_shell,
        },
        {
                .name = "cp",
                .operands = "SOURCE... TARGET",
                .summary = "Copy files and folders into a sandbox, out of one, or from one to another",
                .details = "What is inside is written ID:PATH; '-' is stdin or stdout. A target that is a folder is\n"
                           "copied into. Files are there whole or not at all. Shows progress on a terminal.",
                .options = { copy_options, global_options },
                .min_operands = 2,
                .max_operands = ANY,
                .completes = { COMPLETES_PLACES, COMPLETES_PLACES },
                .run = command_copy,
        },
        {
                .name = "ls",
                .operands = "ID[:PATH]",
                .summary = "List a folder of a sandbox",
                .options = { file_list_options, output_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .completes = { COMPLETES_SANDBOXES },
                .run = command_file_list,
        },
        {
                .name = "cat",
                .operands = "ID:PATH...",
                .summary = "Print files of a sandbox",
                .options = { global_options },
                .min_operands = 1,
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_file_cat,
        },
        {
                .name = "stat",
                .operands = "ID:PATH...",
                .summary = "Show what is known about files of a sandbox",
                .options = { file_stat_options, output_options, global_options },
                .min_operands = 1,
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_file_stat,
        },
        {
                .name = "mkdir",
                .operands = "ID:PATH...",
                .summary = "Make folders in a sandbox",
                .options = { file_make_options, global_options },
                .min_operands = 1,
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_file_make_directory,
        },
        {
                .name = "mv",
                .operands = "ID:SOURCE TARGET",
                .summary = "Rename a file or folder of a sandbox",
                .details = "TARGET is in the same sandbox, written with its id or without. A file that is there is\n"
                           "replaced; into a folder that is there it is moved.",
                .options = { file_move_options, global_options },
                .min_operands = 2,
                .max_operands = 2,
                .completes = { COMPLETES_SANDBOXES },
                .run = command_file_move,
        },
        {
                .name = "rm",
                .operands = "ID:PATH...",
                .summary = "Remove files and folders of a sandbox",
                .details = "Sandboxes are deleted by 'hutch delete'.",
                .options = { file_remove_options, global_options },
                .min_operands = 1,
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_file_remove,
        },
        {
                .name = "diff",
                .operands = "ID[:PATH]",
                .summary = "Show in which files a sandbox differs from its image",
                .details =
                        "A: added, M: modified, D: deleted. Of all that is the sandbox's own: not of what is mounted\n"
                        "from the host, nor of a /tmp in memory. What was copied in when it was made is added.",
                .options = { output_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .completes = { COMPLETES_SANDBOXES },
                .run = command_file_diff,
        },
        {
                .name = "watch",
                .operands = "ID[:PATH]",
                .summary = "Print what changes in a folder of a sandbox, until Ctrl-C",
                .options = { file_watch_options, output_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .completes = { COMPLETES_SANDBOXES },
                .run = command_file_watch,
        },
        {
                .name = "events",
                .operands = "[ID]...",
                .summary = "Print what happened to sandboxes",
                .details = "Without ids: to all of yours. --follow without --since begins now.",
                .options = { events_options, output_options, global_options },
                .max_operands = ANY,
                .completes = { COMPLETES_SANDBOXES, COMPLETES_SANDBOXES },
                .run = command_events,
        },
        {
                .name = "info",
                .operands = "",
                .summary = "Show the daemon: its version, limits, runtimes and profiles",
                .options = { output_options, global_options },
                .run = command_info,
        },
        {
                .name = "version",
                .alias = "--version",
                .operands = "",
                .summary = "Print the versions of hutch and of the daemon",
                .options = { output_options, global_options },
                .run = command_version,
        },
        {
                .name = "doctor",
                .operands = "",
                .summary = "Check this machine and print how to fix what is missing",
                .details = "Works without a daemon. Ends with 1 when sandboxes cannot run here.",
                .options = { output_options, global_options },
                .run = command_doctor,
        },
        {
                .name = "daemon",
                .operands = "COMMAND",
                .summary = "Start and stop the daemon of this user",
                .options = { global_options },
                .max_operands = ANY,
        },
        {
                .name = "daemon start",
                .operands = "",
                .summary = "Start the daemon, unless one is there",
                .options = { global_options },
                .run = command_daemon_start,
        },
        {
                .name = "daemon stop",
                .operands = "",
                .summary = "End the daemon; sandboxes go on",
                .options = { daemon_stop_options, global_options },
                .run = command_daemon_stop,
        },
        {
                .name = "daemon status",
                .operands = "",
                .summary = "Tell whether a daemon runs; ends with 1 when none does",
                .options = { output_options, global_options },
                .run = command_daemon_status,
        },
        {
                .name = "context",
                .operands = "COMMAND",
                .summary = "Give daemons names, and choose one",
                .options = { global_options },
                .max_operands = ANY,
        },
        {
                .name = "context add",
                .operands = "NAME",
                .summary = "Name a daemon: its --address, and what --ca, --cert, --key and --server-name say",
                .details = "The token, if one is needed, comes by --token-stdin or --token-file, and is kept in\n"
                           "contexts.json, which is for its owner only. Nobody is called.",
                .options = { context_add_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .run = command_context_add,
        },
        {
                .name = "context use",
                .operands = "[NAME]",
                .summary = "Have commands go to that daemon from now on; without a name to this user's own",
                .options = { global_options },
                .max_operands = 1,
                .completes = { COMPLETES_CONTEXTS },
                .run = command_context_use,
        },
        {
                .name = "context list",
                .operands = "",
                .summary = "List contexts",
                .options = { global_options },
                .run = command_context_list,
        },
        {
                .name = "context show",
                .operands = "[NAME]",
                .summary = "Show a context, or the current one; of its token only that there is one",
                .options = { global_options },
                .max_operands = 1,
                .completes = { COMPLETES_CONTEXTS },
                .run = command_context_show,
        },
        {
                .name = "context remove",
                .operands = "NAME",
                .summary = "Forget a context",
                .options = { global_options },
                .min_operands = 1,
                .max_operands = 1,
                .completes = { COMPLETES_CONTEXTS },
                .run = command_context_remove,
        },
        {
                .name = "token",
                .operands = "COMMAND",
                .summary = "Change who may call a daemon on this machine over TCP",
                .options = { global_options },
                .max_operands = ANY,
        },
        {
                .name = "token create",
                .operands = "NAME",
                .summary = "Make a bearer token and print it, this once",
                .details = "Its digest goes into the file of tokens; the daemon looks there by itself.",
                .options = { token_create_options, token_file_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .run = command_token_create,
        },
        {
                .name = "token list",
                .operands = "",
                .summary = "List tokens by their names",
                .options = { token_file_options, global_options },
                .run = command_token_list,
        },
        {
                .name = "token revoke",
                .operands = "NAME",
                .summary = "Have a token refused from now on",
                .options = { token_file_options, global_options },
                .min_operands = 1,
                .max_operands = 1,
                .run = command_token_revoke,
        },
        {
                .name = "completion",
                .operands = "bash|zsh|fish",
                .summary = "Print the script that makes a shell complete hutch's words",
                .details = "bash: eval \"$(hutch completion bash)\" in ~/.bashrc; zsh the same in ~/.zshrc, after "
                           "compinit;\n"
                           "fish: hutch completion fish | source in config.fish.",
                .options = { global_options },
                .min_operands = 1,
                .max_operands = 1,
                .completes = { COMPLETES_SHELLS },
                .run = command_completion,
        },
        {
                .name = "help",
                .operands = "[COMMAND]",
                .summary = "Print help",
                .options = { global_options },
                .max_operands = 2,
                .completes = { COMPLETES_COMMANDS },
                .run = command_help,
        },
        {
                .name = "__complete",
                .operands = "WORD...",
                .summary = "Print what a word can be completed to",
                .max_operands = ANY,
                .runs_program = true,
                .run = command_complete,
        },
        {
                .name = "__man",
                .operands = "",
                .summary = "Print the commands for the man page",
                .run = command_man,
        },
        {},
};

/* Whether @argv begins with the words of @name: how many they are, or 0. */
static size_t begins_with(char *const argv[], const char *name) {
        size_t words = 0;

        for (;;) {
                size_t len = strcspn(name, " ");

                if (!argv[words] || strlen(argv[words]) != len || memcmp(argv[words], name, len) != 0)
                        return 0;
                words++;
                if (name[len] == '\0')
                        return words;
                name += len + 1;
        }
}

const Command *command_find(char *const argv[], size_t *ret_words) {
        const Command *found = NULL;

        *ret_words = 0;
        for (const Command *command = commands; command->name; command++) {
                size_t words = begins_with(argv, command->name);

                if (words == 0 && command->alias)
                        words = begins_with(argv, command->alias);
                if (words > *ret_words) {
                        found = command;
                        *ret_words = words;
                }
        }
        return found;
}

bool command_is_below(const Command *command, const char *above) {
        size_t len = strlen(above);

        return str_has_prefix(command->name, above) && command->name[len] == ' ';
}
