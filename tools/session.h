/* session.h -- what most commands need first: a context, the program, a device, a request.
 *
 * Invariant: cli_session_close releases whatever was opened, in the right order, also
 * after a failed open.
 */
#ifndef EIDER_TOOLS_SESSION_H
#define EIDER_TOOLS_SESSION_H

#include "options.h"

struct cli_session {
    const struct cli_options *options;
    eider_context *ctx;
    eider_program *program;
    eider_device *device;
    eider_device_info device_info;
    eider_numerics numerics;
    char *config; /* the --set values joined */
    const char *assembler;
};

/* Opens the context and reads the options about numerics and tuning. */
int cli_session_open(const struct cli_options *options, struct cli_session *out);
void cli_session_close(struct cli_session *s);

/* Parses PROGRAM, text or @FILE, and applies --grad. */
int cli_session_program(struct cli_session *s, const char *text);

/* Opens --device, or the best there is. */
int cli_session_device(struct cli_session *s);

/* The target to compile for without a device. */
const char *cli_session_target(struct cli_session *s);

/* A request for the program with these operands. */
eider_request cli_session_request(const struct cli_session *s, const eider_tensor *args,
                                  size_t n_args);

#endif
