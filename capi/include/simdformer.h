/*
 * simdformer: the encoder-decoder Transformer on CPUs. Token ids in, token ids out.
 *
 * This file is made from the Rust sources of the package simdformer-capi; `docs/c.md` says how to use it.
 *
 * Errors. Functions with the result int32_t return SF_OK (0) or a constant SF_ERROR, unless they say otherwise. The text
 * of the last error of a thread is that of sf_last_error. A call that fails has changed nothing, unless it says otherwise.
 *
 * Threads. The library starts no thread and has no global state, so a process may fork between two calls. A `const`
 * pointer to an opaque struct may be used by any threads at the same time, any other pointer by one thread at a time. A
 * session that is in use refuses other calls with SF_ERROR_BUSY.
 *
 * Memory. What a function `sf_..._new`, `sf_..._open` or `sf_..._from_...` makes is freed by `sf_..._close`, which sets the
 * pointer to null. Pointers in arguments are read during the call only. A null pointer with a length of 0 is an empty
 * array.
 *
 * Structs. A struct with the field struct_size is cleared before its fields are set: `SF_DEFAULTS(source);`. Zeros are the
 * defaults, so programs that were compiled with an older header work with a newer library.
 *
 * Functions of the caller must not throw exceptions, and not leave by longjmp. Nothing is written to stdout. If the library
 * panics, which is a bug, one line goes to stderr and the call returns SF_ERROR_PANIC.
 */

#ifndef SIMDFORMER_H
#define SIMDFORMER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** Sets all fields of a struct to their defaults, and `struct_size` to its size. */
#define SF_DEFAULTS(value) ((void)memset(&(value), 0, sizeof(value)), (void)((value).struct_size = sizeof(value)))

/**
 * No error.
 */
#define SF_OK 0

/**
 * A file or a directory does not exist, or is of another kind.
 */
#define SF_ERROR_NOT_FOUND 1

/**
 * A valid file, architecture, dtype or instruction set that this build, this machine or this model does not support.
 */
#define SF_ERROR_UNSUPPORTED 2

/**
 * A file or bytes are damaged, or contradict their format, their configuration or another file.
 */
#define SF_ERROR_CORRUPT 3

/**
 * A valid file belongs to something else: weights that were packed for another model or another instruction set.
 */
#define SF_ERROR_CONFLICT 4

/**
 * An option is outside its range, is unknown, or contradicts another one.
 */
#define SF_ERROR_INVALID_OPTION 5

/**
 * An argument does not fit the model or the other arguments, or a call comes at the wrong time.
 */
#define SF_ERROR_INVALID_INPUT 6

/**
 * A number is beyond a limit of the plan, the model or the engine.
 */
#define SF_ERROR_BEYOND_LIMIT 7

/**
 * A token id is not in the vocabulary.
 */
#define SF_ERROR_TOKEN 8

/**
 * The handle of a sentence or of a hypothesis was released, belongs to another session, or is zero.
 */
#define SF_ERROR_INVALID_HANDLE 9

/**
 * A number is NaN or infinite.
 */
#define SF_ERROR_NOT_FINITE 10

/**
 * The operating system cannot read or write a file.
 */
#define SF_ERROR_IO 11

/**
 * The system cannot allocate the memory.
 */
#define SF_ERROR_OUT_OF_MEMORY 12

/**
 * A callback or an `sf_cancel` ended the call.
 */
#define SF_ERROR_CANCELLED 13

/**
 * The engine was closed before the request was done.
 */
#define SF_ERROR_CLOSED 14

/**
 * A function of the caller failed.
 */
#define SF_ERROR_CALLER 15

/**
 * A kernel refuses its operands.
 */
#define SF_ERROR_KERNEL 16

/**
 * A pointer is null or misaligned, text is not UTF-8, or a size overflows.
 */
#define SF_ERROR_ARGUMENT 32

/**
 * `struct_size` is smaller than the first version of the struct, or fields that this library does not know are set.
 */
#define SF_ERROR_STRUCT_SIZE 33

/**
 * The caller's memory is too small.
 */
#define SF_ERROR_MEMORY_SIZE 34

/**
 * Another call runs on the same session: of another thread, or the call whose callback this is.
 */
#define SF_ERROR_BUSY 35

/**
 * A panic in the library: a bug, please report it. The session of the call can be used again after
 * `sf_session_clear`.
 */
#define SF_ERROR_PANIC 36

/**
 * A call panicked on this session, and `sf_session_clear` was not called since then.
 */
#define SF_ERROR_UNUSABLE 37

/**
 * An error of a later version of the library, which this header does not name.
 */
#define SF_ERROR_OTHER 38

/**
 * 32-bit floats.
 */
#define SF_DTYPE_F32 0

/**
 * The upper half of a 32-bit float.
 */
#define SF_DTYPE_BF16 1

/**
 * IEEE 754 binary16.
 */
#define SF_DTYPE_F16 2

/**
 * The activation of an epilogue: none.
 */
#define SF_ACTIVATION_IDENTITY 0

/**
 * `max(x, 0)`.
 */
#define SF_ACTIVATION_RELU 1

/**
 * GELU by the error function.
 */
#define SF_ACTIVATION_GELU 2

/**
 * GELU by the hyperbolic tangent.
 */
#define SF_ACTIVATION_GELU_TANH 3

/**
 * `x / (1 + e^-x)`.
 */
#define SF_ACTIVATION_SILU 4

/**
 * The hyperbolic tangent.
 */
#define SF_ACTIVATION_TANH 5

/**
 * `1 / (1 + e^-x)`.
 */
#define SF_ACTIVATION_SIGMOID 6

/**
 * The result is stored as it is.
 */
#define SF_POST_NONE 0

/**
 * The previous content of `C` is added.
 */
#define SF_POST_ADD_OUTPUT 1

/**
 * `sf_epilogue.operand` is added.
 */
#define SF_POST_ADD 2

/**
 * The result is multiplied by the previous content of `C`.
 */
#define SF_POST_MULTIPLY_OUTPUT 3

