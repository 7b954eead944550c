/* The device's formats: the axes of a value cut into blocks and put into another order (device/blocks.py).
 *
 * An image consists of rows, the places of a block of its last axis. It is made some rows at a time, in a buffer
 * that caches hold. */
#define MOST_LOOPS 16 /* one more than terms */
#define LINE 16 /* elements that are moved together: of four bytes a line of a cache */

enum part { WHOLE, BLOCK, PLACE };

/* A part of an axis, in the order of the image. */
struct term {
    int64_t axis, part, length; /* of a block */
    int64_t ends;               /* an axis of the image */
};

/* How a slot's values are laid out; see session_layouts.py. */
struct layout {
    int64_t rank;  /* of the values */
    int64_t keeps; /* a value of one element or of a multiple of these stays as it is; 0: none */
    int64_t count; /* of terms */
    struct term terms[MOST_LOOPS - 1];
    int64_t dimensions[MOST_DIMENSIONS]; /* of each axis the dimension; -1: one of size 1, which values have not */
};

/* A loop over elements of the value: places in a block end where the axis does. */
struct loop {
    size_t extent, stride;
    size_t limit, length; /* the first step that is padding, less by a length for each block before */
    size_t block;         /* the loop that counts the blocks */
    int64_t part, axis;
};

struct image {
    int64_t dimensions[MOST_LOOPS];
    size_t rank;
    size_t rows, row; /* their number, and elements of one */
    size_t size;      /* bytes of an element */
    const char *data;
    size_t count;
    struct loop loops[MOST_LOOPS]; /* the last one goes over a row */
};

/* Elements of rows in the value: those of a row, and rows, each a stride apart. */
struct tile {
    size_t rows, row_stride, columns, stride;
    size_t width; /* of a row in the image; padding is zero */
};

#ifdef __clang__
#define PICK(vector, left, right, ...) __builtin_shufflevector(left, right, __VA_ARGS__)
#else
#define PICK(vector, left, right, ...) __builtin_shuffle(left, right, (vector){__VA_ARGS__})
#endif

