/* What the programs share: a check ends the program with the line and the text of the last error. */
#ifndef CHECK_H
#define CHECK_H

#include "simdformer.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
#define NULL_POINTER nullptr
#else
#define NULL_POINTER NULL
#endif

static inline void fail(const char *file, int line, const char *what, int32_t code)
{
    char text[512];
    sf_last_error(text, sizeof text);
    fprintf(stderr, "%s:%d: %s: %s: %s\n", file, line, what, sf_error_name(code), text);
    exit(1);
}

/* The call succeeds. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int32_t code_ = (call);                                                                                        \
        if (code_ != SF_OK) {                                                                                          \
            fail(__FILE__, __LINE__, #call, code_);                                                                    \
        }                                                                                                              \
    } while (0)

/* The call fails with this code. */
#define FAILS(expected, call)                                                                                          \
    do {                                                                                                               \
        int32_t code_ = (call);                                                                                        \
        if (code_ != (expected)) {                                                                                     \
            fail(__FILE__, __LINE__, #call " is not " #expected, code_);                                               \
        }                                                                                                              \
    } while (0)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fail(__FILE__, __LINE__, #condition, SF_OK);                                                               \
        }                                                                                                              \
    } while (0)

#endif
