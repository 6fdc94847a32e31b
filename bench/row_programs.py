"""The programs over rows that bench/rows.py measures: formulas, operands and errors.

A Cell is one program at one type and shape.  Its operands come from a Memory, which all programs of
that type and shape share, so that nothing is allocated twice; its formula is what torch.compile
gets and, in f64, the reference.

What an error is.  Every program is compared on the first and the last 32 rows with its formula in
f64.  Where a result is a product or a value far from 0 (rmsnorm, softmax, losses and their
gradients), each element's difference is divided by that element's true value; for softmax that is
the relative error of y * N.  Where a result is a difference that may be near 0 (layernorm, the
gradients of norms and of softmax), it is divided by that or by the root mean square of its row,
whichever is larger.  The largest of all elements counts, so a result of zeros has error 1, and a
NaN stays one.
"""
import torch
import torch.nn.functional as F

TORCH_TYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "i64": torch.int64}
TYPE_NAMES = {v: k for k, v in TORCH_TYPES.items()}
SHAPES = ("32768x256,32768x1024,32768x4096,32768x8192,16384x16384,16384x32768,8192x65536,"
          "16384x131072,8192x262144")
IGNORE, EPS = -100, 1e-6
SMALL_BYTES = 1 << 30  # below this, launches from Python would be seen in the times
PIECE_BYTES = 1 << 29  # of a row-wise statistic's f32 copies


# ---- Formulas -----------------------------------------------------------------------------------

def wide(t):
    return t.double() if t.dtype == torch.float64 else t.float()


def rmsnorm(x, weight):
    v = wide(x)
    return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + EPS) * wide(weight)).to(x.dtype)


def rmsnorm_backward(x, weight, rstd, dy):
    g, h = wide(dy) * wide(weight), wide(x) * rstd
    return (rstd * (g - h * (g * h).mean(-1, keepdim=True))).to(x.dtype)


def layernorm(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight, bias, EPS)


def layernorm_backward(x, weight, mean, rstd, dy):
    g, h = wide(dy) * wide(weight), (wide(x) - mean) * rstd
    inner = g - g.mean(-1, keepdim=True) - h * (g * h).mean(-1, keepdim=True)
    return (rstd * inner).to(x.dtype)


def softmax(x):
    return torch.softmax(x, -1)


def softmax_backward(y, dy):
    a, b = wide(y), wide(dy)
    return (a * (b - (a * b).sum(-1, keepdim=True))).to(y.dtype)


def cross_entropy(logits, target):
    lse = torch.logsumexp(wide(logits), -1, keepdim=True)
    picked = wide(logits).gather(-1, target.clamp(min=0))
    return torch.where(target == IGNORE, 0, lse - picked), lse


def cross_entropy_backward(logits, target, lse, dloss):
    hit = torch.arange(logits.shape[-1], device=logits.device) == target
    grad = dloss * (torch.exp(wide(logits) - lse) - hit.to(lse.dtype))
    return torch.where(target == IGNORE, 0, grad).to(logits.dtype)


def cross_entropy_train(logits, target, dloss):
    loss, lse = cross_entropy(logits, target)
    return loss, lse, cross_entropy_backward(logits, target, lse, dloss)


# Formula; inputs by the names of a Memory's tensors, in the order of eider and of the formula, and
# scalars as (type, value); outputs; what an error is relative to.
PROGRAMS = {
    "rmsnorm": (rmsnorm, ["x", "weight", ("f32", EPS)], ["out"], "element"),
    "layernorm": (layernorm, ["x", "weight", "bias", ("f32", EPS)], ["out"], "row"),
    "softmax": (softmax, ["x"], ["out"], "element"),
    "cross_entropy": (cross_entropy, ["x", "target", ("i64", IGNORE)], ["loss", "lse_out"],
                      "element"),
    "rmsnorm_backward": (rmsnorm_backward, ["x", "weight", "rms_rstd", "dy"], ["out"], "row"),
    "layernorm_backward": (layernorm_backward, ["x", "weight", "mean", "rstd", "dy"], ["out"],
                           "row"),
    "softmax_backward": (softmax_backward, ["y", "dy"], ["out"], "row"),
    "cross_entropy_backward": (cross_entropy_backward,
                               ["x", "target", "lse", "dloss", ("i64", IGNORE)], ["out"],
                               "element"),
    "cross_entropy_train": (cross_entropy_train, ["x", "target", "dloss", ("i64", IGNORE)],
                            ["loss", "lse_out", "out"], "element"),
}
FULL, COLUMN = ("x", "dy", "y", "spare", "out"), ("weight", "bias")


# ---- Operands -----------------------------------------------------------------------------------

