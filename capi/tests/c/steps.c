/* A session step by step: greedy search by hand, forks, rewinding, handles that were released, generate. */
#include "check.h"

#define MOST 40

static const uint32_t ids[] = {6, 11, 0, 9, 14, 32, 0};
static const size_t offsets[] = {0, 3, 7};

static int32_t is_start(void *user, size_t row, uint32_t token)
{
    (void)row;
    return token == *(const uint32_t *)user;
}

static uint32_t best_of(const float *logits, size_t vocabulary, uint32_t banned)
{
    size_t i, best = banned == 0;
    for (i = 0; i < vocabulary; i++) {
        if (i != banned && logits[i] > logits[best]) {
            best = i;
        }
    }
    return (uint32_t)best;
}

static void print(const char *name, const uint32_t *tokens, size_t len)
{
    size_t i;
    printf("%s", name);
    for (i = 0; i < len; i++) {
        printf(" %u", (unsigned)tokens[i]);
    }
    printf("\n");
}

static int32_t on_event(void *user, const sf_event *event)
{
    (void)user;
    if (event->kind == SF_EVENT_DONE) {
        print(event->source == 0 ? "generated 0" : "generated 1", event->hypotheses[0].tokens,
              event->hypotheses[0].tokens_len);
    }
    return SF_CONTINUE;
}

int main(int argc, char **argv)
{
    sf_model *model;
    sf_session *session;
    sf_limits limits;
    sf_dims dims;
    sf_sentence sentences[2];
    sf_hypothesis both[2], fork;
    size_t i, free_slots, len;
    float *logits;

    CHECK(argc == 2);
    OK(sf_model_open(argv[1], NULL_POINTER, &model));
    SF_DEFAULTS(dims);
    OK(sf_model_dims(model, &dims));
    OK(sf_limits_init(&limits, 2, 16, MOST));
    limits.beams = 2;
    OK(sf_session_new(model, &limits, &session));
    OK(sf_model_close(&model));

    /* Two sentences, in one step each time, with the logits of one and the best token of both. */
    OK(sf_encode(session, ids, offsets, 2, sentences));
    OK(sf_free_sentences(session, &free_slots));
    CHECK(free_slots == 0);
    uint32_t found[2][MOST];
    size_t lens[2] = {0, 0};
    uint32_t tokens[2] = {dims.decoder_start, dims.decoder_start};
    for (i = 0; i < 2; i++) {
        OK(sf_start(session, sentences[i], &both[i]));
    }
    for (;;) {
        sf_hypothesis rows[2];
        uint32_t fed[2], best[2];
        size_t of[2], count = 0;
        for (i = 0; i < 2; i++) {
            if ((lens[i] == 0 || found[i][lens[i] - 1] != 0) && lens[i] < MOST) {
                rows[count] = both[i];
                fed[count] = tokens[i];
                of[count++] = i;
            }
        }
        if (count == 0) {
            break;
        }
        OK(sf_step_best(session, rows, fed, count, is_start, &dims.decoder_start, best));
        for (i = 0; i < count; i++) {
            tokens[of[i]] = best[i];
            found[of[i]][lens[of[i]]++] = best[i];
        }
    }
    print("stepped 0", found[0], lens[0]);
    print("stepped 1", found[1], lens[1]);
    OK(sf_hypothesis_len(session, both[0], &len));
    CHECK(len == lens[0]);

    /* The same tokens from logits, after rewinding, in a fork, and after a prefill. */
    OK(sf_rewind(session, both[0], 0));
    OK(sf_step(session, both, &dims.decoder_start, 1, &logits));
    CHECK(best_of(logits, dims.target_vocabulary, dims.decoder_start) == found[0][0]);
    OK(sf_fork(session, both[0], &fork));
    FAILS(SF_ERROR_BEYOND_LIMIT, sf_fork(session, both[0], &both[1]));
    OK(sf_step(session, &fork, &found[0][0], 1, &logits));
    CHECK(best_of(logits, dims.target_vocabulary, dims.decoder_start) == found[0][1]);
    logits[0] = 7.0F; /* the caller may write them */
    OK(sf_release(session, both[0]));
    OK(sf_start(session, sentences[0], &both[0]));
    OK(sf_prefill(session, both[0], &dims.decoder_start, 1));
    OK(sf_prefill(session, both[0], found[0], 1));
    OK(sf_step(session, both, &found[0][1], 1, &logits));
    CHECK(best_of(logits, dims.target_vocabulary, dims.decoder_start) == found[0][2]);
    OK(sf_hypothesis_len(session, fork, &len));
    CHECK(len == 2);

    /* Hidden states take no slot. */
    const float *hidden;
    OK(sf_hidden(session, ids, offsets, 2, &hidden));
    CHECK(hidden[7 * dims.d_model - 1] == hidden[7 * dims.d_model - 1]);

    /* Handles that were released are errors, also when their slot has another. */
    sf_hypothesis old = fork;
    OK(sf_release(session, fork));
    FAILS(SF_ERROR_INVALID_HANDLE, sf_release(session, old));
    OK(sf_start(session, sentences[0], &fork));
    CHECK(fork.slot == old.slot && fork.ticket != old.ticket);
    FAILS(SF_ERROR_INVALID_HANDLE, sf_hypothesis_len(session, old, &len));
    OK(sf_release_sentence(session, sentences[0]));
    FAILS(SF_ERROR_INVALID_HANDLE, sf_hypothesis_len(session, fork, &len));
    FAILS(SF_ERROR_INVALID_HANDLE, sf_release_sentence(session, sentences[0]));
    OK(sf_session_clear(session));
    FAILS(SF_ERROR_INVALID_HANDLE, sf_release_sentence(session, sentences[1]));
    OK(sf_free_sentences(session, &free_slots));
    CHECK(free_slots == 2);

    /* The whole loop. */
    sf_options *options;
    sf_source sources[2];
    sf_stats stats;
    OK(sf_session_options(session, &options));
    for (i = 0; i < 2; i++) {
        SF_DEFAULTS(sources[i]);
        sources[i].tokens = ids + offsets[i];
        sources[i].tokens_len = offsets[i + 1] - offsets[i];
    }
    SF_DEFAULTS(stats);
    OK(sf_generate(session, sources, 2, options, on_event, NULL_POINTER, &stats));
    CHECK(stats.steps > 0 && stats.rows >= stats.steps && stats.cancelled == 0);
    OK(sf_options_close(&options));
    OK(sf_session_close(&session));
    CHECK(session == NULL_POINTER);
    OK(sf_session_close(&session));
    return 0;
}
