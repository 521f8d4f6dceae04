/* A panic of the library becomes an error: in a call, and in a task on threads of the caller. */
#include "check.h"

#ifdef __cplusplus
extern "C"
#endif
int32_t sf_test_panic(sf_session *session, int32_t in_task);

static size_t threads(void *context)
{
    (void)context;
    return 2;
}

static void for_each(void *context, size_t tasks, sf_task task, void *argument)
{
    size_t i;
    for (i = 0; i < tasks; i++) {
        task(argument, i); /* the panic of a task does not leave it */
        ++*(size_t *)context;
    }
}

int main(int argc, char **argv)
{
    static const uint32_t ids[] = {6, 11, 0};
    static const size_t offsets[] = {0, 3};
    sf_model *model;
    sf_session *session;
    sf_limits limits;
    sf_sentence sentence;
    sf_executor executor;
    size_t called = 0, slots;
    int32_t in_task;
    char text[512];

    CHECK(argc == 2);
    OK(sf_model_open(argv[1], NULL_POINTER, &model));
    OK(sf_limits_init(&limits, 1, 16, 16));
    OK(sf_session_new(model, &limits, &session));
    SF_DEFAULTS(executor);
    executor.context = &called;
    executor.threads = threads;
    executor.for_each = for_each;
    OK(sf_session_set_executor(session, &executor));
    for (in_task = 0; in_task < 2; in_task++) {
        OK(sf_encode(session, ids, offsets, 1, &sentence));
        FAILS(SF_ERROR_PANIC, sf_test_panic(session, in_task));
        sf_last_error(text, sizeof text);
        printf("%s\n", text);
        FAILS(SF_ERROR_UNUSABLE, sf_free_sentences(session, &slots));
        FAILS(SF_ERROR_UNUSABLE, sf_encode(session, ids, offsets, 1, &sentence));
        OK(sf_session_clear(session));
        OK(sf_free_sentences(session, &slots));
        CHECK(slots == 1);
    }
    CHECK(called == 4);
    OK(sf_session_close(&session));
    OK(sf_model_close(&model));
    return 0;
}
