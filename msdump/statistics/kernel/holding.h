/* Elements as the device holds them, in the types of files (device/precision.py). */

/* What becomes of the elements of a slot's values. */
struct change {
    int64_t type;  /* of the values, the runtime's number */
    int64_t held;  /* the smaller type in which the device holds float32, 0: as it is */
    int64_t saved; /* the type of the file */
    int64_t saturates;
};

/* A float32 as the nearest float16, of two the even one. Below the normal ones the units are those of 0.5. */
INLINE float held_as_float16(float value) {
    const uint32_t bits = bits_of(value), size = bits & 0x7FFFFFFF;
    const uint32_t small = bits_of((single(size) + 0.5f) - 0.5f), nan = 0x7FC00000 | (size & 0x7FE000);
    const uint32_t near = (size + 0xFFF + (size >> 13 & 1)) & ~0x1FFFu;
    const uint32_t large = near < 0x47800000 ? near : 0x7F800000;
    return single((bits & 0x80000000) | (size < 0x38800000 ? small : size > 0x7F800000 ? nan : large));
}

INLINE float held_as_bfloat16(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t near = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    return single((bits & 0x7FFFFFFF) > 0x7F800000 ? (bits & 0x80000000) | 0x7FC00000 : near);
}

/* Within float16's range; NaN becomes 0. */
INLINE float saturated(float value) {
    const float most = 65504.0f, within = value > most ? most : value < -most ? -most : value;
    return value != value ? 0.0f : within;
}

/* The bits of a float16, from a float32 that is one. */
INLINE uint16_t half_bits(float value) {
    const uint32_t bits = bits_of(value), size = bits & 0x7FFFFFFF;
    const uint32_t small = (uint32_t)(int32_t)(single(size) * 0x1p24f);
    const uint32_t large = size < 0x47800000 ? (size - 0x38000000) >> 13 : 0x7C00 | (size >> 13 & 0x3FF);
    return (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)(size < 0x38800000 ? small : large);
}

#define EACH(element) \
    for (size_t at = 0; at < length; at++) \
        out[at] = element;

CLONES static void hold_as_bfloat16(const float *restrict data, float *restrict out, size_t length) {
    EACH(held_as_bfloat16(data[at]))
}

CLONES static void hold_as_float16(const float *restrict data, float *restrict out, size_t length, int saturates) {
    if (saturates)
        EACH(held_as_float16(saturated(data[at])))
    else
        EACH(held_as_float16(data[at]))
}

CLONES static void narrow_to_float16(const float *restrict data, uint16_t *restrict out, size_t length, int saturates) {
    if (saturates)
        EACH(half_bits(held_as_float16(saturated(data[at]))))
    else
        EACH(half_bits(held_as_float16(data[at])))
}

CLONES static void widen_bfloat16(const uint16_t *restrict data, float *restrict out, size_t length) {
    EACH(from_bfloat16(data[at]))
}

enum element { FLOAT32 = 1, BOOL = 9, FLOAT16 = 10, BFLOAT16 = 16 };

static int changes(const struct change *change) { return change->held || change->saved != change->type; }

/* Returns elements with the values and the type that a file has: those that are given, or others. */
static const void *change_elements(const struct change *change, const void *data, void *changed, size_t length) {
    const int saturates = (int)change->saturates;
    if (!changes(change))
        return data;
    if (change->type == BFLOAT16)
        widen_bfloat16(data, changed, length);
    else if (change->held == BFLOAT16)
        hold_as_bfloat16(data, changed, length);
    else if (change->saved == FLOAT16)
        narrow_to_float16(data, changed, length, saturates);
    else
        hold_as_float16(data, changed, length, saturates);
    return changed;
}
