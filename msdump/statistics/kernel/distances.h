/* How far float32 vectors are apart, for many pairs in one call.
 *
 * The elements may lie at any address. */

typedef float place __attribute__((aligned(1), may_alias)); /* of a float in a dump file */

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
