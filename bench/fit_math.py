#!/usr/bin/env python3
"""Prints the tables of src/ir/math_fit.h: coefficients that have no closed form.

    python3 bench/fit_math.py > src/ir/math_fit.h      (needs mpmath)

Each fit is done in 60 digits, its coefficients rounded to the format that will use them; it
states the largest relative error of the rounded polynomial over 4000 points.
The error is that of the approximation; rounding in the evaluation comes on top.
"""
import struct

from mpmath import mp, mpf, cos, pi, erf, erfc, exp, tanh, sqrt, matrix, lu_solve, log

mp.dps = 60


def to_f32(v):
    return mpf(struct.unpack("f", struct.pack("f", float(v)))[0])


def to_f64(v):
    return mpf(float(v))


def evaluate(c, t):
    s = mpf(0)
    for k in reversed(c):
        s = s * t + k
    return s


def fit(f, low, high, n, rounded, whole):
    """The polynomial of n coefficients closest to f on [low, high] in the relative error of
    `whole`, least squares over Chebyshev nodes.  Coefficients are rounded one after another,
    and what one has lost the later ones take up."""
    low, high = mpf(low), mpf(high)
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = [middle + half * cos(pi * (2 * i + 1) / (4 * n)) for i in range(2 * n)]
    values = [f(t) for t in nodes]
    weights = [((whole(mpf(1), t) - whole(mpf(0), t)) / whole(v, t)) ** 2
               for t, v in zip(nodes, values)]
    c = []
    while len(c) < n:
        left = n - len(c)
        a, b = matrix(left, left), matrix(left, 1)
        for t, v, w in zip(nodes, values, weights):
            powers = [t ** k for k in range(len(c), n)]
            rest = v - evaluate(c, t)
            for i in range(left):
                b[i] += w * powers[i] * rest
                for j in range(left):
                    a[i, j] += w * powers[i] * powers[j]
        c.append(rounded(lu_solve(a, b)[0]))
    return c


def table(name, what, f, low, high, n, rounded, whole=lambda p, t: p):
    """`whole` turns the polynomial's value into that of the function which the code computes."""
    c = fit(f, low, high, n, rounded, whole)
    worst = mpf(0)
    for i in range(4001):
        t = mpf(low) + (mpf(high) - mpf(low)) * i / 4000
        if whole(f(t), t):
            worst = max(worst, abs(whole(evaluate(c, t), t) / whole(f(t), t) - 1))
    print("/* %s: relative error 2^%.1f. */" % (what, float(log(worst) / log(2))))
    print("static const double %s[] = {" % name)
    for v in c:
        print("    %s," % float(v).hex())
    print("};\n")


def erfcx_times(k):
    """(a + k) exp(a^2) erfc(a) as a function of q = (a - k) / (a + k)."""
    def f(q):
        a = k * (1 + q) / (1 - q)
        return (a + k) * exp(a * a) * erfc(a)
    return f


def erf_excess(z):
    """erf(a) / a - 1 with z = a^2."""
    return erf(sqrt(z)) / sqrt(z) - 1 if z > mpf(10) ** -40 else 2 / sqrt(pi) - 1


def tanh_excess(z):
    """(tanh(a) / a - 1) / a^2 with z = a^2."""
    return (tanh(sqrt(z)) / sqrt(z) - 1) / z if z > mpf(10) ** -20 else -mpf(1) / 3


def log1p_excess(u):
    """(log(1 + u) / u - 1) / u."""
    return (log(1 + u) / u - 1) / u if u > mpf(10) ** -20 else -mpf(1) / 2


def tanh_argument(z):
    """atanh(2 Phi(x) - 1) / x with z = x^2: what tanh must be given to be a normal CDF."""
    if z < mpf(10) ** -30:
        return sqrt(2 / pi)
    x = sqrt(z)
    return -log(erfc(x / sqrt(2)) / (2 - erfc(x / sqrt(2)))) / (2 * x)


def normcdf_fit(n, limit):
    """Polynomial p of n coefficients for which (1 + tanh(x p(x^2))) / 2 is closest to a normal
    CDF in absolute terms, by Lawson's reweighted least squares."""
    points = [mpf(limit) * (i + 1) / 400 for i in range(400)]
    z = [x * x for x in points]
    want = [tanh_argument(v) for v in z]
    slope = [x * (1 - tanh(x * u) ** 2) / 2 for x, u in zip(points, want)]
    weight = [mpf(1)] * len(points)
    c = None
    for _ in range(150):
        a, b = matrix(n, n), matrix(n, 1)
        for t, u, s, w in zip(z, want, slope, weight):
            k = w * s * s
            for i in range(n):
                b[i] += k * t**i * u
                for j in range(n):
                    a[i, j] += k * t ** (i + j)
        c = list(lu_solve(a, b))
        errors = [abs((evaluate(c, t) - u) * s) for t, u, s in zip(z, want, slope)]
        weight = [w * (e + mpf(10) ** -12) for w, e in zip(weight, errors)]
        total = sum(weight)
        weight = [w / total for w in weight]
    return [to_f32(v) for v in c]


def normcdf_table(n, limit):
    c = normcdf_fit(n, limit)
    worst = mpf(0)
    for i in range(1, 4001):
        x = mpf(8) * i / 4000
        got = (1 + tanh(x * evaluate(c, min(x * x, mpf(limit) ** 2)))) / 2
        worst = max(worst, abs(got - erfc(-x / sqrt(2)) / 2))
    print("#define NORMCDF_TANH_SQUARE_MAX %s" % float(mpf(limit) ** 2))
    print("/* atanh(2 normcdf(x) - 1) / x in x^2: absolute error of normcdf %s. */" %
          mp.nstr(worst, 2))
    print("static const double normcdf_tanh_fit[] = {")
    for v in c:
        print("    %s," % float(v).hex())
    print("};\n")


def main():
    print('/* math_fit.h -- printed by bench/fit_math.py; do not edit.')
    print(' *')
    print(' * Polynomials whose coefficients have no closed form, lowest power first.')
    print(' */')
    print('#ifndef EIDER_IR_MATH_FIT_H')
    print('#define EIDER_IR_MATH_FIT_H\n')
    print("#define ERFCX_F64_K 2.5")
    print("#define ERFCX_F64_MAX 28.0")
    table("erfcx_f64", "(a + 2.5) erfcx(a), a in [0, 28], in q = (a - 2.5) / (a + 2.5)",
          erfcx_times(mpf(2.5)), -1, (28 - 2.5) / (28 + 2.5), 23, to_f64)
    print("#define ERFCX_F32_K 2.0")
    print("#define ERFCX_F32_MAX 11.0")
    table("erfcx_f32", "(a + 2) erfcx(a), a in [0, 11], in q = (a - 2) / (a + 2)",
          erfcx_times(mpf(2)), -1, mpf(9) / 13, 10, to_f32)
    table("erf_f32", "erf(a), a in [0, 0.9]: erf(a) / a - 1 in a^2", erf_excess, 0, 0.81, 7,
          to_f32, lambda p, t: 1 + p)
    table("tanh_f32", "tanh(a), a in [0, 0.6]: (tanh(a) / a - 1) / a^2 in a^2", tanh_excess, 0,
          0.36, 5, to_f32, lambda p, t: 1 + p * t)
    print("#define LOG1P_FIT_MAX 1.001")
    table("log1p_f32", "log(1 + u), u in [0, 1.001]: (log(1 + u) / u - 1) / u", log1p_excess, 0,
          1.001, 8, to_f32, lambda p, t: 1 + p * t)
    normcdf_table(4, 4.5)


if __name__ == "__main__":
    main()
    print("#endif")
