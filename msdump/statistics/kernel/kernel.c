/* One read of a tensor for every statistic but the hashes.
 *
 * Compiled when msdump is installed, where a C compiler is there; without it passes.py finds the same with
 * numpy. Plain C without Python's headers, called by ctypes (compiled.py).
 *
 * Every element is looked at once. Sums are in double. The loop over a run of elements (loop.h) has neither
 * branch nor call, so that the compiler makes vector instructions of it, for several generations of x86-64
 * at once (CLONES), of which the best is chosen when the library is loaded.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 13 /* of what is PUBLIC, as compiled.py knows it */
#define RUN 2048  /* elements of a run: counts of 32 bits cannot overflow, and stay in vector lanes */

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(PORTABLE)
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif
#if defined(__GNUC__) && !defined(__clang__)
#define FUSING __attribute__((optimize("fp-contract=fast")))
#else
#define FUSING
#endif
#define INLINE static inline __attribute__((always_inline))
#define PUBLIC __attribute__((visibility("default")))

enum need { COUNTS = 1, TOTAL = 2, SQUARES = 4 }; /* the extremes are always found */

/* The fields of Totals that are found, in its order behind the count; compiled.py reads their layout from the library. */
#define FOUND(FIELD) \
    FIELD(double, high) FIELD(double, low) \
    FIELD(int64_t, negative) FIELD(int64_t, positive) FIELD(int64_t, nan) \
    FIELD(int64_t, negative_inf) FIELD(int64_t, positive_inf) \
    FIELD(double, total) FIELD(double, squares)
#define MEMBER(type, name) type name;
struct found { FOUND(MEMBER) };

