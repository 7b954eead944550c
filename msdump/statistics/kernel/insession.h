/* Measure(value, addresses) -> value: an operator of onnxruntime that measures a value and hands it on.
 *
 * The value is read right behind its producer, while caches hold it; where the runtime lets both share memory,
 * nothing is copied. The attribute "slot" is the place of the findings in the arrays at the addresses. The findings
 * have the bits that msdump_measure gives: parts and runs are added in its order, whichever thread reads them.
 *
 * The runtime's interface is a table of functions, which is only ever appended to, and a record of an operator's
 * functions: onnxruntime_c_api.h of microsoft/onnxruntime gives the places. */

#define API_VERSION 18 /* of the interface: the first one in which an operator may hand on its input */
#define MOST_DIMENSIONS 8 /* that are told of */
#define MOST_RANK 64      /* numpy has no tensors of more dimensions */
#define MOST_PARTS 64
#define SHARED_RUNS 16 /* a piece of fewer runs takes no longer than a thread to wake */

/* What a value is like; as insession.py reads it. */
struct kind {
    int64_t type; /* the runtime's number of its element type */
    int64_t rank;
    int64_t dimensions[MOST_DIMENSIONS];
};

typedef void status; /* NULL where all is well */
typedef void piece_task(void *given, size_t number);

/* The places of functions in the table. */
struct interface {
    status *(*fail)(int code, const char *message);
    void *before_domains[25];
    status *(*create_domain)(const char *name, void **domain);
    status *(*add_operator)(void *domain, const void *operator);
    status *(*add_domain)(void *options, void *domain);
    void *before_data[22];
    status *(*data_of)(void *value, void **data);
    void *before_type[8];
    status *(*type_of)(const void *info, int *type);
    status *(*rank_of)(const void *info, size_t *rank);
    status *(*dimensions_of)(const void *info, int64_t *dimensions, size_t rank);
    void *before_info[2];
    status *(*info_of)(const void *value, void **info);
    void *before_attribute[20];
    status *(*attribute)(const void *info, const char *name, int64_t *value);
    void *before_input[3];
    status *(*input)(const void *context, size_t number, const void **value);
    status *(*output)(void *context, size_t number, const int64_t *dimensions, size_t rank, void **value);
    void *before_release[7];
    void (*release_info)(void *info);
    void *before_spread[174];
    status *(*spread)(const void *context, piece_task *task, size_t count, size_t batches, void *given);
};

#define PLACE(field, number) \
    _Static_assert(offsetof(struct interface, field) == (number) * sizeof(void *), "the place of a function")
PLACE(create_domain, 26);
PLACE(data_of, 51);
PLACE(type_of, 60);
PLACE(info_of, 65);
PLACE(attribute, 86);
PLACE(input, 90);
PLACE(release_info, 99);
PLACE(spread, 274);

struct interfaces {
    const struct interface *(*of_version)(uint32_t version);
    const char *(*version)(void);
};

static const struct interface *runtime;

/* Places in TYPES of the runtime's element types, those of ONNX; truth values are numbers. */
static const int8_t PLACES[] = {-1, 2, 5, 4, 7, 6, 8, 10, -1, 5, 0, 3, 9, 11, -1, -1, 1};

static int place_of(int type) { return type >= 0 && (size_t)type < sizeof PLACES ? PLACES[type] : -1; }

#define TRY(call) \
    if ((failure = (call))) \
    return failure

/* What an operator is given. */
struct value {
    void *data;
    int type;
    size_t rank, length;
    int64_t dimensions[MOST_RANK];
};

/* Takes the value that an operator is given, and the addresses. */
static status *take(const void *context, struct value *value, void ***addresses) {
    const void *given, *where;
    void *info;
    status *failure;
    TRY(runtime->input(context, 0, &given));
    TRY(runtime->input(context, 1, &where));
    TRY(runtime->data_of((void *)where, (void **)addresses));
    TRY(runtime->data_of((void *)given, &value->data));
    TRY(runtime->info_of(given, &info));
    failure = runtime->type_of(info, &value->type);
    if (!failure)
        failure = runtime->rank_of(info, &value->rank);
    if (!failure && value->rank > MOST_RANK)
        failure = runtime->fail(1, "a value has too many dimensions");
    if (!failure)
        failure = runtime->dimensions_of(info, value->dimensions, value->rank);
    runtime->release_info(info);
    if (failure)
        return failure;
    if (place_of(value->type) < 0)
        return runtime->fail(1, "a value has a type that is not looked at");
    value->length = 1;
    for (size_t at = 0; at < value->rank; at++)
        value->length *= (size_t)value->dimensions[at];
    return NULL;
}

