/* Every function with wrong arguments: null and misaligned pointers, sizes that overflow, structs of a wrong size, unknown
   names, handles that were released. Each is an error with a text, and nothing changes. */
#include "check.h"

static int errors;

/* The call fails with this code, and with a text. */
#define WRONG(expected, call)                                                                                          \
    do {                                                                                                               \
        FAILS(expected, call);                                                                                         \
        CHECK(sf_last_error(NULL_POINTER, 0) > 10);                                                                    \
        errors++;                                                                                                      \
    } while (0)

#define NUL NULL_POINTER
#define ARG SF_ERROR_ARGUMENT

static const uint32_t ids[] = {6, 11, 0, 9, 14, 32, 0};
static const size_t offsets[] = {0, 3, 7};
static const size_t falling[] = {3, 0, 7};
static const uint32_t outside[] = {100000, 0};
static const char not_utf8[] = "\xff\xfe";
static int calls;

static int32_t on_event(void *user, const sf_event *event)
{
    (void)user;
    (void)event;
    calls++;
    return SF_CONTINUE;
}

static int32_t on_hidden(void *user, size_t source, const float *hidden, size_t count)
{
    (void)user;
    (void)source;
    (void)hidden;
    (void)count;
    return 0;
}

static size_t no_threads(void *context)
{
    (void)context;
    return 0;
}

static void no_tasks(void *context, size_t tasks, sf_task task, void *argument)
{
    (void)context;
    (void)tasks;
    (void)task;
    (void)argument;
}

/* An address in the middle of a number. */
#define OFF_BY_ONE(type, pointer) ((type)(uintptr_t)((uintptr_t)(pointer) + 1))

static void library(void)
{
    char text[4];
    CHECK(sf_abi_version() == SF_ABI_VERSION && strlen(sf_version_string()) >= 5);
    CHECK(strcmp(sf_error_name(INT32_MIN), "other") == 0);
    CHECK(sf_isa_name(INT32_MAX) == NUL && sf_isa_is_available(INT32_MIN) == 0);
    CHECK(sf_isa_default() > 0 && sf_last_error(text, 0) > 0 && sf_last_error_source() == -1);
}

static void cancels(void)
{
    sf_cancel *none = NUL;
    WRONG(ARG, sf_cancel_new(NUL));
    WRONG(ARG, sf_cancel_new(OFF_BY_ONE(sf_cancel **, &none)));
    WRONG(ARG, sf_cancel_set(NUL));
    WRONG(ARG, sf_cancel_reset(NUL));
    WRONG(ARG, sf_cancel_close(NUL));
    OK(sf_cancel_close(&none));
}

static void models(const char *directory)
{
    sf_model *model;
    sf_load load;
    sf_tensor tensor;
    sf_dims dims;
    static const char config[] = "{\"model_type\": \"marian\"}";

    WRONG(ARG, sf_model_open(NUL, NUL, &model));
    WRONG(ARG, sf_model_open(directory, NUL, NUL));
    WRONG(ARG, sf_model_open(not_utf8, NUL, &model));
    WRONG(SF_ERROR_NOT_FOUND, sf_model_open("no/such", NUL, &model));
    CHECK(model == NUL);
    memset(&load, 0, sizeof load);
    WRONG(SF_ERROR_STRUCT_SIZE, sf_model_open(directory, &load, &model));
    load.struct_size = SIZE_MAX;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_model_open(directory, &load, &model));
    SF_DEFAULTS(load);
    WRONG(ARG, sf_model_open(directory, OFF_BY_ONE(const sf_load *, &load), &model));
    load.dtypes = "int3";
    WRONG(SF_ERROR_INVALID_OPTION, sf_model_open(directory, &load, &model));
    load.dtypes = not_utf8;
    WRONG(ARG, sf_model_open(directory, &load, &model));
    load.dtypes = NUL;
    load.isa = 99;
    WRONG(ARG, sf_model_open(directory, &load, &model));

    WRONG(ARG, sf_model_from_memory(NUL, 5, "x", 1, NUL, &model));
    WRONG(ARG, sf_model_from_memory(config, SIZE_MAX, "x", 1, NUL, &model));
    WRONG(ARG, sf_model_from_memory(config, sizeof config - 1, NUL, 1, NUL, &model));
    WRONG(ARG, sf_model_from_memory(config, sizeof config - 1, "x", SIZE_MAX, NUL, &model));
    WRONG(ARG, sf_model_from_memory(not_utf8, 2, "x", 1, NUL, &model));
    WRONG(SF_ERROR_CORRUPT, sf_model_from_memory("", 0, NUL, 0, NUL, &model));
    WRONG(SF_ERROR_CORRUPT, sf_model_from_memory("{", 1, NUL, 0, NUL, &model));
    WRONG(SF_ERROR_CORRUPT, sf_model_from_memory(config, sizeof config - 1, "\1\2\3\4\5\6\7\10", 8, NUL, &model));
    WRONG(ARG, sf_model_from_memory(config, sizeof config - 1, NUL, 0, NUL, NUL));

    SF_DEFAULTS(tensor);
    WRONG(ARG, sf_model_from_tensors(config, sizeof config - 1, NUL, 1, NUL, &model));
    WRONG(ARG, sf_model_from_tensors(config, sizeof config - 1, &tensor, SIZE_MAX, NUL, &model));
    WRONG(ARG, sf_model_from_tensors(config, sizeof config - 1, &tensor, 1, NUL, NUL));
    WRONG(ARG, sf_model_from_tensors(config, sizeof config - 1, &tensor, 1, NUL, &model)); /* no name */
    tensor.name = "final_logits_bias";
    tensor.dtype = "f33";
    WRONG(ARG, sf_model_from_tensors(config, sizeof config - 1, &tensor, 1, NUL, &model));
    tensor.dtype = "f32";
    tensor.dimensions = 2;
    WRONG(ARG, sf_model_from_tensors(config, sizeof config - 1, &tensor, 1, NUL, &model)); /* no shape */
    tensor.dimensions = 0;
    tensor.bytes = SIZE_MAX;
    tensor.data = ids;
    WRONG(ARG, sf_model_from_tensors(config, sizeof config - 1, &tensor, 1, NUL, &model));
    tensor.bytes = 4;
    WRONG(SF_ERROR_CORRUPT, sf_model_from_tensors(config, sizeof config - 1, &tensor, 1, NUL, &model));
    sf_tensor twice[2];
    twice[0] = tensor;
    twice[1] = tensor;
    WRONG(ARG, sf_model_from_tensors(config, sizeof config - 1, twice, 2, NUL, &model));
    twice[1].struct_size = sizeof tensor + 8;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_model_from_tensors(config, sizeof config - 1, twice, 2, NUL, &model));
    CHECK(model == NUL);

    OK(sf_model_open(directory, NUL, &model));
    SF_DEFAULTS(dims);
    WRONG(ARG, sf_model_dims(NUL, &dims));
    WRONG(ARG, sf_model_dims(model, NUL));
    WRONG(ARG, sf_model_dims(model, OFF_BY_ONE(sf_dims *, &dims)));
    dims.struct_size = 8;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_model_dims(model, &dims));
    WRONG(ARG, sf_model_describe(NUL, NUL, 0, NUL));
    WRONG(ARG, sf_model_describe(model, NUL, 0, OFF_BY_ONE(size_t *, &dims)));
    WRONG(ARG, sf_model_close(NUL));
    OK(sf_model_close(&model));
    OK(sf_model_close(&model));
}

