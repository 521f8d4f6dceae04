/* A process that has loaded a model and translated forks: parent and children translate on. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint32_t ids[] = {6, 11, 0};

static void translate(const sf_engine *engine, uint32_t *tokens, size_t *len)
{
    sf_source source;
    sf_results *results;
    sf_result result;
    SF_DEFAULTS(source);
    source.tokens = ids;
    source.tokens_len = 3;
    OK(sf_engine_generate(engine, &source, 1, NULL_POINTER, &results));
    SF_DEFAULTS(result);
    OK(sf_results_get(results, 0, &result));
    CHECK(result.error == SF_OK && result.hypotheses[0].tokens_len <= 64);
    *len = result.hypotheses[0].tokens_len;
    memcpy(tokens, result.hypotheses[0].tokens, *len * sizeof(uint32_t));
    OK(sf_results_close(&results));
}

int main(int argc, char **argv)
{
    sf_model *model;
    sf_engine *engine;
    uint32_t before[64], after[64];
    size_t before_len, after_len;
    int i;

    CHECK(argc == 2);
    OK(sf_model_open(argv[1], NULL_POINTER, &model));
    OK(sf_engine_new(model, NULL_POINTER, &engine));
    translate(engine, before, &before_len);
    for (i = 0; i < 4; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            sf_session *session;
            sf_limits limits;
            translate(engine, after, &after_len);
            CHECK(after_len == before_len && memcmp(after, before, after_len * sizeof(uint32_t)) == 0);
            OK(sf_limits_init(&limits, 1, 16, 16));
            OK(sf_session_new(model, &limits, &session));
            OK(sf_session_close(&session));
            OK(sf_engine_close(&engine));
            OK(sf_model_close(&model));
            return 0;
        }
    }
    for (i = 0; i < 4; i++) {
        int status = 0;
        CHECK(wait(&status) > 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    translate(engine, after, &after_len);
    CHECK(after_len == before_len && memcmp(after, before, after_len * sizeof(uint32_t)) == 0);
    OK(sf_engine_close(&engine));
    OK(sf_model_close(&model));
    return 0;
}
