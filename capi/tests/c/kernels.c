/* The kernels on strided matrices: against plain loops, on every instruction set, with and without threads. */
#include "check.h"

#include <math.h>

#define ROWS 5
#define DEPTH 37
#define COLUMNS 29

static float value(size_t i)
{
    return (float)((i * 2654435761U) % 1000U) / 500.0F - 1.0F;
}

static void fill(float *data, size_t len, size_t seed)
{
    size_t i;
    for (i = 0; i < len; i++) {
        data[i] = value(i + 7 * seed + 1);
    }
}

static void near_to(double found, double expected, const char *what)
{
    if (!(fabs(found - expected) <= 1e-5)) {
        fprintf(stderr, "%s: %.9g is not %.9g\n", what, found, expected);
        exit(1);
    }
}

static sf_matrix view(const float *data, size_t rows, size_t columns, size_t row_stride, size_t column_stride)
{
    sf_matrix made;
    made.data = data;
    made.rows = rows;
    made.columns = columns;
    made.row_stride = (ptrdiff_t)row_stride;
    made.column_stride = (ptrdiff_t)column_stride;
    return made;
}

static sf_matrix_mut view_mut(float *data, size_t rows, size_t columns, size_t row_stride, size_t column_stride)
{
    sf_matrix_mut made;
    made.data = data;
    made.rows = rows;
    made.columns = columns;
    made.row_stride = (ptrdiff_t)row_stride;
    made.column_stride = (ptrdiff_t)column_stride;
    return made;
}

static size_t threads(void *context)
{
    (void)context;
    return 3;
}

static void for_each(void *context, size_t tasks, sf_task task, void *argument)
{
    (void)context;
    while (tasks-- > 0) {
        task(argument, tasks);
    }
}

static void products(int32_t isa, const sf_executor *executor)
{
    /* The weight is stored [out, in]; A has gaps between its rows, C is column-major. */
    float a[ROWS * 40], stored[COLUMNS * DEPTH], bias[COLUMNS], c[COLUMNS * 8], before[COLUMNS * 8];
    size_t i, j, k, len;
    sf_packed packed;
    sf_epilogue epilogue;
    fill(a, ROWS * 40, 1);
    fill(stored, COLUMNS * DEPTH, 2);
    fill(bias, COLUMNS, 3);
    fill(c, COLUMNS * 8, 4);
    for (i = 0; i < ROWS; i++) {
        for (k = DEPTH; k < 40; k++) {
            a[i * 40 + k] = NAN; /* gaps are never read */
        }
    }
    memcpy(before, c, sizeof c);
    sf_matrix from = view(a, ROWS, DEPTH, 40, 1);
    sf_matrix weight = view(stored, DEPTH, COLUMNS, 1, DEPTH);
    sf_matrix_mut to = view_mut(c, ROWS, COLUMNS, 1, 8);
    OK(sf_packed_len(isa, SF_DTYPE_F32, DEPTH, COLUMNS, &len));
    float *buffer = (float *)malloc(len * sizeof(float));
    CHECK(buffer != NULL_POINTER);
    SF_DEFAULTS(packed);
    FAILS(SF_ERROR_KERNEL, sf_pack(isa, SF_DTYPE_F32, &weight, buffer, len - 1, &packed));
    CHECK(packed.data == NULL_POINTER);
    OK(sf_pack(isa, SF_DTYPE_F32, &weight, buffer, len, &packed));
    CHECK(packed.len == len && packed.depth == DEPTH && packed.columns == COLUMNS);
    SF_DEFAULTS(epilogue);
    epilogue.bias = bias;
    epilogue.scale = 0.5F;
    epilogue.activation = SF_ACTIVATION_RELU;
    epilogue.post_op = SF_POST_ADD_OUTPUT;
    OK(sf_gemm(&from, &packed, &epilogue, &to, executor));
    for (i = 0; i < ROWS; i++) {
        for (j = 0; j < COLUMNS; j++) {
            double sum = 0;
            for (k = 0; k < DEPTH; k++) {
                sum += (double)a[i * 40 + k] * (double)stored[j * DEPTH + k];
            }
            sum = 0.5 * sum + (double)bias[j];
            near_to((double)c[j * 8 + i], (sum > 0 ? sum : 0) + (double)before[j * 8 + i], "gemm");
        }
    }
    for (j = 0; j < COLUMNS; j++) {
        for (i = ROWS; i < 8; i++) {
            CHECK(c[j * 8 + i] == before[j * 8 + i]); /* gaps are never written */
        }
    }
    /* A matrix that is added. */
    sf_matrix added = view(before, ROWS, COLUMNS, 1, 8);
    epilogue.post_op = SF_POST_ADD;
    epilogue.operand = &added;
    float again[COLUMNS * 8];
    memcpy(again, c, sizeof c);
    OK(sf_gemm(&from, &packed, &epilogue, &to, executor));
    CHECK(memcmp(again, c, sizeof c) == 0);
    /* f16 rounds the weight. */
    OK(sf_packed_len(isa, SF_DTYPE_F16, DEPTH, COLUMNS, &len));
    SF_DEFAULTS(packed);
    OK(sf_pack(isa, SF_DTYPE_F16, &weight, buffer, len, &packed));
    OK(sf_gemm(&from, &packed, NULL_POINTER, &to, executor));
    CHECK(packed.dtype == SF_DTYPE_F16 && memcmp(again, c, sizeof c) != 0);
    /* Memory that cannot be. */
    sf_matrix same = view(c, ROWS, DEPTH, DEPTH, 1);
    FAILS(SF_ERROR_ARGUMENT, sf_gemm(&same, &packed, NULL_POINTER, &to, executor));
    from.row_stride = -40;
    FAILS(SF_ERROR_ARGUMENT, sf_gemm(&from, &packed, NULL_POINTER, &to, executor));
    to.column_stride = 2;
    from.row_stride = 40;
    FAILS(SF_ERROR_KERNEL, sf_gemm(&from, &packed, NULL_POINTER, &to, executor));
    free(buffer);
}