static void all_options(const sf_model *model)
{
    sf_options *options, *none = NUL;
    char text[64];
    size_t len;
    WRONG(ARG, sf_options_new(NUL, &options));
    WRONG(ARG, sf_options_new(model, NUL));
    OK(sf_options_new(model, &options));
    OK(sf_options_get(options, "num_beams", text, sizeof text, &len));
    CHECK(len == 1 && strcmp(text, "1") == 0);

    WRONG(ARG, sf_options_set(NUL, "num_beams", "4"));
    WRONG(ARG, sf_options_set(options, NUL, "4"));
    WRONG(ARG, sf_options_set(options, "num_beams", NUL));
    WRONG(ARG, sf_options_set(options, not_utf8, "4"));
    WRONG(ARG, sf_options_set(options, "num_beams", not_utf8));
    static const char *const wrong[][2] = {
        {"num_beam", "4"},           {"", "4"},
        {"num_beams", ""},           {"num_beams", "{"},
        {"num_beams", "-1"},         {"num_beams", "0"},
        {"num_beams", "1.5"},        {"num_beams", "\"4\""},
        {"num_beams", "1e99"},       {"num_beams", "null"},
        {"temperature", "0"},        {"temperature", "-1"},
        {"temperature", "1e300"},    {"top_p", "2"},
        {"do_sample", "1"},          {"bad_words_ids", "[[]]"},
        {"bad_words_ids", "[1]"},    {"bad_words_ids", "[[-1]]"},
        {"suppress_tokens", "true"}, {"eos_token_id", "[1, -1]"},
        {"eos_token_id", "100000"},  {"decoder_start_token_id", "4294967296"},
        {"seed", "-1"},              {"output_scores", "0"},
        {"forced_bos_token_id", "[]"},
    };
    size_t i;
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        WRONG(SF_ERROR_INVALID_OPTION, sf_options_set(options, wrong[i][0], wrong[i][1]));
    }
    char message[512];
    FAILS(SF_ERROR_INVALID_OPTION, sf_options_set(options, "num_beam", "4"));
    sf_last_error(message, sizeof message);
    CHECK(strstr(message, "num_beams") != NUL);

    WRONG(ARG, sf_options_set_number(NUL, "num_beams", 4));
    WRONG(ARG, sf_options_set_number(options, NUL, 4));
    WRONG(SF_ERROR_INVALID_OPTION, sf_options_set_number(options, "num_beams", 1.5));
    WRONG(SF_ERROR_INVALID_OPTION, sf_options_set_number(options, "num_beams", -4));
    WRONG(SF_ERROR_INVALID_OPTION, sf_options_set_number(options, "temperature", 0.0 / (double)calls));
    WRONG(SF_ERROR_INVALID_OPTION, sf_options_set_number(options, "temperature", 1.0 / (double)calls));
    WRONG(SF_ERROR_INVALID_OPTION, sf_options_set_number(options, "nothing", 1.0));

    WRONG(ARG, sf_options_set_ids(NUL, "bad_words_ids", ids, offsets, 2));
    WRONG(ARG, sf_options_set_ids(options, NUL, ids, offsets, 2));
    WRONG(ARG, sf_options_set_ids(options, "bad_words_ids", NUL, offsets, 2));
    WRONG(ARG, sf_options_set_ids(options, "bad_words_ids", ids, NUL, 2));
    WRONG(ARG, sf_options_set_ids(options, "bad_words_ids", ids, falling, 2));
    WRONG(ARG, sf_options_set_ids(options, "bad_words_ids", ids, offsets, SIZE_MAX));
    WRONG(ARG, sf_options_set_ids(options, "bad_words_ids", ids, offsets, SIZE_MAX / 8));
    WRONG(SF_ERROR_INVALID_OPTION, sf_options_set_ids(options, "num_beams", ids, offsets, 2));
    OK(sf_options_set_ids(options, "suppress_tokens", ids, offsets, 2));
    OK(sf_options_get(options, "suppress_tokens", text, sizeof text, &len));
    CHECK(strcmp(text, "[6,11,0,9,14,32,0]") == 0);
    OK(sf_options_set_ids(options, "bad_words_ids", ids, offsets, 2));
    OK(sf_options_get(options, "bad_words_ids", text, sizeof text, &len));
    CHECK(strcmp(text, "[[6,11,0],[9,14,32,0]]") == 0);

    WRONG(ARG, sf_options_get(NUL, "num_beams", text, sizeof text, &len));
    WRONG(ARG, sf_options_get(options, NUL, text, sizeof text, &len));
    WRONG(SF_ERROR_INVALID_OPTION, sf_options_get(options, "nothing", text, sizeof text, &len));
    /* Nothing above has changed it. */
    OK(sf_options_get(options, "num_beams", text, sizeof text, NUL));
    CHECK(strcmp(text, "1") == 0);
    OK(sf_options_set(options, "num_beams", "3"));
    OK(sf_options_get(options, "num_beams", NUL, 0, &len));
    OK(sf_options_get(options, "eos_token_id", text, 3, &len));
    CHECK(len == 3 && strcmp(text, "[0") == 0);
    WRONG(ARG, sf_options_close(NUL));
    OK(sf_options_close(&options));
    OK(sf_options_close(&none));
}