INLINE float single(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The bits in their places: the number times FLOAT16_UNIT, exact, that of subnormal numbers too. */
#define FLOAT16_UNIT 0x1p-112f
INLINE float scaled_from_float16(uint16_t bits) { return single((uint32_t)(int16_t)bits << 13 & 0x8FFFE000); }

/* Infinity becomes 65536, which no float16 reaches, and NaN is larger. */
INLINE float from_float16(uint16_t bits) { return scaled_from_float16(bits) / FLOAT16_UNIT; }

INLINE float from_bfloat16(uint16_t bits) { return single((uint32_t)bits << 16); }

/* An integer in the order of the numbers, of bits of a half type: -1 for -0, and back. */
INLINE int16_t in_order(int16_t bits) { return (int16_t)(bits ^ (bits >> 15 & 0x7FFF)); }

#define JOINED_(left, right) left##_##right
#define JOINED(left, right) JOINED_(left, right)

/* Each type: MEMORY in memory, VALUE in the loop, converted by LOAD, counted in COUNT, between LOWEST and
 * HIGHEST; INFINITE is its infinity as a VALUE, 0 where it has none. SQUARING is FUSING where the square of a
 * VALUE is exact in double, so that adding it in the same instruction changes no bit. Half types are compared and
 * counted as integers, twice as many at a time: INFINITE_BITS are those of their infinity; they are added up as
 * SCALED, which is the number times UNIT. */

#define NAME float16
#define SQUARING FUSING
#define MEMORY uint16_t
#define VALUE float
#define COUNT int32_t
#define LOAD from_float16
#define INFINITE 65536.0f
#define INFINITE_BITS 0x7C00
#define SCALED scaled_from_float16
#define UNIT FLOAT16_UNIT
#define IS_NAN(value) (fabsf(value) > INFINITE)
#include "loop.h"

#define NAME bfloat16
#define SQUARING FUSING
#define MEMORY uint16_t
#define VALUE float
#define COUNT int32_t
#define LOAD from_bfloat16
#define INFINITE INFINITY
#define INFINITE_BITS 0x7F80
#define SCALED from_bfloat16
#define UNIT 1
#define IS_NAN(value) ((value) != (value))
#include "loop.h"

#define NAME float32
#define SQUARING FUSING
#define MEMORY float
#define VALUE float
#define COUNT int32_t
#define LOAD
#define INFINITE INFINITY
#define IS_NAN(value) ((value) != (value))
#define LOWEST -INFINITY
#define HIGHEST INFINITY
#include "loop.h"

#define NAME float64
#define SQUARING
#define MEMORY double
#define VALUE double
#define COUNT int64_t
#define LOAD
#define INFINITE INFINITY
#define IS_NAN(value) ((value) != (value))
#define LOWEST -INFINITY
#define HIGHEST INFINITY
#include "loop.h"

#define LOAD
#define INFINITE 0
#define IS_NAN(value) 0
#define SQUARING
#define IS_INTEGER

#define NAME int8
#define MEMORY int8_t
#define VALUE int32_t
#define COUNT int32_t
#define LOWEST INT8_MIN
#define HIGHEST INT8_MAX
#include "loop.h"

#define NAME uint8
#define MEMORY uint8_t
#define VALUE int32_t
#define COUNT int32_t
#define LOWEST 0
#define HIGHEST UINT8_MAX
#include "loop.h"

#define NAME int16
#define MEMORY int16_t
#define VALUE int32_t
#define COUNT int32_t
#define LOWEST INT16_MIN
#define HIGHEST INT16_MAX
#include "loop.h"

#define NAME uint16
#define MEMORY uint16_t
#define VALUE int32_t
#define COUNT int32_t
#define LOWEST 0
#define HIGHEST UINT16_MAX
#include "loop.h"

#define NAME int32
#define MEMORY int32_t
#define VALUE int32_t
#define COUNT int32_t
#define LOWEST INT32_MIN
#define HIGHEST INT32_MAX
#include "loop.h"

#define NAME uint32
#define MEMORY uint32_t
#define VALUE uint32_t
#define COUNT int32_t
#define LOWEST 0
#define HIGHEST UINT32_MAX
#include "loop.h"

#define NAME int64
#define MEMORY int64_t
#define VALUE int64_t
#define COUNT int64_t
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#include "loop.h"

#define NAME uint64
#define MEMORY uint64_t
#define VALUE uint64_t
#define COUNT int64_t
#define LOWEST 0
#define HIGHEST UINT64_MAX
#include "loop.h"

#include "distances.h"

/* What is done about elements of a type: a pass over them, in as many calls as there are runs if need be, and
 * what puts its findings right. */
struct type {
    void (*pass)(const void *, size_t, int, struct found *);
    void (*settle)(const void *, size_t, struct found *);
    size_t size; /* bytes of an element */
};

#define TYPE(name, size) {pass_##name, settle_##name, size}

/* In the order of TYPES in compiled.py. */
static const struct type TYPES[] = {
    TYPE(float16, 2), TYPE(bfloat16, 2), TYPE(float32, 4), TYPE(float64, 8), TYPE(int8, 1),  TYPE(uint8, 1),
    TYPE(int16, 2),   TYPE(uint16, 2),   TYPE(int32, 4),   TYPE(uint32, 4),  TYPE(int64, 8), TYPE(uint64, 8),
};

static void measure(const void *data, size_t length, int64_t type, int need, struct found *found) {
    TYPES[type].pass(data, length, need, found);
    TYPES[type].settle(data, length, found);
}

PUBLIC int msdump_kernel_version(void) { return VERSION; }

/* The layout of what is found, "double high;int64_t negative;...", and its size. */
#define TEXT(type, name) #type " " #name ";"
PUBLIC const char *msdump_found(void) { return FOUND(TEXT); }
PUBLIC size_t msdump_found_size(void) { return sizeof(struct found); }

/* Elements that lie one after the other, aligned: at least one, of a type. */
struct span {
    const void *data;
    size_t length;
    int64_t type;
};

/* Measure several spans, one after the other. */
PUBLIC void msdump_measure(const struct span *spans, size_t count, int need, struct found *found) {
    for (const struct span *end = spans + count; spans < end; spans++)
        measure(spans->data, spans->length, spans->type, need, found++);
}

#include "insession.h"
