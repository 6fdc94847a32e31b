"""The part of eider's C interface that the benchmarks need, through ctypes.

Mirrors include/eider/eider.h; nothing here is checked by a compiler, so tests/cli/binding.sh
compares results.  Every failure is an EiderError with the library's own sentence.
"""
import ctypes as c
import os
import pathlib

DTYPES = ["f32", "f16", "bf16", "f64", "e4m3", "e5m2", "i32", "i64", "bool"]
MATHS = ["auto", "approx", "fast", "exact"]
TABLE_ACTIVATIONS, TABLE_KERNELS = 0, 3
INPUT, SCALAR, OUTPUT = range(3)
FULL, PER_ROW, PER_COLUMN = range(3)
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = range(3)


class EiderError(RuntimeError):
    """A call that did not return EIDER_OK."""


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("type", c.c_int), ("rank", c.c_int32),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64))]


class Numerics(c.Structure):
    _fields_ = [("math", c.c_int), ("ftz", c.c_int), ("contract", c.c_int)]


class Request(c.Structure):
    _fields_ = [("program", c.c_void_p), ("source", c.c_void_p), ("args", c.POINTER(Tensor)),
                ("n_args", c.c_size_t), ("numerics", Numerics), ("config", c.c_char_p),
                ("target", c.c_char_p), ("assembler", c.c_char_p), ("line_info", c.c_int32),
                ("any_layout", c.c_int32), ("checked", c.c_int32)]


class KernelInfo(c.Structure):
    _fields_ = [(n, c.c_char_p) for n in ("entry", "target", "config", "numerics", "assembler",
                                          "manifest", "key")] + \
               [(n, c.c_int32) for n in ("registers", "spill_bytes", "shared_bytes",
                                         "index_bits")] + \
               [(n, c.c_uint64) for n in ("ir_ns", "opt_ns", "ptx_ns", "assemble_ns", "load_ns",
                                          "disk_ns")]


class Row(c.Structure):
    _fields_ = [(n, c.c_char_p) for n in ("name", "signature", "text", "doc")]


class Operand(c.Structure):
    _fields_ = [("name", c.c_char_p), ("kind", c.c_int), ("type", c.c_int32)]


class DeviceInfo(c.Structure):
    _fields_ = [("name", c.c_char * 64), ("backend", c.c_char * 8), ("target", c.c_char * 16),
                ("ordinal", c.c_int32), ("driver", c.c_int32), ("units", c.c_int32),
                ("clock_khz", c.c_int32), ("memory_bytes", c.c_uint64), ("l2_bytes", c.c_uint64)]


class TuneHooks(c.Structure):
    _fields_ = [(n, c.c_void_p) for n in ("user", "accepts", "predict", "resets", "before_run",
                                          "after_run", "timer", "geometry", "progress")]


class TuneRequest(c.Structure):
    _fields_ = [("kernel", c.POINTER(Request)), ("space", c.c_char_p),
                ("configs", c.POINTER(c.c_char_p)), ("n_configs", c.c_size_t),
                ("condition", c.c_char_p), ("keep", c.c_int32), ("triggers", c.c_char_p),
                ("functions", c.c_void_p), ("n_functions", c.c_size_t), ("search", c.c_int),
                ("seed", c.c_uint64), ("limit", c.c_int32), ("budget_s", c.c_double),
                ("hot", c.c_int32), ("warm_up_ms", c.c_int32), ("warm_up_runs", c.c_int32),
                ("rounds", c.c_int32), ("repeat_ms", c.c_double), ("tie", c.c_double),
                ("reference", c.c_char_p), ("check_program", c.c_int32),
                ("tolerance", c.c_double), ("restore", c.c_char_p),
                ("reset_to_zero", c.c_char_p), ("grid", c.c_char_p), ("block", c.c_char_p),
                ("shared", c.c_char_p), ("records", c.c_char_p), ("no_records", c.c_int32),
                ("force", c.c_int32), ("pinned", c.c_int32), ("job_deadline_ms", c.c_int32),
                ("stream", c.c_void_p), ("hooks", TuneHooks)]


