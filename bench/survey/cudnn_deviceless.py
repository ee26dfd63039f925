"""cuDNN's own workspace for an attention call, asked through its C backend with no device: only its library.

Since cuDNN 9.8 a device can be described by JSON instead of being present, and heuristics, support checks and
workspace sizes then answer for it. This module builds by ctypes the graphs that cuDNN recognises as attention
(numbers of descriptors and attributes: cudnn_graph.h of 9.19): forward as products, scale, causal mask and softmax;
backward as the chain of dO*O row sums, P, dV, dP, dS, dK, dQ with dQ accumulated in an fp32 tensor of the
caller's, or, deterministic, without that tensor, which makes cuDNN keep dP in its workspace.

    attention_workspaces(batch, heads, kv_heads, sequence, head_size, causal) ->
        {forward_library, forward_workspace, backward_library, backward_caller, backward_workspace,
         backward_library_deterministic, backward_caller_deterministic, backward_workspace_deterministic}    bytes

`library` is what the engine asks, `caller` the dQ accumulator and the row sums that a frontend places in the same
workspace, `workspace` their sum: what torch, whose frontend does so, is expected to request.
"""
import ctypes
import json
import math

BF16, FP32, INT32, BOOL = 9, 0, 4, 11                                           # cudnnDataType_t
T_DATA_TYPE, T_BOOL, T_INT64, T_FLOAT, T_HEUR, T_POINTWISE, T_DESCRIPTOR, T_REDUCTION, T_CHAR = 1, 2, 3, 4, 8, 14, 15, 18, 24
(D_POINTWISE, D_ENGINECFG, D_HEUR, D_OP_POINTWISE, D_GRAPH, D_TENSOR, D_MATMUL, D_OP_MATMUL, D_REDUCTION, D_OP_REDUCTION,
 D_OP_RESHAPE, D_DEVICE) = 0, 3, 4, 13, 15, 17, 18, 19, 21, 22, 31, 38              # cudnnBackendDescriptorType_t
ADD, MUL, DIV, SUB, EXP, LOG, IDENTITY, CMP_GE, GEN_INDEX, SELECT = 0, 1, 6, 9, 13, 15, 21, 303, 501, 601
REDUCE_ADD, REDUCE_MAX = 0, 3

# One H200 as cuDNN wants to know it. Architecture figures are NVIDIA's for compute capability 9.0 (CUDA programming
# guide, table of technical specifications); 132 multiprocessors, 1980 MHz, 60 MB of L2 and memory as an H200 reports.
H200 = {"deviceName": "NVIDIA H200", "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "multiProcessorCount": 132, "warpSize": 32,
        "maxThreadsPerBlock": 1024, "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
        "maxThreadsPerSM": 2048, "maxCtasPerSM": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
        "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, 
        "reservedSharedMemoryPerBlock": 1024, "l2CacheSize": 62914560, "totalGlobalMem": 150754820096, "smClockRateKHz": 1980000,
        "memClockRateKHz": 3201000, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1}


class Unavailable(Exception):
    """No cuDNN library here, or it refuses the device or the graph."""


def library():
    """cuDNN as torch has loaded it, else by the loader's path."""
    path = "libcudnn.so.9"
    with open("/proc/self/maps") as f:
        path = next((line.split()[-1] for line in f if "/libcudnn.so" in line), path)
    try:
        lib = ctypes.CDLL(path)
    except OSError as e:
        raise Unavailable(str(e)) from None
    lib.cudnnGetErrorString.restype = ctypes.c_char_p
    return lib


