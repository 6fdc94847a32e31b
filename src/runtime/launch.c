/* launch.c -- arguments to a launch.
 *
 * Invariant: nothing here allocates, compiles, locks or touches a file: arguments are
 * checked and bound on the stack, and the backend is called.
 */
#include <string.h>

#include "kernel.h"

#define GRID_MAX 2147483647u /* blocks in x, of every GPU */

static eider_status check_call(const char *call, const eider_kernel *kernel,
                               const eider_tensor *args, size_t n_args)
{
    if (!kernel || (!args && n_args)) return eider_fail(EIDER_BAD_ARG, "%s: NULL argument", call);
    EIDER_TRY(eider_context_check(kernel->ctx));
    if (!kernel->device)
        return eider_fail(EIDER_NOT_PREPARED,
                          "%s: the kernel is not loaded on a device: it was "
                          "only compiled, or its device was released",
                          call);
    if (n_args != kernel->n_operands)
        return eider_fail(EIDER_BAD_ARG, "%s: %zu arguments, the kernel has %u operands", call,
                          n_args, kernel->n_operands);
    return EIDER_OK;
}

/* No more blocks than the device's multiprocessors are meant to hold. */
static void limit_grid(struct eider_bound *bound, int32_t units)
{
    uint64_t most = (uint64_t)bound->per_unit * (uint64_t)units / bound->granule;
    if (most < 1) most = 1;
    if (bound->grid / bound->granule <= most) return;
    bound->grid = most * bound->granule;
    eider_bound_put(bound, bound->in_flight, most);
}

static void set_rounds(const struct eider_rounds *rounds, struct eider_bound *bound,
                       struct eider_shot *shot)
{
    shot->rounds = rounds->n;
    shot->last_grid = (uint32_t)bound->grid / rounds->last_share;
    shot->memory_bytes = bound->units * rounds->unit_bytes; /* the grid limits the units */
    shot->round = &bound->slots[bound->round];
    shot->memory = &bound->slots[bound->memory];
}

/* Fills `shot` from arguments; a grid of 0 blocks means that there is nothing to do. */
static eider_status bind(const eider_kernel *kernel, void *stream, const eider_tensor *args,
                         struct eider_bound *bound, struct eider_shot *shot)
{
    bound->per_unit = 0;
    EIDER_TRY(kernel->shape->bind(&kernel->layout, &kernel->config, args, bound));
    if (bound->per_unit) limit_grid(bound, kernel->device->info.units);
    if (bound->grid > GRID_MAX)
        return eider_fail(EIDER_TOO_LARGE, "%llu blocks; %u are possible: choose larger tiles",
                          (unsigned long long)bound->grid, GRID_MAX);
    *shot = (struct eider_shot){
        .code = &kernel->loaded,
        .grid = {(uint32_t)bound->grid, 1, 1},
        .block = {bound->block, 1, 1},
        .shared_bytes = kernel->shared_bytes,
        .stream = stream,
        .params = bound->params,
    };
    if (kernel->rounds.n && bound->grid) set_rounds(&kernel->rounds, bound, shot);
    if (kernel->device->backend->wants_bytes)
        EIDER_TRY(kernel->shape->bytes(&kernel->layout, args, &shot->bytes));
    return EIDER_OK;
}

static eider_status check_shape(const char *call, const eider_kernel *kernel)
{
    if (kernel->shape) return EIDER_OK;
    return eider_fail(EIDER_BAD_ARG, "%s: the kernel comes from a source: use eider_launch_grid",
                      call);
}

eider_status eider_launch(const eider_kernel *kernel, void *stream, const eider_tensor *args,
                          size_t n_args)
{
    struct eider_bound bound;
    struct eider_shot shot;
    EIDER_TRY(check_call("eider_launch", kernel, args, n_args));
    EIDER_TRY(check_shape("eider_launch", kernel));
    EIDER_TRY(bind(kernel, stream, args, &bound, &shot));
    eider_context_count(kernel->ctx,
                        bound.grid ? EIDER_COUNT_LAUNCHES : EIDER_COUNT_EMPTY_LAUNCHES);
    if (bound.grid == 0) return EIDER_OK;
    return kernel->device->backend->launch(kernel->device, &shot);
}

