/* source.c -- reads the SOURCE words of --in: files and generators.
 */
#include "source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"
#include "number.h"
#include "safetensors.h"
#include "say.h"

/* Random numbers for integer types are scaled by this and rounded. */
#define INTEGER_SCALE 100.0

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014), as a hash of a counter. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t cli_source_random(uint64_t seed, uint64_t position)
{
    return mix(mix(seed) + (position + 1) * UINT64_C(0x9e3779b97f4a7c15));
}

/* In [0, 1), with 53 random bits. */
static double unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

double cli_source_normal(uint64_t seed, uint64_t position)
{
    double radius = sqrt(-2 * log1p(-unit(cli_source_random(seed, 2 * position))));
    double angle = 0x1.921fb54442d18p2 * unit(cli_source_random(seed, 2 * position + 1));
    return radius * cos(angle); /* Box and Muller 1958 */
}

static double gen_randn(uint64_t seed, uint64_t i)
{
    return cli_source_normal(seed, i);
}

static double gen_uniform(uint64_t seed, uint64_t i)
{
    return 2 * unit(cli_source_random(seed, i)) - 1;
}

static double gen_arange(uint64_t seed, uint64_t i)
{
    (void)seed;
    return (double)i;
}

static double gen_zeros(uint64_t seed, uint64_t i)
{
    (void)seed, (void)i;
    return 0;
}

static const struct generator {
    const char *name;
    int is_random;
    double (*value)(uint64_t seed, uint64_t i);
} generators[] = {
    {"randn", 1, gen_randn},
    {"uniform", 1, gen_uniform},
    {"arange", 0, gen_arange},
    {"zeros", 0, gen_zeros},
};

#define N_GENERATORS (sizeof generators / sizeof generators[0])

struct fill {
    struct cli_array *array;
    const struct generator *generator;
    uint64_t seed;
};

static void fill_part(void *arg, size_t begin, size_t end)
{
    const struct fill *fill = arg;
    struct cli_array *array = fill->array;
    int is_random = fill->generator->is_random;
    for (size_t i = begin; i < end; i++) {
        double value = fill->generator->value(fill->seed, i);
        if (is_random && array->type == EIDER_BOOL)
            value = value < 0;
        else if (is_random && !cli_number_is_float(array->type))
            value *= INTEGER_SCALE;
        cli_number_put(array->type, array->data, i, value);
    }
}

int cli_source_generate(const char *name, const char *generator, struct cli_array *array)
{
    struct fill fill = {.array = array};
    size_t length = strcspn(generator, "@");
    for (const char *c = name; *c; c++) fill.seed = mix(fill.seed + (unsigned char)*c + 1);
    if (generator[length]) {
        char *end;
        fill.seed = strtoull(generator + length + 1, &end, 10);
        if (end == generator + length + 1 || *end) {
            return cli_fail(CLI_USAGE, "%s: the seed '%s' is not a number", name,
                            generator + length + 1);
        }
    }
    struct cli_suggestion near = cli_suggestion_start(generator, length);
    for (size_t g = 0; g < N_GENERATORS; g++) {
        cli_suggestion_offer(&near, generators[g].name);
        if (strlen(generators[g].name) == length &&
            memcmp(generators[g].name, generator, length) == 0) {
            fill.generator = &generators[g];
        }
    }
    if (!fill.generator) {
        return cli_fail(CLI_USAGE,
                        "%s: unknown generator '%.*s': randn, uniform, arange or "
                        "zeros%s",
                        name, (int)length, generator, cli_suggestion_text(&near));
    }
    cli_array_parallel(array->n, fill_part, &fill);
    return CLI_OK;
}

/* Reads "bf16[4096,14336]"; *end is what follows. */
static int parse_shape(const char *name, const char *text, struct cli_array *out, const char **end)
{
    char type[8];
    size_t length = strcspn(text, "[");
    if (length >= sizeof type) length = sizeof type - 1;
    memcpy(type, text, length);
    type[length] = '\0';
    if (eider_dtype_parse(type, &out->type) != EIDER_OK) {
        return cli_fail(CLI_USAGE, "%s: '%s': %s", name, text, eider_error());
    }
    const char *at = text + length + 1;
    for (; *at && *at != ']'; at += *at == ',') {
        char *after;
        if (out->rank == EIDER_RANK_MAX) {
            return cli_fail(CLI_USAGE, "%s: '%s' has more than %d dimensions", name, text,
                            EIDER_RANK_MAX);
        }
        long long extent = strtoll(at, &after, 10);
        if (after == at || extent < 0 || (*after != ',' && *after != ']')) {
            return cli_fail(CLI_USAGE, "%s: '%s' is not a shape such as bf16[4096,14336]", name,
                            text);
        }
        out->shape[out->rank++] = extent;
        at = after;
    }
    if (*at != ']') {
        return cli_fail(CLI_USAGE, "%s: '%s' has no closing bracket", name, text);
    }
    *end = at + 1;
    return CLI_OK;
}

static int generated(const char *name, const char *text, int type, int fill, struct cli_array *out)
{
    const char *rest = "";
    int code = parse_shape(name, text, out, &rest);
    if (code) return code;
    if (*rest && *rest != ':') {
        return cli_fail(CLI_USAGE, "%s: '%s': expected ':' and a generator after the shape", name,
                        text);
    }
    if (type >= 0 && out->type != (eider_dtype)type) {
        return cli_fail(CLI_USAGE, "%s: '%s' is not %s", name, text,
                        eider_dtype_name((eider_dtype)type));
    }
    if (!fill) return cli_array_size(out, name);
    code = cli_array_allocate(out, name);
    if (!code) code = cli_source_generate(name, *rest ? rest + 1 : "randn", out);
    if (code) cli_array_release(out);
    return code;
}

static int ends_with(const char *text, size_t length, const char *end)
{
    size_t n = strlen(end);
    return length > n && memcmp(text + length - n, end, n) == 0;
}

static int tensor_in_file(const char *path, size_t length, const char *tensor, int type,
                          struct cli_array *out)
{
    char *copy = strndup(path, length);
    if (!copy) return cli_fail_memory(length);
    int code = cli_safetensors_read(copy, tensor, type, out);
    free(copy);
    return code;
}

int cli_source_read(const char *name, const char *text, int type, int fill, struct cli_array *out)
{
    memset(out, 0, sizeof *out);
    size_t length = strlen(text), word = strcspn(text, "[");
    if (text[word] && word <= 4 && !strchr(text, '/')) {
        return generated(name, text, type, fill, out);
    }
    if (ends_with(text, length, ".npy")) return cli_npy_read(text, type, out);
    if (ends_with(text, length, ".safetensors")) {
        return tensor_in_file(text, length, "", type, out);
    }
    const char *colon = strrchr(text, ':');
    if (colon && ends_with(text, (size_t)(colon - text), ".safetensors")) {
        return tensor_in_file(text, (size_t)(colon - text), colon + 1, type, out);
    }
    return cli_fail(CLI_USAGE,
                    "%s: '%s' is not FILE.npy, FILE.safetensors:NAME or a generator "
                    "such as bf16[4096,14336]:randn",
                    name, text);
}