static void engines(const sf_model *model)
{
    sf_engine *engine;
    sf_engine_settings settings;
    sf_executor executor;
    sf_source source;
    sf_results *results;
    sf_result result;

    WRONG(ARG, sf_engine_new(NUL, NUL, &engine));
    WRONG(ARG, sf_engine_new(model, NUL, NUL));
    memset(&settings, 0, sizeof settings);
    WRONG(SF_ERROR_STRUCT_SIZE, sf_engine_new(model, &settings, &engine));
    CHECK(engine == NUL);
    SF_DEFAULTS(settings);
    SF_DEFAULTS(executor);
    settings.executor = &executor;
    WRONG(ARG, sf_engine_new(model, &settings, &engine));
    executor.threads = no_threads;
    WRONG(ARG, sf_engine_new(model, &settings, &engine));
    executor.for_each = no_tasks;
    executor.struct_size = 3;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_engine_new(model, &settings, &engine));
    executor.struct_size = sizeof executor;
    settings.bytes = 1000; /* too few for any source */
    OK(sf_engine_new(model, &settings, &engine));
    SF_DEFAULTS(source);
    source.tokens = ids;
    source.tokens_len = 3;
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_engine_generate(engine, &source, 1, NUL, &results));
    CHECK(results == NUL);
    OK(sf_engine_close(&engine));

    /* An executor that runs no task is only slow. */
    settings.bytes = 0;
    OK(sf_engine_new(model, &settings, &engine));
    OK(sf_engine_generate(engine, &source, 1, NUL, &results));
    SF_DEFAULTS(result);
    WRONG(ARG, sf_results_get(NUL, 0, &result));
    WRONG(ARG, sf_results_get(results, 1, &result));
    WRONG(ARG, sf_results_get(results, SIZE_MAX, &result));
    WRONG(ARG, sf_results_get(results, 0, NUL));
    result.struct_size = 1;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_results_get(results, 0, &result));
    WRONG(ARG, sf_results_close(NUL));
    OK(sf_results_close(&results));

    WRONG(ARG, sf_engine_generate(NUL, &source, 1, NUL, &results));
    WRONG(ARG, sf_engine_generate(engine, NUL, 1, NUL, &results));
    WRONG(ARG, sf_engine_generate(engine, &source, 1, NUL, NUL));
    WRONG(ARG, sf_engine_generate(engine, &source, SIZE_MAX, NUL, &results));
    WRONG(ARG, sf_engine_generate(engine, &source, SIZE_MAX / sizeof source, NUL, &results));
    WRONG(ARG, sf_engine_generate(engine, OFF_BY_ONE(const sf_source *, &source), 1, NUL, &results));
    WRONG(ARG, sf_engine_generate(engine, &source, 1, OFF_BY_ONE(const sf_options *, &source), &results));
    source.struct_size = 4;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_engine_generate(engine, &source, 1, NUL, &results));
    SF_DEFAULTS(source);
    source.tokens_len = 3;
    WRONG(ARG, sf_engine_generate(engine, &source, 1, NUL, &results));
    source.tokens = OFF_BY_ONE(const uint32_t *, ids);
    WRONG(ARG, sf_engine_generate(engine, &source, 1, NUL, &results));
    source.tokens = ids;
    source.tokens_len = SIZE_MAX / 4 + 1;
    WRONG(ARG, sf_engine_generate(engine, &source, 1, NUL, &results));
    source.tokens_len = 3;
    source.prefix_len = 1;
    WRONG(ARG, sf_engine_generate(engine, &source, 1, NUL, &results));
    source.prefix_len = 0;
    source.features = (const float *)ids;
    source.frames = SIZE_MAX;
    source.feature_bins = 80;
    WRONG(ARG, sf_engine_generate(engine, &source, 1, NUL, &results));
    source.features = NUL;
    source.forced_bos = OFF_BY_ONE(const uint32_t *, ids);
    WRONG(ARG, sf_engine_generate(engine, &source, 1, NUL, &results));
    source.forced_bos = NUL;
    OK(sf_engine_generate(engine, NUL, 0, NUL, &results));
    OK(sf_results_close(&results));

    WRONG(ARG, sf_engine_stream(NUL, &source, 1, NUL, on_event, NUL));
    WRONG(ARG, sf_engine_stream(engine, NUL, 1, NUL, on_event, NUL));
    WRONG(ARG, sf_engine_stream(engine, &source, 1, NUL, NUL, NUL));
    WRONG(ARG, sf_engine_stream(engine, &source, SIZE_MAX, NUL, on_event, NUL));
    WRONG(ARG, sf_engine_encode(NUL, &source, 1, on_hidden, NUL));
    WRONG(ARG, sf_engine_encode(engine, NUL, 1, on_hidden, NUL));
    WRONG(ARG, sf_engine_encode(engine, &source, 1, NUL, NUL));
    source.tokens = outside;
    source.tokens_len = 2;
    WRONG(SF_ERROR_TOKEN, sf_engine_encode(engine, &source, 1, on_hidden, NUL));
    WRONG(SF_ERROR_TOKEN, sf_engine_stream(engine, &source, 1, NUL, on_event, NUL));
    WRONG(ARG, sf_engine_close(NUL));
    OK(sf_engine_close(&engine));
    OK(sf_engine_close(&engine));
}