class TuneEntry(c.Structure):
    _fields_ = [("config", c.c_char_p), ("outcome", c.c_int), ("reason", c.c_char_p),
                ("samples_ns", c.POINTER(c.c_double)), ("clock_khz", c.POINTER(c.c_int32)),
                ("n_samples", c.c_size_t), ("median_ns", c.c_double), ("p20_ns", c.c_double),
                ("p80_ns", c.c_double), ("recorded", c.c_int32)]


class TuneSummary(c.Structure):
    _fields_ = [("config", c.c_char_p), ("math", c.c_int), ("key", c.c_char_p),
                ("key_text", c.c_char_p), ("end", c.c_int), ("median_ns", c.c_double),
                ("noisy", c.c_int32)] + \
               [(n, c.c_size_t) for n in ("n_entries", "n_timed", "n_recorded", "n_wrong",
                                          "n_failed", "choice")] + \
               [("geometry", c.c_uint32 * 7)] + \
               [(n, c.c_double) for n in ("compile_s", "check_s", "time_s", "total_s")]


# Functions by the types of their arguments; those in STATUS return a status, the rest as said.
V, P, S = c.c_void_p, c.POINTER, c.c_char_p
STATUS = {
    "context_create": [V, P(V)], "program_parse": [V, S, P(V)], "device_open": [V, S, P(V)],
    "program_operand": [V, c.c_size_t, P(Operand)],
    "prepare": [V, P(Request), P(V)], "compile": [V, P(Request), P(V)],
    "launch": [V, V, P(Tensor), c.c_size_t], "stream_wait": [V, V],
    "time": [V, V, P(Tensor), c.c_size_t, c.c_int32, c.c_int32, P(c.c_double)],
    "kernel_bytes": [V, P(Tensor), c.c_size_t, P(c.c_uint64)],
    "memory_alloc": [V, c.c_size_t, P(V)],
    "memory_copy": [V, V, V, V, c.c_size_t, c.c_int],
    "tune": [V, P(TuneRequest), P(V)], "tune_entry_get": [V, c.c_size_t, P(TuneEntry)],
}
OTHERS = {
    "error": (S, []), "version": (S, []), "context_destroy": (None, [V]),
    "program_operands": (c.c_size_t, [V]), "program_extent": (c.c_int, [V, c.c_size_t]),
    "program_release": (None, [V]), "device_release": (None, [V]), "kernel_release": (None, [V]),
    "device_describe": (None, [V, P(DeviceInfo)]), "memory_free": (None, [V, V]),
    "kernel_describe": (None, [V, P(KernelInfo)]),
    "tune_release": (None, [V]), "tune_describe": (None, [V, P(TuneSummary)]),
    "table_row": (c.c_int32, [c.c_int, c.c_size_t, P(Row)]),
}


def find_library():
    """$EIDER_LIB, or the release build beside this file, or the one of a bundle."""
    root = pathlib.Path(__file__).resolve().parent.parent
    places = [os.environ.get("EIDER_LIB"), root / "build/release/libeider.so",
              root / "lib/libeider.so"]
    for place in places:
        if place and pathlib.Path(place).exists():
            return str(place)
    raise EiderError("no libeider.so: set EIDER_LIB, or run ./dev build")


class Library:
    """A loaded libeider.so with a context."""

    def __init__(self, path=None):
        self.so = c.CDLL(path or find_library())
        for name, types in STATUS.items():
            self._declare(name, c.c_int, types)
        for name, (result, types) in OTHERS.items():
            self._declare(name, result, types)
        self.context = self.make("context_create", None)

    def _declare(self, name, result, types):
        function = getattr(self.so, "eider_" + name)
        function.restype, function.argtypes = result, types

    def call(self, name, *args):
        status = getattr(self.so, "eider_" + name)(*args)
        if status != 0:
            raise EiderError(f"eider_{name}: {self.so.eider_error().decode()}")

    def make(self, name, *args):
        """A call whose last argument receives a handle."""
        out = V()
        self.call(name, *args, c.byref(out))
        return out

    @property
    def version(self):
        return self.so.eider_version().decode()

    def rows(self, table):
        """{name: (signature, text)} of a table."""
        rows, row = {}, Row()
        while self.so.eider_table_row(table, len(rows), c.byref(row)):
            rows[row.name.decode()] = (row.signature.decode(), row.text.decode())
        return rows

    def activations(self):
        return self.rows(TABLE_ACTIVATIONS)

    def operands(self, text):
        """[(name, kind, declared type or None, extent)] of a program."""
        program = self.make("program_parse", self.context, text.encode())
        out, operand = [], Operand()
        for i in range(self.so.eider_program_operands(program)):
            self.call("program_operand", program, i, c.byref(operand))
            out.append((operand.name.decode(), operand.kind,
                        DTYPES[operand.type] if operand.type >= 0 else None,
                        self.so.eider_program_extent(program, i)))
        self.so.eider_program_release(program)
        return out

    def device(self, name):
        return self.make("device_open", self.context, name.encode())

    def describe(self, device):
        info = DeviceInfo()
        self.so.eider_device_describe(device, c.byref(info))
        return info


