/* Translates sources with an engine: greedily, with beams, streamed, with an option of their own. Prints the token ids. */
#include "check.h"

static const uint32_t first[] = {6, 11, 0};
static const uint32_t second[] = {9, 14, 32, 0};
static const uint32_t outside[] = {6, 100000, 0};

static sf_source source_of(const uint32_t *tokens, size_t len)
{
    sf_source source;
    SF_DEFAULTS(source);
    source.tokens = tokens;
    source.tokens_len = len;
    return source;
}

static void print(const char *name, const sf_hypothesis_tokens *found, size_t len)
{
    size_t i, j;
    for (i = 0; i < len; i++) {
        printf("%s", name);
        for (j = 0; j < found[i].tokens_len; j++) {
            printf(" %u", (unsigned)found[i].tokens[j]);
        }
        printf(" score %.9g\n", (double)found[i].score);
    }
}

static void generate(const sf_engine *engine, const char *name, const sf_source *sources, size_t count,
                     const sf_options *options)
{
    size_t i;
    sf_results *results;
    OK(sf_engine_generate(engine, sources, count, options, &results));
    for (i = 0; i < count; i++) {
        sf_result result;
        SF_DEFAULTS(result);
        OK(sf_results_get(results, i, &result));
        if (result.error != SF_OK) {
            printf("%s error %s: %s\n", name, sf_error_name(result.error), result.message);
        }
        print(name, result.hypotheses, result.hypotheses_len);
    }
    sf_result none;
    SF_DEFAULTS(none);
    FAILS(SF_ERROR_ARGUMENT, sf_results_get(results, count, &none));
    OK(sf_results_close(&results));
    CHECK(results == NULL_POINTER);
    OK(sf_results_close(&results));
}

/* The tokens of a stream, in the order of the events. */
struct stream {
    uint32_t tokens[64];
    size_t len;
    size_t most;
    int done;
};

static int32_t on_event(void *user, const sf_event *event)
{
    struct stream *stream = (struct stream *)user;
    if (event->kind == SF_EVENT_TOKEN) {
        CHECK(event->index == stream->len && event->sequence == 0);
        stream->tokens[stream->len++] = event->token;
        return stream->len == stream->most ? SF_STOP_SOURCE : SF_CONTINUE;
    }
    if (event->kind == SF_EVENT_DONE) {
        print(event->finish == SF_FINISH_STOPPED ? "stopped" : "streamed", event->hypotheses, event->hypotheses_len);
        CHECK(event->hypotheses_len == 1 && event->hypotheses[0].tokens_len == stream->len);
        CHECK(memcmp(event->hypotheses[0].tokens, stream->tokens, stream->len * sizeof(uint32_t)) == 0);
        stream->done++;
    }
    return SF_CONTINUE;
}

static int32_t on_refused(void *user, const sf_event *event)
{
    if (event->kind == SF_EVENT_REFUSED) {
        char text[512];
        sf_last_error(text, sizeof text);
        printf("refused %s: %s (%ld)\n", sf_error_name(event->error), text, (long)sf_last_error_source());
        return *(int32_t *)user;
    }
    return SF_CONTINUE;
}

static int32_t on_hidden(void *user, size_t source, const float *hidden, size_t rows)
{
    CHECK(rows == (source == 0 ? 3 : 4) && hidden[0] == hidden[0]);
    *(size_t *)user += rows;
    return 0;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    CHECK(sf_abi_version() == SF_ABI_VERSION);

    sf_model *model;
    OK(sf_model_open(argv[1], NULL_POINTER, &model));
    sf_dims dims;
    SF_DEFAULTS(dims);
    OK(sf_model_dims(model, &dims));
    printf("d_model %zu, vocabulary %zu, layers %zu and %zu\n", dims.d_model, dims.target_vocabulary,
           dims.encoder_layers, dims.decoder_layers);

    sf_engine *engine;
    OK(sf_engine_new(model, NULL_POINTER, &engine));
    OK(sf_model_close(&model)); /* the engine keeps the weights */
    CHECK(model == NULL_POINTER);

    sf_source sources[3];
    sources[0] = source_of(first, 3);
    sources[1] = source_of(outside, 3);
    sources[2] = source_of(second, 4);
    generate(engine, "default", sources, 3, NULL_POINTER);

    sf_model *again;
    sf_options *options;
    OK(sf_model_open(argv[1], NULL_POINTER, &again));
    OK(sf_options_new(again, &options));
    OK(sf_options_set(options, "num_beams", "4"));
    OK(sf_options_set_number(options, "num_return_sequences", 2.0));
    generate(engine, "beams", sources, 1, options);

    /* A source with options of its own. */
    sf_options *brief;
    OK(sf_options_new(again, &brief));
    OK(sf_model_close(&again));
    OK(sf_options_set_number(brief, "max_new_tokens", 2.0));
    sources[2].options = brief;
    generate(engine, "brief", &sources[2], 1, options);

    struct stream stream;
    memset(&stream, 0, sizeof stream);
    OK(sf_engine_stream(engine, sources, 1, NULL_POINTER, on_event, &stream));
    CHECK(stream.done == 1);
    memset(&stream, 0, sizeof stream);
    stream.most = 1;
    OK(sf_engine_stream(engine, sources, 1, NULL_POINTER, on_event, &stream));
    CHECK(stream.done == 1 && stream.len == 1);

    int32_t answer = SF_STOP_SOURCE;
    OK(sf_engine_stream(engine, sources, 3, NULL_POINTER, on_refused, &answer));
    answer = SF_CONTINUE;
    FAILS(SF_ERROR_TOKEN, sf_engine_stream(engine, sources, 3, NULL_POINTER, on_refused, &answer));
    CHECK(sf_last_error_source() == 1);

    size_t rows = 0;
    sources[1] = sources[2];
    OK(sf_engine_encode(engine, sources, 2, on_hidden, &rows));
    CHECK(rows == 7);

    OK(sf_options_close(&options));
    OK(sf_options_close(&brief));
    OK(sf_engine_close(&engine));
    return 0;
}
