/* The functions of one type, which kernel.c describes by macros. */

#ifdef INFINITE_BITS
INLINE void JOINED(loop, NAME)(const MEMORY *data, size_t length, int need, struct found *found) {
    int16_t high = INT16_MIN, low = INT16_MAX;
    int64_t negative = 0, positive = 0;
    double total = 0, squares = 0;
    for (size_t start = 0; start < length; start += RUN) {
        const MEMORY *run = data + start;
        const size_t end = length - start < RUN ? length - start : RUN;
        int16_t most = INT16_MIN, least = INT16_MAX, below = 0, above = 0;
#pragma omp simd reduction(+ : below, above) reduction(max : most) reduction(min : least)
        for (size_t at = 0; at < end; at++) {
            const int16_t place = in_order((int16_t)run[at]);
            most = place > most ? place : most;
            least = place < least ? place : least;
            if (need & COUNTS) {
                below += place < -1;
                above += place > 0;
            }
        }
        double sum = 0, sum_of_squares = 0;
        if (need & (TOTAL | SQUARES)) { /* the run is in the nearest cache now */
#pragma omp simd reduction(+ : sum, sum_of_squares)
            for (size_t at = 0; at < end; at++) {
                const double wide = (double)SCALED(run[at]);
                if (need & TOTAL)
                    sum += wide;
                if (need & SQUARES)
                    sum_of_squares += wide * wide;
            }
        }
        high = most > high ? most : high;
        low = least < low ? least : low;
        negative += below;
        positive += above;
        total += sum;
        squares += sum_of_squares;
    }
    *found = (struct found){
        .high = (double)LOAD((uint16_t)in_order(high)),
        .low = (double)LOAD((uint16_t)in_order(low)),
        .negative = negative,
        .positive = positive,
        .nan = high > INFINITE_BITS || low < -1 - INFINITE_BITS, /* whether there is any */
        .total = total / UNIT,
        .squares = squares / UNIT / UNIT,
    };
}
#else
INLINE void JOINED(loop, NAME)(const MEMORY *data, size_t length, int need, struct found *found) {
    VALUE high = LOWEST, low = HIGHEST;
    int64_t negative = 0, positive = 0, nan = 0;
    double total = 0, squares = 0;
    for (size_t start = 0; start < length; start += RUN) {
        const MEMORY *run = data + start;
        const size_t end = length - start < RUN ? length - start : RUN;
        VALUE most = LOWEST, least = HIGHEST;
        COUNT below = 0, above = 0, none = 0;
        double sum = 0, sum_of_squares = 0;
#pragma omp simd reduction(+ : below, above, none, sum, sum_of_squares) \
    reduction(max : most) reduction(min : least)
        for (size_t at = 0; at < end; at++) {
            const VALUE value = LOAD(run[at]);
            const double wide = (double)value;
            /* NaN, of which no comparison holds, changes neither */
            most = value > most ? value : most;
            least = value < least ? value : least;
            if (!(need & SQUARES)) /* else the squares tell */
                none += IS_NAN(value);
            if (need & COUNTS) {
                below += value < 0;
                above += value > 0;
            }
            if (need & TOTAL)
                sum += wide;
            if (need & SQUARES)
                sum_of_squares += wide * wide;
        }
        high = most > high ? most : high;
        low = least < low ? least : low;
        negative += below;
        positive += above;
        nan += none;
        total += sum;
        squares += sum_of_squares;
    }
    *found = (struct found){
        .high = (double)high,
        .low = (double)low,
        .negative = negative,
        .positive = positive,
        .nan = nan,
        .total = total,
        .squares = squares,
    };
}
#endif

CLONES SQUARING static void JOINED(all, NAME)(const MEMORY *data, size_t length, struct found *found) {
    JOINED(loop, NAME)(data, length, COUNTS | TOTAL | SQUARES, found);
}

