"""Other people's kernels for the programs of row_programs.py.

Each function gives, for a Cell, one call per set of operands; a call gives what Cell.error says.
It raises where a library has no such kernel: the reason becomes a line of gaps.csv.  NOTES say
where a kernel does more or less than the program.
"""
import json
import pathlib

import torch

from row_programs import EPS, IGNORE

NOTES = {
    ("liger", "rmsnorm"): "also writes rstd",
    ("liger", "layernorm"): "also writes mean and rstd",
    ("liger", "rmsnorm_backward"): "writes dx over dy, as it does by default",
    ("liger", "cross_entropy"): "writes no lse; loss in the logits' type",
    ("liger", "cross_entropy_backward"): "has no backward of its own: computes loss, lse and "
                                         "gradient, which it writes over the logits",
    ("liger", "cross_entropy_train"): "writes no lse, loss in the logits' type, the gradient over "
                                      "the logits",
    ("quack", "cross_entropy_train"): "takes no dloss: its gradient is that of the sum",
}

# Outputs of a set of operands after a call, where they differ by a factor.
OUTPUTS = {
    ("quack", "cross_entropy_train"): lambda t: (t["loss"], t["lse_out"], t["out"] * t["dloss"][0]),
}


class Missing(Exception):
    """There is no such kernel."""


# ---- torch.compile ------------------------------------------------------------------------------

def torch_calls(cell):
    function = torch.compile(cell.formula, dynamic=False, fullgraph=True)
    return cell.each(lambda t: function(*cell.given(t)))


# ---- Liger-Kernel -------------------------------------------------------------------------------

def liger_loss(cell, gradient):
    """The kernel of LigerCrossEntropyFunction.forward, without its count of the targets, for which
    the host has to wait, and with the loss in memory that exists."""
    import triton
    from liger_kernel.ops import cross_entropy as ce
    block = min(ce.MAX_FUSED_SIZE, triton.next_power_of_2(cell.cols))
    losses = {id(t): torch.empty(cell.rows, dtype=t["x"].dtype, device=cell.device)
              for t in cell.sets}

    def call(t):
        x, loss = t["spare"] if gradient else t["x"], losses[id(t)]
        ce.liger_cross_entropy_kernel[(cell.rows,)](
            X_ptr=x, X_stride=x.stride(0), Y_ptr=t["target"], Y_stride=1, weight_ptr=None,
            loss_ptr=loss, z_loss_ptr=None, loss_stride=1, token_accuracy_ptr=None,
            token_accuracy_stride=0, predicted_tokens_ptr=None, predicted_tokens_stride=0,
            n_cols=cell.cols, n_non_ignore=cell.rows, sum_non_ignore_weight=cell.rows,
            weight_sum=0.0, ignore_index=IGNORE, lse_square_scale=0.0, label_smoothing=0.0,
            reduction="mean" if gradient else "none", softcap=None, RETURN_Z_LOSS=False,
            RETURN_TOKEN_ACCURACY=False, RETURN_PREDICTED_TOKENS=False, BLOCK_SIZE=block,
            HAS_WEIGHT=False, HAS_SOFTCAPPING=False, HAS_GRADIENTS=gradient, num_warps=32)
        if not gradient:
            return loss, None
        return x if cell.name == "cross_entropy_backward" else (None, None, x)
    return call


def liger_calls(cell):
    from liger_kernel.ops import layer_norm, rms_norm, softmax
    if cell.name.startswith("cross_entropy"):
        gradient = cell.name != "cross_entropy"
        for t in cell.sets if gradient else []:
            t["spare"].copy_(t["x"])
        return cell.each(liger_loss(cell, gradient))
    if cell.name == "rmsnorm_backward":
        for t in cell.sets:
            t["spare"].copy_(t["dy"])
    block, warps = rms_norm.calculate_settings(cell.cols)
    llama = rms_norm._CASTING_MODE_LLAMA.value
    return cell.each({
        "rmsnorm": lambda t: rms_norm.rms_norm_forward(t["x"], t["weight"], EPS, 0.0, llama,
                                                       None)[0],
        "rmsnorm_backward": lambda t: rms_norm.rms_norm_backward(
            t["spare"], t["x"], t["weight"], t["rms_rstd"], 0.0, llama, block, warps, True, None,
            needs_dw=False)[0],
        "layernorm": lambda t: layer_norm.layer_norm_forward(t["x"], t["weight"], t["bias"],
                                                             EPS)[0],
        "layernorm_backward": lambda t: layer_norm.layer_norm_backward(
            t["dy"], t["x"], t["weight"], t["bias"], t["mean"], t["rstd"], needs_dw=False,
            needs_db=False)[0],
        "softmax": lambda t: softmax._softmax_forward(t["x"])[0],
        "softmax_backward": lambda t: softmax._softmax_backward(t["dy"], t["y"], block, warps,
                                                                False),
    }[cell.name])


# ---- quack-kernels, compiled by quack_aot.py ----------------------------------------------------

def quack_calls(cell, folder):
    import tvm_ffi
    folder = pathlib.Path(folder).resolve()
    name = f"{cell.name}-{cell.dtype}-{cell.rows}x{cell.cols}"
    known = json.loads((folder / "index.json").read_text(encoding="utf-8")).get(name, {})
    if "blocks" not in known:
        raise Missing(known.get("missing", f"no {name}.so in {folder}"))
    kernel, blocks = tvm_ffi.load_module(folder / f"{name}.so")["kernel"], known["blocks"]

    def row(t, key):
        return t[key].view(-1)
    arguments = {
        "rmsnorm": lambda t: (t["x"], t["weight"], None, None, t["out"], None, None, None, EPS),
        "layernorm": lambda t: (t["x"], t["weight"], t["bias"], None, t["out"], None, None, None,
                                EPS),
        "rmsnorm_backward": lambda t: (t["x"], t["weight"], t["dy"], None, row(t, "rms_rstd"), None,
                                       t["out"], None, None, None, blocks),
        "layernorm_backward": lambda t: (t["x"], t["weight"], t["dy"], None, row(t, "rstd"),
                                         row(t, "mean"), t["out"], None, None, None, blocks),
        "softmax": lambda t: (t["x"], t["out"]),
        "softmax_backward": lambda t: (t["dy"], t["y"], t["out"]),
        "cross_entropy": lambda t: (t["x"], row(t, "target"), None, row(t, "loss"),
                                    row(t, "lse_out"), None, None, IGNORE),
        "cross_entropy_train": lambda t: (t["x"], row(t, "target"), None, row(t, "loss"),
                                          row(t, "lse_out"), t["out"], None, IGNORE),
        "cross_entropy_backward": lambda t: (t["x"], row(t, "target"), row(t, "dloss"), t["out"],
                                             row(t, "lse"), None, IGNORE),
    }[cell.name]

    def call(args):
        kernel(*args)
    return [lambda a=arguments(t): call(a) for t in cell.sets]