/**
 * The version of the interface: it grows when a function, a struct or a constant changes in a way that breaks programs.
 * New functions, constants, and fields at the end of structs do not change it.
 */
#define SF_ABI_VERSION 1

/**
 * The best instruction set of this machine, or the one that the environment variable `SIMDFORMER_ISA` names. Reading the
 * variable may allocate: a program that calls kernels often passes them the result of `sf_isa_default`.
 */
#define SF_ISA_DEFAULT 0

/**
 * Plain code, on every machine.
 */
#define SF_ISA_SCALAR 1

/**
 * AVX2 and FMA, x86-64.
 */
#define SF_ISA_AVX2 2

/**
 * AVX-512, x86-64.
 */
#define SF_ISA_AVX512 3

/**
 * NEON, AArch64.
 */
#define SF_ISA_NEON 4

/**
 * How keys and values are stored: as it fits the weights.
 */
#define SF_CACHE_DEFAULT 0

/**
 * Keys and values in f32.
 */
#define SF_CACHE_F32 1

/**
 * Keys and values in f16: half the memory.
 */
#define SF_CACHE_F16 2

/**
 * An end token came, or beam search could not improve its hypotheses.
 */
#define SF_FINISH_END 0

/**
 * A sequence has the maximum length.
 */
#define SF_FINISH_LENGTH 1

/**
 * A callback or a cancellation stopped the source.
 */
#define SF_FINISH_STOPPED 2

/**
 * No token was allowed to come next.
 */
#define SF_FINISH_EXHAUSTED 3

/**
 * A score was NaN or infinite.
 */
#define SF_FINISH_NOT_FINITE 4

/**
 * A step of the decoder begins: the time to test a deadline.
 */
#define SF_EVENT_STEP 0

/**
 * A source cannot be decoded: `error` is the code, and `sf_last_error` has the text. With `SF_STOP_SOURCE` as the answer the
 * call goes on without it, else the call fails with this error.
 */
#define SF_EVENT_REFUSED 1

/**
 * A token of a source is final.
 */
#define SF_EVENT_TOKEN 2

/**
 * A source is finished.
 */
#define SF_EVENT_DONE 3

/**
 * The answer to an event: go on.
 */
#define SF_CONTINUE 0

/**
 * The answer to an event: end this source with its tokens so far, or leave it out if it is refused.
 */
#define SF_STOP_SOURCE 1

/**
 * The answer to an event: end the call. Every unfinished source is reported with its tokens so far.
 */
#define SF_STOP_ALL 2

/**
 * A flag that ends the calls of the sessions and engines that it was given to. Any thread may use it at any time.
 */
typedef struct sf_cancel sf_cancel;

/**
 * A model with sessions that the library plans for what the calls need. Any threads may use it at the same time; each call
 * then has sessions of its own.
 */
typedef struct sf_engine sf_engine;

/**
 * The weights of a model. It does not change, so any threads may use it at the same time. Sessions and engines keep what
 * they need of it after `sf_model_close`.
 */
typedef struct sf_model sf_model;

/**
 * How targets are searched: greedily, with beams or by sampling, with the rules of transformers. Any threads may read
 * options at the same time, but not while a function sets them.
 */
typedef struct sf_options sf_options;

/**
 * The results of a call of an engine.
 */
typedef struct sf_results sf_results;

/**
 * A model with the memory for a number of sentences and hypotheses, which is planned once: after `sf_session_new` or
 * `sf_session_init` no function of a session calls `malloc`. One thread at a time uses it.
 */
typedef struct sf_session sf_session;

/**
 * A task of `sf_executor`: runs the part of number `index`.
 */
typedef void (*sf_task)(void *argument, size_t index);

/**
 * The caller's threads. The library starts none: without an executor every call computes on the calling thread. The results
 * have the same bits in both cases.
 *
 * A wrong executor is only slow: a task that is called twice runs once, one that is never called runs at the end on the
 * calling thread.
 */
typedef struct sf_executor {
    /**
     * `sizeof(sf_executor)`.
     */
    size_t struct_size;
    /**
     * The first argument of both functions. Any thread may get it.
     */
    void *context;
    /**
     * The number of threads that take part, with the calling one.
     */
    size_t (*threads)(void *context);
    /**
     * Calls `task(argument, index)` for each index from 0 to `tasks - 1` (at most 1,023), on any threads, and returns when
     * all these calls have returned: no thread may call `task` after that. Several threads may call `for_each` at the same
     * time if they share the executor. It must not throw, and not call functions of this library with the same session.
     */
    void (*for_each)(void *context, size_t tasks, sf_task task, void *argument);
} sf_executor;

/**
 * The settings of an engine. Null stands for the defaults, which are zeros.
 */
typedef struct sf_engine_settings {
    /**
     * `sizeof(sf_engine_settings)`.
     */
    size_t struct_size;
    /**
     * The threads that compute; null for the calling thread. What it points to is copied, its context must live as long as
     * the engine.
     */
    const struct sf_executor *executor;
    /**
     * The most sources that a session decodes at the same time; 0 for 32.
     */
    size_t slots;
    /**
     * The most sessions of a call, each on one thread; 0 for as many as there are threads.
     */
    size_t sessions;
    /**
     * The most bytes of all sessions; 0 for no limit. Fewer sources are decoded at the same time if they need more.
     */
    size_t bytes;
    /**
     * Ends the calls of the engine; null for none.
     */
    const struct sf_cancel *cancel;
} sf_engine_settings;

/**
 * One source: token ids with the end token, or frames of features for an encoder that reads them.
 */
