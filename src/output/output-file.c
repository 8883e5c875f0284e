/* SPDX-License-Identifier: Apache-2.0 */

/* What lives here: the layout of output files, their writer and their readers. What does not: which bytes are kept
 * (model/output-window.h), where the files are, and who waits for them to grow. */

#include "output/output-file.h"

#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL_BLOCK 16384 /* bytes that output_file_tail() looks at in one piece */
#define READ_TRIES 64    /* how often a reader is overtaken before it says that there is nothing */

/* The numbers behind the ring. */
typedef struct Trailer {
        uint64_t begun; /* bytes before this may be being written */
        uint64_t done;  /* bytes before this are */
} Trailer;

static uint64_t min_u64(uint64_t a, uint64_t b) {
        return a < b ? a : b;
}

static uint64_t max_u64(uint64_t a, uint64_t b) {
        return a > b ? a : b;
}

static uint64_t ring_size(uint64_t limit) {
        return limit / 2;
}

static uint64_t ring_start(uint64_t limit) {
        return limit - limit / 2;
}

/* Aligned, so that each number lies in one page and is read whole. */
static uint64_t trailer_start(uint64_t limit) {
        return (limit + 15) & ~UINT64_C(15);
}

/* A limit beyond the size of any file is never reached. */
static bool limit_is_reachable(uint64_t limit) {
        return limit <= INT64_MAX - 2 * sizeof(Trailer);
}

/* Where byte @offset of the stream stands, once there is a ring. */
static uint64_t ring_place(uint64_t limit, uint64_t offset) {
        uint64_t start = ring_start(limit);

        return offset < start ? offset : start + (offset - start) % ring_size(limit);
}

static int write_at(int fd, const void *bytes, size_t len, uint64_t at) {
        const char *next = bytes;

        while (len > 0) {
                ssize_t n = pwrite(fd, next, len, (off_t) at);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                next += n;
                at += (uint64_t) n;
                len -= (size_t) n;
        }
        return 0;
}

static int write_number(int fd, uint64_t number, uint64_t at) {
        uint64_t encoded = htole64(number);

        return write_at(fd, &encoded, sizeof(encoded), at);
}

void output_writer_init(OutputWriter *writer, int fd, uint64_t limit) {
        *writer = (OutputWriter){ .fd = fd, .limit = limit };
}

/* The part of the stream before the ring turns. */
static int add_plain(OutputWriter *writer, const char *bytes, size_t len) {
        int r = write_at(writer->fd, bytes, len, writer->total);

        writer->total += len;
        /* What is missing becomes a hole, so that the file's size stays the total. */
        if (r < 0 && ftruncate(writer->fd, (off_t) writer->total) < 0)
                return r;
        return r;
}

/* Writes the last bytes of the stream, which fit into the ring, and end at @end. */
static int write_ring(OutputWriter *writer, const char *bytes, uint64_t len, uint64_t end) {
        uint64_t at, before_turn;
        int r;

        if (len == 0)
                return 0;

        at = ring_place(writer->limit, end - len);
        before_turn = min_u64(len, writer->limit - at);
        r = write_at(writer->fd, bytes, before_turn, at);
        if (r < 0)
                return r;

        return write_at(writer->fd, bytes + before_turn, len - before_turn, ring_start(writer->limit));
}

static int add_to_ring(OutputWriter *writer, const char *bytes, size_t len) {
        uint64_t size = ring_size(writer->limit), at = trailer_start(writer->limit), end = writer->total + len;
        uint64_t kept = min_u64(len, size);
        int r, q;

        writer->total = end;
        r = write_number(writer->fd, max_u64(end, writer->lost > 0 ? writer->lost + size : 0), at);
        if (r < 0) {
                writer->lost = end;
                return r;
        }

        atomic_thread_fence(memory_order_seq_cst);
        r = write_ring(writer, bytes + (len - kept), kept, end);
        if (r < 0) {
                /* Where these bytes should be are older ones: nobody may read the ring until it has turned. */
                writer->lost = end;
                if (write_number(writer->fd, end + size, at) < 0)
                        return r;
        }

        atomic_thread_fence(memory_order_seq_cst);
        q = write_number(writer->fd, end, at + sizeof(uint64_t));
        return r < 0 ? r : q;
}

int output_writer_add(OutputWriter *writer, const void *bytes, size_t len) {
        size_t plain = 0;
        int r = 0, q = 0;

        if (len == 0)
                return 0;
        if (writer->total < writer->limit) {
                plain = min_u64(len, writer->limit - writer->total);
                r = add_plain(writer, bytes, plain);
        }
        if (plain < len)
                q = add_to_ring(writer, (const char *) bytes + plain, len - plain);

        return r < 0 ? r : q;
}

static int read_at(int fd, void *buffer, size_t size, uint64_t at, size_t *ret_len) {
        ssize_t n;

        do
                n = pread(fd, buffer, size, (off_t) at);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;

        *ret_len = (size_t) n;
        return 0;
}

