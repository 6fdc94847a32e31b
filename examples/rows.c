/* rows.c -- the cross entropy of each row of logits, and its gradient, in one pass; a program that
 * has a name (`eider list kernels`), in a kernel that checks its targets.
 *
 *   cc rows.c -leider
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "eider/eider.h"

static void check(eider_status status)
{
    if (status == EIDER_OK) return;
    fprintf(stderr, "%s: %s\n", eider_status_name(status), eider_error());
    exit(1);
}

int main(void)
{
    enum { ROWS = 3, COLUMNS = 1001, N = ROWS * COLUMNS };
    static float logits[N], dlogits[N];
    int64_t targets[ROWS] = {7, 1000, -100}; /* the last row is ignored */
    float dloss[ROWS] = {1, 1, 1}, loss[ROWS], lse[ROWS];
    int64_t ignore_index = -100;
    for (int i = 0; i < N; i++) logits[i] = (float)(i % 10);

    eider_context *ctx;
    eider_program *program;
    eider_device *device;
    check(eider_context_create(NULL, &ctx));
    check(eider_program_parse(ctx, "cross_entropy_train", &program));
    check(eider_device_open(ctx, "cpu", &device));

    /* Operands with one value per row have shape [rows]; scalars are read at the launch. */
    const int64_t full[] = {ROWS, COLUMNS}, row[] = {ROWS};
    eider_tensor args[] = {
        {.data = logits, .type = EIDER_F32, .rank = 2, .shape = full},
        {.data = targets, .type = EIDER_I64, .rank = 1, .shape = row},
        {.data = dloss, .type = EIDER_F32, .rank = 1, .shape = row},
        {.data = &ignore_index, .type = EIDER_I64},
        {.data = loss, .type = EIDER_F32, .rank = 1, .shape = row},
        {.data = lse, .type = EIDER_F32, .rank = 1, .shape = row},
        {.data = dlogits, .type = EIDER_F32, .rank = 2, .shape = full},
    };
    enum { N_ARGS = sizeof args / sizeof *args };

    eider_kernel *kernel;
    eider_request request = {.program = program, .args = args, .n_args = N_ARGS, .checked = 1};
    check(eider_prepare(device, &request, &kernel));
    check(eider_launch(kernel, NULL, args, N_ARGS));
    check(eider_kernel_check(kernel, NULL));
    printf("loss %g %g %g\n", (double)loss[0], (double)loss[1], (double)loss[2]);
    double sum = 0;
    for (int i = 0; i < COLUMNS; i++) sum += (double)dlogits[i];
    int wrong = fabs(sum) > 1e-5 || fabs(loss[0] - (lse[0] - logits[7])) > 1e-5f || loss[2] != 0;

    /* A target that is no place of its row: the loss is NaN, and the kernel says where. */
    targets[1] = 1001;
    check(eider_launch(kernel, NULL, args, N_ARGS));
    wrong |= eider_kernel_check(kernel, NULL) == EIDER_OK || !isnan(loss[1]);
    printf("%s\n", eider_error());

    eider_kernel_release(kernel);
    eider_device_release(device);
    eider_program_release(program);
    eider_context_destroy(ctx);
    return wrong;
}