typedef struct sf_source {
    /**
     * `sizeof(sf_source)`.
     */
    size_t struct_size;
    /**
     * `[tokens_len]`: ids below the source vocabulary; null with features.
     */
    const uint32_t *tokens;
    /**
     * At least 1; 0 with features.
     */
    size_t tokens_len;
    /**
     * `[prefix_len]`: ids of the target that follow the decoder start. They are not part of the result.
     */
    const uint32_t *prefix;
    /**
     * Ids in `prefix`.
     */
    size_t prefix_len;
    /**
     * `[frames, feature_bins]`, row-major; null with token ids.
     */
    const float *features;
    /**
     * Frames in `features`.
     */
    size_t frames;
    /**
     * Numbers in a frame.
     */
    size_t feature_bins;
    /**
     * The stream of random numbers of its samples.
     */
    uint64_t stream;
    /**
     * The token that must follow the decoder start, in place of that of the options; null without one.
     */
    const uint32_t *forced_bos;
    /**
     * The options of this source; null for those of the call.
     */
    const struct sf_options *options;
} sf_source;

/**
 * A sequence of a target: with its end token, without decoder start and prefix.
 */
typedef struct sf_hypothesis_tokens {
    /**
     * `[tokens_len]`.
     */
    const uint32_t *tokens;
    /**
     * Ids in `tokens`.
     */
    size_t tokens_len;
    /**
     * The natural logarithm of its probability, with beams divided by a power of its length; NaN in greedy search without
     * scores.
     */
    float score;
} sf_hypothesis_tokens;

/**
 * The result of one source. It and what it points to are valid until `sf_results_close`.
 */
typedef struct sf_result {
    /**
     * `sizeof(sf_result)`, set by the caller.
     */
    size_t struct_size;
    /**
     * `[hypotheses_len]`, best first, samples in the order of their numbers.
     */
    const struct sf_hypothesis_tokens *hypotheses;
    /**
     * Hypotheses; 0 with an error.
     */
    size_t hypotheses_len;
    /**
     * The text of the error; null without one.
     */
    const char *message;
    /**
     * `SF_OK`, or the code of the error: the other sources of the call have their results.
     */
    int32_t error;
    /**
     * A constant `SF_FINISH`.
     */
    int32_t finish;
} sf_result;

/**
 * An event of a call that generates. It and what it points to are valid until the callback returns.
 */
typedef struct sf_event {
    /**
     * Its size in the library.
     */
    size_t struct_size;
    /**
     * The index of the source; 0 for `SF_EVENT_STEP`.
     */
    size_t source;
    /**
     * `[hypotheses_len]`, best first, samples in the order of their numbers: of `SF_EVENT_DONE`.
     */
    const struct sf_hypothesis_tokens *hypotheses;
    /**
     * Hypotheses; 0 if the call ended before the source began.
     */
    size_t hypotheses_len;
    /**
     * A constant `SF_EVENT`.
     */
    int32_t kind;
    /**
     * Of `SF_EVENT_REFUSED`: the code of the error.
     */
    int32_t error;
    /**
     * Of `SF_EVENT_DONE`: a constant `SF_FINISH`.
     */
    int32_t finish;
    /**
     * Of `SF_EVENT_TOKEN`: the id.
     */
    uint32_t token;
    /**
     * Of `SF_EVENT_TOKEN`: the index of the sample; 0 in other searches.
     */
    uint32_t sequence;
    /**
     * Of `SF_EVENT_TOKEN`: the index among the tokens of its sequence.
     */
    uint32_t index;
    /**
     * Of `SF_EVENT_TOKEN`: the natural logarithm of its probability; NaN if it was not computed.
     */
    float log_probability;
    /**
     * 0.
     */
    uint32_t reserved;
} sf_event;

/**
 * Called with each event; returns an answer: `SF_CONTINUE`, `SF_STOP_SOURCE` or `SF_STOP_ALL`. It must not throw, and not
 * use the session of the call.
 */
typedef int32_t (*sf_on_event)(void *user, const struct sf_event *event);

/**
 * Called with the index of a source and its hidden states, `[rows, d_model]` row-major, which are valid until it returns. A
 * result other than 0 ends the call.
 */
typedef int32_t (*sf_on_hidden)(void *user, size_t source, const float *hidden, size_t rows);

/**
 * What a call of `sf_generate` did.
 */
typedef struct sf_stats {
    /**
     * `sizeof(sf_stats)`, set by the caller.
     */
    size_t struct_size;
    /**
     * Steps of the decoder.
     */
    size_t steps;
    /**
     * Tokens fed in all steps, without prefixes.
     */
    size_t rows;
    /**
     * Sources that were not finished at `SF_STOP_ALL`.
     */
    size_t cancelled;
} sf_stats;

/**
 * A matrix that is read: element `(i, j)` is `data[i * row_stride + j * column_stride]`. Strides are in elements and not
 * negative. What is between the elements is never read.
 */
typedef struct sf_matrix {
    /**
     * The first element.
     */
    const float *data;
    /**
     * Rows.
     */
    size_t rows;
    /**
     * Columns.
     */
    size_t columns;
    /**
     * Elements from one row to the next.
     */
    ptrdiff_t row_stride;
    /**
     * Elements from one column to the next.
     */
    ptrdiff_t column_stride;
} sf_matrix;

/**
 * A packed weight, as `sf_pack` makes it: a view of the caller's buffer.
 */
typedef struct sf_packed {
    /**
     * `sizeof(sf_packed)`, set by the caller.
     */
    size_t struct_size;
    /**
     * The buffer.
     */
    const float *data;
    /**
     * Words of four bytes in it: those of `sf_packed_len`.
     */
    size_t len;
    /**
     * Rows of the weight: the length of a sum.
     */
    size_t depth;
    /**
     * Columns of the weight.
     */
    size_t columns;
    /**
     * The constant `SF_ISA` that it is packed for.
     */
    int32_t isa;
    /**
     * A constant `SF_DTYPE`.
     */
    int32_t dtype;
} sf_packed;

/**
 * What follows a product: `C = post_op(activation(scale * sum + bias))`. Zeros are the defaults.
 */