static void sessions(const sf_model *model)
{
    sf_limits limits, wrong;
    sf_session *session, *other, *none = NUL;
    sf_executor executor;
    sf_options *options;
    size_t bytes, count, i;
    static unsigned char small[256];

    WRONG(ARG, sf_limits_init(NUL, 1, 1, 1));
    OK(sf_limits_init(&limits, 2, 16, 16));
    WRONG(ARG, sf_session_bytes(NUL, &limits, &bytes));
    WRONG(ARG, sf_session_bytes(model, NUL, &bytes));
    WRONG(ARG, sf_session_bytes(model, &limits, NUL));
    for (i = 0; i < 8; i++) {
        static const size_t numbers[] = {SIZE_MAX, SIZE_MAX / 2, (size_t)1 << 32, 0};
        size_t n;
        for (n = 0; n < 4; n++) {
            wrong = limits;
            size_t *fields[] = {&wrong.sentences, &wrong.source_tokens, &wrong.batch_tokens, &wrong.target_tokens,
                                &wrong.beams,     &wrong.end_tokens,    &wrong.sources,      &wrong.struct_size};
            *fields[i] = numbers[n];
            if (numbers[n] == 0 && (i == 2 || (i >= 4 && i < 7))) {
                continue; /* the default */
            }
            if (i == 6 && numbers[n] == (size_t)1 << 32) {
                continue; /* large, but memory can have it */
            }
            CHECK(sf_session_bytes(model, &wrong, &bytes) > SF_OK);
            CHECK(sf_session_new(model, &wrong, &session) > SF_OK && session == NUL);
            CHECK(sf_session_init(model, &wrong, small, sizeof small, &session) > SF_OK && session == NUL);
            errors += 3;
        }
    }
    wrong = limits;
    wrong.cache = 9;
    WRONG(ARG, sf_session_bytes(model, &wrong, &bytes));
    wrong.cache = SF_CACHE_F16;
    OK(sf_session_bytes(model, &wrong, &bytes));
    OK(sf_session_bytes(model, &limits, &bytes));
    WRONG(ARG, sf_session_init(NUL, &limits, small, sizeof small, &session));
    WRONG(ARG, sf_session_init(model, NUL, small, sizeof small, &session));
    WRONG(ARG, sf_session_init(model, &limits, NUL, bytes, &session));
    WRONG(ARG, sf_session_init(model, &limits, small, sizeof small, NUL));
    WRONG(SF_ERROR_MEMORY_SIZE, sf_session_init(model, &limits, small, sizeof small, &session));
    WRONG(SF_ERROR_MEMORY_SIZE, sf_session_init(model, &limits, small, 0, &session));
    WRONG(ARG, sf_session_new(NUL, &limits, &session));
    WRONG(ARG, sf_session_new(model, NUL, &session));
    WRONG(ARG, sf_session_new(model, &limits, NUL));
    OK(sf_session_new(model, &limits, &session));
    OK(sf_session_new(model, &limits, &other));

    WRONG(ARG, sf_session_set_executor(NUL, NUL));
    SF_DEFAULTS(executor);
    WRONG(ARG, sf_session_set_executor(session, &executor));
    executor.struct_size = 1;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_session_set_executor(session, &executor));
    WRONG(ARG, sf_session_set_cancel(NUL, NUL));
    WRONG(ARG, sf_session_set_cancel(session, NUL));
    WRONG(ARG, sf_session_options(NUL, &options));
    WRONG(ARG, sf_session_options(session, NUL));
    WRONG(ARG, sf_session_clear(NUL));
    WRONG(ARG, sf_session_close(NUL));
    OK(sf_session_close(&none));
    WRONG(ARG, sf_session_clear(OFF_BY_ONE(sf_session *, session)));

    /* Encoding. */
    sf_sentence sentences[3], elsewhere, sentence;
    const float *hidden;
    WRONG(ARG, sf_encode(NUL, ids, offsets, 2, sentences));
    WRONG(ARG, sf_encode(session, NUL, offsets, 2, sentences));
    WRONG(ARG, sf_encode(session, ids, NUL, 2, sentences));
    WRONG(ARG, sf_encode(session, ids, offsets, 2, NUL));
    WRONG(ARG, sf_encode(session, ids, falling, 2, sentences));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_encode(session, ids, offsets, 3, sentences));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_encode(session, ids, offsets, SIZE_MAX, sentences));
    WRONG(SF_ERROR_TOKEN, sf_encode(session, outside, offsets, 1, sentences));
    static const size_t empty[] = {0, 0};
    WRONG(SF_ERROR_INVALID_INPUT, sf_encode(session, ids, empty, 1, sentences));
    static const size_t huge[] = {0, SIZE_MAX};
    WRONG(ARG, sf_encode(session, ids, huge, 1, sentences));
    WRONG(ARG, sf_hidden(NUL, ids, offsets, 2, &hidden));
    WRONG(ARG, sf_hidden(session, NUL, offsets, 2, &hidden));
    WRONG(ARG, sf_hidden(session, ids, offsets, 2, NUL));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_hidden(session, ids, offsets, 3, &hidden));
    WRONG(SF_ERROR_TOKEN, sf_hidden(session, outside, offsets, 1, &hidden));
    WRONG(ARG, sf_encode_features(NUL, (const float *)ids, 1, 1, &sentence));
    WRONG(ARG, sf_encode_features(session, NUL, 1, 1, &sentence));
    WRONG(ARG, sf_encode_features(session, (const float *)ids, SIZE_MAX, 80, &sentence));
    WRONG(ARG, sf_encode_features(session, (const float *)ids, 1, 1, NUL));
    WRONG(SF_ERROR_INVALID_INPUT, sf_encode_features(session, (const float *)ids, 1, 1, &sentence));
    WRONG(ARG, sf_free_sentences(NUL, &count));
    WRONG(ARG, sf_free_sentences(session, NUL));
    OK(sf_free_sentences(session, &count));
    CHECK(count == 2);
    OK(sf_encode(session, ids, offsets, 2, sentences));
    OK(sf_encode(other, ids, offsets, 1, &elsewhere));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_encode(session, ids, offsets, 1, &sentence));

    /* Handles: zero, of another session, with another slot or ticket. */
    sf_hypothesis hypothesis, both[2], bad;
    uint32_t token = 2317, tokens[2] = {2317, 2317}, best[2];
    float *logits;
    OK(sf_start(session, sentences[0], &hypothesis));
    WRONG(ARG, sf_start(NUL, sentences[0], &hypothesis));
    WRONG(ARG, sf_start(session, sentences[0], NUL));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_start(session, sentences[0], &both[0]));
    for (i = 0; i < 5; i++) {
        sentence = i == 0 ? elsewhere : sentences[0];
        bad = hypothesis;
        if (i == 1) {
            memset(&sentence, 0, sizeof sentence);
            memset(&bad, 0, sizeof bad);
        } else if (i == 2) {
            sentence.slot = bad.slot = UINT32_MAX;
        } else if (i == 3) {
            sentence.ticket++;
            bad.ticket++;
        } else if (i == 4) {
            sentence.slot = bad.slot = 1;
        } else {
            bad.slot = elsewhere.slot;
            bad.ticket = elsewhere.ticket;
        }
        WRONG(SF_ERROR_INVALID_HANDLE, sf_start(session, sentence, &both[0]));
        WRONG(SF_ERROR_INVALID_HANDLE, sf_release_sentence(session, sentence));
        WRONG(SF_ERROR_INVALID_HANDLE, sf_step(session, &bad, &token, 1, &logits));
        WRONG(SF_ERROR_INVALID_HANDLE, sf_step_best(session, &bad, &token, 1, NUL, NUL, best));
        WRONG(SF_ERROR_INVALID_HANDLE, sf_prefill(session, bad, &token, 1));
        WRONG(SF_ERROR_INVALID_HANDLE, sf_fork(session, bad, &both[0]));
        WRONG(SF_ERROR_INVALID_HANDLE, sf_rewind(session, bad, 0));
        WRONG(SF_ERROR_INVALID_HANDLE, sf_release(session, bad));
        WRONG(SF_ERROR_INVALID_HANDLE, sf_hypothesis_len(session, bad, &count));
    }
    both[0] = both[1] = hypothesis;
    WRONG(ARG, sf_step(NUL, both, tokens, 1, &logits));
    WRONG(ARG, sf_step(session, NUL, tokens, 1, &logits));
    WRONG(ARG, sf_step(session, both, NUL, 1, &logits));
    WRONG(ARG, sf_step(session, both, tokens, 1, NUL));
    WRONG(SF_ERROR_INVALID_HANDLE, sf_step(session, both, tokens, 2, &logits));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_step(session, both, tokens, 3, &logits));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_step(session, both, tokens, SIZE_MAX, &logits));
    WRONG(SF_ERROR_TOKEN, sf_step(session, both, outside, 1, &logits));
    WRONG(ARG, sf_step_best(NUL, both, tokens, 1, NUL, NUL, best));
    WRONG(ARG, sf_step_best(session, NUL, tokens, 1, NUL, NUL, best));
    WRONG(ARG, sf_step_best(session, both, NUL, 1, NUL, NUL, best));
    WRONG(ARG, sf_step_best(session, both, tokens, 1, NUL, NUL, NUL));
    WRONG(SF_ERROR_TOKEN, sf_step_best(session, both, outside, 1, NUL, NUL, best));
    WRONG(ARG, sf_prefill(NUL, hypothesis, tokens, 1));
    WRONG(ARG, sf_prefill(session, hypothesis, NUL, 1));
    WRONG(ARG, sf_prefill(session, hypothesis, tokens, SIZE_MAX));
    WRONG(SF_ERROR_TOKEN, sf_prefill(session, hypothesis, outside, 1));
    WRONG(ARG, sf_fork(NUL, hypothesis, &both[0]));
    WRONG(ARG, sf_fork(session, hypothesis, NUL));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_fork(session, hypothesis, &both[0]));
    WRONG(ARG, sf_rewind(NUL, hypothesis, 0));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_rewind(session, hypothesis, 1));
    WRONG(ARG, sf_release(NUL, hypothesis));
    WRONG(ARG, sf_release_sentence(NUL, sentences[0]));
    WRONG(ARG, sf_hypothesis_len(NUL, hypothesis, &count));
    WRONG(ARG, sf_hypothesis_len(session, hypothesis, NUL));
    OK(sf_hypothesis_len(session, hypothesis, &count));
    CHECK(count == 0);
    OK(sf_step(session, NUL, NUL, 0, &logits));

    /* The whole loop. */
    sf_source sources[3];
    sf_stats stats;
    for (i = 0; i < 3; i++) {
        SF_DEFAULTS(sources[i]);
        sources[i].tokens = ids;
        sources[i].tokens_len = 3;
    }
    SF_DEFAULTS(stats);
    OK(sf_session_options(session, &options));
    WRONG(ARG, sf_generate(NUL, sources, 1, options, on_event, NUL, NUL));
    WRONG(ARG, sf_generate(session, NUL, 1, options, on_event, NUL, NUL));
    WRONG(ARG, sf_generate(session, sources, 1, NUL, on_event, NUL, NUL));
    WRONG(ARG, sf_generate(session, sources, 1, options, NUL, NUL, NUL));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_generate(session, sources, 3, options, on_event, NUL, NUL));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_generate(session, sources, SIZE_MAX, options, on_event, NUL, NUL));
    stats.struct_size = 0;
    calls = 0;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_generate(session, sources, 1, options, on_event, NUL, &stats));
    CHECK(calls == 0);
    OK(sf_options_set(options, "num_beams", "2"));
    WRONG(SF_ERROR_BEYOND_LIMIT, sf_generate(session, sources, 1, options, on_event, NUL, NUL));
    OK(sf_options_set(options, "num_beams", "1"));
    OK(sf_generate(session, sources, 1, options, on_event, NUL, NUL));
    OK(sf_options_close(&options));
    OK(sf_session_close(&session));
    OK(sf_session_close(&other));
}