class Backend:
    """Descriptors of one cuDNN library; everything made is destroyed by close()."""

    def __init__(self):
        self.lib, self.made = library(), []

    def check(self, status, what):
        if status:
            text = ctypes.create_string_buffer(4096)
            self.lib.cudnnGetLastErrorString(text, ctypes.c_size_t(4096))
            raise Unavailable(f"{what}: {self.lib.cudnnGetErrorString(status).decode()} {text.value.decode(errors='replace')[:300]}")

    def make(self, kind, attributes=(), finalize=True):
        d = ctypes.c_void_p()
        self.check(self.lib.cudnnBackendCreateDescriptor(kind, ctypes.byref(d)), f"create descriptor {kind}")
        self.made.append(d)
        for name, code, values in attributes:
            self.set(d, name, code, values)
        if finalize:
            self.check(self.lib.cudnnBackendFinalize(d), f"finalize descriptor {kind}")
        return d

    def set(self, d, name, code, values):
        values = values if isinstance(values, (list, tuple)) else [values]
        if code == T_CHAR:
            array, n = ctypes.create_string_buffer(values[0], len(values[0])), len(values[0])
        else:
            c = {T_INT64: ctypes.c_int64, T_BOOL: ctypes.c_bool, T_DESCRIPTOR: ctypes.c_void_p, T_FLOAT: ctypes.c_float}.get(code, ctypes.c_int)
            array, n = (c * len(values))(*[v.value if isinstance(v, ctypes.c_void_p) else v for v in values]), len(values)
        self.check(self.lib.cudnnBackendSetAttribute(d, name, code, ctypes.c_int64(n), array), f"attribute {name}")

    def get_int64(self, d, name):
        n, v = ctypes.c_int64(), ctypes.c_int64()
        self.check(self.lib.cudnnBackendGetAttribute(d, name, T_INT64, ctypes.c_int64(1), ctypes.byref(n), ctypes.byref(v)), f"attribute {name}")
        return v.value

    def close(self):
        for d in reversed(self.made):
            self.lib.cudnnBackendDestroyDescriptor(d)
        self.made = []


class Graph:
    """Operations on 4-D tensors (batch, head, row, column), as cuDNN backend descriptors."""

    def __init__(self, backend):
        self.b, self.ops, self.uid = backend, [], 0

    def tensor(self, dims, dtype=FP32, strides=None, virtual=True, value=False):
        self.uid += 1
        if strides is None:
            strides = [math.prod(dims[i + 1:]) for i in range(len(dims))]
        t = self.b.make(D_TENSOR, [(906, T_INT64, self.uid), (901, T_DATA_TYPE, dtype), (902, T_INT64, list(dims)),
                                   (903, T_INT64, list(strides)), (900, T_INT64, 16), (907, T_BOOL, virtual), (908, T_BOOL, value)])
        return t, list(dims)

    def constant(self, dtype=FP32):
        return self.tensor([1, 1, 1, 1], dtype, virtual=False, value=True)

    def pointwise(self, mode, x, y=None, mask=None, out=None, dims=None, dtype=FP32, compute=FP32, axis=None):
        attributes = [(0, T_POINTWISE, mode), (1, T_DATA_TYPE, compute)] + ([(9, T_INT64, axis)] if axis is not None else [])
        p = self.b.make(D_POINTWISE, attributes)
        out = out or self.tensor(dims or x[1], dtype)
        links = [(750, T_DESCRIPTOR, p), (751, T_DESCRIPTOR, x[0]), (753, T_DESCRIPTOR, out[0])]
        if y is not None:
            links.append((752, T_DESCRIPTOR, y[0]))
        if mask is not None:
            links.append((758, T_DESCRIPTOR, mask[0]))
        self.ops.append(self.b.make(D_OP_POINTWISE, links))
        return out

    def matmul(self, x, y, out=None, dtype=FP32):
        m = self.b.make(D_MATMUL, [(1500, T_DATA_TYPE, FP32)])
        out = out or self.tensor(x[1][:3] + y[1][3:], dtype)
        self.ops.append(self.b.make(D_OP_MATMUL, [(1523, T_DESCRIPTOR, m), (1520, T_DESCRIPTOR, x[0]), (1521, T_DESCRIPTOR, y[0]),
                                                  (1522, T_DESCRIPTOR, out[0])]))
        return out

    def reduce(self, how, x, out=None, dims=None):
        r = self.b.make(D_REDUCTION, [(1600, T_REDUCTION, how), (1601, T_DATA_TYPE, FP32)])
        out = out or self.tensor(dims or x[1][:3] + [1])
        self.ops.append(self.b.make(D_OP_REDUCTION, [(1612, T_DESCRIPTOR, r), (1610, T_DESCRIPTOR, x[0]), (1611, T_DESCRIPTOR, out[0])]))
        return out

    def reshape(self, x, out):
        self.ops.append(self.b.make(D_OP_RESHAPE, [(2200, T_DESCRIPTOR, x[0]), (2201, T_DESCRIPTOR, out[0])]))
        return out

    def causal(self, s):
        """Scores with minus infinity where the column lies behind the row."""
        row = self.pointwise(GEN_INDEX, s, dtype=INT32, compute=INT32, axis=2)
        column = self.pointwise(GEN_INDEX, s, dtype=INT32, compute=INT32, axis=3)
        seen = self.pointwise(CMP_GE, row, column, dtype=BOOL, compute=BOOL)
        return self.pointwise(SELECT, s, self.constant(), seen)

    def library_workspace(self, device):
        """Bytes the heuristic's first engine asks for this graph on the described device."""
        b = self.b
        graph = b.make(D_GRAPH, [(801, T_DESCRIPTOR, self.ops)])
        heur = b.make(D_HEUR, [(201, T_DESCRIPTOR, graph), (200, T_HEUR, 3), (204, T_DESCRIPTOR, device)])   # mode A
        config = b.make(D_ENGINECFG, finalize=False)
        n, p = ctypes.c_int64(), ctypes.c_void_p(config.value)
        b.check(b.lib.cudnnBackendGetAttribute(heur, 202, T_DESCRIPTOR, ctypes.c_int64(1), ctypes.byref(n), ctypes.byref(p)), "heuristic results")
        if not n.value:
            raise Unavailable("no engine for this graph")
        return b.get_int64(config, 303)