typedef struct sf_epilogue {
    /**
     * `sizeof(sf_epilogue)`.
     */
    size_t struct_size;
    /**
     * `[columns]`; null for none.
     */
    const float *bias;
    /**
     * The operand of `SF_POST_ADD`, of the shape of `C`; else null.
     */
    const struct sf_matrix *operand;
    /**
     * The factor of the sum; 0 for 1.
     */
    float scale;
    /**
     * A constant `SF_ACTIVATION`.
     */
    int32_t activation;
    /**
     * A constant `SF_POST`.
     */
    int32_t post_op;
    /**
     * 0.
     */
    int32_t reserved;
} sf_epilogue;

/**
 * A matrix that is written, as `sf_matrix`. No two elements are the same memory, and none is memory of another argument.
 */
typedef struct sf_matrix_mut {
    /**
     * The first element.
     */
    float *data;
    /**
     * Rows.
     */
    size_t rows;
    /**
     * Columns.
     */
    size_t columns;
    /**
     * Elements from one row to the next.
     */
    ptrdiff_t row_stride;
    /**
     * Elements from one column to the next.
     */
    ptrdiff_t column_stride;
} sf_matrix_mut;

/**
 * A sequence of a batch: its rows of queries and of keys. Sequences are in the order of their queries.
 */
typedef struct sf_sequence {
    /**
     * The first query.
     */
    size_t query_start;
    /**
     * Queries.
     */
    size_t query_len;
    /**
     * The first key.
     */
    size_t key_start;
    /**
     * Keys.
     */
    size_t key_len;
} sf_sequence;

/**
 * A tensor `[tokens, heads, head_dim]` that is read: element `(t, h, i)` is `data[t * token_stride + h * head_stride + i]`.
 */
typedef struct sf_heads {
    /**
     * The first element.
     */
    const float *data;
    /**
     * Tokens of all sequences.
     */
    size_t tokens;
    /**
     * Heads.
     */
    size_t heads;
    /**
     * Numbers in a head.
     */
    size_t head_dim;
    /**
     * Elements from one token to the next.
     */
    ptrdiff_t token_stride;
    /**
     * Elements from one head to the next.
     */
    ptrdiff_t head_stride;
} sf_heads;

/**
 * Masks and bias of attention. Zeros are the defaults.
 */
typedef struct sf_attention_options {
    /**
     * `sizeof(sf_attention_options)`.
     */
    size_t struct_size;
    /**
     * Added to the scaled scores: that of head `h`, query `t` of all and key `j` of its sequence is
     * `bias[h * bias_head_stride + t * bias_query_stride + j]`. Null for none.
     */
    const float *bias;
    /**
     * Numbers in `bias`.
     */
    size_t bias_len;
    /**
     * Elements from one head to the next; 0 if all have one bias.
     */
    size_t bias_head_stride;
    /**
     * Elements from one query to the next.
     */
    size_t bias_query_stride;
    /**
     * The factor of the scores; 0 for `1 / sqrt(head_dim)`.
     */
    float scale;
    /**
     * 1: query `i` of a sequence sees its keys 0 to `i + key_len - query_len` only.
     */
    int32_t causal;
    /**
     * The result of a query that sees no key: 0 for zeros, 1 for the mean of the values.
     */
    int32_t uniform_if_masked;
    /**
     * 0.
     */
    int32_t reserved;
} sf_attention_options;

/**
 * A tensor that is written, as `sf_heads`. No element is memory of another argument.
 */
typedef struct sf_heads_mut {
    /**
     * The first element.
     */
    float *data;
    /**
     * Tokens of all sequences.
     */
    size_t tokens;
    /**
     * Heads.
     */
    size_t heads;
    /**
     * Numbers in a head.
     */
    size_t head_dim;
    /**
     * Elements from one token to the next.
     */
    ptrdiff_t token_stride;
    /**
     * Elements from one head to the next.
     */
    ptrdiff_t head_stride;
} sf_heads_mut;

/**
 * What a softmax computes. Zeros are the defaults.
 */
typedef struct sf_softmax_options {
    /**
     * `sizeof(sf_softmax_options)`.
     */
    size_t struct_size;
    /**
     * `[rows]`: the number of columns that are valid in each row; null if all are. The others get 0.
     */
    const size_t *lengths;
    /**
     * 1 for the logarithms of the probabilities.
     */
    int32_t logarithm;
    /**
     * The result of a row without a valid column: 0 for zeros, 1 for `1 / columns`.
     */
    int32_t uniform_if_masked;
} sf_softmax_options;

/**
 * How a model is loaded. Null stands for the defaults, which are zeros.
 */
typedef struct sf_load {
    /**
     * `sizeof(sf_load)`.
     */
    size_t struct_size;
    /**
     * How the matrices are stored: "f32", "bf16", "f16", "int8", "int8x16", with exceptions by names, as in
     * "int8,output=int8". Null for the dtypes of the checkpoint.
     */
    const char *dtypes;
    /**
     * Called after every few rows with the bytes that were read, of `total`. A result other than 0 ends the call with
     * `SF_ERROR_CANCELLED`. May be null.
     */
    int32_t (*on_progress)(void *user, uint64_t done, uint64_t total);
    /**
     * The first argument of `on_progress`.
     */
    void *user;
    /**
     * A constant `SF_ISA`.
     */
    int32_t isa;
    /**
     * 1 to use a file of packed weights in place, which opens in milliseconds and is shared by all processes. Such a file
     * must not be changed while a process uses it.
     */
    int32_t map_packed;
} sf_load;

/**
 * A tensor in the caller's memory.
 */
typedef struct sf_tensor {
    /**
     * `sizeof(sf_tensor)`.
     */
    size_t struct_size;
    /**
     * Its name in a checkpoint of the family.
     */
    const char *name;
    /**
     * "f32", "bf16" or "f16".
     */
    const char *dtype;
    /**
     * `[dimensions]`: rows first.
     */
    const size_t *shape;
    /**
     * Numbers in `shape`.
     */
    size_t dimensions;
    /**
     * The numbers in row-major order, little-endian, with any alignment.
     */
    const void *data;
    /**
     * Bytes of `data`.
     */
    size_t bytes;
} sf_tensor;

/**
 * The dimensions of a model. The caller sets `struct_size`.
 */
