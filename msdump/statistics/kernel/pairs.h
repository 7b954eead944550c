/* Sums over pairs of float32 elements: those of a tensor beside their counterparts in another one.
 *
 * The elements may lie at any address. */

typedef float place __attribute__((aligned(1), may_alias)); /* of a float in a dump file */

/* What is found of one of the two, and of both, in the order of the fields in pairs.py. */
struct side {
    double low, high, total, squares, deviations;
};
struct pairs {
    struct side x, y;
    double products, differences; /* sums of x * y and (x - y)^2 */
    double largest;               /* of |x - y| */
    double largest_ratio;         /* of |x / y - 1| where |y| is above nothing, else 0 */
};

#define PART 512 /* pairs whose terms stay in the nearest cache */
#define LEAF 128
#define LANES 8
#define MOST_TERMS 5

/* The first of two halves of a sum of floats. vendor: CANN's tool adds floats as numpy does, in halves down to
 * leaves of eight sums; printed digits show the order. */
INLINE size_t half_of(size_t length) { return length / 2 - length / 2 % LANES; }

CLONES static float sum_floats(const float *values, size_t length) {
    if (length > LEAF) {
        const size_t half = half_of(length);
        return sum_floats(values, half) + sum_floats(values + half, length - half);
    }
    float total = 0, sums[LANES];
    size_t at = 0;
    if (length >= LANES) {
        memcpy(sums, values, sizeof sums);
        for (at = LANES; at < length - length % LANES; at += LANES)
            for (size_t lane = 0; lane < LANES; lane++)
                sums[lane] += values[at + lane];
        total = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    }
    for (; at < length; at++)
        total += values[at];
    return total;
}

INLINE uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Adds what is found of at most PART pairs, and writes terms that are added as floats. */
typedef void part_pass(const place *xs, const place *ys, size_t length, const void *given, void *sums,
                       float (*terms)[PART]);

/* Apart, so that the memory is not taken at every depth. */
static __attribute__((noinline)) void pass_part(part_pass *pass, const place *xs, const place *ys, size_t length,
                                                const void *given, void *sums, size_t count, float *totals) {
    float terms[MOST_TERMS][PART];
    pass(xs, ys, length, given, sums, terms);
    for (size_t term = 0; term < count; term++)
        totals[term] = sum_floats(terms[term], length);
}

/* Passes over all pairs, part by part; the totals of so many terms are written. */
static void pass_parts(part_pass *pass, const place *xs, const place *ys, size_t length, const void *given,
                       void *sums, size_t count, float *totals) {
    if (length <= PART) {
        pass_part(pass, xs, ys, length, given, sums, count, totals);
        return;
    }
    const size_t half = half_of(length);
    float behind[MOST_TERMS];
    pass_parts(pass, xs, ys, half, given, sums, count, totals);
    pass_parts(pass, xs + half, ys + half, length - half, given, sums, count, behind);
    for (size_t term = 0; term < count; term++)
        totals[term] += behind[term];
}

enum { X_SQUARES, Y_SQUARES, DIFFERENCES, DISTANCES, RATIOS, PAIR_TERMS };

CLONES static void sum_part(const place *xs, const place *ys, size_t length, const void *given, void *found,
                            float (*terms)[PART]) {
    const float nothing = *(const float *)given;
    struct pairs *const sums = found;
    float low_x = INFINITY, high_x = -INFINITY, low_y = INFINITY, high_y = -INFINITY, most = 0;
    double total_x = 0, total_y = 0, squares_x = 0, squares_y = 0, products = 0, differences = 0, largest = 0;
#pragma omp simd reduction(min : low_x, low_y) reduction(max : high_x, high_y, most, largest) \
    reduction(+ : total_x, total_y, squares_x, squares_y, products, differences)
    for (size_t at = 0; at < length; at++) {
        const float x = xs[at], y = ys[at], apart = x - y;
        const double wide_x = x, wide_y = y, difference = wide_x - wide_y, distance = fabs(difference);
        const float ratio = single(bits_of(fabsf(x / y - 1)) & -(uint32_t)(fabsf(y) > nothing));
        low_x = x < low_x ? x : low_x;
        high_x = x > high_x ? x : high_x;
        low_y = y < low_y ? y : low_y;
        high_y = y > high_y ? y : high_y;
        total_x += wide_x;
        total_y += wide_y;
        squares_x += wide_x * wide_x;
        squares_y += wide_y * wide_y;
        products += wide_x * wide_y;
        differences += difference * difference;
        largest = distance > largest ? distance : largest;
        most = ratio > most ? ratio : most;
        terms[X_SQUARES][at] = x * x;
        terms[Y_SQUARES][at] = y * y;
        terms[DIFFERENCES][at] = apart * apart;
        terms[DISTANCES][at] = fabsf(apart);
        terms[RATIOS][at] = ratio;
    }
    struct side *const x = &sums->x, *const y = &sums->y;
    x->low = fmin(x->low, low_x), x->high = fmax(x->high, high_x);
    y->low = fmin(y->low, low_y), y->high = fmax(y->high, high_y);
    x->total += total_x, x->squares += squares_x;
    y->total += total_y, y->squares += squares_y;
    sums->products += products, sums->differences += differences;
    sums->largest = fmax(sums->largest, largest), sums->largest_ratio = fmax(sums->largest_ratio, most);
}