static void attend(int32_t isa, const sf_executor *executor)
{
    /* [tokens, (query, key, value), heads, head_dim]: two sequences of 3 and 4 tokens. */
    enum { TOKENS = 7, HEADS = 2, DIM = 6, FUSED = 3 * HEADS * DIM };
    float fused[TOKENS * FUSED], out[TOKENS * HEADS * DIM];
    sf_heads parts[3];
    sf_heads_mut context;
    sf_sequence sequences[2] = {{0, 3, 0, 3}, {3, 4, 3, 4}};
    sf_attention_options options;
    size_t s, i, j, h, d, len;
    int causal;
    fill(fused, TOKENS * FUSED, 5);
    for (i = 0; i < 3; i++) {
        parts[i].data = fused + i * HEADS * DIM;
        parts[i].tokens = TOKENS;
        parts[i].heads = HEADS;
        parts[i].head_dim = DIM;
        parts[i].token_stride = FUSED;
        parts[i].head_stride = DIM;
    }
    context.data = out;
    context.tokens = TOKENS;
    context.heads = HEADS;
    context.head_dim = DIM;
    context.token_stride = HEADS * DIM;
    context.head_stride = DIM;
    OK(sf_attention_scratch(isa, sequences, 2, HEADS, DIM, &len));
    float *scratch = (float *)malloc((len + 1) * sizeof(float));
    CHECK(scratch != NULL_POINTER);
    for (causal = 0; causal < 2; causal++) {
        SF_DEFAULTS(options);
        options.causal = causal;
        OK(sf_attention(isa, &parts[0], &parts[1], &parts[2], sequences, 2, &options, &context, scratch, len, executor));
        for (s = 0; s < 2; s++) {
            size_t first = sequences[s].query_start, count = sequences[s].query_len;
            for (i = 0; i < count; i++) {
                for (h = 0; h < HEADS; h++) {
                    double weights[4], total = 0;
                    size_t keys = causal ? i + 1 : count;
                    for (j = 0; j < keys; j++) {
                        double score = 0;
                        for (d = 0; d < DIM; d++) {
                            score += (double)fused[(first + i) * FUSED + h * DIM + d] *
                                     (double)fused[(first + j) * FUSED + (HEADS + h) * DIM + d];
                        }
                        weights[j] = exp(score / sqrt((double)DIM));
                        total += weights[j];
                    }
                    for (d = 0; d < DIM; d++) {
                        double mean = 0;
                        for (j = 0; j < keys; j++) {
                            mean += weights[j] * (double)fused[(first + j) * FUSED + (2 * HEADS + h) * DIM + d];
                        }
                        near_to((double)out[((first + i) * HEADS + h) * DIM + d], mean / total, "attention");
                    }
                }
            }
        }
    }
    if (len > 0) {
        FAILS(SF_ERROR_KERNEL, sf_attention(isa, &parts[0], &parts[1], &parts[2], sequences, 2, NULL_POINTER, &context,
                                            scratch, len - 1, executor));
    }
    sequences[1].key_len = 5;
    FAILS(SF_ERROR_KERNEL, sf_attention(isa, &parts[0], &parts[1], &parts[2], sequences, 2, NULL_POINTER, &context,
                                        scratch, len, executor));
    free(scratch);
}

