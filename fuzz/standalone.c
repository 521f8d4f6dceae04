// The main function of a fuzz target without libFuzzer: it runs the target on a fixed number of inputs of random bytes, the
// same on each machine. It needs no nightly compiler and no instrumentation, with which one crate compiles for minutes.
//
// Usage: TARGET [INPUTS [SEED]]. A target that finds a bug aborts; the last line printed then names its input.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// splitmix64 (Steele, Lea and Flood, 2014).
static uint64_t bits(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int main(int count, char **arguments) {
    static uint8_t input[4096];
    unsigned long inputs = count > 1 ? strtoul(arguments[1], NULL, 10) : 1000;
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 0;
    unsigned long accepted = 0;
    LLVMFuzzerInitialize(&count, &arguments);
    for (unsigned long number = 0; number < inputs; number++) {
        uint64_t state = seed + number;
        // Half of the inputs are short: most structures need few bytes.
        size_t size = bits(&state) % (number % 2 ? 64 : sizeof input);
        for (size_t at = 0; at < size; at++) input[at] = (uint8_t)bits(&state);
        printf("\rinput %lu", number);
        fflush(stdout);
        accepted += LLVMFuzzerTestOneInput(input, size) == 0;
    }
    printf("\r%lu inputs, %lu accepted\n", inputs, accepted);
    return accepted == 0;
}
