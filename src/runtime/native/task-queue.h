/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <uv.h>

/* What is to be done from the loop, soon: so that nobody is called back from within a call of their own. Nothing per
 * turn of the loop while it is empty. */

typedef struct Task Task;
struct Task {
        void (*run)(void *user);
        void *user;
        Task *prev, *next;
        bool queued;
};

typedef struct TaskQueue {
        uv_idle_t idle; /* active while there are any */
        Task *first, *last;
} TaskQueue;

void task_queue_init(TaskQueue *queue, uv_loop_t *loop) __attribute__((nonnull));

/* Has @task run once, in the loop's next turn. It stays the caller's. Repeating it before it runs has no effect. */
void task_queue_add(TaskQueue *queue, Task *task) __attribute__((nonnull));

/* Has it not run. It need not be queued. */
void task_queue_remove(TaskQueue *queue, Task *task) __attribute__((nonnull));
