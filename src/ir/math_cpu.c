/* math_cpu.c -- math on the host, from SLEEF's vector functions.
 *
 * In f32, what SLEEF computes with much more accuracy than fast needs, and time, is the
 * arithmetic of math_*.c (error functions, expm1) or SLEEF's 3.5 ulp variant (tanh).
 * SLEEF's functions come per width and instruction set.  On hosts with FMA the finz_ ones
 * are used, else the cinz_ ones: either gives the same bits at every width.  A pack wider
 * than the host's vectors is computed in parts.  Where SLEEF has no vectors for this host,
 * the arithmetic of math_*.c stands in.
 */
#include "math_f32.h"

#include <stdio.h>
#include <string.h>

/* ---- Which function ---------------------------------------------------------- */

/* SLEEF's name without width and type, and its error class in tenths of an ulp, for f64 and
 * for f32; NULL: by arithmetic. */
static const struct function {
    const char *name, *error, *error_f32;
    unsigned n_args;
} functions[EIDER_OP_COUNT] = {
    [EIDER_OP_exp] = {"exp", "u10", "u10", 1},       [EIDER_OP_exp2] = {"exp2", "u10", "u10", 1},
    [EIDER_OP_expm1] = {"expm1", "u10", NULL, 1},    [EIDER_OP_log] = {"log", "u10", "u10", 1},
    [EIDER_OP_log2] = {"log2", "u10", "u10", 1},     [EIDER_OP_log1p] = {"log1p", "u10", "u10", 1},
    [EIDER_OP_pow] = {"pow", "u10", "u10", 2},       [EIDER_OP_sin] = {"sin", "u10", "u10", 1},
    [EIDER_OP_cos] = {"cos", "u10", "u10", 1},       [EIDER_OP_tanh] = {"tanh", "u10", "u35", 1},
    [EIDER_OP_m_log1p] = {"log1p", "u10", "u10", 1}, [EIDER_OP_erf] = {"erf", "u10", NULL, 1},
    [EIDER_OP_erfc] = {"erfc", "u15", NULL, 1},
};

/* Vectors of one instruction set. */
struct vectors {
    unsigned bytes; /* 0: scalars */
    const char *suffix;
};

static const struct vectors with_fma[] = {
    {64, "avx512f"}, {32, "avx2"}, {16, "avx2128"}, {0, "purecfma"}};
static const struct vectors without_fma[] = {{32, "avx"}, {16, "sse2"}, {0, "purec"}};

#if defined(__x86_64__)
static int host_has_fma(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* The widest vectors of the host that fit `bytes`, scalars at worst. */
static const struct vectors *vectors_for(unsigned bytes)
{
    int fma = host_has_fma();
    const struct vectors *v = fma ? with_fma : without_fma;
    if (fma && !__builtin_cpu_supports("avx512f")) v++;
    if (!fma && !__builtin_cpu_supports("avx")) v++;
    while (v->bytes > bytes) v++;
    return v;
}
#else
static int host_has_fma(void)
{
    return 0;
}

static const struct vectors *vectors_for(unsigned bytes)
{
    (void)bytes;
    (void)with_fma;
    (void)without_fma;
    return NULL;
}
#endif

/* ---- Calls -------------------------------------------------------------------- */

static pack call(struct eider_emit *e, const char *name, LLVMTypeRef type, const pack *args,
                 unsigned n_args)
{
    static const char *const pure[] = {"memory", "nounwind", "willreturn"};
    LLVMTypeRef types[2] = {type, type};
    LLVMTypeRef function = LLVMFunctionType(type, types, n_args, 0);
    LLVMValueRef callee = LLVMGetNamedFunction(e->module, name);
    if (!callee) {
        callee = LLVMAddFunction(e->module, name, function);
        for (size_t i = 0; i < sizeof pure / sizeof *pure; i++) {
            unsigned kind = LLVMGetEnumAttributeKindForName(pure[i], strlen(pure[i]));
            LLVMAddAttributeAtIndex(callee, (LLVMAttributeIndex)LLVMAttributeFunctionIndex,
                                    LLVMCreateEnumAttribute(e->context, kind, 0));
        }
    }
    return LLVMBuildCall2(e->builder, function, callee, (pack *)args, n_args, "");
}

/* Elements [first, first + n) of a pack, as a vector. */
static pack part_of(struct eider_emit *e, pack v, unsigned first, unsigned n)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef lanes[64];
    for (unsigned i = 0; i < n; i++) lanes[i] = LLVMConstInt(i32, first + i, 0);
    if (n == 1) return LLVMBuildExtractElement(e->builder, v, lanes[0], "");
    return LLVMBuildShuffleVector(e->builder, v, LLVMGetUndef(LLVMTypeOf(v)),
                                  LLVMConstVector(lanes, n), "");
}

