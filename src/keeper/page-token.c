/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the form of page tokens: bytes, in the alphabet of base64 for URLs. What does not: what comes next. */

#include "keeper/page-token.h"

#include <errno.h>
#include <string.h>

#include "rpc/base64.h"

#define FORM 1 /* changes whenever what follows does */

typedef struct __attribute__((packed)) Head {
        uint8_t form;
        uint64_t question, began;
        char version[PAGE_TOKEN_VERSION_SIZE];
} Head;

static void replace(char *text, size_t len, char from, char to) {
        for (size_t i = 0; i < len; i++)
                if (text[i] == from)
                        text[i] = to;
}

char *page_token_write(const PageToken *token) {
        Head head = { .form = FORM, .question = token->question, .began = token->began };
        size_t last_len = strlen(token->last), len = sizeof(head) + last_len;
        _cleanup_free_ uint8_t *bytes = malloc(len);
        size_t text_len = base64_encoded_len(len);
        char *text = malloc(text_len + 1);
        if (!bytes || !text) {
                free(text);
                return NULL;
        }
        memcpy(head.version, token->version, sizeof(head.version));
        memcpy(bytes, &head, sizeof(head));
        memcpy(bytes + sizeof(head), token->last, last_len);
        base64_encode(bytes, len, text);
        replace(text, text_len, '+', '-');
        replace(text, text_len, '/', '_');
        text[text_len] = '\0';
        return text;
}

int page_token_read(const char *text, PageToken *ret_token) {
        size_t text_len = strlen(text), len = base64_decoded_len(text, text_len);
        /* Its own alphabet only, and no padding. */
        if (len <= sizeof(Head) || strpbrk(text, "+/="))
                return -EINVAL;
        _cleanup_free_ char *standard = strdup(text);
        _cleanup_free_ char *bytes = calloc(1, text_len + 1);
        if (!standard || !bytes)
                return -ENOMEM;
        replace(standard, text_len, '-', '+');
        replace(standard, text_len, '_', '/');
        if (base64_decode(standard, text_len, bytes) < 0)
                return -EINVAL;

        Head head;
        memcpy(&head, bytes, sizeof(head));
        const char *last = bytes + sizeof(head);
        if (head.form != FORM || strlen(last) != len - sizeof(head))
                return -EINVAL;
        PageToken token = { .question = head.question, .began = head.began, .last = strdup(last) };
        if (!token.last)
                return -ENOMEM;
        memcpy(token.version, head.version, sizeof(token.version));
        *ret_token = token;
        return 0;
}