static void rows(int32_t isa, const sf_executor *executor)
{
    float x[3 * 24], residual[3 * 20], y[3 * 20], weight[20], bias[20];
    const size_t lengths[3] = {20, 0, 7};
    size_t i, j;
    sf_softmax_options options;
    fill(x, 3 * 24, 6);
    fill(residual, 3 * 20, 7);
    fill(weight, 20, 8);
    fill(bias, 20, 9);
    sf_matrix from = view(x, 3, 20, 24, 1), other = view(residual, 3, 20, 20, 1);
    sf_matrix_mut to = view_mut(y, 3, 20, 20, 1);
    OK(sf_layer_norm(isa, &from, &other, weight, bias, 1e-5F, &to, executor));
    for (i = 0; i < 3; i++) {
        double mean = 0, variance = 0;
        for (j = 0; j < 20; j++) {
            mean += ((double)x[i * 24 + j] + (double)residual[i * 20 + j]) / 20;
        }
        for (j = 0; j < 20; j++) {
            double off = (double)x[i * 24 + j] + (double)residual[i * 20 + j] - mean;
            variance += off * off / 20;
        }
        for (j = 0; j < 20; j++) {
            double off = (double)x[i * 24 + j] + (double)residual[i * 20 + j] - mean;
            near_to((double)y[i * 20 + j], off / sqrt(variance + 1e-5) * (double)weight[j] + (double)bias[j], "norm");
        }
    }
    /* In place. */
    float copy[3 * 20];
    memcpy(copy, y, sizeof y);
    OK(sf_layer_norm(isa, NULL_POINTER, NULL_POINTER, weight, NULL_POINTER, 1e-5F, &to, executor));
    CHECK(memcmp(copy, y, sizeof y) != 0);
    FAILS(SF_ERROR_KERNEL, sf_layer_norm(isa, &from, NULL_POINTER, weight, bias, -1.0F, &to, executor));

    SF_DEFAULTS(options);
    options.lengths = lengths;
    OK(sf_softmax(isa, &from, &options, &to, executor));
    for (i = 0; i < 3; i++) {
        double total = 0;
        for (j = 0; j < lengths[i]; j++) {
            total += exp((double)x[i * 24 + j]);
        }
        for (j = 0; j < 20; j++) {
            near_to((double)y[i * 20 + j], j < lengths[i] ? exp((double)x[i * 24 + j]) / total : 0, "softmax");
        }
    }
    options.lengths = NULL_POINTER;
    options.logarithm = 1;
    memcpy(y, residual, sizeof y);
    OK(sf_softmax(isa, NULL_POINTER, &options, &to, executor));
    double sum = 0;
    for (j = 0; j < 20; j++) {
        sum += exp((double)y[j]);
    }
    near_to(sum, 1, "log-softmax");
}

int main(int argc, char **argv)
{
    int32_t isa, tested = 0;
    sf_executor executor;
    (void)argv;
    CHECK(argc == 2);
    SF_DEFAULTS(executor);
    executor.threads = threads;
    executor.for_each = for_each;
    for (isa = SF_ISA_DEFAULT; isa <= SF_ISA_NEON; isa++) {
        if (sf_isa_is_available(isa)) {
            products(isa, NULL_POINTER);
            products(isa, &executor);
            attend(isa, NULL_POINTER);
            attend(isa, &executor);
            rows(isa, NULL_POINTER);
            rows(isa, &executor);
            tested++;
        }
    }
    CHECK(tested >= 2);
    return 0;
}