def interleaved(b, h, s, d):
    """Dimensions and strides of heads as a projection leaves them: memory is (batch, sequence, head, size)."""
    return [b, h, s, d], [s * h * d, d, h * d, 1]


def forward(backend, b, a, k, s, d, causal):
    g = Graph(backend)
    dims, strides = interleaved(b, a, s, d)
    _, kv = interleaved(b, k, s, d)
    q = g.tensor(dims, BF16, strides, virtual=False)
    kt = g.tensor([b, k, d, s], BF16, [kv[0], kv[1], kv[3], kv[2]], virtual=False)
    v = g.tensor([b, k, s, d], BF16, kv, virtual=False)
    x = g.tensor([b, a, s, s])
    g.matmul(q, kt, x)
    x = g.pointwise(MUL, x, g.constant())
    if causal:
        x = g.causal(x)
    top = g.reduce(REDUCE_MAX, x)
    e = g.pointwise(EXP, g.pointwise(SUB, x, top))
    total = g.reduce(REDUCE_ADD, e)
    stats = g.tensor([b, a, s, 1], FP32, virtual=False)
    g.pointwise(ADD, g.pointwise(LOG, total), top, out=stats)
    p = g.pointwise(DIV, e, total, dtype=BF16)
    g.matmul(p, v, g.tensor(dims, BF16, strides, virtual=False))
    return g


