/* Four threads with a model in common: sessions of their own, one engine, and an executor of POSIX threads. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>

#define THREADS 4

static const uint32_t ids[] = {6, 11, 0, 9, 14, 32, 0};
static const size_t offsets[] = {0, 3, 7};

struct found {
    uint32_t tokens[2][64];
    size_t lens[2];
};

static int32_t on_event(void *user, const sf_event *event)
{
    struct found *found = (struct found *)user;
    if (event->kind == SF_EVENT_DONE) {
        found->lens[event->source] = event->hypotheses[0].tokens_len;
        memcpy(found->tokens[event->source], event->hypotheses[0].tokens,
               event->hypotheses[0].tokens_len * sizeof(uint32_t));
    }
    return SF_CONTINUE;
}

struct shared {
    const sf_model *model;
    const sf_engine *engine;
    const sf_cancel *cancel;
    const sf_options *options;
    const sf_executor *executor;
};

struct work {
    const struct shared *shared;
    struct found found;
};

static void make_sources(sf_source *sources)
{
    size_t i;
    for (i = 0; i < 2; i++) {
        SF_DEFAULTS(sources[i]);
        sources[i].tokens = ids + offsets[i];
        sources[i].tokens_len = offsets[i + 1] - offsets[i];
    }
}

static void *run(void *argument)
{
    struct work *work = (struct work *)argument;
    const struct shared *shared = work->shared;
    sf_session *session;
    sf_limits limits;
    sf_source sources[2];
    sf_results *results;
    size_t i;

    make_sources(sources);
    OK(sf_limits_init(&limits, 2, 16, 39));
    OK(sf_session_new(shared->model, &limits, &session));
    OK(sf_session_set_executor(session, shared->executor));
    OK(sf_session_set_cancel(session, shared->cancel));
    OK(sf_generate(session, sources, 2, shared->options, on_event, &work->found, NULL_POINTER));
    /* Errors of one thread are not those of others. */
    FAILS(SF_ERROR_ARGUMENT, sf_generate(session, sources, 2, NULL_POINTER, on_event, NULL_POINTER, NULL_POINTER));
    OK(sf_engine_generate(shared->engine, sources, 2, NULL_POINTER, &results));
    for (i = 0; i < 2; i++) {
        sf_result result;
        SF_DEFAULTS(result);
        OK(sf_results_get(results, i, &result));
        CHECK(result.error == SF_OK && result.hypotheses_len == 1);
        CHECK(result.hypotheses[0].tokens_len == work->found.lens[i]);
        CHECK(memcmp(result.hypotheses[0].tokens, work->found.tokens[i], work->found.lens[i] * sizeof(uint32_t)) == 0);
    }
    OK(sf_results_close(&results));
    OK(sf_session_close(&session));
    return NULL_POINTER;
}

/* An executor that starts threads for each call. */
struct call {
    pthread_mutex_t lock;
    size_t next;
    size_t tasks;
    sf_task task;
    void *argument;
};

static void *help(void *argument)
{
    struct call *call = (struct call *)argument;
    for (;;) {
        pthread_mutex_lock(&call->lock);
        size_t index = call->next++;
        pthread_mutex_unlock(&call->lock);
        if (index >= call->tasks) {
            return NULL_POINTER;
        }
        call->task(call->argument, index);
    }
}

static size_t threads(void *context)
{
    (void)context;
    return 3;
}

static void for_each(void *context, size_t tasks, sf_task task, void *argument)
{
    struct call call;
    pthread_t helpers[2];
    size_t i;
    (void)context;
    call.next = 0;
    call.tasks = tasks;
    call.task = task;
    call.argument = argument;
    CHECK(pthread_mutex_init(&call.lock, NULL_POINTER) == 0);
    for (i = 0; i < 2; i++) {
        CHECK(pthread_create(&helpers[i], NULL_POINTER, help, &call) == 0);
    }
    help(&call);
    for (i = 0; i < 2; i++) {
        CHECK(pthread_join(helpers[i], NULL_POINTER) == 0);
    }
    pthread_mutex_destroy(&call.lock);
}

static void *cancel_later(void *argument)
{
    OK(sf_cancel_set((const sf_cancel *)argument));
    return NULL_POINTER;
}

