/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: "NAME=VALUE" and entries of maps. What does not: what names and values may be (checks.c). */

#include "client/pairs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract/hutch/v1/exec.pb-c.h"
#include "contract/hutch/v1/sandbox.pb-c.h"

_Static_assert(sizeof(Pair) == sizeof(Hutch__V1__SandboxSpec__EnvEntry) &&
                       offsetof(Pair, value) == offsetof(Hutch__V1__SandboxSpec__EnvEntry, value) &&
                       offsetof(Pair, value) == offsetof(Hutch__V1__SandboxSpec__LabelsEntry, value) &&
                       offsetof(Pair, value) == offsetof(Hutch__V1__ExecSpec__EnvEntry, value),
               "maps have entries of one shape");

size_t texts_count(const char *const *texts) {
        size_t n = 0;

        while (texts && texts[n])
                n++;
        return n;
}

int pairs_from_texts(const char *const *texts, const ProtobufCMessageDescriptor *type, Pair ***ret_pairs,
                     size_t *ret_n) {
        size_t n = texts_count(texts), names = 0;
        Pair **pairs, *entries;
        char *name;

        *ret_pairs = NULL;
        *ret_n = n;
        if (n == 0)
                return 0;

        for (size_t i = 0; i < n; i++)
                names += (size_t) (strchr(texts[i], '=') - texts[i]) + 1;
        pairs = malloc(n * (sizeof(Pair) + sizeof(Pair *)) + names);
        if (!pairs)
                return -ENOMEM;

        entries = (Pair *) (void *) (pairs + n);
        name = (char *) (entries + n);
        for (size_t i = 0; i < n; i++) {
                const char *equals = strchr(texts[i], '=');
                size_t len = (size_t) (equals - texts[i]);

                pairs[i] = &entries[i];
                protobuf_c_message_init(type, &entries[i]);
                memcpy(name, texts[i], len);
                name[len] = '\0';
                entries[i].key = name;
                entries[i].value = (char *) equals + 1;
                name += len + 1;
        }

        *ret_pairs = pairs;
        return 0;
}

int pairs_to_texts(const Pair *const *pairs, size_t n, const char *const **ret_texts) {
        size_t size = (n + 1) * sizeof(char *);
        const char **texts;
        char *text;

        for (size_t i = 0; i < n; i++)
                size += strlen(pairs[i]->key) + strlen(pairs[i]->value) + 2;
        texts = malloc(size);
        if (!texts)
                return -ENOMEM;

        text = (char *) (texts + n + 1);
        for (size_t i = 0; i < n; i++) {
                texts[i] = text;
                text += sprintf(text, "%s=%s", pairs[i]->key, pairs[i]->value) + 1;
        }
        texts[n] = NULL;

        *ret_texts = texts;
        return 0;
}
