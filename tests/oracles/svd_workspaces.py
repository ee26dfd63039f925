#!/usr/bin/env python3
"""tests/golden/solver/svd_workspaces.csv: the workspace of cuSOLVER's singular value decomposition by Jacobi's method in fp32.

    svd_workspaces.py path/to/libcusolver.so.12 > tests/golden/solver/svd_workspaces.csv

Asked of the library itself, without a card: what it answers hangs on the sides alone, once a handle counts as made. That is a field of it
which is not documented, so it is looked for: the one behind which the handle's mode can be read.
"""
import ctypes
import sys

SIDES = (32, 64, 128, 256, 512, 576, 640, 768, 896, 960, 1024, 1280, 1536, 1600, 2048, 2560, 3072, 3584, 4096, 4864, 5120, 6144, 8192, 8960, 11008,
         14336, 18944)
ANY = ctypes.c_void_p(0x10000)         # an address that is not looked at


def handle(solver):
    """A handle that counts as made."""
    made, mode = ctypes.create_string_buffer(1 << 16), ctypes.c_int()
    fields = ctypes.cast(made, ctypes.POINTER(ctypes.c_int))
    for i in range(1 << 8):
        fields[i] = 1
        if solver.cusolverDnGetDeterministicMode(made, ctypes.byref(mode)) == 0:
            return made
        fields[i] = 0
    sys.exit("no field of a handle makes it count as made")


def main():
    solver = ctypes.CDLL(sys.argv[1])
    version, info, elements = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    solver.cusolverGetVersion(ctypes.byref(version))
    solver.cusolverDnCreateGesvdjInfo(ctypes.byref(info))
    of = handle(solver)
    print("# made by tests/oracles/svd_workspaces.py: cuSOLVER %d, economy, vectors of both sides; elements of fp32" % version.value)
    print("rows,columns,elements")
    for m in SIDES:
        for n in SIDES:
            e = solver.cusolverDnSgesvdj_bufferSize(of, 1, 1, m, n, ANY, m, ANY, ANY, m, ANY, n, ctypes.byref(elements), info)
            if e:
                sys.exit("%d x %d: error %d" % (m, n, e))
            print("%d,%d,%d" % (m, n, elements.value))


main()