def backward(backend, b, a, k, s, d, causal, deterministic):
    """(graph, bytes of the caller's tensors: row sums and, unless deterministic, the fp32 dQ accumulator)."""
    g = Graph(backend)
    dims, strides = interleaved(b, a, s, d)
    _, kv = interleaved(b, k, s, d)
    real = lambda: g.tensor(dims, BF16, strides, virtual=False)        # noqa: E731
    q, out, grad, dq = real(), real(), real(), real()
    kt = g.tensor([b, k, d, s], BF16, [kv[0], kv[1], kv[3], kv[2]], virtual=False)
    vt = g.tensor([b, k, d, s], BF16, [kv[0], kv[1], kv[3], kv[2]], virtual=False)
    dk, dv = (g.tensor([b, k, s, d], BF16, kv, virtual=False) for _ in range(2))
    stats = g.tensor([b, a, s, 1], virtual=False)
    rows = g.tensor([b, a, s, 1], virtual=False)
    g.pointwise(MUL, g.reduce(REDUCE_ADD, g.pointwise(MUL, grad, out)), g.constant(), out=rows)
    x = g.tensor([b, a, s, s])
    g.matmul(q, kt, x)
    scale = g.constant()
    x = g.pointwise(MUL, x, scale)
    x = g.pointwise(SUB, x, stats)
    if causal:
        x = g.causal(x)
    p = g.pointwise(EXP, x)
    transposed = [a * s * s, s * s, 1, s]
    turned = lambda y: g.reshape(y, g.tensor([b, a, s, s], BF16, transposed))       # noqa: E731
    fold = lambda full, to: g.reduce(REDUCE_ADD, full, to)      # noqa: E731  heads of a group are added up
    if a == k:
        g.matmul(turned(p), grad, dv)
    else:
        fold(g.matmul(turned(p), grad, g.tensor(dims, BF16)), dv)
    dp = g.tensor([b, a, s, s])
    g.matmul(grad, vt, dp)
    ds = g.pointwise(MUL, g.pointwise(MUL, g.pointwise(SUB, dp, rows), p), scale)
    if a == k:
        g.matmul(turned(ds), q, dk)
    else:
        fold(g.matmul(turned(ds), q, g.tensor(dims, BF16)), dk)
    keys = g.reshape(kt, g.tensor([b, k, s, d], BF16, kv))
    if deterministic:
        g.matmul(ds, keys, dq)
        return g, 4 * b * a * s
    accumulator = g.tensor(dims, FP32, virtual=False)
    g.matmul(ds, keys, accumulator)
    g.pointwise(IDENTITY, accumulator, out=dq)
    return g, 4 * b * a * s + 4 * b * a * s * d


def attention_workspaces(b, a, k, s, d, causal=True, device=H200):
    backend = Backend()
    try:
        described = backend.make(D_DEVICE, [(2702, T_CHAR, json.dumps(device).encode())])
        got = {"forward_library": forward(backend, b, a, k, s, d, causal).library_workspace(described)}
        got["forward_workspace"] = got["forward_library"]
        for tag, deterministic in (("", False), ("_deterministic", True)):
            graph, caller = backward(backend, b, a, k, s, d, causal, deterministic)
            library = graph.library_workspace(described)
            got.update({f"backward_library{tag}": library, f"backward_caller{tag}": caller, f"backward_workspace{tag}": library + caller})
        return got
    finally:
        backend.close()


def device_json():
    """This machine's card as cuDNN itself describes it (attribute 2702), for use as a description later. Needs the card."""
    backend = Backend()
    try:
        d = backend.make(D_DEVICE, [(2700, 23, 0)])            # device 0, CUDNN_TYPE_INT32
        n = ctypes.c_int64()
        backend.check(backend.lib.cudnnBackendGetAttribute(d, 2702, T_CHAR, ctypes.c_int64(0), ctypes.byref(n), None), "size of the description")
        text = ctypes.create_string_buffer(n.value)
        backend.check(backend.lib.cudnnBackendGetAttribute(d, 2702, T_CHAR, n, ctypes.byref(n), text), "the description")
        return json.loads(text.raw[:n.value].rstrip(b"\0"))
    finally:
        backend.close()


if __name__ == "__main__":
    import sys
    print(json.dumps(attention_workspaces(*map(int, sys.argv[1:6]), causal="full" not in sys.argv), indent=1))
