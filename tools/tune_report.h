/* tune_report.h -- a tuning as `eider tune` shows it.
 *
 *   tune_report.c  a table for a terminal, and JSON
 *   tune_html.c    a page
 */
#ifndef EIDER_TOOLS_TUNE_REPORT_H
#define EIDER_TOOLS_TUNE_REPORT_H

#include <jansson.h>

#include "operands.h"

struct cli_tuning {
    const char *program; /* its text */
    char shapes[512];    /* "x bf16[4096,14336], y bf16[4096,14336]" */
    const char *device;
    int is_hot;
    eider_tune_summary summary;
    size_t n;
    eider_tune_entry *entries; /* the timed ones first, fastest first */
    const char *choice;        /* the config of the chosen one, the same string */
    uint64_t bytes;            /* 0 where not known */
    double copy_gb_per_s;      /* 0 where not measured */
};

/* Bytes per nanosecond are GB/s; 0 where either is not known. */
double cli_tune_rate(const struct cli_tuning *t, double ns);

#define CLI_CONFIG_BYTES 512

/* The parameters that all configs share, and those of one config that they do not: what is
 * the same everywhere is worth a line, not a column. */
void cli_tune_shared(const struct cli_tuning *t, char out[CLI_CONFIG_BYTES]);
void cli_tune_rest(const char *config, const char *shared, char out[CLI_CONFIG_BYTES]);

/* A table of the fastest `rows` configs, for people. */
void cli_tune_print(const struct cli_tuning *t, size_t rows);
json_t *cli_tune_json(const struct cli_tuning *t);
/* Writes a page about `n` tunings. */
int cli_tune_write_page(const struct cli_tuning *t, size_t n, const char *path);

#endif