static pack concatenate(struct eider_emit *e, pack a, pack b)
{
    LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
    LLVMValueRef lanes[64];
    unsigned n = 2 * LLVMGetVectorSize(LLVMTypeOf(a));
    for (unsigned i = 0; i < n; i++) lanes[i] = LLVMConstInt(i32, i, 0);
    return LLVMBuildShuffleVector(e->builder, a, b, LLVMConstVector(lanes, n), "");
}

/* `name` of a pack, in parts of `lanes` elements. */
static pack call_in_parts(struct eider_emit *e, const char *name, unsigned width, unsigned lanes,
                          const pack *args, unsigned n_args)
{
    LLVMTypeRef whole = LLVMTypeOf(args[0]);
    if (lanes == width) return call(e, name, whole, args, n_args);
    LLVMTypeRef element = eider_pack_element(whole);
    LLVMTypeRef type = lanes == 1 ? element : LLVMVectorType(element, lanes);
    pack parts[64], some[2];
    unsigned n = width / lanes;
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < n_args; k++) some[k] = part_of(e, args[k], i * lanes, lanes);
        parts[i] = call(e, name, type, some, n_args);
    }
    if (lanes == 1) {
        pack all = LLVMGetUndef(whole);
        for (unsigned i = 0; i < n; i++) {
            LLVMValueRef at = LLVMConstInt(LLVMInt32TypeInContext(e->context), i, 0);
            all = LLVMBuildInsertElement(e->builder, all, parts[i], at, "");
        }
        return all;
    }
    for (; n > 1; n /= 2)
        for (unsigned i = 0; i < n / 2; i++)
            parts[i] = concatenate(e, parts[2 * i], parts[2 * i + 1]);
    return parts[0];
}

static pack sleef(struct eider_emit *e, enum eider_op op, const pack *args)
{
    const struct function *f = &functions[op];
    LLVMTypeRef type = LLVMTypeOf(args[0]);
    int is_double = eider_pack_vtype(args[0]) == EIDER_V_F64;
    unsigned size = is_double ? 8 : 4;
    unsigned width = LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetVectorSize(type) : 1;
    const struct vectors *v = vectors_for(width * size);
    if (!v) return eider_math_arithmetic(e, &eider_math_f64, op, args);
    unsigned lanes = v->bytes ? v->bytes / size : 1;
    char name[64];
    snprintf(name, sizeof name, "Sleef_%s_%s%c%u_%s%s", host_has_fma() ? "finz" : "cinz", f->name,
             is_double ? 'd' : 'f', lanes, is_double ? f->error : f->error_f32, v->suffix);
    return call_in_parts(e, name, width, lanes, args, f->n_args);
}

/* ---- What SLEEF does not have ---------------------------------------------------- */

static pack sleef_exp(struct eider_emit *e, pack x)
{
    return sleef(e, EIDER_OP_exp, &x);
}

static pack sleef_decay(struct eider_emit *e, pack a, double c)
{
    pack rest, square = eider_math_square(e, a, &rest);
    pack power = sleef_exp(e, p_scale(e, square, -c));
    return p_fma(e, power, p_scale(e, rest, -c), power);
}

static const struct eider_math_format f32 = EIDER_MATH_F32(sleef_exp, sleef_decay, p_div);

#define ROOT_HALF 0x1.6a09e667f3bcdp-1 /* sqrt(1/2), in two parts */
#define ROOT_HALF_LOW -0x1.bdd3413b26456p-55
#define LN2 0.69314718055994530942 /* log(2) */

/* erfc(a) / 2 with a = -x sqrt(1/2), in f64.  The argument's rounding error, which erfc
 * amplifies by -2a in the tail, is put back. */
