#!/bin/bash
# tests/test_dryrun_libraries.sh: what `vplan dryrun` answers training libraries whose loss or whose loop asks for values that nobody computed:
# detectors, trainers that validate, loaders that are kept, weights that are read again. With small packages of the libraries' names
# and of the parts that are asked; needs a Python with a known torch (VPLAN_TORCH_PYTHON, else python3). The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
vplan=$(realpath "${BUILD:-build}")/vplan
python=${VPLAN_TORCH_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tmp" "$work/home"
export TMPDIR=$work/tmp HOME=$work/home OMP_NUM_THREADS=1
passed=0 failed=0

ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAIL: $1"; [ -z "${2:-}" ] || sed 's/^/    /' "$2" | tail -20; }
# expect NAME EXIT_CODE PATTERN COMMAND...: the exit code, and a pattern in stdout or stderr, maybe across lines
expect() {
    local name=$1 code=$2 pattern=$3 got
    shift 3
    "$@" > "$work/out" 2> "$work/err" < /dev/null
    got=$?
    cat "$work/out" "$work/err" > "$work/both"
    if [ $got != "$code" ]; then bad "$name: exit $got, expected $code" "$work/both"
    elif ! grep -q -- "$pattern" "$work/both" && ! tr -s " \n" " " < "$work/both" | grep -q -- "$pattern"; then bad "$name: no '$pattern'" "$work/both"
    else ok; fi
}
dry() { "$vplan" dryrun --device l4 "$@"; }

"$python" -c 'import torch; torch.version.cuda or exit(1)' 2> /dev/null || { echo "SKIP: $python has no CUDA build of torch"; exit 77; }

# ---- a loader that keeps one iterator for all epochs, as those of ultralytics and timm ----
cat > "$work/kept.py" <<'P'
import torch
class Kept(torch.utils.data.DataLoader):
    iterator = None
    def __iter__(self):
        self.iterator = self.iterator or super().__iter__()
        for _ in range(len(self)):
            yield next(self.iterator)
class Data(torch.utils.data.Dataset):
    def __init__(self, n): self.n = n
    def __len__(self): return self.n
    def __getitem__(self, i): return torch.zeros(8)
net = torch.nn.Linear(8, 8).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
batches = lambda n: Kept(Data(10 ** 6), batch_size=4, sampler=range(4 * n))
train, val = batches(100), batches(50)
for epoch in range(3):
    for x in train:
        net(x.cuda()).sum().backward()
        opt.step()
    with torch.no_grad():
        print("epoch", epoch, "evaluated", sum(1 for x in val if net(x.cuda()) is not None))
print("the end")
P
expect "a loader that keeps its iterator ends with the data" 0 "epoch 0 evaluated 3 epoch 1 evaluated 3 epoch 2 evaluated 3 the end" dry --steps 2 -- "$python" "$work/kept.py"

# ---- weights that were not written and are read again ----
cat > "$work/best.py" <<'P'
import os, sys, torch
net = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.AdamW(net.parameters())
for x in torch.utils.data.DataLoader(torch.zeros(400, 64), batch_size=4):
    net(x.cuda()).sum().backward()
    opt.step()
torch.save({"net": net.state_dict(), "epoch": 3, "opt": opt.state_dict()}, sys.argv[1] + ".part")
os.replace(sys.argv[1] + ".part", sys.argv[1])
best = torch.load(sys.argv[1], map_location="cuda")
net.load_state_dict(best["net"])
opt.load_state_dict(best["opt"])
print("read again", best["epoch"], best["net"]["weight"].shape, best["net"]["weight"].device, os.path.exists(sys.argv[1]))
P
expect "weights that were not written are read again, by their shapes" 0 "read again 3 torch.Size(\[64, 64\]) cuda:0 False" dry --steps 2 -- "$python" "$work/best.py" "$work/best.pt"
[ ! -e "$work/best.pt" ] && ok || bad "and are not written"
expect "without --steps they are files" 0 "read again 3 torch.Size(\[64, 64\]) cuda:0 True" dry -- "$python" "$work/best.py" "$work/best.pt"

# ---- Lightning's trainer validates as its epoch ends early ----
mkdir -p "$work/light/lightning/pytorch/trainer"
touch "$work"/light/lightning/{,pytorch/,pytorch/trainer/}__init__.py
cat > "$work/light/lightning/pytorch/trainer/trainer.py" <<'P'
from types import SimpleNamespace
class Trainer:
    check_val_every_n_epoch, should_stop, val_check_batch = 5, False, 100
    def __init__(self):
        self.fit_loop = SimpleNamespace(min_epochs=2, epoch_loop=SimpleNamespace(min_steps=7))
    def fit(self, net, opt, train, val):
        import torch
        for i, x in enumerate(train):
            net(x.cuda()).sum().backward()
            opt.step()
            stops = self.should_stop and not self.fit_loop.min_epochs and not self.fit_loop.epoch_loop.min_steps
            if (stops or (i + 1) % self.val_check_batch == 0) and self.check_val_every_n_epoch == 1:
                with torch.no_grad():
                    print("validated", sum(1 for x in val if net(x.cuda()) is not None), "after", i + 1)
            if stops:
                return
P
cat > "$work/light/fit.py" <<'P'
import torch
from lightning.pytorch.trainer.trainer import Trainer
net = torch.nn.Linear(8, 8).cuda()
loader = lambda: torch.utils.data.DataLoader(torch.zeros(4000, 8), batch_size=4)
Trainer().fit(net, torch.optim.SGD(net.parameters(), lr=0.1), loader(), loader())
P
expect "Lightning's trainer is stopped as it stops early, and validates" 0 "validated 3 after 2" dry --steps 2 -- "$python" "$work/light/fit.py"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
