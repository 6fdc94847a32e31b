/* swiglu.c -- out = silu(gate) * up on a GPU where there is one, else on the CPU.
 *
 *   cc swiglu.c -leider
 */
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
    enum { ROWS = 4, COLUMNS = 1000, N = ROWS * COLUMNS };
    static float gate[N], up[N], out[N];
    for (int i = 0; i < N; i++) {
        gate[i] = (float)(i % 13) - 6;
        up[i] = 2;
    }

    /* A context holds the kernels; a program is text; a device is where it runs. */
    eider_context *ctx;
    eider_program *program;
    eider_device *device;
    check(eider_context_create(NULL, &ctx));
    check(eider_program_parse(ctx, "out = silu(gate) * up", &program));
    if (eider_device_open(ctx, "cuda:0", &device) != EIDER_OK) {
        check(eider_device_open(ctx, "cpu", &device));
    }

    /* One tensor per operand, in operand order: inputs as they appear, then outputs. */
    const int64_t shape[] = {ROWS, COLUMNS};
    const void *host[] = {gate, up, NULL};
    eider_tensor args[3];
    for (int i = 0; i < 3; i++) {
        args[i] = (eider_tensor){.type = EIDER_F32, .rank = 2, .shape = shape};
        check(eider_memory_alloc(device, sizeof out, &args[i].data));
        if (!host[i]) continue;
        check(eider_memory_copy(device, NULL, args[i].data, host[i], sizeof out,
                                EIDER_HOST_TO_DEVICE));
    }

    /* Preparing compiles, the first time; launching only launches. */
    eider_kernel *kernel;
    eider_request request = {.program = program, .args = args, .n_args = 3};
    check(eider_prepare(device, &request, &kernel));
    check(eider_launch(kernel, NULL, args, 3));
    check(eider_memory_copy(device, NULL, out, args[2].data, sizeof out, EIDER_DEVICE_TO_HOST));

    printf("silu(%g) * %g = %g\n", (double)gate[8], (double)up[8], (double)out[8]);
    int wrong = out[8] < 3.5231f || out[8] > 3.5232f; /* silu(2) = 1.761594... */

    eider_kernel_release(kernel);
    for (int i = 0; i < 3; i++) eider_memory_free(device, args[i].data);
    eider_device_release(device);
    eider_program_release(program);
    eider_context_destroy(ctx);
    return wrong;
}