static void tell_kind(const struct value *value, struct kind *kind) {
    const size_t told = value->rank < MOST_DIMENSIONS ? value->rank : MOST_DIMENSIONS;
    kind->type = value->type;
    kind->rank = (int64_t)value->rank;
    memcpy(kind->dimensions, value->dimensions, told * sizeof *value->dimensions);
}

/* Hands a value on: in the same memory where the runtime shares it. */
static status *hand_on(void *context, const struct value *value) {
    void *made, *out;
    status *failure;
    TRY(runtime->output(context, 0, value->dimensions, value->rank, &made));
    TRY(runtime->data_of(made, &out));
    if (value->length && out != value->data)
        memcpy(out, value->data, value->length * TYPES[place_of(value->type)].size);
    return NULL;
}

/* One node of a model: its attributes. */
struct node {
    int64_t slot, need, threads, part;
};

/* Memory that is lacking is reported in the words that shortage.py knows. */
static status *create_node(const void *operator, const struct interface *interface, const void *info, void **made) {
    struct node *const node = malloc(sizeof *node);
    status *failure = node ? NULL : interface->fail(1, "out of memory for a node");
    (void)operator;
    if (!failure)
        failure = interface->attribute(info, "slot", &node->slot);
    if (!failure)
        failure = interface->attribute(info, "need", &node->need);
    if (!failure)
        failure = interface->attribute(info, "threads", &node->threads);
    if (!failure)
        failure = interface->attribute(info, "part", &node->part);
    if (failure)
        free(node);
    else
        *made = node;
    return failure;
}

static void destroy_node(void *node) { free(node); }

/* Pieces of a value, which threads share. */
struct pieces {
    const char *data;
    size_t length, count, runs; /* elements, pieces, and runs of a piece; 0: pieces are parts, each whole */
    int type, need;
    struct found *found; /* of each run, or of each part */
};

static void pass_piece(void *given, size_t number) {
    const struct pieces *const all = given;
    const struct type *const type = &TYPES[all->type];
    if (!all->runs) { /* as msdump's threads share a long tensor */
        const size_t from = all->length * number / all->count, to = all->length * (number + 1) / all->count;
        measure(all->data + from * type->size, to - from, all->type, all->need, all->found + number);
        return;
    }
    for (size_t run = number * all->runs; run < (number + 1) * all->runs && run * RUN < all->length; run++) {
        const size_t left = all->length - run * RUN;
        type->pass(all->data + run * RUN * type->size, left < RUN ? left : RUN, all->need, all->found + run);
    }
}

/* Takes in what is known of the elements behind; NaN stays. */
static void join(struct found *found, const struct found *behind) {
    if (behind->high > found->high || isnan(behind->high))
        found->high = behind->high;
    if (behind->low < found->low || isnan(behind->low))
        found->low = behind->low;
    found->negative += behind->negative;
    found->positive += behind->positive;
    found->nan += behind->nan;
    found->negative_inf += behind->negative_inf;
    found->positive_inf += behind->positive_inf;
    found->total += behind->total;
    found->squares += behind->squares;
}

static status *find(const struct node *node, const void *context, int type, const char *data, size_t length,
                    struct found *found) {
    const size_t parts = length / (size_t)node->part, runs = (length + RUN - 1) / RUN;
    const size_t threads = (size_t)node->threads < MOST_PARTS ? (size_t)node->threads : MOST_PARTS;
    struct pieces all = {.data = data, .length = length, .type = type, .need = (int)node->need};
    if (parts >= 2)
        all.count = parts < threads ? parts : threads;
    else if (runs >= 2 * SHARED_RUNS && threads > 1) {
        all.count = runs / SHARED_RUNS < threads ? runs / SHARED_RUNS : threads;
        all.runs = (runs + all.count - 1) / all.count;
    }
    if (all.count > 1)
        all.found = malloc((all.runs ? runs : all.count) * sizeof *all.found);
    if (!all.found) { /* one thread's work, or no memory to share it */
        measure(data, length, type, (int)node->need, found);
        return NULL;
    }
    status *const failure = runtime->spread(context, pass_piece, all.count, all.count, &all);
    if (failure) {
        free(all.found);
        return failure;
    }
    *found = (struct found){.high = -INFINITY, .low = INFINITY};
    for (size_t number = 0; number < (all.runs ? runs : all.count); number++)
        join(found, all.found + number);
    if (all.runs)
        TYPES[type].settle(data, length, found);
    free(all.found);
    return NULL;
}