eider_status eider_time(const eider_kernel *kernel, void *stream, const eider_tensor *args,
                        size_t n_args, int32_t n, int32_t flush, double *out_ns)
{
    struct eider_bound bound;
    struct eider_shot shot;
    EIDER_TRY(check_call("eider_time", kernel, args, n_args));
    EIDER_TRY(check_shape("eider_time", kernel));
    if (n < 1 || !out_ns)
        return eider_fail(EIDER_BAD_ARG,
                          "eider_time: n is %d and must be at least 1; out_ns must "
                          "not be NULL",
                          n);
    EIDER_TRY(bind(kernel, stream, args, &bound, &shot));
    if (bound.grid == 0) {
        for (int32_t i = 0; i < n; i++) out_ns[i] = 0;
        return EIDER_OK;
    }
    return kernel->device->backend->time(kernel->device, &shot, n, flush, out_ns);
}

/* Where the value of argument `i` lies: the pointer of a tensor, the scalar itself. */
static eider_status find_param(const eider_kernel *kernel, size_t i, const eider_tensor *arg,
                               const void **out)
{
    int32_t type = kernel->operands[i].type;
    if (type >= 0 && type != (int32_t)arg->type)
        return eider_fail(EIDER_NOT_PREPARED, "argument %zu is %s, the kernel takes %s", i,
                          eider_dtype_name(arg->type) ? eider_dtype_name(arg->type) : "of no type",
                          eider_dtype_name((eider_dtype)type));
    int is_scalar = kernel->operands[i].kind == EIDER_SCALAR;
    if (is_scalar && !arg->data)
        return eider_fail(EIDER_BAD_ARG, "argument %zu is a scalar and its data is NULL", i);
    size_t bytes = kernel->operands[i].bytes;
    if (is_scalar && bytes && bytes != eider_dtype_size(arg->type))
        return eider_fail(EIDER_BAD_ARG,
                          "argument %zu is a scalar of %zu bytes, the kernel's parameter has %zu",
                          i, eider_dtype_size(arg->type), bytes);
    *out = is_scalar ? arg->data : &arg->data;
    return EIDER_OK;
}

/* Fills `shot`; a grid of 0 blocks means that there is nothing to do. */
static eider_status bind_grid(const char *call, const eider_kernel *kernel, void *stream,
                              const uint32_t grid[3], const eider_tensor *args, size_t n_args,
                              const void **params, struct eider_shot *shot)
{
    EIDER_TRY(check_call(call, kernel, args, n_args));
    if (!grid) return eider_fail(EIDER_BAD_ARG, "%s: grid is NULL", call);
    if (kernel->shape)
        return eider_fail(EIDER_BAD_ARG,
                          "%s: the kernel comes from a program, which has its own "
                          "grid: use eider_launch",
                          call);
    for (size_t i = 0; i < n_args; i++) EIDER_TRY(find_param(kernel, i, &args[i], &params[i]));
    *shot = (struct eider_shot){
        .code = &kernel->loaded,
        .grid = {grid[0], grid[1], grid[2]},
        .block = {kernel->block[0], kernel->block[1], kernel->block[2]},
        .shared_bytes = kernel->shared_bytes,
        .stream = stream,
        .params = (void **)params, /* the driver only reads them */
    };
    return EIDER_OK;
}

static int is_empty(const uint32_t grid[3])
{
    return !grid[0] || !grid[1] || !grid[2];
}

eider_status eider_launch_grid(const eider_kernel *kernel, void *stream, const uint32_t grid[3],
                               const eider_tensor *args, size_t n_args)
{
    const void *params[EIDER_OPERANDS_MAX];
    struct eider_shot shot;
    EIDER_TRY(bind_grid("eider_launch_grid", kernel, stream, grid, args, n_args, params, &shot));
    eider_context_count(kernel->ctx,
                        is_empty(grid) ? EIDER_COUNT_EMPTY_LAUNCHES : EIDER_COUNT_LAUNCHES);
    if (is_empty(grid)) return EIDER_OK;
    return kernel->device->backend->launch(kernel->device, &shot);
}

eider_status eider_launch_time_grid(const eider_kernel *kernel, void *stream,
                                    const uint32_t grid[3], const eider_tensor *args, size_t n_args,
                                    int32_t n, double *out_ns)
{
    const void *params[EIDER_OPERANDS_MAX];
    struct eider_shot shot;
    EIDER_TRY(bind_grid("eider_tune", kernel, stream, grid, args, n_args, params, &shot));
    for (int32_t i = 0; is_empty(grid) && i < n; i++) out_ns[i] = 0;
    if (is_empty(grid)) return EIDER_OK;
    return kernel->device->backend->time(kernel->device, &shot, n, 0, out_ns);
}
