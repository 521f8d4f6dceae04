/* A session in the caller's memory: every size and alignment, and no call of malloc after it was made. */
#include "check.h"

#if defined(__GLIBC__) && !defined(WITHOUT_MALLOC_COUNT)
#define COUNTED 1
/* The functions of the C library, which these replace in the whole process, the library included. */
#ifdef __cplusplus
extern "C" {
#endif
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
#ifdef __cplusplus
}
#define NOEXCEPT noexcept
extern "C" {
#else
#define NOEXCEPT
#endif

static size_t calls;

void *malloc(size_t size) NOEXCEPT
{
    calls++;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) NOEXCEPT
{
    calls++;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) NOEXCEPT
{
    calls++;
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size) NOEXCEPT
{
    calls++;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **place, size_t alignment, size_t size) NOEXCEPT
{
    calls++;
    *place = __libc_memalign(alignment, size);
    return *place == NULL_POINTER ? 12 : 0;
}
#ifdef __cplusplus
}
#endif
#else
#define COUNTED 0
static size_t calls;
#endif

static const uint32_t ids[] = {6, 11, 0, 9, 14, 32, 0};
static const size_t offsets[] = {0, 3, 7};
static const uint32_t outside = 100000;

struct found {
    uint32_t tokens[64];
    size_t len;
};

static int32_t on_event(void *user, const sf_event *event)
{
    struct found *found = (struct found *)user;
    if (event->kind == SF_EVENT_DONE && event->source == 0) {
        found->len = event->hypotheses[0].tokens_len;
        memcpy(found->tokens, event->hypotheses[0].tokens, found->len * sizeof(uint32_t));
    }
    return SF_CONTINUE;
}

static size_t one(void *context)
{
    (void)context;
    return 2;
}

static void in_order(void *context, size_t tasks, sf_task task, void *argument)
{
    size_t i;
    *(size_t *)context += tasks;
    for (i = 0; i < tasks; i++) {
        task(argument, i);
    }
}

/* Everything that a session does, with a refused call and a text of an error among it. */
static void use(sf_session *session, const sf_options *options, const sf_executor *executor, struct found *found)
{
    sf_sentence sentences[2];
    sf_hypothesis hypotheses[2], fork;
    uint32_t tokens[2] = {2317, 2317}, best[2];
    float *logits;
    const float *hidden;
    sf_source sources[8];
    char text[512];
    size_t i;

    OK(sf_session_set_executor(session, executor));
    OK(sf_encode(session, ids, offsets, 2, sentences));
    OK(sf_start(session, sentences[0], &hypotheses[0]));
    OK(sf_start(session, sentences[1], &hypotheses[1]));
    OK(sf_step(session, hypotheses, tokens, 2, &logits));
    OK(sf_fork(session, hypotheses[0], &fork));
    OK(sf_step_best(session, &fork, tokens, 1, NULL_POINTER, NULL_POINTER, best));
    OK(sf_prefill(session, hypotheses[1], best, 1));
    OK(sf_hidden(session, ids, offsets, 1, &hidden));
    FAILS(SF_ERROR_TOKEN, sf_prefill(session, hypotheses[1], &outside, 1));
    CHECK(sf_last_error(text, sizeof text) > 0);
    OK(sf_session_clear(session));
    FAILS(SF_ERROR_INVALID_HANDLE, sf_release(session, fork));
    for (i = 0; i < 8; i++) {
        SF_DEFAULTS(sources[i]);
        sources[i].tokens = ids + offsets[i % 2];
        sources[i].tokens_len = offsets[i % 2 + 1] - offsets[i % 2];
    }
    OK(sf_generate(session, sources, 8, options, on_event, found, NULL_POINTER));
}

int main(int argc, char **argv)
{
    sf_model *model;
    sf_limits limits;
    sf_options *options;
    sf_executor executor;
    sf_session *session;
    size_t bytes, shift, tasks = 0;
    struct found expected, found;

    CHECK(argc == 2);
    OK(sf_model_open(argv[1], NULL_POINTER, &model));
    OK(sf_limits_init(&limits, 2, 16, 40));
    limits.beams = 4;
    limits.sources = 8;
    OK(sf_session_bytes(model, &limits, &bytes));
    printf("bytes %s\n", bytes > 100000 && bytes < 100000000 ? "planned" : "wrong");
    SF_DEFAULTS(executor);
    executor.context = &tasks;
    executor.threads = one;
    executor.for_each = in_order;

    memset(&expected, 0, sizeof expected);
    OK(sf_session_new(model, &limits, &session));
    OK(sf_session_options(session, &options));
    OK(sf_options_set(options, "num_beams", "3"));
    size_t before = calls;
    use(session, options, NULL_POINTER, &expected);
    CHECK(calls == before);
    OK(sf_session_close(&session));

    /* With guards before and after, at every alignment. */
    unsigned char *arena = (unsigned char *)malloc(bytes + 64);
    CHECK(arena != NULL_POINTER);
    for (shift = 0; shift < 64; shift = shift < 8 ? shift + 1 : shift * 2) {
        memset(arena, 0xa5, bytes + 64);
        FAILS(SF_ERROR_MEMORY_SIZE, sf_session_init(model, &limits, arena + shift, bytes - 1, &session));
        CHECK(session == NULL_POINTER);
        OK(sf_session_init(model, &limits, arena + shift, bytes, &session));
        memset(&found, 0, sizeof found);
        before = calls;
        use(session, options, shift % 2 == 0 ? NULL_POINTER : &executor, &found);
        CHECK(calls == before);
        CHECK(found.len > 0 && memcmp(&found, &expected, sizeof found) == 0);
        OK(sf_session_close(&session));
        CHECK(calls == before);
        size_t i;
        for (i = 0; i < 64; i++) {
            CHECK(arena[i < shift ? i : bytes + i] == 0xa5);
        }
    }
    CHECK(tasks > 0);
    free(arena);
    OK(sf_options_close(&options));
    OK(sf_model_close(&model));
    printf("calls of malloc %s\n", COUNTED ? (calls > 10 ? "counted" : "not seen") : "not counted");
    return 0;
}