static status *measure_value(void *kernel, void *context) {
    const struct node *const node = kernel;
    struct value value;
    void **addresses;
    status *failure;
    TRY(take(context, &value, &addresses));
    tell_kind(&value, (struct kind *)addresses[1] + node->slot);
    TRY(hand_on(context, &value));
    struct found *const found = (struct found *)addresses[0] + node->slot;
    if (!value.length) {
        *found = (struct found){0}; /* not what the run before has left */
        return NULL;
    }
    return find(node, context, place_of(value.type), value.data, value.length, found);
}

/* What the runtime asks of an operator; it hands on a record that it is asked about. */
static const char *measure_name(const void *operator) { return (void)operator, "Measure"; }
static const char *no_provider(const void *operator) { return (void)operator, NULL; }
static int type(const void *operator, size_t number) { return (void)operator, number ? 7 : 0; } /* int64, any */
static size_t two(const void *operator) { return (void)operator, 2; }
static size_t one(const void *operator) { return (void)operator, 1; }
static int plain(const void *operator, size_t number) { return (void)operator, (void)number, 0; }
static int none(const void *operator) { return (void)operator, 0; }
static int first(const void *operator) { return (void)operator, 1; }
static int last(const void *operator) { return (void)operator, INT32_MAX; }

/* The output is the first input: nothing is written, so that it does not matter who else reads it. */
static size_t aliases(int **input, int **output) {
    static int place;
    *input = *output = &place;
    return 1;
}

static void release_places(int *input, int *output) { (void)input, (void)output; }

struct operator {
    uint32_t version;
    void *(*create)(const void *, const struct interface *, const void *);
    const char *(*name)(const void *), *(*provider)(const void *);
    int (*input_type)(const void *, size_t);
    size_t (*inputs)(const void *);
    int (*output_type)(const void *, size_t);
    size_t (*outputs)(const void *);
    void (*old_compute)(void *, void *);
    void (*destroy)(void *);
    int (*input_kind)(const void *, size_t), (*output_kind)(const void *, size_t), (*memory)(const void *, size_t);
    int (*least_inputs)(const void *), (*like_inputs)(const void *);
    int (*least_outputs)(const void *), (*like_outputs)(const void *);
    status *(*create_or_fail)(const void *, const struct interface *, const void *, void **);
    status *(*compute)(void *, void *);
    void *infer;
    int (*first_version)(const void *), (*last_version)(const void *);
    void *in_place, *release_in_place;
    size_t (*aliases)(int **, int **);
    void (*release_places)(int *, int *);
};

static const struct operator MEASURE = {
    .version = API_VERSION,
    .name = measure_name,
    .provider = no_provider,
    .input_type = type,
    .inputs = two,
    .output_type = type,
    .outputs = one,
    .destroy = destroy_node,
    .input_kind = plain,
    .output_kind = plain,
    .memory = plain,
    .least_inputs = none,
    .like_inputs = none,
    .least_outputs = first,
    .like_outputs = first,
    .create_or_fail = create_node,
    .compute = measure_value,
    .first_version = first,
    .last_version = last,
    .aliases = aliases,
    .release_places = release_places,
};

/* Called by the runtime for the options of each session that wants the operators; one older than the interface
 * does not get to know it, and refuses the model. */
PUBLIC status *RegisterCustomOps(void *options, const struct interfaces *interfaces) {
    static void *domain; /* of all sessions: it has to outlive them */
    status *failure;
    runtime = interfaces->of_version(API_VERSION);
    if (!runtime)
        return NULL;
    if (!domain) {
        void *made;
        TRY(runtime->create_domain("msdump", &made));
        TRY(runtime->add_operator(made, &MEASURE));
        domain = made;
    }
    return runtime->add_domain(options, domain);
}