typedef struct sf_dims {
    /**
     * `sizeof(sf_dims)`.
     */
    size_t struct_size;
    /**
     * Numbers in a hidden state.
     */
    size_t d_model;
    /**
     * Layers of the encoder.
     */
    size_t encoder_layers;
    /**
     * Layers of the decoder; 0 for a model that only encodes.
     */
    size_t decoder_layers;
    /**
     * Source ids are below it; 0 if the encoder reads features.
     */
    size_t source_vocabulary;
    /**
     * Target ids are below it. A row of logits has as many numbers.
     */
    size_t target_vocabulary;
    /**
     * The most tokens of a source; `SIZE_MAX` without such a limit.
     */
    size_t source_positions;
    /**
     * The most tokens of a target; `SIZE_MAX` without such a limit.
     */
    size_t target_positions;
    /**
     * Numbers in a frame of features; 0 if the encoder reads ids.
     */
    size_t feature_bins;
    /**
     * Bytes of the weights in memory.
     */
    size_t bytes;
    /**
     * The first token of every target; `UINT32_MAX` if the caller must choose it.
     */
    uint32_t decoder_start;
    /**
     * The constant of the instruction set that the weights are packed for.
     */
    int32_t isa;
} sf_dims;

/**
 * The largest requests that a session serves. `sf_limits_init` sets the defaults.
 */
typedef struct sf_limits {
    /**
     * `sizeof(sf_limits)`.
     */
    size_t struct_size;
    /**
     * Sentences at a time, at least 1.
     */
    size_t sentences;
    /**
     * Tokens of one source, at least 1; for features its positions, one for two frames.
     */
    size_t source_tokens;
    /**
     * Source tokens in one call of `sf_encode`; 0 for `sentences * source_tokens`.
     */
    size_t batch_tokens;
    /**
     * Tokens that can be fed to one hypothesis, with the decoder start; 0 for a model that only encodes.
     */
    size_t target_tokens;
    /**
     * Hypotheses of one sentence at a time; 0 for 1.
     */
    size_t beams;
    /**
     * The most end tokens of a search; 0 for 4.
     */
    size_t end_tokens;
    /**
     * The most sources of one call of `sf_generate`; 0 for `sentences`. Each takes about a hundred bytes.
     */
    size_t sources;
    /**
     * How keys and values are stored: 0 as it fits the weights, 1 in f32, 2 in f16.
     */
    int32_t cache;
    /**
     * 0.
     */
    int32_t reserved;
} sf_limits;

/**
 * An encoded source of one session. A handle of a sentence that was released is an error, never another sentence: until 2^32
 * later ones were made.
 */
typedef struct sf_sentence {
    /**
     * The slot.
     */
    uint32_t slot;
    /**
     * The number that tells it from others in the same slot.
     */
    uint32_t ticket;
} sf_sentence;

/**
 * A hypothesis about a sentence of one session: the tokens that were fed to it. As `sf_sentence`, a handle is never that of
 * another hypothesis.
 */
typedef struct sf_hypothesis {
    /**
     * The slot.
     */
    uint32_t slot;
    /**
     * The number that tells it from others in the same slot.
     */
    uint32_t ticket;
} sf_hypothesis;

/**
 * Whether `token` may not be chosen for row `row`: any number but 0 bans it. All threads of the executor call it.
 */
typedef int32_t (*sf_banned)(void *user, size_t row, uint32_t token);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a flag that is not set. `sf_cancel_close` frees it.
 */
int32_t sf_cancel_new(struct sf_cancel **cancel);

/**
 * Sets the flag: calls that run end some milliseconds later with `SF_ERROR_CANCELLED`, and later calls at once, until
 * `sf_cancel_reset`. Takes no lock and allocates nothing, so a signal handler may call it.
 */
int32_t sf_cancel_set(const struct sf_cancel *cancel);

/**
 * Clears the flag.
 */
int32_t sf_cancel_reset(const struct sf_cancel *cancel);

/**
 * Frees the flag and sets the pointer to null. Sessions and engines that have it keep the flag as it is. A null pointer is
 * closed already.
 */
int32_t sf_cancel_close(struct sf_cancel **cancel);

/**
 * Makes an engine of a model, which may be closed before it. `settings` may be null. `sf_engine_close` frees it.
 */
int32_t sf_engine_new(const struct sf_model *model,
                      const struct sf_engine_settings *settings,
                      struct sf_engine **engine);

/**
 * The targets of `count` sources under `options`, or those of the checkpoint if that is null. `*results` has a result for
 * each source in their order, also for one that failed; `sf_results_close` frees it. It is null if the call fails.
 *
 * Errors: what concerns all sources: invalid options, no memory, a cancellation, a source whose struct or pointer is wrong.
 */
int32_t sf_engine_generate(const struct sf_engine *engine,
                           const struct sf_source *sources,
                           size_t count,
                           const struct sf_options *options,
                           struct sf_results **results);

/**
 * Writes the result of the source of index `source`.
 *
 * Errors: `SF_ERROR_ARGUMENT` if the call had fewer sources.
 */
int32_t sf_results_get(const struct sf_results *results, size_t source, struct sf_result *result);

/**
 * Frees the results and sets the pointer to null. A null pointer is closed already.
 */
int32_t sf_results_close(struct sf_results **results);

/**
 * Decodes `count` sources under `options`, or those of the checkpoint if that is null, and calls `on_event` with each event
 * while the model decodes: from all threads of the executor, and from several at the same time.
 *
 * Errors: as `sf_engine_generate`; the first refused source to which `on_event` does not answer `SF_STOP_SOURCE`.
 */
int32_t sf_engine_stream(const struct sf_engine *engine,
                         const struct sf_source *sources,
                         size_t count,
                         const struct sf_options *options,
                         sf_on_event on_event,
                         void *user);

/**
 * The hidden states of the encoder for each of `count` sources: one row of `d_model` numbers for each token, or for two
 * frames of features. `on_hidden` is called once for each source, in any order, from all threads of the executor and from
 * several at the same time.
 *
 * Errors: as `sf_engine_generate`; also what concerns one source is an error of the call.
 */
