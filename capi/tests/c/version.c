/* Versions, names, instruction sets, structs of older and newer headers. */
#include "check.h"

int main(int argc, char **argv)
{
    int32_t isa, best = sf_isa_default();
    int available = 0;
    char text[8];
    size_t i;

    CHECK(argc == 2);
    CHECK(sf_abi_version() == SF_ABI_VERSION);
    printf("version %s\n", sf_version_string());
    CHECK(sf_last_error(text, sizeof text) == 0 && text[0] == '\0' && sf_last_error_source() == -1);
    for (isa = SF_ISA_SCALAR; isa <= SF_ISA_NEON; isa++) {
        CHECK(strlen(sf_isa_name(isa)) >= 4);
        available += sf_isa_is_available(isa);
    }
    CHECK(available > 0 && sf_isa_is_available(SF_ISA_SCALAR) == 1 && best >= SF_ISA_SCALAR);
    printf("best %s\n", sf_isa_name(best));
    CHECK(sf_isa_is_available(77) == 0 && sf_isa_name(77) == NULL_POINTER && sf_isa_name(-1) == NULL_POINTER);
    CHECK(strcmp(sf_error_name(SF_OK), "ok") == 0);
    CHECK(strcmp(sf_error_name(SF_ERROR_OUT_OF_MEMORY), "out of memory") == 0);
    CHECK(strcmp(sf_error_name(12345), "other") == 0);

    /* A text that does not fit is cut off. */
    sf_model *model;
    FAILS(SF_ERROR_NOT_FOUND, sf_model_open("no/such/directory", NULL_POINTER, &model));
    CHECK(sf_last_error(text, sizeof text) > sizeof text && strcmp(text, "no/such") == 0);
    CHECK(sf_last_error(NULL_POINTER, 0) > 10 && sf_last_error(text, 1) > 10 && text[0] == '\0');

    /* A newer header has more fields, which must be 0; an older one has fewer. */
    struct {
        sf_dims known;
        uint64_t later[2];
    } newer;
    memset(&newer, 0, sizeof newer);
    newer.known.struct_size = sizeof newer;
    OK(sf_model_open(argv[1], NULL_POINTER, &model));
    OK(sf_model_dims(model, &newer.known));
    CHECK(newer.known.d_model > 0 && newer.known.struct_size == sizeof newer && newer.later[0] == 0);

    struct {
        sf_limits known;
        uint64_t later[2];
    } limits;
    size_t bytes;
    memset(&limits, 0, sizeof limits);
    OK(sf_limits_init(&limits.known, 1, 16, 16));
    limits.known.struct_size = sizeof limits;
    OK(sf_session_bytes(model, &limits.known, &bytes));
    limits.later[1] = 1;
    FAILS(SF_ERROR_STRUCT_SIZE, sf_session_bytes(model, &limits.known, &bytes));
    limits.later[1] = 0;
    for (i = 0; i < sizeof(sf_limits); i++) {
        limits.known.struct_size = i;
        FAILS(SF_ERROR_STRUCT_SIZE, sf_session_bytes(model, &limits.known, &bytes));
    }

    char described[4096];
    size_t len;
    OK(sf_model_describe(model, described, sizeof described, &len));
    CHECK(len == strlen(described) && len > 100);
    OK(sf_model_describe(model, NULL_POINTER, 0, NULL_POINTER));
    OK(sf_model_close(&model));
    return 0;
}
