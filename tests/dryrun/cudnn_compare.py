# tests/dryrun/cudnn_compare.py: cuDNN's workspaces in a dry run against what it tells another program.
#   python tests/dryrun/cudnn_compare.py --vplan VPLAN --python PYTHON --cudnn LIBCUDNN --work FOLDER
# Convolutions: cudnn_ask.c asks the same library for the same shape in a process without the stand-in, with the
# description of an H100 as its driver gives it (clocks included, which the dry run does not know). PyTorch under
# the dry run must take that workspace and nothing else. Attention: forward and backward must take what cuDNN's
# kernels are known to need.
import argparse
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
H100 = ('{"version":1,"cudaDeviceId":0,"deviceVer":900,"driverVer":13000,"totalGlobalMem":85045084160,'
        '"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,'
        '"multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,'
        '"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,'
        '"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,"smClockRateKHz":1980000,'
        '"memClockRateKHz":2619000,"l2CacheSize":52428800,"deviceName":"NVIDIA H100 80GB HBM3"}')
DTYPES = {"float32": "0", "float16": "2", "bfloat16": "9"}
CONVOLUTIONS = [      # N C H W K R STRIDE PAD DTYPE LAYOUT
    "32 64 56 56 64 3 1 1 float32 nchw", "32 64 56 56 64 3 1 1 float16 nhwc", "16 3 224 224 64 7 2 3 float16 nchw",
    "8 256 14 14 512 1 1 0 bfloat16 nchw", "8 128 28 28 128 3 2 1 bfloat16 nhwc", "4 512 7 7 512 3 1 1 float32 nchw",
]

ATTENTIONS = ["2 8 1024 64 causal", "2 8 1024 64", "4 16 512 128 causal"]      # B H T D


def output(command):
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return run.returncode, run.stdout, run.stderr


def dry(a, script, words):
    return output([a.vplan, "dryrun", "--device", "h100", "--", a.python, os.path.join(HERE, "scripts", script)] + words)[2]


def numbers(text, name):
    found = re.search(r"^%s([ 0-9]*)$" % name, text, re.M)
    return [int(x) for x in found.group(1).split()] if found else None


def main():
    p = argparse.ArgumentParser()
    for name in ("vplan", "python", "cudnn", "work"):
        p.add_argument("--" + name, required=True)
    a = p.parse_args()
    ask = os.path.join(a.work, "cudnn_ask")
    beside = os.path.join(os.path.dirname(os.path.realpath(a.cudnn)), "..", "..")
    os.environ["LD_LIBRARY_PATH"] = ":".join([os.path.join(beside, "cublas", "lib"), os.path.join(beside, "cu13", "lib")] +
                                             [x for x in [os.environ.get("LD_LIBRARY_PATH")] if x])
    subprocess.run([os.environ.get("CC", "gcc"), "-std=gnu11", "-w", "-o", ask, os.path.join(HERE, "cudnn_ask.c"), "-ldl"],
                   check=True)
    wrong = asked = 0
    for shape in CONVOLUTIONS:
        words = shape.split()
        _, said, trouble = output([ask, a.cudnn, H100] + words[:8] + [DTYPES[words[8]], words[9]])
        workspace = (numbers(said, "workspace") or [None])[0]
        if "annot load symbol cublasLt" in trouble:      # cuDNN 9.10 ends the process where there is no cuBLASLt
            print("%s: not asked: this cuDNN wants cuBLASLt beside it" % shape)
            continue
        asked += 1
        text = dry(a, "convolution.py", words)
        taken, out = numbers(text, "allocations"), numbers(text, "output")
        want = out + ([workspace] if workspace else []) if out and workspace is not None else None
        ok = want is not None and taken == taken[:2] + want         # after x and the filters
        wrong += not ok
        print("%s: cuDNN says %s, PyTorch took %s%s" % (
            shape, workspace, taken[2:] if taken else text[-300:], "" if ok else "  DIFFERENT " + trouble))
    for words in (a.split() for a in ATTENTIONS):
        b, h, t, d = map(int, words[:4])
        text = dry(a, "cudnn_attention.py", words)
        forward, backward = numbers(text, "forward"), numbers(text, "backward")
        # 16-bit on sm_90: cuDNN's own 256 B; for backward PyTorch's graph adds an fp32 gradient of Q and the row sums.
        # The output is 16-bit, the log-sum-exp fp32.
        ok = (forward and forward[-3:] == [2 * b * h * t * d, 4 * b * h * t, 256] and
              backward and backward[-1] == 4 * b * h * t * d + 4 * b * h * t + 256)
        wrong += not ok
        print("attention %s: forward %s, backward %s%s" % (" ".join(words), forward, backward,
                                                           "" if ok else "  DIFFERENT " + text[-300:]))
    wrong += asked == 0
    print("%d convolutions, %d attentions, %s" % (asked, len(ATTENTIONS),
                                                  "%d different" % wrong if wrong else "equal"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
