#!/usr/bin/env python3
"""What the compiler made of kernels/cuda: of each kernel its instructions, registers, spills and the warps a multiprocessor holds.

    make && bench/cuda_sass.py --arch 90                         a table of the kernels that plans run
    bench/cuda_sass.py --commit SHA --out bench/results          recorded: every kernel, every architecture that was built
    bench/cuda_sass.py --arch 90 --against bench/results/FILE    only what has changed since, before and after
    bench/cuda_sass.py --sources '*norm' ...                     of some of the sources only

Needs no GPU: it reads the objects and reports of a build with nvcc, by cuobjdump (the toolkit's, or of `pip install nvidia-cuda-cuobjdump` or Triton's package; --cuobjdump).
Counts are of the code as it lies there: what a loop repeats counts once, and so does what is jumped over. `calls` are subroutines behind a division or a
square root that is exact for every operand, and behind one of 64-bit whole numbers. Nothing here is a time.
--plan PLAN adds the bytes that the step's kernels move, as `vplan explain --roofline` adds them up."""
import collections
import glob
import json
import os
import re
import shutil
import subprocess
import sys

from bench_common import answer, fail, output, parser, program, skip, write_results

# Registers of a multiprocessor are 65536; warps it can hold at most, by compute capability (CUDA C++ Programming Guide, table of technical specifications).
REGISTERS = 65536
WARPS = {"75": 32, "80": 64, "86": 48, "87": 48, "89": 48, "90": 64, "100": 64, "120": 48}

# An instruction's class by how its name begins; what no row takes is only in the total.
CLASSES = (("calls", r"CALL"), ("local", r"(LDL|STL)"), ("global16", r"(LDG|STG).*\.128"), ("global", r"(LDG|STG|ATOMG|RED)"), ("shared", r"(LDS|STS|ATOMS)"),
           ("tensor", r"(HMMA|IMMA|QMMA|OMMA|HGMMA)"), ("special", r"MUFU"), ("double", r"(DADD|DMUL|DFMA|DSETP)"), ("fma", r"(FFMA|FMUL|FADD)"))
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T0-9]+ )?\s*([A-Z][A-Z0-9_.]*)", re.M)


def cuobjdump(args):
    names = [args.cuobjdump, os.environ.get("CUOBJDUMP"), shutil.which("cuobjdump"), "/usr/local/cuda/bin/cuobjdump"]
    for name in names:
        if name and os.access(name, os.X_OK):
            return name
    skip("there is no cuobjdump; --cuobjdump names one")


def demangled(names):
    r = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True)
    return [re.sub(r"^void |\(.*|(?<=\w)\[.*", "", text.replace("(int)", "").replace("(bool)", "")) for text in r.stdout.splitlines()]


def reported(path):
    """{(mangled name, architecture): registers, shared bytes, spilled bytes} of a compiler's report."""
    figures = {}
    for name, arch, rest in re.findall(r"Compiling entry function '(\w+)' for 'sm_(\d+)\w*'(.*?)(?=ptxas info\s+: Compiling|\Z)", open(path).read(), re.S):
        shared = re.search(r"(\d+) bytes smem", rest)
        figures[name, arch] = {"registers": int(re.search(r"Used (\d+) registers", rest)[1]), "shared_bytes": int(shared[1]) if shared else 0,
                               "spilled_bytes": sum(int(n) for n in re.findall(r"(\d+) bytes spill", rest))}
    return figures


def counted(sass):
    counts = collections.Counter(instructions=0, **{name: 0 for name, _ in CLASSES})
    for op in INSTRUCTION.findall(sass):
        counts["instructions"] += op != "NOP"
        counts.update(next(([name] for name, begins in CLASSES if re.match(begins, op)), []))
    return dict(counts)