/* Events of an engine with an executor come from several threads. */
struct counted {
    pthread_mutex_t lock;
    size_t done;
};

static int32_t count(void *user, const sf_event *event)
{
    struct counted *counted = (struct counted *)user;
    if (event->kind == SF_EVENT_DONE) {
        pthread_mutex_lock(&counted->lock);
        counted->done++;
        pthread_mutex_unlock(&counted->lock);
    }
    return SF_CONTINUE;
}

/* A session that is in use refuses other calls: here that of its own callback. */
static int32_t reenter(void *user, const sf_event *event)
{
    sf_session *session = *(sf_session **)user;
    size_t slots;
    (void)event;
    FAILS(SF_ERROR_BUSY, sf_free_sentences(session, &slots));
    FAILS(SF_ERROR_BUSY, sf_session_clear(session));
    FAILS(SF_ERROR_BUSY, sf_session_close(&session));
    CHECK(session != NULL_POINTER);
    return SF_STOP_ALL;
}

int main(int argc, char **argv)
{
    sf_model *model;
    sf_engine *engine, *threaded;
    sf_engine_settings settings;
    sf_cancel *cancel;
    sf_options *options;
    sf_executor executor;
    struct shared shared;
    struct work work[THREADS];
    pthread_t running[THREADS], canceller;
    size_t i;

    CHECK(argc == 2);
    OK(sf_model_open(argv[1], NULL_POINTER, &model));
    OK(sf_engine_new(model, NULL_POINTER, &engine));
    OK(sf_cancel_new(&cancel));
    OK(sf_options_new(model, &options));
    SF_DEFAULTS(executor);
    executor.threads = threads;
    executor.for_each = for_each;
    shared.model = model;
    shared.engine = engine;
    shared.cancel = cancel;
    shared.options = options;
    for (shared.executor = NULL_POINTER;; shared.executor = &executor) {
        for (i = 0; i < THREADS; i++) {
            memset(&work[i], 0, sizeof work[i]);
            work[i].shared = &shared;
            CHECK(pthread_create(&running[i], NULL_POINTER, run, &work[i]) == 0);
        }
        for (i = 0; i < THREADS; i++) {
            CHECK(pthread_join(running[i], NULL_POINTER) == 0);
            CHECK(work[i].found.lens[0] > 0);
            CHECK(memcmp(&work[i].found, &work[0].found, sizeof work[i].found) == 0);
        }
        if (shared.executor != NULL_POINTER) {
            break;
        }
    }

    /* An engine on an executor. */
    sf_source sources[2];
    struct counted counted;
    make_sources(sources);
    SF_DEFAULTS(settings);
    settings.executor = &executor;
    settings.cancel = cancel;
    settings.slots = 4;
    settings.sessions = 2;
    OK(sf_engine_new(model, &settings, &threaded));
    counted.done = 0;
    CHECK(pthread_mutex_init(&counted.lock, NULL_POINTER) == 0);
    OK(sf_engine_stream(threaded, sources, 2, NULL_POINTER, count, &counted));
    CHECK(counted.done == 2);
    pthread_mutex_destroy(&counted.lock);

    /* A cancellation by another thread. */
    sf_results *results;
    CHECK(pthread_create(&canceller, NULL_POINTER, cancel_later, cancel) == 0);
    CHECK(pthread_join(canceller, NULL_POINTER) == 0);
    FAILS(SF_ERROR_CANCELLED, sf_engine_generate(threaded, sources, 2, NULL_POINTER, &results));
    OK(sf_cancel_reset(cancel));
    OK(sf_engine_generate(threaded, sources, 2, NULL_POINTER, &results));
    OK(sf_results_close(&results));
    OK(sf_engine_close(&threaded));

    sf_session *session;
    sf_limits limits;
    OK(sf_limits_init(&limits, 1, 16, 39));
    OK(sf_session_new(model, &limits, &session));
    OK(sf_generate(session, sources, 1, options, reenter, &session, NULL_POINTER));
    OK(sf_session_close(&session));
    OK(sf_options_close(&options));
    OK(sf_cancel_close(&cancel));
    OK(sf_engine_close(&engine));
    OK(sf_model_close(&model));
    return 0;
}
