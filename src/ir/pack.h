/* pack.h -- short names for LLVM's arithmetic on packs (see machine.h).
 *
 * Invariant: nothing here asks how wide a pack is or which target it is for, and nothing
 * sets fast-math flags: p_fma is one rounding, p_mul then p_add are two.
 * Not here: conversions from and to memory, math functions.
 */
#ifndef EIDER_IR_PACK_H
#define EIDER_IR_PACK_H

#include "machine.h"

typedef LLVMValueRef pack;

/* Type of one element of a pack type. */
LLVMTypeRef eider_pack_element(LLVMTypeRef type);
/* The pack type of `type`'s width whose elements are `element`. */
LLVMTypeRef eider_pack_like(LLVMTypeRef type, LLVMTypeRef element);
/* The compute type of a pack. */
enum eider_vtype eider_pack_vtype(pack v);
/* Integers as wide as the floats of `type`. */
LLVMTypeRef eider_pack_bits_type(LLVMTypeRef type);
/* Call of the overloaded intrinsic `name`, such as "llvm.fma", for type `type`. */
pack eider_pack_intrinsic(struct eider_emit *e, const char *name, LLVMTypeRef type,
                          const pack *args, uint32_t n_args);
/* c[0] + x (c[1] + x (c[2] + ...)), n >= 1. */
pack eider_pack_polynomial(struct eider_emit *e, pack x, const double *c, int n);

static inline pack p_number(LLVMTypeRef type, double value)
{
    return eider_emit_real(type, value);
}

static inline pack p_integer(LLVMTypeRef type, int64_t value)
{
    return eider_emit_int(type, (uint64_t)value);
}

/* A number of the type of `v`. */
static inline pack p_like(pack v, double value)
{
    return p_number(LLVMTypeOf(v), value);
}

static inline pack p_add(struct eider_emit *e, pack a, pack b)
{
    return LLVMBuildFAdd(e->builder, a, b, "");
}

static inline pack p_sub(struct eider_emit *e, pack a, pack b)
{
    return LLVMBuildFSub(e->builder, a, b, "");
}

static inline pack p_mul(struct eider_emit *e, pack a, pack b)
{
    return LLVMBuildFMul(e->builder, a, b, "");
}

static inline pack p_div(struct eider_emit *e, pack a, pack b)
{
    return LLVMBuildFDiv(e->builder, a, b, "");
}

static inline pack p_neg(struct eider_emit *e, pack a)
{
    return LLVMBuildFNeg(e->builder, a, "");
}

static inline pack p_scale(struct eider_emit *e, pack a, double by)
{
    return p_mul(e, a, p_like(a, by));
}

static inline pack p_offset(struct eider_emit *e, pack a, double by)
{
    return p_add(e, a, p_like(a, by));
}

static inline pack p_fma(struct eider_emit *e, pack a, pack b, pack c)
{
    pack args[3] = {a, b, c};
    return eider_pack_intrinsic(e, "llvm.fma", LLVMTypeOf(a), args, 3);
}

/* a * by + c, rounded once. */
static inline pack p_fma_by(struct eider_emit *e, pack a, double by, pack c)
{
    return p_fma(e, a, p_like(a, by), c);
}

static inline pack p_unary(struct eider_emit *e, const char *intrinsic, pack a)
{
    return eider_pack_intrinsic(e, intrinsic, LLVMTypeOf(a), &a, 1);
}

static inline pack p_binary(struct eider_emit *e, const char *intrinsic, pack a, pack b)
{
    pack args[2] = {a, b};
    return eider_pack_intrinsic(e, intrinsic, LLVMTypeOf(a), args, 2);
}

static inline pack p_abs(struct eider_emit *e, pack a)
{
    return p_unary(e, "llvm.fabs", a);
}

static inline pack p_compare(struct eider_emit *e, LLVMRealPredicate how, pack a, pack b)
{
    return LLVMBuildFCmp(e->builder, how, a, b, "");
}

/* Compares with a number. */
static inline pack p_is(struct eider_emit *e, pack a, LLVMRealPredicate how, double value)
{
    return LLVMBuildFCmp(e->builder, how, a, p_like(a, value), "");
}

static inline pack p_select(struct eider_emit *e, pack condition, pack a, pack b)
{
    return LLVMBuildSelect(e->builder, condition, a, b, "");
}

/* The bits of floats as integers, and back. */
static inline pack p_bits(struct eider_emit *e, pack a)
{
    return LLVMBuildBitCast(e->builder, a, eider_pack_bits_type(LLVMTypeOf(a)), "");
}

static inline pack p_from_bits(struct eider_emit *e, pack bits, LLVMTypeRef type)
{
    return LLVMBuildBitCast(e->builder, bits, type, "");
}

#endif