/* Moves four elements of each of four columns, which lie one after the other, into four rows. */
#define TRANSPOSE(type) \
    typedef type four_##type __attribute__((vector_size(4 * sizeof(type)))); \
    INLINE void transpose_##type(const type *from, size_t stride, type *to, size_t width) { \
        four_##type a, b, c, d; \
        memcpy(&a, from, sizeof a); \
        memcpy(&b, from + stride, sizeof b); \
        memcpy(&c, from + 2 * stride, sizeof c); \
        memcpy(&d, from + 3 * stride, sizeof d); \
        const four_##type ab = PICK(four_##type, a, b, 0, 4, 1, 5), AB = PICK(four_##type, a, b, 2, 6, 3, 7); \
        const four_##type cd = PICK(four_##type, c, d, 0, 4, 1, 5), CD = PICK(four_##type, c, d, 2, 6, 3, 7); \
        a = PICK(four_##type, ab, cd, 0, 1, 4, 5); \
        b = PICK(four_##type, ab, cd, 2, 3, 6, 7); \
        c = PICK(four_##type, AB, CD, 0, 1, 4, 5); \
        d = PICK(four_##type, AB, CD, 2, 3, 6, 7); \
        memcpy(to, &a, sizeof a); \
        memcpy(to + width, &b, sizeof b); \
        memcpy(to + 2 * width, &c, sizeof c); \
        memcpy(to + 3 * width, &d, sizeof d); \
    }

/* A row of a full block is copied as one. Where rows are beside each other in the value, a line of it is read at
 * a time, as lines of rows may share their place in a cache. */
#define MOVE(type) \
    TRANSPOSE(type) \
    CLONES static void move_##type(const void *data, const struct tile *tile, void *image) { \
        const struct tile t = *tile; \
        const type *from = data; \
        type *to = image; \
        size_t row = 0; \
        if (t.columns < t.width) \
            memset(to, 0, t.rows * t.width * sizeof *to); \
        if (t.stride == 1) { \
            for (; row < t.rows; row++, from += t.row_stride, to += t.width) \
                if (t.columns == LINE) \
                    memcpy(to, from, LINE * sizeof *to); \
                else \
                    memcpy(to, from, t.columns * sizeof *to); \
            return; \
        } \
        for (; t.row_stride == 1 && row + LINE <= t.rows; row += LINE, from += LINE, to += LINE * t.width) { \
            size_t column = 0; \
            for (; column + 4 <= t.columns; column += 4) \
                for (size_t at = 0; at < LINE; at += 4) \
                    transpose_##type(from + column * t.stride + at, t.stride, to + at * t.width + column, t.width); \
            for (; column < t.columns; column++) \
                for (size_t at = 0; at < LINE; at++) \
                    to[at * t.width + column] = from[column * t.stride + at]; \
        } \
        for (; row < t.rows; row++, from += t.row_stride, to += t.width) \
            for (size_t column = 0; column < t.columns; column++) \
                to[column] = from[column * t.stride]; \
    }

MOVE(uint8_t)
MOVE(uint16_t)
MOVE(uint32_t)
MOVE(uint64_t)

static void move(const void *data, size_t size, const struct tile *tile, void *image) {
    (size == 1   ? move_uint8_t
     : size == 2 ? move_uint16_t
     : size == 4 ? move_uint32_t
                 : move_uint64_t)(data, tile, image);
}

/* Returns the loop over a part of an axis. */
static struct loop loop_over(const struct term *term, size_t size, size_t stride) {
    const size_t length = (size_t)term->length;
    struct loop loop = {size, stride, size, 0, 0, term->part, term->axis};
    if (term->part == BLOCK) {
        loop.extent = loop.limit = (size + length - 1) / length;
        loop.stride = stride * length;
    } else if (term->part == PLACE)
        loop.extent = loop.length = length;
    return loop;
}

/* Adds a loop inside those of an image, or lets the one before go over both; a row has one of its own. */
static void add_loop(struct image *image, const struct loop *loop, int is_row) {
    struct loop *const before = image->count && !is_row ? image->loops + image->count - 1 : NULL;
    if (loop->part == WHOLE && loop->extent == 1)
        return;
    if (before && loop->part == WHOLE && before->part == WHOLE && before->limit == before->extent &&
        before->stride == loop->stride * loop->extent) {
        before->limit = before->extent *= loop->extent;
        before->stride = loop->stride;
    } else if (before && loop->part == PLACE && before->part == BLOCK && before->axis == loop->axis) {
        before->extent *= loop->extent;
        before->limit = loop->limit;
        before->stride = loop->stride;
        before->part = WHOLE;
    } else
        image->loops[image->count++] = *loop;
}

/* Puts the loop over rows' elements behind the others: one over rows, in which no two rows are cut differently. */
static void add_row(struct image *image, struct loop *row) {
    static const struct loop ONCE = {.extent = 1, .limit = 1, .axis = -1};
    for (size_t at = 0; at < image->count; at++)
        if (image->loops[at].part == BLOCK && image->loops[at].axis == row->axis)
            row->block = at;
    if (!image->count || row->block == image->count - 1)
        image->loops[image->count++] = ONCE;
    add_loop(image, row, 1);
}

/* Tells whether values stay as they are: a format that cuts rows leaves a row that fills its blocks. */
static int stays(const struct layout *layout, const struct value *value) {
    const size_t length = layout ? (size_t)layout->keeps : 0;
    return !layout || (length && (value->length == 1 || value->length % length == 0));
}

/* Tells the loops of an image. */
static void add_loops(const struct layout *layout, const struct value *value, struct image *image) {
    size_t strides[MOST_DIMENSIONS], step = 1, length = 1;
    for (size_t at = value->rank; at-- > 0; step *= (size_t)value->dimensions[at])
        strides[at] = step;
    for (int64_t at = 0; at < layout->count; at++) {
        const struct term *const term = layout->terms + at;
        const int64_t dimension = layout->dimensions[term->axis];
        const size_t size = dimension < 0 ? 1 : (size_t)value->dimensions[dimension];
        struct loop loop = loop_over(term, size, dimension < 0 ? 0 : strides[dimension]);
        length *= loop.extent;
        if (term->ends) {
            image->dimensions[image->rank++] = (int64_t)length;
            length = 1;
        }
        if (at + 1 == layout->count) {
            add_row(image, &loop);
            image->row = loop.extent;
        } else {
            add_loop(image, &loop, 0);
            image->rows *= loop.extent;
        }
    }
}

/* Describes the image of a value, which has at most MOST_DIMENSIONS; 0: its rank is not that of the layout. */
static int describe(const struct layout *layout, const struct value *value, struct image *image) {
    *image = (struct image){.rows = 1, .row = 1, .size = TYPES[place_of(value->type)].size, .data = value->data};
    if (layout && (int64_t)value->rank != layout->rank)
        return 0;
    if (stays(layout, value)) {
        memcpy(image->dimensions, value->dimensions, value->rank * sizeof *value->dimensions);
        image->rank = value->rank;
        image->rows = value->length;
    } else
        add_loops(layout, value, image);
    return 1;
}

/* Returns the first step of a loop that is padding. */
static size_t limit_of(const struct loop *loop, const size_t *steps) {
    const size_t limit = loop->limit - loop->length * steps[loop->block];
    return limit < loop->extent ? limit : loop->extent;
}

/* Makes at most so many rows of an image, those that the innermost loop over rows runs through; returns their number. */
static size_t lay_out_run(const struct image *image, size_t from, size_t most, char *out) {
    const struct loop *const row = image->loops + image->count - 1, *const rows = row - 1;
    size_t steps[MOST_LOOPS], left = from, start = 0, is_padding = 0;
    for (size_t at = image->count - 1; at-- > 0; left /= image->loops[at].extent) {
        steps[at] = left % image->loops[at].extent;
        start += steps[at] * image->loops[at].stride;
    }
    for (size_t at = 0; at + 2 < image->count; at++)
        is_padding |= steps[at] >= limit_of(image->loops + at, steps);
    const size_t step = steps[image->count - 2], limit = limit_of(rows, steps);
    const size_t count = rows->extent - step < most ? rows->extent - step : most;
    struct tile tile = {0, rows->stride, limit_of(row, steps), row->stride, image->row};
    if (!is_padding && step < limit)
        tile.rows = limit - step < count ? limit - step : count;
    move(image->data + start * image->size, image->size, &tile, out);
    memset(out + tile.rows * image->row * image->size, 0, (count - tile.rows) * image->row * image->size);
    return count;
}

/* Returns the elements of some rows: those of the value, or made in a buffer, as many at a time as lie in one loop. */
static const void *lay_out(const struct image *image, size_t from, size_t to, char *buffer) {
    if (!image->count)
        return image->data + from * image->size;
    char *out = buffer;
    for (size_t count; from < to; from += count, out += count * image->row * image->size)
        count = lay_out_run(image, from, to - from, out);
    return buffer;
}
