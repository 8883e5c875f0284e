/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the contexts file, read and written. What does not: which context is meant (client/endpoint.c). */

#include "local/contexts.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "local/private-file.h"
#include "local/token-file.h"

#define FILE_MAX_BYTES ((size_t) 1 << 20)

static const struct {
        const char *key;
        size_t offset;
} fields[] = {
        { "address", offsetof(Context, address) },
        { "ca_file", offsetof(Context, ca_file) },
        { "certificate_file", offsetof(Context, certificate_file) },
        { "key_file", offsetof(Context, key_file) },
        { "server_name", offsetof(Context, server_name) },
        { "token", offsetof(Context, token) },
};

#define N_FIELDS (sizeof(fields) / sizeof(fields[0]))

static char **field_of(const Context *context, size_t i) {
        return (void *) ((char *) context + fields[i].offset);
}

static void context_clear(Context *context) {
        free(context->name);
        for (size_t i = 0; i < N_FIELDS; i++)
                free(*field_of(context, i));
        *context = (Context){};
}

void contexts_clear(Contexts *contexts) {
        for (size_t i = 0; i < contexts->n; i++)
                context_clear(&contexts->list[i]);
        free(contexts->list);
        free(contexts->current);
        *contexts = (Contexts){};
}

Context *contexts_find(const Contexts *contexts, const char *name) {
        for (size_t i = 0; i < contexts->n; i++)
                if (str_equal(contexts->list[i].name, name))
                        return &contexts->list[i];
        return NULL;
}

int contexts_put(Contexts *contexts, const Context *context) {
        Context *place = contexts_find(contexts, context->name), copy = { .name = strdup(context->name) };
        bool complete = copy.name;
        Context *list;

        for (size_t i = 0; i < N_FIELDS; i++)
                if (*field_of(context, i)) {
                        *field_of(&copy, i) = strdup(*field_of(context, i));
                        complete &= *field_of(&copy, i) != NULL;
                }
        list = complete && !place ? reallocarray(contexts->list, contexts->n + 1, sizeof(Context)) : contexts->list;
        if (!complete || !list) {
                context_clear(&copy);
                return -ENOMEM;
        }

        contexts->list = list;
        if (place)
                context_clear(place);
        else
                place = &list[contexts->n++];
        *place = copy;
        return 0;
}

void contexts_remove(Contexts *contexts, Context *context) {
        size_t i = (size_t) (context - contexts->list);

        if (str_equal(contexts->current, context->name)) {
                free(contexts->current);
                contexts->current = NULL;
        }
        context_clear(context);
        memmove(context, context + 1, (contexts->n - i - 1) * sizeof(Context));
        contexts->n--;
}

static int invalid(const char *path, HutchError *err, const char *where, const char *why) {
        return error_set_code(err, STATUS_FAILED_PRECONDITION, -EINVAL, "CONTEXTS_FILE_INVALID", "%s: %s %s", path,
                              where, why);
}

/* Reads one context. What is in it stays that of @json. */
static int read_context(Contexts *contexts, const char *name, json_t *json, const char *path, HutchError *err) {
        Context context = { .name = (char *) name };
        const char *key;
        json_t *value;

        if (!token_name_is_valid(name))
                return invalid(path, err, name, "is no name: 1 to 63 of a-z, 0-9 and -");
        if (!json_is_object(json))
                return invalid(path, err, name, "is no object");
        json_object_foreach(json, key, value) {
                size_t i = 0;

                while (i < N_FIELDS && !str_equal(fields[i].key, key))
                        i++;
                if (i == N_FIELDS)
                        return invalid(path, err, key, "is no key of a context");
                if (!json_is_string(value))
                        return invalid(path, err, key, "is no text");
                *field_of(&context, i) = (char *) json_string_value(value);
        }
        if (!context.address)
                return invalid(path, err, name, "has no address");
        if (!context.certificate_file != !context.key_file)
                return invalid(path, err, name, "has a certificate_file or key_file without the other");
        return contexts_put(contexts, &context);
}

static int read_all(Contexts *contexts, json_t *json, const char *path, HutchError *err) {
        json_t *current = json_object_get(json, "current"), *list = json_object_get(json, "contexts"), *value;
        const char *key;
        int r = 0;

        if (!json_is_object(json))
                return invalid(path, err, "it", "is no object");
        json_object_foreach(json, key, value) if (value != current && value != list) return invalid(
                path, err, key, "is no key: there are current and contexts");
        if (current && !json_is_string(current))
                return invalid(path, err, "current", "is no text");
        if (list && !json_is_object(list))
                return invalid(path, err, "contexts", "is no object");

        if (current) {
                contexts->current = strdup(json_string_value(current));
                r = contexts->current ? 0 : -ENOMEM;
        }
        json_object_foreach(list, key, value) if (r == 0) r = read_context(contexts, key, value, path, err);
        return r;
}

int contexts_read(Contexts *ret_contexts, const char *path, HutchError *err) {
        _cleanup_(error_clear) HutchError problem = {};
        _cleanup_free_ char *text = NULL;
        json_error_t where;
        json_t *json;
        size_t len;
        int r = private_file_read(path, FILE_MAX_BYTES, &text, &len, &problem);

        *ret_contexts = (Contexts){};
        if (r == -ENOENT || r == -ENOTDIR)
                return 0;
        if (r == -ENOMEM)
                return r;
        if (r < 0)
                return error_set_code(err, STATUS_FAILED_PRECONDITION, r,
                                      r == -EPERM ? "CONTEXTS_FILE_EXPOSED" : "CONTEXTS_FILE_INVALID", "%s",
                                      error_message(&problem));

        json = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
        if (!json)
                return error_set_code(err, STATUS_FAILED_PRECONDITION, -EINVAL, "CONTEXTS_FILE_INVALID", "%s:%d: %s",
                                      path, where.line, where.text);
        r = read_all(ret_contexts, json, path, err);
        json_decref(json);
        if (r < 0)
                contexts_clear(ret_contexts);
        return r;
}

static json_t *to_json(const Contexts *contexts) {
        json_t *all = json_object(), *list = json_object();

        for (size_t i = 0; i < contexts->n; i++) {
                json_t *one = json_object();

                for (size_t j = 0; j < N_FIELDS; j++)
                        if (*field_of(&contexts->list[i], j))
                                (void) json_object_set_new(one, fields[j].key,
                                                           json_string(*field_of(&contexts->list[i], j)));
                (void) json_object_set_new(list, contexts->list[i].name, one);
        }
        if (contexts->current)
                (void) json_object_set_new(all, "current", json_string(contexts->current));
        (void) json_object_set_new(all, "contexts", list);
        return all;
}

int contexts_write(const Contexts *contexts, const char *path, HutchError *err) {
        json_t *json = to_json(contexts);
        _cleanup_free_ char *text = json_dumps(json, JSON_INDENT(2));

        json_decref(json);
        if (!text)
                return error_set(err, -EINVAL, "FIELD_NOT_UTF8", "a text for %s is not UTF-8", path);
        return private_file_write(path, text, strlen(text), err);
}