int32_t sf_engine_encode(const struct sf_engine *engine,
                         const struct sf_source *sources,
                         size_t count,
                         sf_on_hidden on_hidden,
                         void *user);

/**
 * Frees the engine and sets the pointer to null. No call may run on it. A null pointer is closed already.
 */
int32_t sf_engine_close(struct sf_engine **engine);

/**
 * Decodes `count` sources under `options` in the planned memory of a session, and calls `on_event` with each event, on the
 * calling thread. Sources that wait take the slots of those that are finished. Sentences of earlier calls are released.
 * `stats` may be null. `sf_session_options` makes the options of the checkpoint.
 *
 * Errors: invalid options, or options beyond the plan; more sources than planned (`sf_limits.sources`); the first refused
 * source to which `on_event` does not answer `SF_STOP_SOURCE`; a cancellation.
 */
int32_t sf_generate(struct sf_session *session,
                    const struct sf_source *sources,
                    size_t count,
                    const struct sf_options *options,
                    sf_on_event on_event,
                    void *user,
                    struct sf_stats *stats);

/**
 * Writes the words of four bytes of a packed weight `[depth, columns]` of a constant `SF_DTYPE` to `*len`.
 */
int32_t sf_packed_len(int32_t isa, int32_t dtype, size_t depth, size_t columns, size_t *len);

/**
 * Packs `weight`, `[depth, columns]`, for products into `buffer` of `len` words, and writes the view of it to `*packed`. A
 * weight that is stored `[out, in]` is a matrix with exchanged strides. A buffer that begins on a multiple of 64 bytes is
 * fastest.
 *
 * Errors: fewer words than `sf_packed_len`; a number that the dtype cannot have.
 */
int32_t sf_pack(int32_t isa,
                int32_t dtype,
                const struct sf_matrix *weight,
                float *buffer,
                size_t len,
                struct sf_packed *packed);

/**
 * `C = post_op(activation(scale * A * weight + bias))`: `a` is `[rows, depth]`, `c` is `[rows, columns]`. `epilogue` and
 * `executor` may be null. The bits of a row do not depend on other rows, on threads or on the instruction set.
 *
 * Errors: shapes that do not fit, overlapping elements of `c`, negative strides.
 */
int32_t sf_gemm(const struct sf_matrix *a,
                const struct sf_packed *weight,
                const struct sf_epilogue *epilogue,
                const struct sf_matrix_mut *c,
                const struct sf_executor *executor);

/**
 * Writes the floats of scratch that `sf_attention` needs for `count` sequences, with `heads` heads of keys, to `*len`.
 */
int32_t sf_attention_scratch(int32_t isa,
                             const struct sf_sequence *sequences,
                             size_t count,
                             size_t heads,
                             size_t head_dim,
                             size_t *len);

/**
 * Attention of every sequence: `query` and `context` are `[tokens, heads, head_dim]`, `key` and `value` `[key tokens, kv_heads,
 * head_dim]`, where `heads` is a multiple of `kv_heads`. `scratch` has `scratch_len` floats, at least those of
 * `sf_attention_scratch`. `options` and `executor` may be null. Queries in no sequence are not written.
 *
 * Errors: shapes, sequences or scratch that do not fit; then nothing is written.
 */
int32_t sf_attention(int32_t isa,
                     const struct sf_heads *query,
                     const struct sf_heads *key,
                     const struct sf_heads *value,
                     const struct sf_sequence *sequences,
                     size_t count,
                     const struct sf_attention_options *options,
                     const struct sf_heads_mut *context,
                     float *scratch,
                     size_t scratch_len,
                     const struct sf_executor *executor);

/**
 * Layer normalization of each row of `x + residual`, `[rows, columns]` each, into `y`: `(x - mean) / sqrt(variance + eps) *
 * weight + bias`. A null `x` stands for the content of `y`; `residual` may be null, and then nothing is added. `weight` and
 * `bias`, which may be null, are `[columns]`. `executor` may be null.
 *
 * Errors: shapes that do not fit, rows whose elements are apart, a negative `eps`.
 */
int32_t sf_layer_norm(int32_t isa,
                      const struct sf_matrix *x,
                      const struct sf_matrix *residual,
                      const float *weight,
                      const float *bias,
                      float eps,
                      const struct sf_matrix_mut *y,
                      const struct sf_executor *executor);

/**
 * Softmax of each row of `scores`, `[rows, columns]`, into `probabilities`. A null `scores` stands for the content of
 * `probabilities`. `options` and `executor` may be null.
 *
 * Errors: shapes that do not fit, rows whose elements are apart, a length beyond the columns.
 */
int32_t sf_softmax(int32_t isa,
                   const struct sf_matrix *scores,
                   const struct sf_softmax_options *options,
                   const struct sf_matrix_mut *probabilities,
                   const struct sf_executor *executor);

/**
 * The [`SF_ABI_VERSION`] of the library that runs. A program compares it with that of its header:
 * `if (sf_abi_version() != SF_ABI_VERSION) ...`.
 */
uint32_t sf_abi_version(void);

/**
 * The version of the library, for example "0.1.0". The text belongs to the library.
 */
const char *sf_version_string(void);

/**
 * The name of an error code, for example "out of memory"; "other" for an unknown one. The text belongs to the library.
 */
const char *sf_error_name(int32_t code);

/**
 * Copies the text of the last error of the calling thread into `buffer` of `len` bytes, with a terminating zero: one
 * sentence with the operand, what was expected and what was found. Longer text is cut off at the end of a character, in any
 * case after 511 bytes. Returns the length of the text without the zero, also if `buffer` is null; 0 if no call of this
 * thread has failed. A call that succeeds does not change the text.
 */
size_t sf_last_error(char *buffer,
                     size_t len);

/**
 * The index of the source that the last error of the calling thread is about, or -1 if it is about the whole call.
 */
int64_t sf_last_error_source(void);