CLONES static void add_deviations(const place *xs, const place *ys, size_t length, struct pairs *sums) {
    const double mean_x = sums->x.total / (double)length, mean_y = sums->y.total / (double)length;
    double deviations_x = 0, deviations_y = 0;
#pragma omp simd reduction(+ : deviations_x, deviations_y)
    for (size_t at = 0; at < length; at++) {
        const double x = xs[at] - mean_x, y = ys[at] - mean_y;
        deviations_x += x * x;
        deviations_y += y * y;
    }
    sums->x.deviations = deviations_x, sums->y.deviations = deviations_y;
}

static void sum_pairs(const place *xs, const place *ys, size_t length, float nothing, struct pairs *sums,
                      float *totals) {
    const struct side none = {INFINITY, -INFINITY, 0, 0, 0};
    *sums = (struct pairs){.x = none, .y = none};
    pass_parts(sum_part, xs, ys, length, &nothing, sums, PAIR_TERMS, totals);
    add_deviations(xs, ys, length, sums);
}

/* What the elements of a side are divided by, and moved by: the side's norm, or its range to 0..1. */
struct scale {
    float norm, low, extent;
};
struct scales {
    struct scale x, y;
    float least; /* of what was moved */
};

INLINE float moved(float value, const struct scale *scale, float least) {
    const float place = (value - scale->low) / scale->extent;
    return place > least ? place : least;
}

enum { UNIT_PRODUCTS, X_DENSITIES, Y_DENSITIES, SCALED_TERMS };

CLONES static void scale_part(const place *xs, const place *ys, size_t length, const void *given, void *sums,
                              float (*terms)[PART]) {
    (void)sums;
    const struct scales scales = *(const struct scales *)given;
#pragma omp simd
    for (size_t at = 0; at < length; at++) {
        const float x = xs[at], y = ys[at];
        terms[UNIT_PRODUCTS][at] = x / scales.x.norm * (y / scales.y.norm);
        terms[X_DENSITIES][at] = moved(x, &scales.x, scales.least);
        terms[Y_DENSITIES][at] = moved(y, &scales.y, scales.least);
    }
}

/* Writes the densities of x, and what they are divided by those of y. */
CLONES static void divide_densities(const place *xs, const place *ys, size_t length, const struct scales *given,
                                    const float *totals, float *densities, float *quotients) {
    const struct scales scales = *given;
    const float total_x = totals[0], total_y = totals[1];
#pragma omp simd
    for (size_t at = 0; at < length; at++) {
        const float x = moved(xs[at], &scales.x, scales.least) / total_x;
        const float y = moved(ys[at], &scales.y, scales.least) / total_y;
        densities[at] = x;
        quotients[at] = x / y;
    }
}

/* The largest |x - y| in units of the power of two at or below |y|, which are at least so large. */
CLONES static double most_units(const place *xs, const place *ys, size_t length, double least) {
    double most = 0;
#pragma omp simd reduction(max : most)
    for (size_t at = 0; at < length; at++) {
        const double power = single(bits_of(ys[at]) & 0x7F800000), unit = power > least ? power : least;
        const double units = fabs((double)xs[at] - (double)ys[at]) / unit;
        most = units > most ? units : most;
    }
    return most;
}

/* How far two vectors are apart: extremes of y, sums and a largest one as those of struct pairs. */
struct apart {
    double low, high, x_squares, y_squares, products, differences, largest;
};

CLONES static void find_part_apart(const place *xs, const place *ys, size_t length, struct apart *sums) {
    float low = INFINITY, high = -INFINITY;
    double x_squares = 0, y_squares = 0, products = 0, differences = 0, largest = 0;
#pragma omp simd reduction(min : low) reduction(max : high, largest) \
    reduction(+ : x_squares, y_squares, products, differences)
    for (size_t at = 0; at < length; at++) {
        const float y = ys[at];
        const double wide_x = xs[at], wide_y = y, difference = wide_x - wide_y, distance = fabs(difference);
        low = y < low ? y : low;
        high = y > high ? y : high;
        x_squares += wide_x * wide_x;
        y_squares += wide_y * wide_y;
        products += wide_x * wide_y;
        differences += difference * difference;
        largest = distance > largest ? distance : largest;
    }
    sums->low = fmin(sums->low, low), sums->high = fmax(sums->high, high);
    sums->x_squares += x_squares, sums->y_squares += y_squares;
    sums->products += products, sums->differences += differences;
    sums->largest = fmax(sums->largest, largest);
}

/* In the parts in which sum_pairs adds. */
static void find_parts_apart(const place *xs, const place *ys, size_t length, struct apart *sums) {
    if (length <= PART) {
        find_part_apart(xs, ys, length, sums);
        return;
    }
    const size_t half = half_of(length);
    find_parts_apart(xs, ys, half, sums);
    find_parts_apart(xs + half, ys + half, length - half, sums);
}