static pack normcdf(struct eider_emit *e, pack x)
{
    x = p_select(e, p_is(e, x, LLVMRealOLT, -40), p_like(x, -40), x);
    x = p_select(e, p_is(e, x, LLVMRealOGT, 40), p_like(x, 40), x);
    pack a = p_scale(e, x, -ROOT_HALF);
    pack low = p_fma_by(e, x, -ROOT_HALF, p_neg(e, a));
    low = p_fma_by(e, x, -ROOT_HALF_LOW, low);
    low = p_select(e, p_is(e, a, LLVMRealOGT, 0), low, p_like(x, 0));
    pack half = p_fma(e, p_neg(e, a), low, p_like(x, 0.5));
    return p_mul(e, sleef(e, EIDER_OP_erfc, &a), half);
}

/* SLEEF's log1p is infinite in the last decade of the format: there, log1p(x 2^-64) and the
 * logarithm of the rest. */
static pack log1p_wide(struct eider_emit *e, pack x)
{
    double limit = eider_pack_vtype(x) == EIDER_V_F64 ? 0x1p1000 : 0x1p120;
    pack is_huge = p_is(e, x, LLVMRealOGT, limit);
    pack small = p_select(e, is_huge, p_scale(e, x, 0x1p-64), x);
    pack log = sleef(e, EIDER_OP_log1p, &small);
    return p_select(e, is_huge, p_offset(e, log, 64 * LN2), log);
}

/* The larger or smaller where neither is NaN, with -0 below 0; LLVM's maxnum leaves zeros
 * open. */
static pack ignoring_nan(struct eider_emit *e, const char *propagating, pack a, pack b)
{
    pack v = p_binary(e, propagating, a, b);
    v = p_select(e, p_compare(e, LLVMRealUNO, a, a), b, v);
    return p_select(e, p_compare(e, LLVMRealUNO, b, b), a, v);
}

static pack plain(struct eider_emit *e, enum eider_op op, const pack *args)
{
    pack one = p_like(args[0], 1);
    switch (op) {
    case EIDER_OP_div:
        return p_div(e, args[0], args[1]);
    case EIDER_OP_fmax:
        return ignoring_nan(e, "llvm.maximum", args[0], args[1]);
    case EIDER_OP_fmin:
        return ignoring_nan(e, "llvm.minimum", args[0], args[1]);
    case EIDER_OP_copysign:
        return p_binary(e, "llvm.copysign", args[0], args[1]);
    case EIDER_OP_m_rcp:
    case EIDER_OP_rcp:
        return p_div(e, one, args[0]);
    case EIDER_OP_m_sqrt:
    case EIDER_OP_sqrt:
        return p_unary(e, "llvm.sqrt", args[0]);
    case EIDER_OP_m_rsqrt:
    case EIDER_OP_rsqrt:
        return p_div(e, one, p_unary(e, "llvm.sqrt", args[0]));
    case EIDER_OP_m_tanh:
        return sleef(e, EIDER_OP_tanh, args);
    case EIDER_OP_m_ex2:
        return sleef(e, EIDER_OP_exp2, args);
    case EIDER_OP_m_lg2:
        return sleef(e, EIDER_OP_log2, args);
    case EIDER_OP_m_sin:
        return sleef(e, EIDER_OP_sin, args);
    case EIDER_OP_m_cos:
        return sleef(e, EIDER_OP_cos, args);
    case EIDER_OP_sigmoid: /* of either type: exp and divide are all it takes */
        return eider_math_sigmoid(e, args[0], &f32);
    case EIDER_OP_normcdf:
        return normcdf(e, args[0]);
    default:
        return eider_emit_fail(e, EIDER_UNSUPPORTED, "operation %d has no code", (int)op);
    }
}

LLVMValueRef eider_math_cpu(struct eider_emit *e, enum eider_op op, enum eider_vtype type,
                            const LLVMValueRef *args)
{
    const struct function *f = &functions[op];
    if (op == EIDER_OP_log1p) return log1p_wide(e, args[0]);
    if (type == EIDER_V_F32 && ((f->name && !f->error_f32) || op == EIDER_OP_normcdf))
        return eider_math_arithmetic(e, &f32, op, args);
    return f->name ? sleef(e, op, args) : plain(e, op, args);
}
