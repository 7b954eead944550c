/* MD5 (RFC 1321) of several messages at once, one in each lane of a vector.
 *
 * A step of MD5 waits for the one before it, so that a core works at one message for a quarter of what it
 * could do; with sixteen it has all its lanes full. A lane that has ended its message takes the next one.
 * Words are read as they lie in memory: only where the low byte comes first (digests.py).
 */
#define MESSAGES 16 /* at a time */
#define MD5_BLOCK 64 /* bytes */
#define MD5_WORDS 16 /* of a block */

typedef uint32_t lanes __attribute__((vector_size(4 * MESSAGES)));
typedef uint32_t four __attribute__((vector_size(16)));

struct octets {
    const uint8_t *data;
    uint64_t size;
};

/* A message in a lane: what is left of its whole blocks, then of those with its end, padded. */
struct message {
    const uint8_t *next;
    uint64_t blocks;
    size_t number; /* of the message */
    unsigned end_blocks;
    uint8_t end[2 * MD5_BLOCK];
};

static const uint32_t MD5_BEGIN[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

#define MD5_F(x, y, z) (z ^ (x & (y ^ z)))
#define MD5_G(x, y, z) (y ^ (z & (x ^ y)))
#define MD5_H(x, y, z) (x ^ y ^ z)
#define MD5_I(x, y, z) (y ^ (x | ~z))

/* What does not wait for the step before comes first. */
#define MD5_STEP(f, a, b, c, d, word, shift, constant) \
    a = f(b, c, d) + (a + (word + constant));          \
    a = (a << shift | a >> (32 - shift)) + b;
#define MD5_STEPS(f, w, i0, k0, i1, k1, i2, k2, i3, k3, s0, s1, s2, s3) \
    MD5_STEP(f, a, b, c, d, w[i0], s0, k0)                              \
    MD5_STEP(f, d, a, b, c, w[i1], s1, k1)                              \
    MD5_STEP(f, c, d, a, b, w[i2], s2, k2)                              \
    MD5_STEP(f, b, c, d, a, w[i3], s3, k3)

#define MD5_ROUNDS(w)                                                                                  \
    MD5_STEPS(MD5_F, w, 0, 0xd76aa478u, 1, 0xe8c7b756u, 2, 0x242070dbu, 3, 0xc1bdceeeu, 7, 12, 17, 22) \
    MD5_STEPS(MD5_F, w, 4, 0xf57c0fafu, 5, 0x4787c62au, 6, 0xa8304613u, 7, 0xfd469501u, 7, 12, 17, 22) \
    MD5_STEPS(MD5_F, w, 8, 0x698098d8u, 9, 0x8b44f7afu, 10, 0xffff5bb1u, 11, 0x895cd7beu, 7, 12, 17, 22)\
    MD5_STEPS(MD5_F, w, 12, 0x6b901122u, 13, 0xfd987193u, 14, 0xa679438eu, 15, 0x49b40821u, 7, 12, 17, 22)\
    MD5_STEPS(MD5_G, w, 1, 0xf61e2562u, 6, 0xc040b340u, 11, 0x265e5a51u, 0, 0xe9b6c7aau, 5, 9, 14, 20) \
    MD5_STEPS(MD5_G, w, 5, 0xd62f105du, 10, 0x02441453u, 15, 0xd8a1e681u, 4, 0xe7d3fbc8u, 5, 9, 14, 20)\
    MD5_STEPS(MD5_G, w, 9, 0x21e1cde6u, 14, 0xc33707d6u, 3, 0xf4d50d87u, 8, 0x455a14edu, 5, 9, 14, 20) \
    MD5_STEPS(MD5_G, w, 13, 0xa9e3e905u, 2, 0xfcefa3f8u, 7, 0x676f02d9u, 12, 0x8d2a4c8au, 5, 9, 14, 20)\
    MD5_STEPS(MD5_H, w, 5, 0xfffa3942u, 8, 0x8771f681u, 11, 0x6d9d6122u, 14, 0xfde5380cu, 4, 11, 16, 23)\
    MD5_STEPS(MD5_H, w, 1, 0xa4beea44u, 4, 0x4bdecfa9u, 7, 0xf6bb4b60u, 10, 0xbebfbc70u, 4, 11, 16, 23)\
    MD5_STEPS(MD5_H, w, 13, 0x289b7ec6u, 0, 0xeaa127fau, 3, 0xd4ef3085u, 6, 0x04881d05u, 4, 11, 16, 23)\
    MD5_STEPS(MD5_H, w, 9, 0xd9d4d039u, 12, 0xe6db99e5u, 15, 0x1fa27cf8u, 2, 0xc4ac5665u, 4, 11, 16, 23)\
    MD5_STEPS(MD5_I, w, 0, 0xf4292244u, 7, 0x432aff97u, 14, 0xab9423a7u, 5, 0xfc93a039u, 6, 10, 15, 21)\
    MD5_STEPS(MD5_I, w, 12, 0x655b59c3u, 3, 0x8f0ccc92u, 10, 0xffeff47du, 1, 0x85845dd1u, 6, 10, 15, 21)\
    MD5_STEPS(MD5_I, w, 8, 0x6fa87e4fu, 15, 0xfe2ce6e0u, 6, 0xa3014314u, 13, 0x4e0811a1u, 6, 10, 15, 21)\
    MD5_STEPS(MD5_I, w, 4, 0xf7537e82u, 11, 0xbd3af235u, 2, 0x2ad7d2bbu, 9, 0xeb86d391u, 6, 10, 15, 21)

#if defined(__clang__)
#define BLENDED(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l)
#else
#define BLENDED(x, y, i, j, k, l) __builtin_shuffle(x, y, (four){i, j, k, l})
#endif

/* Four words of four lanes, from where lanes stand: a row for each word. */
INLINE void put_words(const uint8_t *const *data, size_t lane, size_t word, uint32_t (*rows)[MESSAGES]) {
    four from[4];
    for (int i = 0; i < 4; i++)
        memcpy(&from[i], data[lane + i] + 4 * word, sizeof from[i]);
    four low = BLENDED(from[0], from[1], 0, 4, 1, 5), high = BLENDED(from[0], from[1], 2, 6, 3, 7);
    four low2 = BLENDED(from[2], from[3], 0, 4, 1, 5), high2 = BLENDED(from[2], from[3], 2, 6, 3, 7);
    four made[4] = {BLENDED(low, low2, 0, 1, 4, 5), BLENDED(low, low2, 2, 3, 6, 7),
                    BLENDED(high, high2, 0, 1, 4, 5), BLENDED(high, high2, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++)
        memcpy(&rows[word + i][lane], &made[i], sizeof made[i]);
}

/* Take blocks of every lane into its state; a lane of step 0 takes one block again and again. */
CLONES static void md5_lanes(lanes state[4], const uint8_t **data, const size_t *steps, uint64_t blocks) {
    lanes a = state[0], b = state[1], c = state[2], d = state[3];
    for (; blocks; blocks--) {
        lanes words[MD5_WORDS];
        for (size_t lane = 0; lane < MESSAGES; lane += 4)
            for (size_t word = 0; word < MD5_WORDS; word += 4)
                put_words(data, lane, word, (uint32_t(*)[MESSAGES])words);
        for (size_t lane = 0; lane < MESSAGES; lane++)
            data[lane] += steps[lane];
        lanes a0 = a, b0 = b, c0 = c, d0 = d;
        MD5_ROUNDS(words)
        a += a0, b += b0, c += c0, d += d0;
    }
    state[0] = a, state[1] = b, state[2] = c, state[3] = d;
}

/* The same of one message alone: vectors would be no faster than for sixteen. */
CLONES static void md5_alone(uint32_t state[4], const uint8_t *data, uint64_t blocks) {
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    for (; blocks; blocks--, data += MD5_BLOCK) {
        uint32_t words[MD5_WORDS];
        memcpy(words, data, MD5_BLOCK);
        uint32_t a0 = a, b0 = b, c0 = c, d0 = d;
        MD5_ROUNDS(words)
        a += a0, b += b0, c += c0, d += d0;
    }
    state[0] = a, state[1] = b, state[2] = c, state[3] = d;
}

/* What goes on at a time: a message in each lane, where there are as many. */
struct hashing {
    lanes state[4];
    const uint8_t *data[MESSAGES]; /* where a lane stands, and how far it steps for a block */
    size_t steps[MESSAGES];
    struct message messages[MESSAGES];
    int is_busy[MESSAGES];
};

INLINE uint32_t *in_lane(struct hashing *hashing, size_t part, size_t lane) {
    return (uint32_t *)&hashing->state[part] + lane;
}

static void begin_message(struct hashing *hashing, size_t lane, size_t number, const struct octets *octets) {
    struct message *message = &hashing->messages[lane];
    uint64_t size = octets->size, left = size % MD5_BLOCK, bits = 8 * size;
    message->next = octets->data;
    message->blocks = size / MD5_BLOCK;
    message->number = number;
    message->end_blocks = left + 1 + sizeof bits > MD5_BLOCK ? 2 : 1;
    memset(message->end, 0, sizeof message->end);
    if (left)
        memcpy(message->end, octets->data + (size - left), left);
    message->end[left] = 0x80;
    memcpy(message->end + message->end_blocks * MD5_BLOCK - sizeof bits, &bits, sizeof bits);
    for (size_t part = 0; part < 4; part++)
        *in_lane(hashing, part, lane) = MD5_BEGIN[part];
    hashing->is_busy[lane] = 1;
}

/* Go over to the blocks with its end where the whole ones are taken; tell whether there are blocks. */
static int has_blocks(struct message *message) {
    if (!message->blocks && message->end_blocks) {
        message->next = message->end;
        message->blocks = message->end_blocks;
        message->end_blocks = 0;
    }
    return message->blocks != 0;
}

/* Take as many blocks as every busy lane has. */
static void take_blocks(struct hashing *hashing, uint64_t blocks, size_t busy, size_t last) {
    if (busy > 1)
        md5_lanes(hashing->state, hashing->data, hashing->steps, blocks);
    else {
        uint32_t state[4];
        for (size_t part = 0; part < 4; part++)
            state[part] = *in_lane(hashing, part, last);
        md5_alone(state, hashing->data[last], blocks);
        for (size_t part = 0; part < 4; part++)
            *in_lane(hashing, part, last) = state[part];
    }
    for (size_t lane = 0; lane < MESSAGES; lane++) {
        hashing->messages[lane].next += hashing->is_busy[lane] ? blocks * MD5_BLOCK : 0;
        hashing->messages[lane].blocks -= hashing->is_busy[lane] ? blocks : 0;
    }
}

/* Write the MD5 of messages, 16 bytes each; those that come first begin first. */
PUBLIC void msdump_md5(const struct octets *given, size_t count, uint8_t (*digests)[16]) {
    struct hashing hashing = {0};
    const uint8_t nothing[MD5_BLOCK] = {0};
    for (size_t begun = 0;;) {
        uint64_t blocks = UINT64_MAX;
        size_t busy = 0, last = 0;
        for (size_t lane = 0; lane < MESSAGES; lane++) {
            struct message *message = &hashing.messages[lane];
            if (hashing.is_busy[lane] && !has_blocks(message)) {
                for (size_t part = 0; part < 4; part++)
                    memcpy(digests[message->number] + 4 * part, in_lane(&hashing, part, lane), 4);
                hashing.is_busy[lane] = 0;
            }
            if (!hashing.is_busy[lane] && begun < count) {
                begin_message(&hashing, lane, begun, given + begun);
                has_blocks(message);
                begun++;
            }
            int is_busy = hashing.is_busy[lane];
            hashing.data[lane] = is_busy ? message->next : nothing;
            hashing.steps[lane] = is_busy ? MD5_BLOCK : 0;
            if (is_busy) {
                blocks = message->blocks < blocks ? message->blocks : blocks;
                busy++;
                last = lane;
            }
        }
        if (!busy)
            return;
        take_blocks(&hashing, blocks, busy, last);
    }
}