/**
 * Whether this machine has an instruction set, 1 or 0. The calling thread's last error says why not.
 */
int32_t sf_isa_is_available(int32_t isa);

/**
 * The constant of the instruction set that `SF_ISA_DEFAULT` stands for; a negative error code if the environment variable
 * `SIMDFORMER_ISA` names none of this machine.
 */
int32_t sf_isa_default(void);

/**
 * The name of an instruction set, as `SIMDFORMER_ISA` takes it; null for a number that is no constant. The text belongs to
 * the library.
 */
const char *sf_isa_name(int32_t isa);

/**
 * Opens the checkpoint in `directory`: safetensors files with `config.json`, as Hugging Face stores them, or packed
 * weights. `load` may be null. `*model` is null if the call fails; `sf_model_close` frees it.
 *
 * Errors: a file is missing, unsupported, damaged or unreadable; no memory.
 */
int32_t sf_model_open(const char *directory, const struct sf_load *load, struct sf_model **model);

/**
 * Opens a model from the `config_len` bytes of a `config.json` and the `weights_len` bytes of a safetensors file. Both are
 * read during the call only.
 *
 * Errors: as `sf_model_open`.
 */
int32_t sf_model_from_memory(const char *config_json,
                             size_t config_len,
                             const void *weights,
                             size_t weights_len,
                             const struct sf_load *load,
                             struct sf_model **model);

/**
 * Opens a model from the `config_len` bytes of a `config.json` and `count` tensors, which are read during the call only.
 * Their names are those of a checkpoint of the family; tensors with other names have no effect.
 *
 * Errors: as `sf_model_open`; two tensors have the same name.
 */
int32_t sf_model_from_tensors(const char *config_json,
                              size_t config_len,
                              const struct sf_tensor *tensors,
                              size_t count,
                              const struct sf_load *load,
                              struct sf_model **model);

/**
 * Writes the dimensions of a model.
 */
int32_t sf_model_dims(const struct sf_model *model, struct sf_dims *dims);

/**
 * Copies a description of a model into `buffer` of `len` bytes, as `sf_last_error` does: the architecture, and the bytes of
 * each part. Writes the length of the whole text to `*text_len`, which may be null.
 */
int32_t sf_model_describe(const struct sf_model *model,
                          char *buffer,
                          size_t len,
                          size_t *text_len);

/**
 * Frees the model when no session and no engine uses it any more, and sets the pointer to null. A null pointer is closed
 * already.
 */
int32_t sf_model_close(struct sf_model **model);

/**
 * Makes the options of the checkpoint: those of its `generation_config.json`. `sf_options_close` frees them.
 */
int32_t sf_options_new(const struct sf_model *model, struct sf_options **options);

/**
 * Sets the option of this name in `generation_config.json`, for example "num_beams", "do_sample", "max_new_tokens" or
 * "bad_words_ids", to a value in JSON, for example "4", "true" or "[[5, 6]]"; "null" switches a rule off. Further names are
 * "seed" (of samples), "output_scores" (false makes greedy search faster), and "eos_token_id", "decoder_start_token_id",
 * "forced_bos_token_id" and "forced_eos_token_id". With more than one beam, the search has beams; else "do_sample" samples.
 * An error changes nothing.
 *
 * Errors: `SF_ERROR_INVALID_OPTION` for an unknown name (the text has the most similar one), a value of another type or
 * outside the range. Options that contradict each other, or are beyond a limit, are errors of the call that uses them.
 */
int32_t sf_options_set(struct sf_options *options,
                       const char *name,
                       const char *json);

/**
 * As `sf_options_set`, with a number: 4.0 is also the integer 4.
 */
int32_t sf_options_set_number(struct sf_options *options, const char *name, double number);

/**
 * As `sf_options_set`, with `count` lists of token ids: list `i` is `ids[offsets[i]]` to `ids[offsets[i + 1] - 1]`. Options
 * with one list ("suppress_tokens", "eos_token_id") take the ids of all lists.
 *
 * Errors: as `sf_options_set`; offsets that decrease.
 */
int32_t sf_options_set_ids(struct sf_options *options,
                           const char *name,
                           const uint32_t *ids,
                           const size_t *offsets,
                           size_t count);

/**
 * Copies the value of an option, in JSON, into `buffer` of `len` bytes, as `sf_last_error` does. Writes the length of the
 * whole text to `*text_len`, which may be null.
 *
 * Errors: `SF_ERROR_INVALID_OPTION` for an unknown name.
 */
int32_t sf_options_get(const struct sf_options *options,
                       const char *name,
                       char *buffer,
                       size_t len,
                       size_t *text_len);

/**
 * Frees the options and sets the pointer to null. A null pointer is closed already.
 */
int32_t sf_options_close(struct sf_options **options);

/**
 * Sets `limits`, whatever it contains, to `sentences` sentences of `source_tokens` tokens with one hypothesis of
 * `target_tokens` each. The caller need not set `struct_size`.
 */
int32_t sf_limits_init(struct sf_limits *limits, size_t sentences, size_t source_tokens, size_t target_tokens);

/**
 * Writes the bytes that `sf_session_init` needs for these limits to `*bytes`. Allocates nothing.
 *
 * Errors: a limit is 0 or beyond the positions of the model; the memory does not fit the address space.
 */
int32_t sf_session_bytes(const struct sf_model *model, const struct sf_limits *limits, size_t *bytes);

/**
 * Makes a session in `bytes` bytes of the caller's memory, of any content and alignment, which the session uses alone until
 * `sf_session_close`. Later calls allocate nothing. The session keeps what it needs of the model.
 *
 * Errors: as `sf_session_bytes`; `SF_ERROR_MEMORY_SIZE` if there are fewer bytes than that function says.
 */
int32_t sf_session_init(const struct sf_model *model,
                        const struct sf_limits *limits,
                        void *memory,
                        size_t bytes,
                        struct sf_session **session);

/**
 * Makes a session in memory of the library. `sf_session_close` frees it. Later calls allocate nothing. The session keeps what
 * it needs of the model.
 *
 * Errors: as `sf_session_bytes`; no memory.
 */
