/* Save: an operator of onnxruntime that writes a value as a .npy file where it is made (session_files.py).
 *
 * The addresses are those of the run's directory, of what the file of each slot is called, of what became of it,
 * and of what its value is like; they are handed on as well, by which nodes are put in order. A file is written
 * without a name and linked under its name when it is complete; one that cannot be written fails the run, and
 * the reason is told by who tries once more.
 *
 * A node whose attribute "waits" is 1 leaves its file to the next Write, whose inputs keep the values until then:
 * threads write several files at once, as the system lets one at a time write to one. They are linked in the order
 * of the nodes. */
#ifdef __linux__
#include "holding.h"
#include "layout.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RESERVED (1 << 18) /* bytes of a file whose room is reserved, as place.py does */
#define MOST_TIMES 1000    /* that are tried for a name */
#define LONGEST_HEADER 512
#define LONGEST_NAME 256
#define ADDRESSES 4
#define BUFFER (1 << 16)   /* bytes of a part that is made: caches hold them */
#define SHARED_PARTS 4     /* of an image that several threads write */
#define WRITERS 2          /* of one file */
#define MOST_WRITERS 8     /* of several files */
#define MOST_WAITING 64    /* files that are open at once */
#define SHARED_BYTES (1 << 16) /* fewer take no longer to write than a thread to wake */

/* Where the files of a run go. */
struct run {
    int64_t directory, mode;                /* an open directory, permissions of files */
    int64_t sets_modes, reserves, is_unnamed; /* of its file system; whether a descriptor alone can be linked */
    int64_t last;                           /* the last time that a file got, microseconds */
    int64_t files, bytes, empty;            /* that were written, and values without elements */
    int64_t waiting;                        /* number of the values that wait */
    int64_t slots[];                        /* theirs, in the order of nodes */
};

/* What a slot's file is called before and behind the time, NULL: nothing is written; what becomes of its elements,
 * and in which order they are, NULL: in that of the value. */
struct wanted {
    const char *head, *tail;
    struct change change;
    const struct layout *layout;
};

enum state { UNTOUCHED, WRITTEN, EMPTY, SEEN };

/* What became of it; while it waits, where its elements are, and the file that holds them without a name. */
struct outcome {
    int64_t state, bytes, time;
    void *data;
    int64_t file;
};

static const char *const DESCRS[] = {"<f2", NULL,  "<f4", "<f8", "|i1", "|u1",
                                     "<i2", "<u2", "<i4", "<u4", "<i8", "<u8"}; /* as TYPES */

