/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the form of page tokens: bytes, in the alphabet of base64 for URLs. What does not: what comes
 * next. */

#include "keeper/worker/page-token.h"

#include <errno.h>
#include <string.h>

#include "rpc/core/base64.h"

#define FORM 1 /* changes whenever what follows does */
#define TEXT_MAX (PAGE_TOKEN_LAST_MAX * 4 / 3 + 128)

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
        size_t last_len = strlen(token->last), len = sizeof(head) + last_len, text_len = base64_encoded_len(len);
        /* The bytes stand behind the text. */
        char *text = malloc(text_len + 1 + len);
        if (!text)
                return NULL;
        char *bytes = text + text_len + 1;
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
        char standard[TEXT_MAX], bytes[TEXT_MAX] = "";
        size_t text_len = strlen(text), len = base64_decoded_len(text, text_len);
        /* Its own alphabet only, and no padding. */
        if (text_len >= TEXT_MAX || len <= sizeof(Head) || strpbrk(text, "+/="))
                return -EINVAL;
        memcpy(standard, text, text_len);
        replace(standard, text_len, '-', '+');
        replace(standard, text_len, '_', '/');
        if (base64_decode(standard, text_len, bytes) < 0)
                return -EINVAL;

        Head head;
        memcpy(&head, bytes, sizeof(head));
        const char *last = bytes + sizeof(head);
        if (head.form != FORM || strlen(last) != len - sizeof(head) || strlen(last) > PAGE_TOKEN_LAST_MAX)
                return -EINVAL;
        ret_token->last = strdup(last);
        if (!ret_token->last)
                return -ENOMEM;
        ret_token->question = head.question;
        ret_token->began = head.began;
        memcpy(ret_token->version, head.version, sizeof(head.version));
        return 0;
}