int32_t sf_session_new(const struct sf_model *model,
                       const struct sf_limits *limits,
                       struct sf_session **session);

/**
 * Makes the options of the checkpoint as they fit the session: without a maximum length beyond its plan, which then limits
 * the targets itself. `sf_options_close` frees them.
 */
int32_t sf_session_options(struct sf_session *session,
                           struct sf_options **options);

/**
 * Computes on the threads of `executor`, or, if that is null, on the calling thread. What it points to is copied; its context
 * must live as long as the session.
 */
int32_t sf_session_set_executor(struct sf_session *session,
                                const struct sf_executor *executor);

/**
 * Ends later calls with `SF_ERROR_CANCELLED` when `cancel` is set: every call that computes ends some milliseconds after that
 * and changes nothing, except that `sf_generate` releases all sentences.
 */
int32_t sf_session_set_cancel(struct sf_session *session,
                              const struct sf_cancel *cancel);

/**
 * Ends all sentences and hypotheses. After a panic the session can be used again.
 */
int32_t sf_session_clear(struct sf_session *session);

/**
 * Ends a session and sets the pointer to null. The caller's memory is the caller's again. A null pointer is closed already.
 *
 * Errors: `SF_ERROR_BUSY` if a call runs, which then goes on.
 */
int32_t sf_session_close(struct sf_session **session);

/**
 * Encodes `count` sources: source `i` is `ids[offsets[i]]` to `ids[offsets[i + 1] - 1]`, with its end token; `offsets` has
 * `count + 1` numbers. Stores the keys and values of each in a free slot, and writes the handles to `sentences`, `[count]`.
 *
 * Errors: an empty or too long source, an id outside the vocabulary (`sf_last_error_source` is its index); more tokens than
 * planned for one call; more sources than free slots. An error changes nothing.
 */
int32_t sf_encode(struct sf_session *session,
                  const uint32_t *ids,
                  const size_t *offsets,
                  size_t count,
                  struct sf_sentence *sentences);

/**
 * Encodes one source of features: `[frames, bins]`, row-major, for an encoder that reads them. Writes the handle to
 * `*sentence`.
 *
 * Errors: as `sf_encode`; a number that is not finite.
 */
int32_t sf_encode_features(struct sf_session *session,
                           const float *features,
                           size_t frames,
                           size_t bins,
                           struct sf_sentence *sentence);

/**
 * The hidden states of the encoder for `count` sources, as in `sf_encode`: `*hidden` points to `[offsets[count] - offsets[0],
 * d_model]`, row-major, valid until the next call on the session. Takes no slot.
 *
 * Errors: as `sf_encode`.
 */
int32_t sf_hidden(struct sf_session *session,
                  const uint32_t *ids,
                  const size_t *offsets,
                  size_t count,
                  const float **hidden);

/**
 * Starts an empty hypothesis about a sentence, and writes its handle to `*hypothesis`.
 *
 * Errors: an unknown sentence, or one with as many hypotheses as planned.
 */
int32_t sf_start(struct sf_session *session, struct sf_sentence sentence, struct sf_hypothesis *hypothesis);

/**
 * Feeds `tokens[i]` to `hypotheses[i]`, for `count` different hypotheses. `*logits` points to the logits of their next tokens,
 * `[count, target_vocabulary]` row-major, before any softmax. They are valid until the next call on the session; the caller
 * may change them.
 *
 * Errors: an unknown hypothesis, or one named twice, one of the planned length, an id outside the vocabulary. An error changes
 * nothing.
 */
int32_t sf_step(struct sf_session *session,
                const struct sf_hypothesis *hypotheses,
                const uint32_t *tokens,
                size_t count,
                float **logits);

/**
 * As `sf_step`, but writes the best next token of each row to `best`, `[count]`: the one with the largest logit that `banned`
 * does not ban (which may be null), the lowest id among equal ones, `UINT32_MAX` if all are banned. On most machines this takes
 * a third of the time of the logits.
 */
int32_t sf_step_best(struct sf_session *session,
                     const struct sf_hypothesis *hypotheses,
                     const uint32_t *tokens,
                     size_t count,
                     sf_banned banned,
                     void *user,
                     uint32_t *best);

/**
 * Feeds `count` tokens to one hypothesis, in one pass.
 *
 * Errors: an unknown hypothesis, more tokens than planned, an id outside the vocabulary. An error changes nothing.
 */
int32_t sf_prefill(struct sf_session *session, struct sf_hypothesis hypothesis, const uint32_t *tokens, size_t count);

/**
 * Starts a hypothesis with the tokens of `hypothesis`, without copying keys or values, and writes its handle to `*fork`.
 *
 * Errors: an unknown hypothesis; its sentence has as many hypotheses as planned.
 */
int32_t sf_fork(struct sf_session *session,
                struct sf_hypothesis hypothesis,
                struct sf_hypothesis *fork);

/**
 * Removes the tokens of a hypothesis after the first `len`.
 *
 * Errors: an unknown hypothesis, or one with fewer tokens.
 */
int32_t sf_rewind(struct sf_session *session, struct sf_hypothesis hypothesis, size_t len);

/**
 * Ends a hypothesis. Its forks do not change.
 *
 * Errors: an unknown hypothesis.
 */
int32_t sf_release(struct sf_session *session, struct sf_hypothesis hypothesis);

/**
 * Ends a sentence and all its hypotheses.
 *
 * Errors: an unknown sentence.
 */
int32_t sf_release_sentence(struct sf_session *session, struct sf_sentence sentence);

/**
 * Writes the number of tokens that were fed to a hypothesis, with those before a fork, to `*len`.
 *
 * Errors: an unknown hypothesis.
 */
int32_t sf_hypothesis_len(struct sf_session *session, struct sf_hypothesis hypothesis, size_t *len);

/**
 * Writes the number of free sentence slots to `*count`.
 */
int32_t sf_free_sentences(struct sf_session *session, size_t *count);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SIMDFORMER_H */