CLONES SQUARING static void JOINED(extremes_and_squares, NAME)(const MEMORY *data, size_t length, struct found *found) {
    JOINED(loop, NAME)(data, length, SQUARES, found);
}

CLONES static void JOINED(extremes, NAME)(const MEMORY *data, size_t length, struct found *found) {
    JOINED(loop, NAME)(data, length, 0, found);
}

#ifndef IS_INTEGER
/* Put right what the loop leaves out or cannot tell apart where elements are NaN or infinite. */
static void JOINED(exceptions, NAME)(const MEMORY *data, size_t length, struct found *found) {
    int64_t negative = 0, positive = 0, nan = 0, negative_inf = 0, positive_inf = 0;
    for (size_t at = 0; at < length; at++) {
        const VALUE value = LOAD(data[at]);
        const int is_number = !IS_NAN(value);
        nan += !is_number;
        negative += is_number & (value < 0);
        positive += is_number & (value > 0);
        negative_inf += value == -INFINITE;
        positive_inf += value == INFINITE;
    }
    found->negative = negative;
    found->positive = positive;
    found->nan = nan;
    found->negative_inf = negative_inf;
    found->positive_inf = positive_inf;
    if (nan)
        found->high = found->low = NAN;
    else { /* the infinities of float16 are numbers in the loop */
        found->high *= fabs(found->high) >= INFINITE ? INFINITY : 1;
        found->low *= fabs(found->low) >= INFINITE ? INFINITY : 1;
    }
    /* the extremes add up to what the elements do: NaN with a NaN or with both infinities, else infinite */
    if (nan || positive_inf || negative_inf) {
        found->total = found->high + found->low;
        found->squares = nan ? NAN : INFINITY;
    }
}

/* Give extremes that are zero the sign of the first zero. */
static void JOINED(sign, NAME)(const MEMORY *data, size_t length, struct found *found) {
    for (size_t start = 0; start < length; start += RUN) {
        const size_t end = length - start < RUN ? length : start + RUN;
        unsigned zeros = 0;
        for (size_t at = start; at < end; at++)
            zeros |= LOAD(data[at]) == 0;
        for (size_t at = start; zeros && at < end; at++) {
            const double value = LOAD(data[at]);
            if (value == 0) {
                found->high = found->high == 0 ? value : found->high;
                found->low = found->low == 0 ? value : found->low;
                return;
            }
        }
    }
}
#endif

static void JOINED(pass, NAME)(const void *memory, size_t length, int need, struct found *found) {
    const MEMORY *data = memory;
    if (need & (COUNTS | TOTAL))
        JOINED(all, NAME)(data, length, found);
    else if (need & SQUARES)
        JOINED(extremes_and_squares, NAME)(data, length, found);
    else
        JOINED(extremes, NAME)(data, length, found);
}

/* Put right what the pass over all elements has found. */
static void JOINED(settle, NAME)(const void *memory, size_t length, struct found *found) {
#ifdef IS_INTEGER
    (void)memory;
#else
    const MEMORY *data = memory;
    if (found->nan || !isfinite(found->squares) || found->high >= INFINITE || found->low <= -INFINITE)
        JOINED(exceptions, NAME)(data, length, found);
    if (found->high == 0 || found->low == 0)
        JOINED(sign, NAME)(data, length, found);
#endif
    if (found->high == found->low) { /* adding up the elements one by one would round: fills are common */
        found->total = (double)length * found->high + 0.0; /* never -0.0 */
        found->squares = (double)length * found->high * found->high;
    }
}

#ifndef IS_INTEGER
#undef LOAD
#undef INFINITE
#undef IS_NAN
#undef SQUARING
#endif
#ifdef INFINITE_BITS
#undef INFINITE_BITS
#undef SCALED
#undef UNIT
#else
#undef LOWEST
#undef HIGHEST
#endif
#undef NAME
#undef MEMORY
#undef VALUE
#undef COUNT