def tensors(operands):
    """An array of contiguous Tensors from (address, type, shape) triples, and what it borrows."""
    array, kept = (Tensor * len(operands))(), []
    for tensor, (address, dtype, shape) in zip(array, operands):
        extents = (c.c_int64 * max(len(shape), 1))(*shape)
        kept.append(extents)
        tensor.data, tensor.type, tensor.rank = address, DTYPES.index(dtype), len(shape)
        tensor.shape = extents
    array.kept = kept
    return array


def fields(structure):
    """A structure as a dictionary, texts decoded."""
    return {name: value.decode() if isinstance(value, bytes) else value
            for name, value in ((f[0], getattr(structure, f[0])) for f in structure._fields_)}


def tune(library, device, text, args, math="auto", **options):
    """Tunes a program; `options` are fields of eider_tune_request.  The summary as a dictionary,
    with `timings`, {config: median in nanoseconds} of what was timed, fastest first."""
    program = library.make("program_parse", library.context, text.encode())
    kernel = Request(program=program, args=args, n_args=len(args),
                     numerics=Numerics(math=MATHS.index(math)))
    request = TuneRequest(kernel=c.pointer(kernel), **{
        name: value.encode() if isinstance(value, str) else value
        for name, value in options.items()})
    try:
        tuning = library.make("tune", device, c.byref(request))
    finally:
        library.so.eider_program_release(program)
    summary, entry, timings = TuneSummary(), TuneEntry(), {}
    library.so.eider_tune_describe(tuning, c.byref(summary))
    out = fields(summary)
    for i in range(summary.n_entries):
        library.call("tune_entry_get", tuning, i, c.byref(entry))
        if entry.n_samples:
            timings[entry.config.decode()] = entry.median_ns
    library.so.eider_tune_release(tuning)
    out["timings"] = dict(sorted(timings.items(), key=lambda item: item[1]))
    return out


class Kernel:
    """A program prepared for a device and for operands like `args`."""

    def __init__(self, library, device, text, args, math="auto", config="", assembler=None):
        self.library = library
        self.program = library.make("program_parse", library.context, text.encode())
        request = Request(program=self.program, args=args, n_args=len(args),
                          numerics=Numerics(math=MATHS.index(math)), config=config.encode(),
                          assembler=assembler.encode() if assembler else None)
        self.kernel = None
        self.kernel = library.make("prepare", device, c.byref(request))

    def launch(self, args, stream=None):
        self.library.call("launch", self.kernel, stream, args, len(args))

    def bytes(self, args):
        out = c.c_uint64()
        self.library.call("kernel_bytes", self.kernel, args, len(args), c.byref(out))
        return out.value

    def time(self, args, repeat, flush=True):
        """Nanoseconds of each of `repeat` runs."""
        out = (c.c_double * repeat)()
        self.library.call("time", self.kernel, None, args, len(args), repeat, int(flush), out)
        return list(out)

    def info(self):
        info = KernelInfo()
        self.library.so.eider_kernel_describe(self.kernel, c.byref(info))
        return fields(info)

    def release(self):
        if self.kernel:
            self.library.so.eider_kernel_release(self.kernel)
        self.library.so.eider_program_release(self.program)
        self.kernel = self.program = None