/* The numbers as they are now; those of a file that has none are its size. */
static int read_trailer(int fd, uint64_t limit, Trailer *ret_trailer) {
        Trailer trailer = {};
        uint64_t total;
        struct stat st;
        size_t len = 0;
        int r;

        if (fstat(fd, &st) < 0)
                return -errno;

        total = min_u64((uint64_t) st.st_size, limit);
        if (limit_is_reachable(limit) && (uint64_t) st.st_size > trailer_start(limit)) {
                r = read_at(fd, &trailer, sizeof(trailer), trailer_start(limit), &len);
                if (r < 0)
                        return r;
                /* The second number is not there before the first addition to the ring is through. */
                total = max_u64(le64toh(trailer.done), limit);
        }

        *ret_trailer = (Trailer){ .begun = max_u64(le64toh(trailer.begun), total), .done = total };
        return 0;
}

/* The first byte of the tail that nobody may be writing over. */
static uint64_t first_good(uint64_t limit, const Trailer *trailer) {
        if (trailer->begun <= limit)
                return ring_start(limit);

        return max_u64(trailer->begun - ring_size(limit), ring_start(limit));
}

static OutputWindow window_of(uint64_t limit, const Trailer *trailer) {
        OutputWindow window = output_window(limit, trailer->done);

        if (trailer->begun > limit) {
                window.head = ring_start(limit);
                window.tail_start = min_u64(first_good(limit, trailer), window.total);
        }
        return window;
}

int output_file_window(int fd, uint64_t limit, OutputWindow *ret_window) {
        Trailer trailer = {};
        int r = read_trailer(fd, limit, &trailer);

        if (r < 0)
                return r;

        *ret_window = window_of(limit, &trailer);
        return 0;
}

/* One try: 1 when the bytes are good, also when there are none; 0 when the writer overtook the reader. */
static int read_once(int fd, uint64_t limit, uint64_t offset, void *buffer, size_t size, uint64_t *ret_offset,
                     size_t *ret_len) {
        uint64_t available, at, place = 0, good;
        OutputWindow window = {};
        Trailer trailer = {};
        size_t len = 0;
        int r;

        r = output_file_window(fd, limit, &window);
        if (r < 0)
                return r;

        (void) output_window_seek(window, offset, false, &at, &available, NULL);
        available = min_u64(available, size);
        if (available > 0) {
                /* What never changes, or a piece of the ring. */
                place = at < ring_start(limit) ? at : ring_place(limit, at);
                available = min_u64(available, (at < ring_start(limit) ? ring_start(limit) : limit) - place);
                r = read_at(fd, buffer, available, place, &len);
                if (r < 0)
                        return r;
        }
        *ret_offset = at;
        *ret_len = len;
        if (len == 0 || at < ring_start(limit))
                return 1;

        atomic_thread_fence(memory_order_seq_cst);
        r = read_trailer(fd, limit, &trailer);
        if (r < 0)
                return r;

        good = first_good(limit, &trailer);
        if (at >= good)
                return 1;
        if (at + len <= good)
                return 0;

        memmove(buffer, (char *) buffer + (good - at), at + len - good);
        *ret_len = at + len - good;
        *ret_offset = good;
        return 1;
}

ssize_t output_file_read(int fd, uint64_t limit, uint64_t offset, void *buffer, size_t size, uint64_t *ret_offset) {
        uint64_t at = offset;
        size_t len = 0;

        for (int i = 0; i < READ_TRIES; i++) {
                int r = read_once(fd, limit, offset, buffer, size, &at, &len);

                if (r < 0)
                        return r;
                if (r > 0) {
                        *ret_offset = at;
                        return (ssize_t) len;
                }
        }

        *ret_offset = at;
        return 0;
}

int output_file_tail(int fd, uint64_t limit, uint64_t lines, uint64_t *ret_offset) {
        char block[TAIL_BLOCK];
        OutputWindow window;
        uint64_t start, end;
        int r;

        r = output_file_window(fd, limit, &window);
        if (r < 0)
                return r;

        /* The newline that ends the last line begins no other. */
        start = output_window_dropped(window) > 0 ? window.tail_start : 0;
        end = window.total > start ? window.total - 1 : start;
        if (lines == 0)
                start = end = window.total;

        while (end > start) {
                uint64_t from = end - start > sizeof(block) ? end - sizeof(block) : start, at;

                /* A read may give less than it was asked for: the end of the block is what counts. */
                for (uint64_t have = from; have < end; have = at) {
                        ssize_t n = output_file_read(fd, limit, have, block + (have - from), end - have, &at);

                        if (n < 0)
                                return (int) n;
                        if (n == 0 || at != have) {
                                /* The writer dropped it meanwhile. */
                                start = from = end = min_u64(max_u64(at, end), window.total);
                                break;
                        }
                        at += (uint64_t) n;
                }
                for (uint64_t i = end; i > from; i--)
                        if (block[i - 1 - from] == '\n' && --lines == 0) {
                                *ret_offset = i;
                                return 0;
                        }
                end = from;
        }

        *ret_offset = start;
        return 0;
}
