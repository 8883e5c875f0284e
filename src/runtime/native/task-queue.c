/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: a list of tasks and the handle that runs it. What does not: what they do. */

#include "runtime/native/task-queue.h"

#include <stddef.h>

void task_queue_init(TaskQueue *queue, uv_loop_t *loop) {
        *queue = (TaskQueue){};
        (void) uv_idle_init(loop, &queue->idle);
        queue->idle.data = queue;
}

/* Runs those that are there now. What they add waits for the next turn, so that the loop gets to its other work. */
static void on_idle(uv_idle_t *idle) {
        TaskQueue *queue = idle->data;
        Task marker = { .queued = true, .prev = queue->last };

        *(queue->last ? &queue->last->next : &queue->first) = &marker;
        queue->last = &marker;
        while (queue->first != &marker) {
                Task *task = queue->first;

                task_queue_remove(queue, task);
                task->run(task->user);
        }
        task_queue_remove(queue, &marker);
        if (!queue->first)
                (void) uv_idle_stop(idle);
}

void task_queue_add(TaskQueue *queue, Task *task) {
        if (task->queued)
                return;

        task->queued = true;
        task->prev = queue->last;
        task->next = NULL;
        *(queue->last ? &queue->last->next : &queue->first) = task;
        queue->last = task;
        (void) uv_idle_start(&queue->idle, on_idle);
}

void task_queue_remove(TaskQueue *queue, Task *task) {
        if (!task->queued)
                return;

        task->queued = false;
        *(task->prev ? &task->prev->next : &queue->first) = task->next;
        *(task->next ? &task->next->prev : &queue->last) = task->prev;
}
