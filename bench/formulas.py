"""The activations of eider's own table as torch and as Triton code.

Both are made from the text that eider compiles, so that every contender computes the same
formula in f32.  `functions(rows)` gives Python source of one function per row; its primitives
are called e_NAME and come from TORCH or TRITON below.
"""
import re

PRIMITIVES = ("max min abs select sigmoid tanh exp exp2 expm1 log log1p sqrt rsqrt rcp erf erfc "
              "normcdf sign isnan fma copysign").split()

TORCH = '''
import torch

inf = float("inf")

def e_max(a, b):
    return torch.maximum(a, b) if torch.is_tensor(b) else torch.clamp(a, min=b)

def e_min(a, b):
    return torch.minimum(a, b) if torch.is_tensor(b) else torch.clamp(a, max=b)

e_abs, e_select, e_sigmoid, e_tanh = torch.abs, torch.where, torch.sigmoid, torch.tanh
e_exp, e_exp2, e_expm1, e_log, e_log1p = torch.exp, torch.exp2, torch.expm1, torch.log, torch.log1p
e_sqrt, e_rsqrt, e_rcp = torch.sqrt, torch.rsqrt, torch.reciprocal
e_erf, e_erfc, e_normcdf = torch.erf, torch.erfc, torch.special.ndtr
e_sign, e_isnan, e_copysign = torch.sign, torch.isnan, torch.copysign

def e_fma(a, b, c):
    return a * b + c
'''

TRITON = '''
import triton
import triton.language as tl
from triton.language.extra import libdevice

inf = tl.constexpr(float("inf"))

@triton.jit
def e_max(a, b):
    return tl.maximum(a, b)

@triton.jit
def e_min(a, b):
    return tl.minimum(a, b)

@triton.jit
def e_abs(a):
    return tl.abs(a)

@triton.jit
def e_select(c, a, b):
    return tl.where(c, a, b)

@triton.jit
def e_sigmoid(a):
    return tl.sigmoid(a)

@triton.jit
def e_exp(a):
    return tl.exp(a)

@triton.jit
def e_exp2(a):
    return tl.exp2(a)

@triton.jit
def e_expm1(a):
    return libdevice.expm1(a)

@triton.jit
def e_log(a):
    return tl.log(a)

@triton.jit
def e_log1p(a):
    return libdevice.log1p(a)

@triton.jit
def e_sqrt(a):
    return tl.sqrt(a)

@triton.jit
def e_rsqrt(a):
    return tl.rsqrt(a)

@triton.jit
def e_rcp(a):
    return 1.0 / a

@triton.jit
def e_erf(a):
    return tl.erf(a)

@triton.jit
def e_normcdf(a):
    return 0.5 + 0.5 * tl.erf(a * 0.7071067811865476)

@triton.jit
def e_isnan(a):
    return a != a

@triton.jit
def e_fma(a, b, c):
    return tl.fma(a, b, c)
'''

# f32 keeps the digits that eider's `fast` keeps; 16 bits take the instruction of its `approx`.
TRITON_TANH = {
    "f32": '''
@triton.jit
def e_tanh(a):
    return libdevice.tanh(a)
''',
    "bf16": '''
@triton.jit
def e_tanh(a):
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [a], dtype=tl.float32,
                                     is_pure=True, pack=1)
''',
}


def signature(text):
    """("dx, dy", ["x", "y"], {"alpha": "1.702"}) of "dx, dy = f(x, y, alpha=1.702)"."""
    results, call = text.split(" = ", 1)
    inside = call[call.index("(") + 1:call.rindex(")")]
    params = [p.strip() for p in inside.split(",")] if inside else []
    needed = [p for p in params if "=" not in p]
    defaults = dict(p.split("=") for p in params if "=" in p)
    return results, needed, defaults


def program(name, text):
    """The program that calls the row with its tensors: "out = swiglu(x, y)"."""
    results, needed, _ = signature(text)
    return f"{results} = {name}({', '.join(needed)})"


def function(name, row, names, decorator=""):
    """Source of the row as a function f_NAME; calls of other rows become calls of theirs."""
    text, body = row
    results, needed, defaults = signature(text)
    body = re.sub(r"\b([a-z_][a-z0-9_]*)\(",
                  lambda m: f"{'e' if m[1] in PRIMITIVES else 'f' if m[1] in names else '?'}"
                            f"_{m[1]}(", body)
    lines = [f"def f_{name}({', '.join(needed)}):"]
    lines += [f"    {p} = {value_text(v)}" for p, v in defaults.items()]
    lines += ["    " + " ".join(s.split()) for s in body.split(";") if s.strip()]
    lines += [f"    return {results}"]
    return decorator + "\n".join(lines) + "\n\n"


def value_text(text):
    """The value of a default as Python."""
    return 'float("inf")' if text == "inf" else text


def functions(rows, decorator=""):
    """All rows, callees first."""
    return "".join(function(name, row, rows, decorator) for name, row in rows.items())


def torch_source(rows):
    """Functions t_NAME(tensors) that compute in f32 and return tensors of the inputs' type."""
    parts = [TORCH, functions(rows)]
    for name, (text, _) in rows.items():
        results, needed, _ = signature(text)
        arguments = ", ".join(f"{p}.float()" for p in needed)
        rounded = ", ".join(f"{r.strip()}.to({needed[0]}.dtype)" for r in results.split(","))
        parts.append(f"def t_{name}({', '.join(needed)}):\n"
                     f"    {results} = f_{name}({arguments})\n"
                     f"    return {rounded}\n\n")
    return "".join(parts)


def triton_source(rows, dtype):
    """Kernels k_NAME(inputs, outputs, n, BLOCK)."""
    parts = [TRITON, TRITON_TANH[dtype], functions(rows, "@triton.jit\n")]
    for name, (text, _) in rows.items():
        results, needed, _ = signature(text)
        outputs = [r.strip() for r in results.split(",")]
        pointers = ", ".join(f"{p}_ptr" for p in needed + outputs)
        lines = [f"@triton.jit\ndef k_{name}({pointers}, n, BLOCK: tl.constexpr):",
                 "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
                 "    mask = at < n"]
        lines += [f"    {p} = tl.load({p}_ptr + at, mask=mask).to(tl.float32)" for p in needed]
        lines += [f"    {results} = f_{name}({', '.join(needed)})"]
        lines += [f"    tl.store({o}_ptr + at, {o}, mask=mask)" for o in outputs]
        parts.append("\n".join(lines) + "\n\n")
    return "".join(parts)
