/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: how a process waits for its end with nothing but a page of its program. What does not: what it did
 * before (init.c). */

#include "keeper/box/bare-wait.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__) && __has_include(<sys/rseq.h>)
#include <sys/rseq.h>

#define RSEQ_SIZE 32                 /* of what the C library registers */
#define USER_END ((1L << 47) - 4096) /* of the addresses that a program has unless it asks for more */

/* Takes back where the kernel was to write on which processor the process runs: without that place it would be
 * killed. */
static bool forget_rseq(void) {
        char *thread;
        __asm__("movq %%fs:0, %0" : "=r"(thread));
        return __rseq_size == 0 ||
               syscall(SYS_rseq, thread + __rseq_offset, RSEQ_SIZE, RSEQ_FLAG_UNREGISTER, RSEQ_SIG) == 0;
}

/* There is no stack once the second munmap() is done, so none of this can be C. It is shorter than what it is aligned
 * to, and so on one page. */
static _Noreturn void wait_on_one_page(int socket) {
        __asm__ volatile(".balign 128\n"
                         "0:      leaq    0b(%%rip), %%rbx\n"
                         "        andq    $-4096, %%rbx\n"
                         "        movl    %[munmap], %%eax\n"
                         "        xorl    %%edi, %%edi\n"
                         "        movq    %%rbx, %%rsi\n"
                         "        syscall\n"
                         "        movl    %[munmap], %%eax\n"
                         "        leaq    4096(%%rbx), %%rdi\n"
                         "        movabsq %[end], %%rsi\n"
                         "        subq    %%rdi, %%rsi\n"
                         "        syscall\n"
                         "1:      movl    %[recvfrom], %%eax\n"
                         "        movl    %[socket], %%edi\n"
                         "        xorl    %%esi, %%esi\n"
                         "        xorl    %%edx, %%edx\n"
                         "        xorl    %%r10d, %%r10d\n"
                         "        xorl    %%r8d, %%r8d\n"
                         "        xorl    %%r9d, %%r9d\n"
                         "        syscall\n"
                         "        cmpq    %[interrupted], %%rax\n"
                         "        je      1b\n"
                         "        movl    %[exit], %%eax\n"
                         "        xorl    %%edi, %%edi\n"
                         "        syscall\n"
                         :
                         : [munmap] "i"(SYS_munmap), [recvfrom] "i"(SYS_recvfrom), [exit] "i"(SYS_exit_group),
                           [interrupted] "i"(-EINTR), [end] "i"(USER_END), [socket] "r"(socket)
                         : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory");
        __builtin_unreachable();
}
#else
static bool forget_rseq(void) {
        return false;
}

static _Noreturn void wait_on_one_page(int socket) {
        (void) socket;
        __builtin_unreachable();
}
#endif

void bare_wait(int socket) {
        char byte;
        if (forget_rseq())
                wait_on_one_page(socket);
        while (recv(socket, &byte, 1, 0) < 0 && errno == EINTR)
                ;
        _exit(0);
}
