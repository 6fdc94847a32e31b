/* math_nvptx.c -- math on NVIDIA GPUs.
 *
 * f64 (math=exact, and programs in f64) is the arithmetic of math_*.c.  f32 (fast and
 * approx) is the same arithmetic over the hardware's ex2 and rcp where those are shorter:
 * their arguments here are in ranges where the .ftz forms, which need no scaling code
 * around them, are as good as the full ones.  Where the program itself asks for a
 * machine form, its subnormals count, and .ftz is used only in ftz mode.
 */
#include "math_f32.h"

/* ---- Machine forms --------------------------------------------------------- */

/* One instruction as text, without and with flushing of subnormals. */
static const struct instruction {
    const char *full, *flushed, *constraints;
    unsigned n_args;
} instructions[EIDER_OP_COUNT] = {
    [EIDER_OP_m_tanh] = {"tanh.approx.f32 $0, $1;", "tanh.approx.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_m_ex2] = {"ex2.approx.f32 $0, $1;", "ex2.approx.ftz.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_m_lg2] = {"lg2.approx.f32 $0, $1;", "lg2.approx.ftz.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_m_rcp] = {"rcp.approx.ftz.f32 $0, $1;", "rcp.approx.ftz.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_m_rsqrt] = {"rsqrt.approx.f32 $0, $1;", "rsqrt.approx.ftz.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_m_sqrt] = {"sqrt.approx.f32 $0, $1;", "sqrt.approx.ftz.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_m_sin] = {"sin.approx.f32 $0, $1;", "sin.approx.ftz.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_m_cos] = {"cos.approx.f32 $0, $1;", "cos.approx.ftz.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_rcp] = {"rcp.approx.f32 $0, $1;", "rcp.approx.ftz.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_rsqrt] = {"rsqrt.approx.f32 $0, $1;", "rsqrt.approx.ftz.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_sqrt] = {"sqrt.approx.f32 $0, $1;", "sqrt.approx.ftz.f32 $0, $1;", "=f,f", 1},
    [EIDER_OP_div] = {"div.full.f32 $0, $1, $2;", "div.full.ftz.f32 $0, $1, $2;", "=f,f,f", 2},
    /* PTX: the sign of the first operand on the second. */
    [EIDER_OP_copysign] = {"copysign.f32 $0, $2, $1;", "copysign.f32 $0, $2, $1;", "=f,f,f", 2},
};

static pack instruction(struct eider_emit *e, enum eider_op op, int flushed, const pack *args)
{
    const struct instruction *i = &instructions[op];
    return eider_emit_asm(e, LLVMTypeOf(args[0]), flushed ? i->flushed : i->full, i->constraints, 1,
                          (pack *)args, i->n_args);
}

/* ---- f32 -------------------------------------------------------------------- */

static const struct eider_math_format f32;

/* x log2(e) = n + r with n held within the exponents of normal numbers, so that 2^r takes
 * up what lies beyond and reaches subnormals, 0 and infinity by itself; then 2^n 2^r. */
static pack exp_f32(struct eider_emit *e, pack x)
{
    const double magic = 0x1.8p23 + 127; /* its sum's low bits are n plus the bias */
    pack n = p_scale(e, x, f32.log2e);
    n = p_binary(e, "llvm.maxnum", n, p_like(n, -126));
    n = p_binary(e, "llvm.minnum", n, p_like(n, 127));
    pack sum = p_offset(e, n, magic);
    n = p_offset(e, sum, -magic);
    pack r = p_fma_by(e, x, f32.log2e, p_neg(e, n));
    r = p_fma_by(e, x, f32.log2e_low, r);
    pack bits = p_bits(e, sum);
    bits = LLVMBuildShl(e->builder, bits, p_integer(LLVMTypeOf(bits), f32.mantissa), "");
    pack power = p_from_bits(e, bits, LLVMTypeOf(x));
    return p_mul(e, instruction(e, EIDER_OP_m_ex2, 1, &r), power);
}

/* -c a^2 log2(e) = t + rest, |rest| far below 1; then 2^t 2^rest.  The hardware's power of a
 * large t is as good as that of a small one. */
static pack decay_f32(struct eider_emit *e, pack a, double c)
{
    pack low, square = eider_math_square(e, a, &low);
    pack t = p_scale(e, square, -c * f32.log2e);
    pack rest = p_fma_by(e, square, -c * f32.log2e, p_neg(e, t));
    rest = p_fma_by(e, square, -c * f32.log2e_low, rest);
    rest = p_fma_by(e, low, -c * f32.log2e, rest);
    pack slope = p_fma_by(e, rest, f32.ln2, p_like(a, 1));
    return p_mul(e, instruction(e, EIDER_OP_m_ex2, e->ftz, &t), slope);
}

/* |b| within [2^-126, 2^126]. */
static pack divide_f32(struct eider_emit *e, pack a, pack b)
{
    return p_mul(e, a, instruction(e, EIDER_OP_m_rcp, 1, &b));
}

static const struct eider_math_format f32 = EIDER_MATH_F32(exp_f32, decay_f32, divide_f32);

#define TANH_SMALL 0.6 /* up to here by the fit, beyond as 1 - 2 / (1 + exp(2|x|)) */