/* Writes the bytes before the elements, as npy.py makes them; returns their number. */
static size_t write_header(int type, const struct image *image, char *header) {
    const char *const descr = type == BOOL ? "|b1" : DESCRS[place_of(type)];
    char *text = header + 10;
    text += sprintf(text, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (size_t at = 0; at < image->rank; at++)
        text += sprintf(text, "%lld,", (long long)image->dimensions[at]);
    text += sprintf(text, "), }");
    size_t total = (size_t)(text - header) + 1;
    total += 64 - total % 64;
    memset(text, ' ', total - (size_t)(text - header) - 1);
    header[total - 1] = '\n';
    memcpy(header, "\x93NUMPY\x01\0", 8);
    header[8] = (char)((total - 10) & 0xff);
    header[9] = (char)((total - 10) >> 8);
    return total;
}

/* Writes all of two buffers at a place of a file; returns the number of an error. */
static int write_both(int file, struct iovec *parts, off_t place) {
    for (int at = 0; at < 2;) {
        const ssize_t written = pwritev(file, parts + at, 2 - at, place);
        if (written < 0 && errno != EINTR)
            return errno;
        if (!written) /* something is left: there is no room */
            return ENOSPC;
        place += written < 0 ? 0 : written;
        for (size_t left = written < 0 ? 0 : (size_t)written; at < 2; at++) {
            const size_t step = left < parts[at].iov_len ? left : parts[at].iov_len;
            parts[at].iov_base = (char *)parts[at].iov_base + step;
            parts[at].iov_len -= step;
            left -= step;
            if (parts[at].iov_len)
                break;
        }
    }
    return 0;
}

/* A header and an image, which are written in parts: as the value lies there, or made in buffers. */
struct writing {
    int file, error;
    struct iovec header;
    const struct change *change;
    const struct image *image;
    size_t size, most; /* bytes of an element in the file, and rows of a part */
};

static void write_part(void *given, size_t number) {
    struct writing *const all = given;
    const struct image *const image = all->image;
    _Alignas(64) char rows[BUFFER], elements[BUFFER];
    const size_t from = number * all->most, left = image->rows - from, count = left < all->most ? left : all->most;
    const size_t row = image->row * all->size, place = all->header.iov_len + from * row;
    const void *const laid_out = lay_out(image, from, from + count, rows);
    const void *const made = change_elements(all->change, laid_out, elements, count * image->row);
    struct iovec parts[] = {all->header, {(void *)made, count * row}};
    if (number)
        parts[0].iov_len = 0;
    const int error = write_both(all->file, parts, number ? (off_t)place : 0);
    if (error)
        __atomic_store_n(&all->error, error, __ATOMIC_RELAXED);
}

/* Writes all parts: one thread makes one while another writes, as the system lets one write to a file. */
static int write_parts(const void *context, struct writing *all) {
    const struct image *const image = all->image;
    const size_t larger = all->size > image->size ? all->size : image->size;
    const int is_made = image->count || changes(all->change);
    all->most = is_made ? BUFFER / (image->row * larger) : image->rows;
    const size_t count = (image->rows + all->most - 1) / all->most;
    if (count >= SHARED_PARTS)
        return runtime->spread(context, write_part, count, WRITERS, all) ? EIO : all->error;
    for (size_t number = 0; number < count && !all->error; number++)
        write_part(all, number);
    return all->error;
}

/* Links a file under a name: by its descriptor, else by its path in /proc, as links.py does. */
static int give_name(struct run *run, int file, const char *name) {
    char path[64];
    if (run->is_unnamed) {
        if (!linkat(file, "", (int)run->directory, name, AT_EMPTY_PATH))
            return 0;
        if (errno == EEXIST)
            return EEXIST;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (linkat(AT_FDCWD, path, (int)run->directory, name, AT_SYMLINK_FOLLOW))
        return errno;
    run->is_unnamed = 0;
    return 0;
}

/* Links a file under the name of now; one that is taken gets another time. */
static int name_file(struct run *run, const struct wanted *wanted, int file, struct outcome *outcome) {
    char name[LONGEST_NAME];
    struct timespec now;
    int error = EEXIST;
    for (int tries = 0; tries < MOST_TIMES && error == EEXIST; tries++) {
        clock_gettime(CLOCK_REALTIME, &now);
        const int64_t time = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
        run->last = time > run->last ? time : run->last + 1;
        const int length = snprintf(name, sizeof name, "%s%lld%s", wanted->head, (long long)run->last, wanted->tail);
        error = length < LONGEST_NAME ? give_name(run, file, name) : ENAMETOOLONG;
    }
    outcome->time = run->last;
    return error;
}

/* Makes the file of a value, without a name yet; returns the number of an error. */
static int fill_file(const void *context, const struct run *run, const struct wanted *wanted,
                     const struct value *value, struct outcome *outcome) {
    struct image image;
    char header[LONGEST_HEADER];
    outcome->file = -1;
    if (value->type != wanted->change.type || !describe(wanted->layout, value, &image))
        return EINVAL;
    const int type = (int)wanted->change.saved;
    struct writing all = {.change = &wanted->change, .image = &image, .size = TYPES[place_of(type)].size};
    all.header = (struct iovec){header, write_header(type, &image, header)};
    const int file = all.file = openat((int)run->directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, (mode_t)run->mode);
    if (file < 0)
        return errno;
    outcome->file = file;
    outcome->bytes = (int64_t)(all.header.iov_len + image.rows * image.row * all.size);
    int error = run->sets_modes && fchmod(file, (mode_t)run->mode) ? errno : 0;
    if (!error && run->reserves && outcome->bytes >= RESERVED)
        error = posix_fallocate(file, 0, outcome->bytes);
    return error ? error : write_parts(context, &all);
}

/* Files that are written together: the largest first, so that threads end together. */
struct together {
    struct run *run;
    const struct wanted *wanted;
    struct outcome *outcomes;
    const struct kind *kinds;
    int64_t slots[MOST_WAITING];
    size_t bytes[MOST_WAITING];
    int64_t count, next;
    int error;
};

static size_t length_of(const struct kind *kind) {
    size_t length = 1;
    for (int64_t at = 0; at < kind->rank; at++)
        length *= (size_t)kind->dimensions[at];
    return length;
}

static void fill_slot(const void *context, struct together *all, int64_t slot) {
    const struct kind *const kind = all->kinds + slot;
    struct outcome *const outcome = all->outcomes + slot;
    struct value value = {.data = outcome->data, .type = (int)kind->type, .rank = (size_t)kind->rank};
    memcpy(value.dimensions, kind->dimensions, value.rank * sizeof *value.dimensions);
    value.length = length_of(kind);
    const int error = fill_file(context, all->run, all->wanted + slot, &value, outcome);
    if (error)
        __atomic_store_n(&all->error, error, __ATOMIC_RELAXED);
}

static void fill_next(void *given, size_t number) {
    struct together *const all = given;
    (void)number;
    for (;;) {
        const int64_t at = __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED);
        if (at >= all->count || __atomic_load_n(&all->error, __ATOMIC_RELAXED))
            return;
        fill_slot(NULL, all, all->slots[at]);
    }
}

/* Takes the values that wait, the largest first; returns the bytes of all but the largest. */
static size_t take_waiting(struct together *all) {
    size_t others = 0;
    for (int64_t number = 0; number < all->run->waiting; number++) {
        const int64_t slot = all->run->slots[number];
        const struct kind *const kind = all->kinds + slot;
        const size_t bytes = length_of(kind) * TYPES[place_of((int)kind->type)].size;
        int64_t at = all->count++;
        for (; at && all->bytes[at - 1] < bytes; at--) {
            all->bytes[at] = all->bytes[at - 1];
            all->slots[at] = all->slots[at - 1];
        }
        all->bytes[at] = bytes;
        all->slots[at] = slot;
        others += bytes;
    }
    return others - all->bytes[0];
}

/* Writes the files of the values that wait; returns the number of an error. */
static int write_waiting(const void *context, struct run *run, void **addresses) {
    struct together all = {.run = run, .wanted = addresses[1], .outcomes = addresses[2], .kinds = addresses[3]};
    const size_t most = (size_t)run->waiting < MOST_WRITERS ? (size_t)run->waiting : MOST_WRITERS;
    if (take_waiting(&all) >= SHARED_BYTES) {
        if (runtime->spread(context, fill_next, most, most, &all))
            all.error = EIO;
    } else
        for (; all.next < all.count && !all.error; all.next++)
            fill_slot(context, &all, all.slots[all.next]);
    for (int64_t number = 0; number < run->waiting; number++) {
        const int64_t slot = run->slots[number];
        struct outcome *const outcome = all.outcomes + slot;
        if (!all.error)
            all.error = name_file(run, all.wanted + slot, (int)outcome->file, outcome);
        if (!all.error) {
            outcome->state = WRITTEN;
            run->files++;
            run->bytes += outcome->bytes;
        }
        if (outcome->file >= 0)
            close((int)outcome->file);
        outcome->file = -1;
    }
    run->waiting = 0;
    return all.error;
}

static status *hand_on_addresses(void *context, size_t output, void **addresses) {
    const int64_t count = ADDRESSES;
    void *made;
    int64_t *out;
    status *failure;
    TRY(runtime->output(context, output, &count, 1, &made));
    TRY(runtime->data_of(made, (void **)&out));
    memmove(out, addresses, ADDRESSES * sizeof *out);
    return NULL;
}

static status *save_value(void *kernel, void *context) {
    const struct saving_node *const node = kernel;
    struct value value;
    void **addresses, *kept;
    status *failure;
    TRY(take(context, &value, &addresses));
    struct run *const run = addresses[0];
    const struct wanted *const wanted = (struct wanted *)addresses[1] + node->slot;
    if (value.rank > MOST_DIMENSIONS)
        return runtime->fail(1, "a value has more dimensions than a session tells of");
    struct outcome *const outcome = (struct outcome *)addresses[2] + node->slot;
    tell_kind(&value, (struct kind *)addresses[3] + node->slot);
    TRY(hand_on(context, &value, &kept));
    if (value.length && wanted->head) {
        outcome->data = kept;
        outcome->file = -1;
        run->slots[run->waiting++] = node->slot;
    } else {
        outcome->state = wanted->head ? EMPTY : SEEN;
        run->empty += outcome->state == EMPTY;
    }
    const int is_due = !node->waits || run->waiting == MOST_WAITING;
    if (is_due && run->waiting && write_waiting(context, run, addresses))
        return runtime->fail(1, "a file cannot be written");
    return hand_on_addresses(context, 1, addresses);
}

static status *write_values(void *kernel, void *context) {
    const void *where;
    void **addresses;
    status *failure;
    (void)kernel;
    TRY(runtime->input(context, 0, &where));
    TRY(runtime->data_of((void *)where, (void **)&addresses));
    struct run *const run = addresses[0];
    if (run->waiting && write_waiting(context, run, addresses))
        return runtime->fail(1, "a file cannot be written");
    return hand_on_addresses(context, 0, addresses);
}
#else
static status *save_value(void *kernel, void *context) {
    return (void)kernel, (void)context, runtime->fail(1, "this system has no files without names");
}
static status *write_values(void *kernel, void *context) { return save_value(kernel, context); }
#endif