static void all_kernels(void)
{
    float data[64], out[64], buffer[4096];
    sf_matrix matrix = {data, 4, 4, 4, 1}, none = {NUL, 4, 4, 4, 1}, shifted = {OFF_BY_ONE(const float *, data), 4, 4, 4, 1};
    sf_matrix negative = {data, 4, 4, -4, 1}, huge = {data, SIZE_MAX, SIZE_MAX, 4, 1}, wide = {data, 4, 5, 5, 1};
    sf_matrix_mut to = {out, 4, 4, 4, 1}, overlapping = {out, 4, 4, 1, 1}, nowhere = {NUL, 4, 4, 4, 1};
    sf_heads heads = {data, 4, 2, 2, 4, 2}, no_heads = {NUL, 4, 2, 2, 4, 2};
    sf_heads_mut context = {out, 4, 2, 2, 4, 2}, nothing = {NUL, 4, 2, 2, 4, 2};
    sf_sequence sequence = {0, 4, 0, 4}, beyond = {0, 4, 0, SIZE_MAX};
    sf_packed packed;
    sf_epilogue epilogue;
    sf_attention_options options;
    sf_softmax_options softmax;
    sf_executor executor;
    size_t len, i;
    for (i = 0; i < 64; i++) {
        data[i] = 0.5F;
    }
    WRONG(ARG, sf_packed_len(SF_ISA_SCALAR, SF_DTYPE_F32, 4, 4, NUL));
    WRONG(ARG, sf_packed_len(99, SF_DTYPE_F32, 4, 4, &len));
    WRONG(ARG, sf_packed_len(SF_ISA_SCALAR, 99, 4, 4, &len));
    WRONG(SF_ERROR_KERNEL, sf_packed_len(SF_ISA_SCALAR, SF_DTYPE_F32, SIZE_MAX, SIZE_MAX, &len));
    SF_DEFAULTS(packed);
    WRONG(ARG, sf_pack(SF_ISA_SCALAR, SF_DTYPE_F32, NUL, buffer, 4096, &packed));
    WRONG(ARG, sf_pack(SF_ISA_SCALAR, SF_DTYPE_F32, &matrix, NUL, 4096, &packed));
    WRONG(ARG, sf_pack(SF_ISA_SCALAR, SF_DTYPE_F32, &matrix, buffer, 4096, NUL));
    WRONG(SF_ERROR_KERNEL, sf_pack(SF_ISA_SCALAR, SF_DTYPE_F32, &none, buffer, 4096, &packed));
    WRONG(ARG, sf_pack(SF_ISA_SCALAR, SF_DTYPE_F32, &shifted, buffer, 4096, &packed));
    WRONG(ARG, sf_pack(SF_ISA_SCALAR, SF_DTYPE_F32, &negative, buffer, 4096, &packed));
    WRONG(SF_ERROR_KERNEL, sf_pack(SF_ISA_SCALAR, SF_DTYPE_F32, &huge, buffer, 4096, &packed));
    WRONG(SF_ERROR_KERNEL, sf_pack(SF_ISA_SCALAR, SF_DTYPE_F32, &matrix, buffer, 1, &packed));
    WRONG(ARG, sf_pack(-3, SF_DTYPE_F32, &matrix, buffer, 4096, &packed));
    WRONG(ARG, sf_pack(SF_ISA_SCALAR, -3, &matrix, buffer, 4096, &packed));
    CHECK(packed.data == NUL);
    packed.struct_size = 0;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_pack(SF_ISA_SCALAR, SF_DTYPE_F32, &matrix, buffer, 4096, &packed));
    SF_DEFAULTS(packed);
    OK(sf_pack(SF_ISA_SCALAR, SF_DTYPE_F32, &matrix, buffer, 4096, &packed));

    WRONG(ARG, sf_gemm(NUL, &packed, NUL, &to, NUL));
    WRONG(ARG, sf_gemm(&matrix, NUL, NUL, &to, NUL));
    WRONG(ARG, sf_gemm(&matrix, &packed, NUL, NUL, NUL));
    WRONG(SF_ERROR_KERNEL, sf_gemm(&none, &packed, NUL, &to, NUL));
    WRONG(SF_ERROR_KERNEL, sf_gemm(&matrix, &packed, NUL, &nowhere, NUL));
    WRONG(SF_ERROR_KERNEL, sf_gemm(&matrix, &packed, NUL, &overlapping, NUL));
    WRONG(SF_ERROR_KERNEL, sf_gemm(&wide, &packed, NUL, &to, NUL));
    SF_DEFAULTS(executor);
    WRONG(ARG, sf_gemm(&matrix, &packed, NUL, &to, &executor));
    SF_DEFAULTS(epilogue);
    epilogue.activation = 7;
    WRONG(ARG, sf_gemm(&matrix, &packed, &epilogue, &to, NUL));
    SF_DEFAULTS(epilogue);
    epilogue.post_op = -1;
    WRONG(ARG, sf_gemm(&matrix, &packed, &epilogue, &to, NUL));
    epilogue.post_op = SF_POST_ADD;
    WRONG(ARG, sf_gemm(&matrix, &packed, &epilogue, &to, NUL));
    epilogue.operand = &wide;
    WRONG(SF_ERROR_KERNEL, sf_gemm(&matrix, &packed, &epilogue, &to, NUL));
    epilogue.struct_size = 2;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_gemm(&matrix, &packed, &epilogue, &to, NUL));
    packed.columns = 100;
    WRONG(SF_ERROR_KERNEL, sf_gemm(&matrix, &packed, NUL, &to, NUL));
    packed.columns = 4;
    packed.data = NUL;
    WRONG(ARG, sf_gemm(&matrix, &packed, NUL, &to, NUL));

    WRONG(ARG, sf_attention_scratch(SF_ISA_SCALAR, NUL, 1, 2, 2, &len));
    WRONG(ARG, sf_attention_scratch(SF_ISA_SCALAR, &sequence, 1, 2, 2, NUL));
    WRONG(ARG, sf_attention_scratch(SF_ISA_SCALAR, &sequence, SIZE_MAX, 2, 2, &len));
    WRONG(SF_ERROR_KERNEL, sf_attention_scratch(SF_ISA_SCALAR, &beyond, 1, 2, 2, &len));
    WRONG(ARG, sf_attention(99, &heads, &heads, &heads, &sequence, 1, NUL, &context, buffer, 4096, NUL));
    WRONG(ARG, sf_attention(SF_ISA_SCALAR, NUL, &heads, &heads, &sequence, 1, NUL, &context, buffer, 4096, NUL));
    WRONG(ARG, sf_attention(SF_ISA_SCALAR, &heads, NUL, &heads, &sequence, 1, NUL, &context, buffer, 4096, NUL));
    WRONG(ARG, sf_attention(SF_ISA_SCALAR, &heads, &heads, NUL, &sequence, 1, NUL, &context, buffer, 4096, NUL));
    WRONG(ARG, sf_attention(SF_ISA_SCALAR, &heads, &heads, &heads, NUL, 1, NUL, &context, buffer, 4096, NUL));
    WRONG(ARG, sf_attention(SF_ISA_SCALAR, &heads, &heads, &heads, &sequence, 1, NUL, NUL, buffer, 4096, NUL));
    WRONG(ARG, sf_attention(SF_ISA_SCALAR, &heads, &heads, &heads, &sequence, 1, NUL, &context, NUL, 4096, NUL));
    WRONG(SF_ERROR_KERNEL, sf_attention(SF_ISA_SCALAR, &no_heads, &heads, &heads, &sequence, 1, NUL, &context, buffer, 4096, NUL));
    WRONG(SF_ERROR_KERNEL, sf_attention(SF_ISA_SCALAR, &heads, &heads, &heads, &sequence, 1, NUL, &nothing, buffer, 4096, NUL));
    WRONG(SF_ERROR_KERNEL, sf_attention(SF_ISA_SCALAR, &heads, &heads, &heads, &beyond, 1, NUL, &context, buffer, 4096, NUL));
    SF_DEFAULTS(options);
    options.uniform_if_masked = 2;
    WRONG(ARG, sf_attention(SF_ISA_SCALAR, &heads, &heads, &heads, &sequence, 1, &options, &context, buffer, 4096, NUL));
    SF_DEFAULTS(options);
    options.bias = data;
    options.bias_len = 3;
    options.bias_query_stride = 4;
    WRONG(SF_ERROR_KERNEL, sf_attention(SF_ISA_SCALAR, &heads, &heads, &heads, &sequence, 1, &options, &context, buffer, 4096, NUL));

    WRONG(ARG, sf_layer_norm(99, &matrix, NUL, data, NUL, 1e-5F, &to, NUL));
    WRONG(ARG, sf_layer_norm(SF_ISA_SCALAR, &matrix, NUL, NUL, NUL, 1e-5F, &to, NUL));
    WRONG(ARG, sf_layer_norm(SF_ISA_SCALAR, &matrix, NUL, data, NUL, 1e-5F, NUL, NUL));
    WRONG(SF_ERROR_KERNEL, sf_layer_norm(SF_ISA_SCALAR, &wide, NUL, data, NUL, 1e-5F, &to, NUL));
    WRONG(SF_ERROR_KERNEL, sf_layer_norm(SF_ISA_SCALAR, &matrix, &wide, data, NUL, 1e-5F, &to, NUL));
    WRONG(ARG, sf_layer_norm(SF_ISA_SCALAR, &matrix, NUL, OFF_BY_ONE(const float *, data), NUL, 1e-5F, &to, NUL));
    WRONG(ARG, sf_softmax(99, &matrix, NUL, &to, NUL));
    WRONG(ARG, sf_softmax(SF_ISA_SCALAR, &matrix, NUL, NUL, NUL));
    WRONG(SF_ERROR_KERNEL, sf_softmax(SF_ISA_SCALAR, &wide, NUL, &to, NUL));
    SF_DEFAULTS(softmax);
    softmax.uniform_if_masked = 3;
    WRONG(ARG, sf_softmax(SF_ISA_SCALAR, &matrix, &softmax, &to, NUL));
    static const size_t lengths[] = {4, 4, 4, 5};
    SF_DEFAULTS(softmax);
    softmax.lengths = lengths;
    WRONG(SF_ERROR_KERNEL, sf_softmax(SF_ISA_SCALAR, &matrix, &softmax, &to, NUL));
    softmax.struct_size = SIZE_MAX;
    WRONG(SF_ERROR_STRUCT_SIZE, sf_softmax(SF_ISA_SCALAR, &matrix, &softmax, &to, NUL));
}

int main(int argc, char **argv)
{
    sf_model *model;
    CHECK(argc == 2);
    models(argv[1]);
    cancels();
    library();
    OK(sf_model_open(argv[1], NUL, &model));
    all_options(model);
    engines(model);
    sessions(model);
    all_kernels();
    OK(sf_model_close(&model));
    fprintf(stderr, "%d errors\n", errors);
    CHECK(errors > 300);
    return 0;
}
