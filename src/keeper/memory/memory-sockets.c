/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: asking the kernel for what sockets hold. What does not: all other memory (memory-usage.c). */

#include "keeper/memory/memory-sockets.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

/* Of a socket whose buffers have their default size: 208 KiB, and one packet more. */
#define SOCKET_BYTES ((uint64_t) 256 << 10)
#define ALL_STATES 0xffffffffu

typedef struct Sum {
        uint64_t bytes, sockets;
} Sum;

/* What a socket holds, of the array that the kernel sends. What is to be sent is in one of two numbers, or in both. */
static uint64_t held(const struct rtattr *attribute) {
        uint32_t numbers[SK_MEMINFO_VARS] = {};
        size_t len = RTA_PAYLOAD(attribute);
        memcpy(numbers, RTA_DATA(attribute), len < sizeof(numbers) ? len : sizeof(numbers));
        uint64_t alloc = numbers[SK_MEMINFO_WMEM_ALLOC], queued = numbers[SK_MEMINFO_WMEM_QUEUED];
        return (alloc > queued ? alloc : queued) + numbers[SK_MEMINFO_RMEM_ALLOC] + numbers[SK_MEMINFO_FWD_ALLOC] +
               numbers[SK_MEMINFO_OPTMEM] + numbers[SK_MEMINFO_BACKLOG];
}

/* Adds a socket, which @message tells of by a structure of @told bytes, then attributes. That of @type has numbers. */
static void add_socket(const struct nlmsghdr *message, size_t told, uint16_t type, Sum *sum) {
        const char *bytes = (const char *) message;
        size_t at = NLMSG_ALIGN(NLMSG_LENGTH(told));
        while (at + sizeof(struct rtattr) <= message->nlmsg_len) {
                const struct rtattr *attribute = (const struct rtattr *) (const void *) (bytes + at);
                if (attribute->rta_len < sizeof(struct rtattr) || attribute->rta_len > message->nlmsg_len - at)
                        break;
                if (attribute->rta_type == type)
                        sum->bytes += held(attribute);
                at += RTA_ALIGN(attribute->rta_len);
        }
        sum->sockets++;
}

static void add_unix(const struct nlmsghdr *message, Sum *sum) {
        add_socket(message, sizeof(struct unix_diag_msg), UNIX_DIAG_MEMINFO, sum);
}

static void add_internet(const struct nlmsghdr *message, Sum *sum) {
        add_socket(message, sizeof(struct inet_diag_msg), INET_DIAG_SKMEMINFO, sum);
}

/* Takes what came in one piece. Returns whether there is more. */
static bool take(const char *bytes, size_t size, void (*add)(const struct nlmsghdr *message, Sum *sum), Sum *sum) {
        for (size_t at = 0; at + sizeof(struct nlmsghdr) <= size;) {
                const struct nlmsghdr *message = (const struct nlmsghdr *) (const void *) (bytes + at);
                if (message->nlmsg_len < sizeof(struct nlmsghdr) || message->nlmsg_len > size - at ||
                    message->nlmsg_type == NLMSG_DONE || message->nlmsg_type == NLMSG_ERROR)
                        return false;
                if (message->nlmsg_type == SOCK_DIAG_BY_FAMILY)
                        add(message, sum);
                at += NLMSG_ALIGN(message->nlmsg_len);
        }
        return true;
}

static void dump(int diag, const void *request, size_t len, void (*add)(const struct nlmsghdr *message, Sum *sum),
                 Sum *sum) {
        static _Alignas(struct nlmsghdr) char bytes[32 << 10];
        if (send(diag, request, len, MSG_DONTWAIT) < 0)
                return;
        for (;;) {
                ssize_t n = recv(diag, bytes, sizeof(bytes), MSG_DONTWAIT);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0 || !take(bytes, (size_t) n, add, sum))
                        return;
        }
}

static void dump_unix(int diag, Sum *sum) {
        const struct {
                struct nlmsghdr head;
                struct unix_diag_req request;
        } ask = {
                .head = { .nlmsg_len = sizeof(ask),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
                .request = { .sdiag_family = AF_UNIX, .udiag_states = ALL_STATES, .udiag_show = UDIAG_SHOW_MEMINFO },
        };
        dump(diag, &ask, sizeof(ask), add_unix, sum);
}

static void dump_internet(int diag, uint8_t family, uint8_t protocol, Sum *sum) {
        const struct {
                struct nlmsghdr head;
                struct inet_diag_req_v2 request;
        } ask = {
                .head = { .nlmsg_len = sizeof(ask),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
                .request = { .sdiag_family = family,
                             .sdiag_protocol = protocol,
                             .idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1),
                             .idiag_states = ALL_STATES },
        };
        dump(diag, &ask, sizeof(ask), add_internet, sum);
}

uint64_t memory_sockets_sum(int diag, uint64_t used, bool has_internet) {
        static const uint8_t families[] = { AF_INET, AF_INET6 }, protocols[] = { IPPROTO_TCP, IPPROTO_UDP };
        Sum sum = {};
        dump_unix(diag, &sum);
        for (size_t i = 0; has_internet && i < 4; i++)
                dump_internet(diag, families[i / 2], protocols[i % 2], &sum);
        /* One that was closed is told of no more, but is there as long as what it has sent was not read. */
        return sum.bytes + (used > sum.sockets ? used - sum.sockets : 0) * SOCKET_BYTES;
}