def kernels(args, tool):
    """Rows of every kernel, in the order of their names."""
    rows = []
    for report in sorted(glob.glob(os.path.join(args.build, "cuda/kernels/cuda", args.sources + ".cu.ptxas"))):
        figures, object_file = reported(report), report[:-len(".ptxas")] + ".o"
        for arch in sorted({a for _, a in figures}, key=int):
            if args.arch and arch not in args.arch:
                continue
            dump = subprocess.run([tool, "-arch", f"sm_{arch}", "-sass", object_file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
            code = {part.split(None, 1)[0]: part for part in dump.split("Function : ")[1:]}
            names = [n for n, a in figures if a == arch]
            for mangled, name in zip(names, demangled(names)):
                f = figures[mangled, arch]
                if mangled not in code:
                    fail(f"{object_file} has no {mangled} for sm_{arch}")
                warps = min(WARPS[arch], REGISTERS // (32 * (-f["registers"] // 8 * -8)))
                rows.append({"name": f"{os.path.basename(report).split('.')[0]}: {name}", "arch": int(arch), **f, "warps": warps, **counted(code[mangled])})
    return sorted(rows, key=lambda r: (r["name"], r["arch"]))


def in_plans(row):
    """Kernels of 16-bit numbers, or of fp32 alone, whose operands lie at multiples of 16 bytes."""
    return not re.search(r"(vp_f16|<float|vp_map_kernel<.*, 1, |_kernel<\w+, 1>)", row["name"])


def table(rows, columns):
    print(f"{'kernel':72} {'arch':>4} " + " ".join(f"{c:>9}" for c in columns))
    for r in rows:
        print(f"{r['name'][:72]:72} {r['arch']:>4} " + " ".join(f"{r[c]:>9}" for c in columns))


def compare(rows, path, columns):
    before = {(r["name"], r["arch"]): r for r in json.load(open(path))["rows"]}
    print(f"{'kernel':72} {'arch':>4} " + " ".join(f"{c:>14}" for c in columns))
    for r in rows:
        old = before.pop((r["name"], r["arch"]), None)
        if old is None or any(old[c] != r[c] for c in columns):
            print(f"{r['name'][:72]:72} {r['arch']:>4} " + " ".join(f"{(f'{old[c]} ' if old else '- ') + str(r[c]):>14}" for c in columns))
    for name, arch in sorted(k for k in before if not rows or k[1] in {r["arch"] for r in rows}):
        print(f"{name[:72]:72} {arch:>4} is no more")


def main():
    p = parser(__doc__)
    p.add_argument("--arch", action="append", help="a compute capability such as 90; without it, all that were built")
    p.add_argument("--sources", default="*", help="of these files in kernels/cuda only, such as '*norm'")
    p.add_argument("--cuobjdump", help="the program")
    p.add_argument("--against", help="a recorded file: show what has changed since")
    p.add_argument("--part", default="sass", help="the results file's part: sass, or sass-before")
    p.add_argument("--plan", action="append", default=[], help="a plan file whose bytes are added up")
    args = p.parse_args()
    rows = kernels(args, cuobjdump(args))
    if not rows:
        skip("nothing was compiled by nvcc in " + args.build)
    columns = ("instructions", "calls", "registers", "warps", "spilled_bytes", "tensor", "fma", "special", "global16", "global")
    if args.against:
        compare(rows, args.against, columns)
    else:
        table([r for r in rows if in_plans(r)], columns)
    steps = [answer([program(args, "vplan"), "explain", path, "--roofline", "--json"]) for path in args.plan]
    for step in steps:
        print(f"{step['model']} on {step['device']}: " + ", ".join(f"{w['work']} {w['bytes'] / 1e9:.2f} GB" for w in step["works"]))
    if args.out:
        compiler = output(["nvcc", "--version"]) if shutil.which("nvcc") else output(["/usr/local/cuda/bin/nvcc", "--version"])
        path = write_results(args, args.part, "cuda", {"nvcc": compiler.strip().splitlines()[-1]}, {},
                             {"arch": args.arch or "all", "sources": args.sources, "steps": [{k: s[k] for k in ("model", "device", "works")} for s in steps]}, rows)
        print("written to", path)
    spilled = [r["name"] for r in rows if r["spilled_bytes"] or r["local"]]
    print(f"{len(rows)} kernels, {len(spilled)} with spills or local memory" + "".join("\n  " + name for name in spilled[:20]))
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