class Memory:
    """Tensors of one type and shape, by name, in as many sets as somebody asked for.

    The full ones of a set lie side by side: `spare` belongs to who writes over its input, and a
    copy of half a program's bytes reads from the first three and writes to the last two.
    """

    def __init__(self, dtype, rows, cols, device):
        self.dtype, self.rows, self.cols, self.device = TORCH_TYPES[dtype], rows, cols, device
        self.sets = []

    def get(self, n):
        while len(self.sets) < n:
            self.sets.append(self.make())
        return self.sets[:n]

    def make(self):
        flat = torch.empty(5 * self.rows * self.cols, dtype=self.dtype, device=self.device)
        t = dict(zip(FULL, flat.view(5, self.rows, self.cols).unbind()), flat=flat)
        t["x"].normal_()
        t["dy"].normal_()
        for name in COLUMN:
            t[name] = torch.randn(self.cols, dtype=self.dtype, device=self.device)
        t["target"] = torch.randint(0, self.cols, (self.rows, 1), device=self.device)
        for name in ("mean", "rstd", "rms_rstd", "lse", "loss", "lse_out"):
            t[name] = torch.empty(self.rows, 1, device=self.device)
        t["dloss"] = torch.full((self.rows, 1), 1 / self.rows, device=self.device)
        step = max(1, PIECE_BYTES // (4 * self.cols))
        for part in (slice(k, k + step) for k in range(0, self.rows, step)):
            self.fill_row_values(t, part)
        return t

    @staticmethod
    def fill_row_values(t, part):
        """What earlier programs would have left: statistics of x, and softmax of x."""
        x = t["x"][part].float()
        t["y"][part] = torch.softmax(x, -1)
        t["lse"][part] = torch.logsumexp(x, -1, keepdim=True)
        t["mean"][part] = x.mean(-1, keepdim=True)
        t["rms_rstd"][part] = torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
        t["rstd"][part] = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + EPS)


def byte_count(name, dtype, rows, cols):
    """Bytes that a program must move: every input once, every output once."""
    width = torch.finfo(TORCH_TYPES[dtype]).bits // 8
    sizes = dict.fromkeys(FULL, rows * cols * width) | dict.fromkeys(COLUMN, cols * width)
    _, inputs, outputs, _ = PROGRAMS[name]
    return sum(sizes.get(k, rows * (8 if k == "target" else 4))
               for k in inputs + outputs if not isinstance(k, tuple))


class Cell:
    """One program at one type and shape, with the operands of every contender."""

    def __init__(self, name, memory, dtype, l2_bytes):
        self.name, self.dtype, self.memory = name, dtype, memory
        self.rows, self.cols, self.device = memory.rows, memory.cols, memory.device
        self.formula, self.inputs, self.outputs, self.measure = PROGRAMS[name]
        self.bytes = byte_count(name, dtype, self.rows, self.cols)
        self.small = self.bytes < SMALL_BYTES
        self.scalars = [k for k in self.inputs if isinstance(k, tuple)]
        self.sets = memory.get(max(2, -(-3 * l2_bytes // self.bytes)) if self.small else 1)
        self.wanted = None

    def given(self, tensors):
        """The tensors of a set that the formula takes."""
        return [tensors[k] for k in self.inputs if not isinstance(k, tuple)]

    def written(self, tensors):
        return [tensors[k] for k in self.outputs]

    def each(self, function):
        """A call per set of `function(tensors of the set)`."""
        return [lambda t=t: function(t) for t in self.sets]

    def some_rows(self, t):
        if t.shape[0] != self.rows or t.dim() != 2:
            return t
        return torch.cat([t[:32], t[-32:]]) if self.rows > 64 else t

    def reference(self):
        if self.wanted is None:
            some = [self.some_rows(t) for t in self.given(self.sets[0])]
            want = self.formula(*(t if t.dtype == torch.int64 else t.double() for t in some))
            self.wanted = want if isinstance(want, tuple) else (want,)
        return self.wanted

    def error(self, calls, read=None):
        """The error of a contender's first call, which gives its outputs in the program's order,
        None for what it does not compute, or writes them where they belong, or where `read`, given
        the set, finds them."""
        outputs = self.written(self.sets[0])
        for t in outputs:
            t.fill_(float("nan"))
        given = calls[0]()
        if read:
            given = read(self.sets[0])
        outputs = outputs if given is None else given if isinstance(given, tuple) else (given,)
        worst = 0.0
        for got, want in zip(outputs, self.reference(), strict=True):
            if got is not None:
                got = self.some_rows(got.reshape(self.rows, -1)).double()
                worst = max(worst, self.difference(got, want), key=lambda e: (e != e, e))
        return worst

    def difference(self, got, want):
        scale = want.abs()
        if self.measure == "row":
            scale = scale.maximum(want.square().mean(-1, keepdim=True).sqrt())
        error = (got - want).abs() / scale
        return torch.where(got == want, 0, error).max().item()
