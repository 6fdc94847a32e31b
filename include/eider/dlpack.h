/* dlpack.h -- a DLPack tensor as an eider_tensor, without copying anything.
 *
 * Include it after <dlpack/dlpack.h> to use that header's types; without it, the part of
 * DLPack's ABI that is needed is declared here, with the same layout in every version of
 * DLPack so far.  Nothing in the library depends on this header.
 */
#ifndef EIDER_DLPACK_H
#define EIDER_DLPACK_H

#include "eider/eider.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef DLPACK_DLPACK_H_ /* the guard of dlpack/dlpack.h */
typedef struct {
    int32_t device_type; /* 1 CPU, 2 CUDA, 3 pinned host memory, 13 CUDA managed memory */
    int32_t device_id;
} DLDevice;

typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL is row-major contiguous */
    uint64_t byte_offset;
} DLTensor;
#endif

/* The element type of a DLPack type, or -1 where eider has none. */
static inline int32_t eider_dtype_from_dlpack(DLDataType type)
{
    static const struct {
        uint8_t code, bits;
        int32_t type;
    } rows[] = {
        {2, 32, EIDER_F32},  {2, 16, EIDER_F16},  {4, 16, EIDER_BF16}, {2, 64, EIDER_F64},
        {10, 8, EIDER_E4M3}, {12, 8, EIDER_E5M2}, {0, 32, EIDER_I32},  {0, 64, EIDER_I64},
        {6, 8, EIDER_BOOL}, /* codes: 0 int, 2 float, 4 bfloat, 6 bool, 10 float8_e4m3fn,
                             * 12 float8_e5m2 */
    };
    if (type.lanes != 1) return -1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].code == type.code && rows[i].bits == type.bits) return rows[i].type;
    return -1;
}

/* Views `from` as an operand of a launch: shape, strides and data stay those of `from`,
 * which must outlive `*out`.  A tensor of rank 0 is one element in device memory, not a
 * scalar parameter.  Fails with EIDER_TYPE or EIDER_SHAPE; eider_error() is not set. */
static inline eider_status eider_tensor_from_dlpack(const DLTensor *from, eider_tensor *out)
{
    int32_t type = eider_dtype_from_dlpack(from->dtype);
    if (type < 0) return EIDER_TYPE;
    if (from->ndim < 0 || from->ndim > EIDER_RANK_MAX) return EIDER_SHAPE;
    out->data = from->data ? (char *)from->data + from->byte_offset : NULL;
    out->type = (eider_dtype)type;
    out->rank = from->ndim;
    out->shape = from->shape;
    out->strides = from->strides;
    return EIDER_OK;
}

#ifdef __cplusplus
}
#endif

#endif
