/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: commands from stdin, each in a thread of its own, and their answers; clients. What does not: what
 * the commands do (sandbox-operations.c and its kin). */

#include "driver.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"

#define NSEC_PER_MSEC UINT64_C(1000000)
#define LOOK_AGAIN 5 /* milliseconds: another thread may have taken what this one waits for from the loop */

struct Client {
        char *name;
        json_t *options;
        HutchClient *client;
        size_t n_commands; /* that use it */
        Client *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below, and of stdout */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static Command *commands; /* on their way */
static size_t n_commands;
static Client *clients;

/* ---- Answers ---- */

static void print(json_t *answer) {
        _cleanup_free_ char *text = json_dumps(answer, JSON_COMPACT);

        (void) pthread_mutex_lock(&lock);
        printf("%s\n", text);
        (void) fflush(stdout);
        (void) pthread_mutex_unlock(&lock);
        json_decref(answer);
}

static json_t *id_of(const Command *command) {
        return json_object_get(command->line, "id");
}

static json_t *error_to_value(const HutchError *error) {
        json_t *metadata = json_object(), *violations = json_array();
        const char *key, *value;
        HutchViolation violation;

        for (size_t i = 0; hutch_error_pair(error, i, &key, &value); i++)
                json_object_set_new(metadata, key, json_string(value));
        for (size_t i = 0; hutch_error_violation(error, i, &violation); i++)
                json_array_append_new(violations,
                                      json_pack("{s:s,s:s}", "field", violation.field, "reason", violation.reason));
        return json_pack("{s:s,s:s,s:o,s:o}", "code", hutch_error_code_name(error), "reason", hutch_error_reason(error),
                         "metadata", metadata, "violations", violations);
}

static json_t *own_error(const char *code, const char *reason, const char *text) {
        json_t *metadata = text ? json_pack("{s:s}", "text", text) : json_object();

        return json_pack("{s:s,s:s,s:o,s:[]}", "code", code, "reason", reason, "metadata", metadata, "violations");
}

void command_note(Command *command) {
        if (!command->noted)
                print(json_pack("{s:O,s:s}", "id", id_of(command), "note", "started"));
        command->noted = true;
}

int command_wait(Command *command) {
        struct pollfd fd = { .fd = hutch_client_fd(command->client), .events = POLLIN };

        if (command->cancelled)
                return -ECANCELED;

        (void) poll(&fd, 1, LOOK_AGAIN);
        hutch_client_dispatch(command->client);
        return 0;
}

void *command_keep(Command *command, void *memory) {
        command->kept = xreallocarray(command->kept, command->n_kept + 1, sizeof(void *));
        return command->kept[command->n_kept++] = memory;
}

/* ---- Clients ---- */

static Client *find_client(const char *name) {
        Client *client = clients;

        while (client && !str_equal(client->name, name))
                client = client->next;
        return client;
}

static int make_client(const json_t *options, uint64_t timeout, HutchClient **ret_client, HutchError **ret_error) {
        const HutchClientOptions given = {
                .address = text_of(options, "address"),
                .ca_file = text_of(options, "ca_file"),
                .certificate_file = text_of(options, "certificate_file"),
                .key_file = text_of(options, "key_file"),
                .server_name = text_of(options, "server_name"),
                .token = text_of(options, "token"),
                .token_in_clear_text = json_is_true(json_object_get(options, "token_in_clear_text")),
                .clear_text = json_is_true(json_object_get(options, "insecure")),
                .timeout = timeout,
        };

        return hutch_client_new(&given, ret_client, ret_error);
}

static const char *client_name(const json_t *line) {
        const char *name = text_of(line, "client");

        return name ? name : "main";
}

static int connect_client(Command *command, HutchError **ret_error) {
        Client *client = new0(Client, 1);
        int r = make_client(command->args, 0, &client->client, ret_error);

        if (r < 0) {
                free(client);
                return r;
        }

        client->name = xstrdup(client_name(command->line));
        client->options = json_incref(command->args);
        (void) pthread_mutex_lock(&lock);
        client->next = clients;
        clients = client;
        (void) pthread_mutex_unlock(&lock);
        return 0;
}

/* Takes @client out of the list, ends what it does and frees it. With the lock. */
static void close_client(Client *client) {
        Client **at = &clients;

        while (*at != client)
                at = &(*at)->next;
        *at = client->next;
        for (Command *other = commands; other; other = other->next)
                if (other->owner == client)
                        other->cancelled = true;
        while (client->n_commands > 0)
                (void) pthread_cond_wait(&ended, &lock);
        hutch_client_free(client->client);
        json_decref(client->options);
        free(client->name);
        free(client);
}

static void cancel(const Command *command) {
        json_int_t id = (json_int_t) arg_number(command, "id");

        (void) pthread_mutex_lock(&lock);
        for (Command *other = commands; other; other = other->next)
                if (json_integer_value(id_of(other)) == id)
                        other->cancelled = true;
        (void) pthread_mutex_unlock(&lock);
}

/* ---- Commands ---- */

static Operation find_operation(const char *name) {
        static const NamedOperation *const lists[] = { sandbox_operations, exec_operations, file_operations,
                                                       other_operations };

        for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
                for (const NamedOperation *one = lists[i]; one->name; one++)
                        if (str_equal(one->name, name))
                                return one->run;

        return NULL;
}

/* Those about clients and commands, which are done here. */
static bool do_own(Command *command, const char *op, int *ret_r, HutchError **ret_error) {
        *ret_r = 0;
        if (str_equal(op, "client.connect")) {
                *ret_r = connect_client(command, ret_error);
        } else if (str_equal(op, "client.close")) {
                (void) pthread_mutex_lock(&lock);
                close_client(find_client(client_name(command->line)));
                (void) pthread_mutex_unlock(&lock);
        } else if (str_equal(op, "cancel")) {
                cancel(command);
        } else {
                return false;
        }
        return true;
}

static int do_operation(Command *command, Operation operation, json_t *ok, HutchError **ret_error) {
        HutchClient *own = NULL;
        int r = 0;

        if (!command->owner) {
                command->problem = xstrdup("there is no such client");
                return -EINVAL;
        }

        command->client = command->owner->client;
        if (command->timeout > 0)
                r = make_client(command->owner->options, command->timeout, &own, ret_error);
        if (own)
                command->client = own;
        if (r == 0)
                r = operation(command, ok, ret_error);
        hutch_client_free(own);
        return r;
}

static json_t *answer_to(Command *command) {
        const char *op = text_of(command->line, "op");
        Operation operation = find_operation(op ? op : "");
        HutchError *error = NULL;
        json_t *ok = json_object(), *failure = NULL;
        int r = 0;

        if (!op || (!do_own(command, op, &r, &error) && !operation))
                failure = own_error("DRIVER", "UNKNOWN_OP", op);
        else if (operation)
                r = do_operation(command, operation, ok, &error);
        if (command->problem)
                failure = own_error("DRIVER", "EXCEPTION", command->problem);
        else if (error)
                failure = error_to_value(error);
        else if (r == -ECANCELED)
                failure = own_error("CANCELLED", "CALL_CANCELLED", NULL);
        else if (r < 0)
                failure = own_error("DRIVER", "EXCEPTION", strerror(-r));
        hutch_error_free(error);
        if (!failure)
                return json_pack("{s:O,s:o}", "id", id_of(command), "ok", ok);

        json_decref(ok);
        return json_pack("{s:O,s:o}", "id", id_of(command), "error", failure);
}

static void *run_command(void *user) {
        Command *command = user, **at = &commands;
        json_t *answer = answer_to(command);

        for (size_t i = 0; i < command->n_kept; i++)
                free(command->kept[i]);
        free(command->kept);
        free(command->problem);

        (void) pthread_mutex_lock(&lock);
        while (*at != command)
                at = &(*at)->next;
        *at = command->next;
        if (command->owner)
                command->owner->n_commands--;
        (void) pthread_mutex_unlock(&lock);
        print(answer);

        (void) pthread_mutex_lock(&lock);
        n_commands--;
        (void) pthread_cond_broadcast(&ended);
        (void) pthread_mutex_unlock(&lock);
        json_decref(command->line);
        free(command);
        return NULL;
}

static void begin_command(json_t *line) {
        Command *command = new0(Command, 1);
        pthread_attr_t attributes;
        pthread_t thread;

        command->line = line;
        command->args = json_object_get(line, "args");
        command->timeout = number_of(line, "timeout_ms") * NSEC_PER_MSEC;

        (void) pthread_mutex_lock(&lock);
        if (find_operation(text_of(line, "op") ? text_of(line, "op") : ""))
                command->owner = find_client(client_name(line));
        if (command->owner)
                command->owner->n_commands++;
        command->next = commands;
        commands = command;
        n_commands++;
        (void) pthread_mutex_unlock(&lock);

        (void) pthread_attr_init(&attributes);
        (void) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&thread, &attributes, run_command, command) != 0)
                abort();
        (void) pthread_attr_destroy(&attributes);
}

int main(void) {
        json_t *line;
        json_error_t error;

        /* Objects stand one after the other; that there is a line for each matters to nobody here. */
        while ((line = json_loadf(stdin, JSON_DISABLE_EOF_CHECK, &error)))
                begin_command(line);

        (void) pthread_mutex_lock(&lock);
        while (clients)
                close_client(clients);
        while (n_commands > 0)
                (void) pthread_cond_wait(&ended, &lock);
        (void) pthread_mutex_unlock(&lock);
        return 0;
}