static pack tanh_f32_of(struct eider_emit *e, pack x)
{
    pack a = p_abs(e, x);
    pack power = p_scale(e, a, 2 * f32.log2e);
    power = instruction(e, EIDER_OP_m_ex2, 1, &power);
    pack inverse = p_offset(e, power, 1);
    inverse = instruction(e, EIDER_OP_m_rcp, 1, &inverse);
    pack large = p_fma_by(e, inverse, -2, p_like(x, 1));

    pack z = p_mul(e, a, a);
    pack small = eider_pack_polynomial(e, z, tanh_f32, (int)(sizeof tanh_f32 / sizeof *tanh_f32));
    small = p_fma(e, p_mul(e, small, z), a, a);

    pack value[2] = {p_select(e, p_is(e, a, LLVMRealOLT, TANH_SMALL), small, large), x};
    return instruction(e, EIDER_OP_copysign, 0, value);
}

/* x - x^2 p(x). */
static pack log1p_f32_of(struct eider_emit *e, pack x)
{
    pack p = eider_pack_polynomial(e, x, log1p_f32, (int)(sizeof log1p_f32 / sizeof *log1p_f32));
    return p_fma(e, p_mul(e, x, x), p, x);
}

/* ---- approx: errors of about 2^-17 ------------------------------------------ */

#define NEAR_ZERO 0x1p-5 /* below, the series' next term is less; above, ex2's and lg2's error */

/* x + b x^2 + c x^3 near 0, where `far` loses its digits. */
static pack by_series_near_zero(struct eider_emit *e, pack x, double b, double c, pack far)
{
    pack slope = p_fma(e, p_fma_by(e, x, c, p_like(x, b)), x, p_like(x, 1));
    pack is_near = p_is(e, p_abs(e, x), LLVMRealOLT, NEAR_ZERO);
    return p_select(e, is_near, p_mul(e, x, slope), far);
}

static pack approx_expm1(struct eider_emit *e, pack x)
{
    pack power = p_scale(e, x, f32.log2e);
    power = instruction(e, EIDER_OP_m_ex2, 1, &power);
    return by_series_near_zero(e, x, 1.0 / 2, 1.0 / 6, p_offset(e, power, -1)); /* Taylor */
}

static pack approx_log1p(struct eider_emit *e, pack x)
{
    pack u = p_offset(e, x, 1);
    pack log = p_scale(e, instruction(e, EIDER_OP_m_lg2, 1, &u), f32.ln2);
    return by_series_near_zero(e, x, -1.0 / 2, 1.0 / 3, log); /* Taylor */
}

/* ---- By type ---------------------------------------------------------------- */

static pack math_f64(struct eider_emit *e, enum eider_op op, const pack *args)
{
    pack one = p_like(args[0], 1);
    switch (op) {
    case EIDER_OP_div:
        return p_div(e, args[0], args[1]);
    case EIDER_OP_rcp:
        return p_div(e, one, args[0]);
    case EIDER_OP_sqrt:
        return p_unary(e, "llvm.sqrt", args[0]);
    case EIDER_OP_rsqrt:
        return p_div(e, one, p_unary(e, "llvm.sqrt", args[0]));
    case EIDER_OP_copysign:
        return eider_math_copysign(e, args[0], args[1]);
    default:
        return eider_math_arithmetic(e, &eider_math_f64, op, args);
    }
}

/* f32 by way of f64. */
static pack widened(struct eider_emit *e, enum eider_op op, const pack *args)
{
    LLVMTypeRef narrow = LLVMTypeOf(args[0]);
    LLVMTypeRef wide = eider_pack_like(narrow, LLVMDoubleTypeInContext(e->context));
    pack wider[2];
    wider[0] = LLVMBuildFPExt(e->builder, args[0], wide, "");
    if (op == EIDER_OP_pow || op == EIDER_OP_div)
        wider[1] = LLVMBuildFPExt(e->builder, args[1], wide, "");
    return LLVMBuildFPTrunc(e->builder, math_f64(e, op, wider), narrow, "");
}

LLVMValueRef eider_math_nvptx(struct eider_emit *e, enum eider_op op, enum eider_vtype type,
                              const LLVMValueRef *args)
{
    /* One instruction each, which takes -0 to be below 0. */
    if (op == EIDER_OP_fmax) return p_binary(e, "llvm.maxnum", args[0], args[1]);
    if (op == EIDER_OP_fmin) return p_binary(e, "llvm.minnum", args[0], args[1]);
    if (type == EIDER_V_F64) return math_f64(e, op, args);
    if (op == EIDER_OP_copysign) return instruction(e, op, e->ftz, args);
    /* pow needs a logarithm of more than f32's precision. */
    if (e->math == EIDER_MATH_EXACT || op == EIDER_OP_pow) return widened(e, op, args);
    int is_approx = e->math == EIDER_MATH_APPROX;
    if (op == EIDER_OP_m_log1p) return log1p_f32_of(e, args[0]);
    /* In approx, and where mathmode.c says so, powers too small for a normal number are 0. */
    int flushed = e->ftz || op == EIDER_OP_m_ex2 || (is_approx && op == EIDER_OP_exp2);
    if (op == EIDER_OP_exp2) op = EIDER_OP_m_ex2;
    if (instructions[op].n_args) return instruction(e, op, flushed, args);
    if (is_approx && op == EIDER_OP_expm1) return approx_expm1(e, args[0]);
    if (is_approx && op == EIDER_OP_log1p) return approx_log1p(e, args[0]);
    if (op == EIDER_OP_tanh) return tanh_f32_of(e, args[0]);
    return eider_math_arithmetic(e, &f32, op, args);
}