/* Block by block, since sums of many elements gather the roundings of each. */
static void find_apart(const place *xs, const place *ys, size_t length, size_t block, struct apart *found) {
    const struct apart none = {INFINITY, -INFINITY, 0, 0, 0, 0, 0};
    *found = none;
    for (size_t at = 0; at < length; at += block) {
        struct apart sums = none;
        find_parts_apart(xs + at, ys + at, length - at < block ? length - at : block, &sums);
        found->low = fmin(found->low, sums.low), found->high = fmax(found->high, sums.high);
        found->x_squares += sums.x_squares, found->y_squares += sums.y_squares;
        found->products += sums.products, found->differences += sums.differences;
        found->largest = fmax(found->largest, sums.largest);
    }
}

/* Sums of (x - y)^2 and of y^2, the largest |x - y| and the largest |y|; NaN shows in the sums alone. */
struct distance {
    double differences, squares, largest, most;
};

CLONES static void find_distance(const place *xs, const place *ys, size_t length, struct distance *found) {
    float largest = 0, most = 0;
    double differences = 0, squares = 0;
#pragma omp simd reduction(max : largest, most) reduction(+ : differences, squares)
    for (size_t at = 0; at < length; at++) {
        const float y = ys[at], distance = fabsf(xs[at] - y), magnitude = fabsf(y);
        largest = distance > largest ? distance : largest;
        most = magnitude > most ? magnitude : most;
        differences += (double)distance * (double)distance;
        squares += (double)y * (double)y;
    }
    *found = (struct distance){differences, squares, largest, most};
}

PUBLIC void msdump_find_distance(const void *x, const void *y, size_t length, struct distance *found) {
    find_distance(x, y, length, found);
}

/* Where two vectors of as many elements lie. */
struct vectors {
    const place *x, *y;
    size_t length;
};

/* Find the distances of several pairs, of all their elements in a row those from one place to another: of a
 * pair that lies there in part that part's. */
PUBLIC void msdump_find_distances(const struct vectors *vectors, size_t from, size_t to, struct distance *found) {
    for (size_t before = 0; before < to; before += vectors++->length, found++) {
        const size_t behind = before + vectors->length;
        const size_t begin = from > before ? from : before, end = to < behind ? to : behind;
        if (begin < end)
            find_distance(vectors->x + (begin - before), vectors->y + (begin - before), end - begin, found);
    }
}

/* Where a mask has pushed elements: below mask on both sides, and near each other or below bottom. */
struct lanes {
    float mask, bottom, near;
};

/* The distance of what lies in no masked lane, and how many elements do. */
CLONES static double find_outside(const place *xs, const place *ys, size_t length, const struct lanes *lanes,
                                  struct distance *found) {
    const float mask = lanes->mask, bottom = lanes->bottom, near = lanes->near;
    float largest = 0, most = 0;
    double differences = 0, squares = 0, masked = 0;
#pragma omp simd reduction(max : largest, most) reduction(+ : differences, squares, masked)
    for (size_t at = 0; at < length; at++) {
        const float x = xs[at], y = ys[at], apart = fabsf(x - y);
        const int is_low = (x <= mask) & (y <= mask), is_lost = (x <= bottom) & (y <= bottom);
        const int is_masked = is_low & ((apart <= fabsf(y) * near) | is_lost);
        const uint32_t kept = (uint32_t)is_masked - 1;
        const float distance = single(bits_of(apart) & kept), magnitude = single(bits_of(fabsf(y)) & kept);
        largest = distance > largest ? distance : largest;
        most = magnitude > most ? magnitude : most;
        differences += (double)distance * (double)distance;
        squares += (double)magnitude * (double)magnitude;
        masked += is_masked;
    }
    *found = (struct distance){differences, squares, largest, most};
    return masked;
}

PUBLIC double msdump_find_outside(const void *x, const void *y, size_t length, const struct lanes *lanes,
                                  struct distance *found) {
    return find_outside(x, y, length, lanes, found);
}

PUBLIC void msdump_sum_pairs(const void *x, const void *y, size_t length, float nothing, struct pairs *sums,
                             float *totals) {
    sum_pairs(x, y, length, nothing, sums, totals);
}

PUBLIC void msdump_sum_scaled(const void *x, const void *y, size_t length, const struct scales *scales,
                              float *totals) {
    pass_parts(scale_part, x, y, length, scales, NULL, SCALED_TERMS, totals);
}

PUBLIC void msdump_divide_densities(const void *x, const void *y, size_t length, const struct scales *scales,
                                    const float *totals, float *densities, float *quotients) {
    divide_densities(x, y, length, scales, totals, densities, quotients);
}

PUBLIC double msdump_most_units(const void *x, const void *y, size_t length, double least) {
    return most_units(x, y, length, least);
}

PUBLIC void msdump_find_apart(const void *x, const void *y, size_t length, size_t block, struct apart *found) {
    find_apart(x, y, length, block, found);
}
