# A training command that needs no PyTorch: its allocations go to the stand-in CUDA runtime, and what the probe would report
# is written by itself. Memory and products are a formula of its arguments, so that a test knows the best setting by trying
# all of them by arithmetic (tests/test_tune_command.sh says the same formula again).
#     python3 training.py --batch N --accum N [--ckpt 0|1] [--optim a|b|broken] [--hang N] [--print BYTES] [--output_dir DIR] [--fault KIND]
import argparse, ctypes, json, os, signal, sys, time

MIB = 1 << 20
p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=4)
p.add_argument("--accum", type=int, default=1)
p.add_argument("--ckpt", default="0")
p.add_argument("--optim", default="a")
p.add_argument("--hang", type=int, default=0)          # the batch that never ends
p.add_argument("--crash", type=int, default=0)         # the batch that fails
p.add_argument("--print", type=int, default=0, dest="n_print")
p.add_argument("--output_dir", default="out")
p.add_argument("--sleep", type=float, default=0)
p.add_argument("--flag", action="store_true")
p.add_argument("--fault", default="", choices=("", "fork", "stdin", "terminal", "deaf"))
o = p.parse_args()
ckpt = o.ckpt == "1"

folder = os.environ["VPLAN_NULL_REPORT"]
lib = ctypes.CDLL("libvplan-null.so")
lib.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
held, oom = 0, None


def malloc(n, phase):
    global held, oom
    at = ctypes.c_void_p()
    if lib.cudaMalloc(ctypes.byref(at), n):
        oom = {"requested_bytes": n, "phase": phase, "where": "training.py", "allocated_bytes": held, "reserved_bytes": held}
        return False
    held += n
    return True


os.makedirs(o.output_dir, exist_ok=True)
with open(os.path.join(o.output_dir, "log.txt"), "w") as f:     # a trial's own, never the user's
    f.write("batch %d" % o.batch)
for _ in range(o.n_print >> 20):
    sys.stdout.write("x" * MIB)
sys.stdout.write("x" * (o.n_print % MIB))
if o.fault == "fork" and not os.fork():      # one that stays, and keeps the pipes open
    os.setsid()
    time.sleep(600)
elif o.fault == "stdin":
    sys.stdin.readline() or sys.exit("nobody answers")
elif o.fault == "terminal":
    with open("/dev/tty") as f:
        f.readline()
elif o.fault == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)
time.sleep(o.sleep)
if os.environ.get("COUNT_RUNS"):
    with open(os.environ["COUNT_RUNS"], "a") as f:
        f.write("%d %d %s %s\n" % (o.batch, o.accum, o.ckpt, o.optim))
if o.hang == o.batch:
    time.sleep(1000)
if o.crash == o.batch or o.optim == "broken":
    sys.exit("batch %d does not work" % o.batch)
parameters = 300 * MIB
ok = malloc(parameters, "load") and malloc((2 if o.optim == "a" else 1) * parameters, "step1") \
    and malloc(parameters if o.accum > 1 else 4 * MIB, "backward1") \
    and malloc(o.batch * (40 if ckpt else 100) * MIB, "forward2")
# the program: a micro-step reads the weights, then has 50 launches and products that grow with the batch; an optimizer step of bytes
weights = ["mul", 1, parameters, 0, 0, "", 0, 0, 0]
row = ["mm", 50, 0, 0, int(o.batch * (4 if ckpt else 3) * 1e11), "bf16", 0, 0, 0]
step = ["_fused_adamw_", 10 if o.optim == "a" else 2, int((9 if o.optim == "a" else 7) * parameters), 0, 0, "", 0, 0, 0]
steps = int(os.environ.get("VPLAN_NULL_STEPS") or 0) + 1
report = {
    "pid": os.getpid(), "final": True, "python": "3", "torch": "2.11.0", "cuda": True, "optimizer_steps": 0 if oom else steps,
    "allocated_peak_bytes": held, "reserved_peak_bytes": held, "requested_peak_bytes": held, "peak_phase": "forward2",
    "phases": [], "owners": [], "kinds": {}, "reads": [], "selections": [], "notes": ["%d plans were checked" % (50 + o.batch)], "counters": {}, "oom": oom,
    "error": None, "cut": None, "arguments": json.loads(os.environ.get("ARGUMENTS", "{}")), "program": None if oom else {
        "rows": [row, step, weights], "sequence": [2, 0] * o.accum + [1], "optimizer": [[2 * o.accum, 2 * o.accum + 1]], "complete": True, "samples": o.batch * o.accum,
        "products_flop": row[4] * o.accum, "attention_flop": 0, "convolution_flop": 0, "vector_flop": 0, "launches": 0,
        "copies_to_bytes": 0, "copies_from_bytes": 0, "copies_on_bytes": 0}}
path = os.path.join(folder, "report.%d.play.json" % os.getpid())     # beside that of the real probe
with open(path + ".tmp", "w") as f:
    json.dump(report, f)
os.rename(path + ".tmp", path)
sys.exit(1 if oom else 0)
