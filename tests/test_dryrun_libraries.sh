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

# ---- ultralytics: boxes of a batch are known, and what its loss takes of the points is what it takes at most ----
mkdir -p "$work/yolo/ultralytics/nn" "$work/yolo/ultralytics/utils" "$work/yolo/ultralytics/engine"
touch "$work"/yolo/ultralytics/{,nn/,utils/,engine/}__init__.py
cat > "$work/yolo/ultralytics/utils/tal.py" <<'P'
import torch
class TaskAlignedAssigner:
    topk, topk2, stride_val = 10, 10, 0
    def get_box_metrics(self, scores, boxes, labels, gt, mask):
        print("candidates", mask.bool().nonzero().shape[0])
    def forward(self, scores, boxes, labels, gt, mask):
        self.get_box_metrics(scores, boxes, labels, gt, mask)
        return None, None, None, torch.zeros(boxes.shape[:2], device="cuda").bool(), None
P
cat > "$work/yolo/ultralytics/utils/loss.py" <<'P'
import torch
from ultralytics.utils.tal import TaskAlignedAssigner
class v8DetectionLoss:
    def preprocess(self, targets, batch_size):
        _, counts = targets[:, 0].long().unique(return_counts=True)
        return torch.zeros(batch_size, counts.to(torch.int32).max(), 5, device="cuda")
    def __call__(self, preds, batch):
        gt = self.preprocess(torch.cat([batch["batch_idx"].view(-1, 1), batch["cls"].view(-1, 1), batch["bboxes"]], 1), len(batch["img"]))
        mask = torch.zeros(*gt.shape[:2], preds.shape[1], device="cuda")
        found = TaskAlignedAssigner().forward(preds, preds, gt, gt, mask)[3]
        print("rows", tuple(gt.shape), "assigned", preds[found].shape[0], "of the first", preds[0][found[0]].shape[0], bool(found.sum()), bool(found[0].any()))
        counts = torch.bincount(batch["batch_idx"].flatten().long(), minlength=len(batch["img"]))
        print("slots", int(counts.max()), "elsewhere", int(torch.ones(3, device="cuda").max()))
        print("of another", preds[preds.sum(2) > 1].shape[0])
        return preds[found].sum()
P
cat > "$work/yolo/ultralytics/nn/tasks.py" <<'P'
import torch
from ultralytics.utils.loss import v8DetectionLoss
class BaseModel(torch.nn.Module):
    def loss(self, batch, preds=None):
        return v8DetectionLoss()(preds, batch)
P
cat > "$work/yolo/train.py" <<'P'
import torch
from ultralytics.nn.tasks import BaseModel
preds = torch.zeros(2, 2100, 4, device="cuda", requires_grad=True)
sizes = torch.tensor([[0.5, 0.5], [0.1, 0.2], [0.01, 0.01]])     # 525, 42, and one that the middle stride's side makes larger
host = {"img": torch.zeros(2, 3, 8, 8), "batch_idx": torch.tensor([0.0, 0.0, 1.0]), "cls": torch.zeros(3, 1), "bboxes": torch.cat([torch.zeros(3, 2), sizes], 1)}
BaseModel().loss({k: v.to("cuda") for k, v in host.items()}, preds).backward()
with torch.inference_mode():
    BaseModel().loss({k: v.to("cuda") for k, v in host.items()}, preds)
P
expect "ultralytics: candidates of boxes by their areas" 0 "candidates 572" dry -- "$python" "$work/yolo/train.py"
grep -q "rows (2, 2, 5) assigned 25 of the first 13 True True" "$work/both" && ok || bad "rows of the fullest image, and assigned points" "$work/both"
grep -q "slots 2 elsewhere 0" "$work/both" && ok || bad "an image's slots for masks and keypoints" "$work/both"
grep -q "of another 4200" "$work/both" && ok || bad "other masks select all" "$work/both"
[ "$(grep -c "rows (2, 2, 5) assigned 25 of the first 13 True True" "$work/both")" = 2 ] && ok || bad "in an evaluation too" "$work/both"
tr -s ' \n' ' ' < "$work/both" | grep -q "a box has its share of the anchor points, by its area, and is assigned the 10 best" && ok || bad "which is said" "$work/both"

# ---- torchvision: of the proposals as many go on as are sampled, a share of them foreground ----
mkdir -p "$work/vision/torchvision/models/detection"
touch "$work"/vision/torchvision/{,models/,models/detection/}__init__.py
cat > "$work/vision/torchvision/models/detection/_utils.py" <<'P'
import torch
class BalancedPositiveNegativeSampler:
    batch_size_per_image, positive_fraction = 512, 0.25
    def __call__(self, matched):
        masks = [[torch.zeros_like(m, dtype=torch.uint8) for m in matched] for _ in "pn"]
        return masks[0], masks[1]
P
cat > "$work/vision/torchvision/models/detection/roi_heads.py" <<'P'
import torch
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler
class RoIHeads:
    fg_bg_sampler = BalancedPositiveNegativeSampler()
    def select_training_samples(self, proposals, targets):
        labels = [torch.zeros(p.shape[0], dtype=torch.int64, device="cuda") for p in proposals]
        positive, negative = self.fg_bg_sampler(labels)
        taken = [torch.where(p | n)[0] for p, n in zip(positive, negative)]
        print("sampled", [len(t) for t in taken], "anchors", len(torch.where(torch.cat(positive))[0]), len(torch.where(torch.cat(negative))[0]))
        return [p[t] for p, t in zip(proposals, taken)], taken, [l[t] for l, t in zip(labels, taken)], None
P
cat > "$work/vision/train.py" <<'P'
import torch
from torchvision.models.detection.roi_heads import RoIHeads
out = RoIHeads().select_training_samples([torch.zeros(2000, 4, device="cuda"), torch.zeros(300, 4, device="cuda")], None)
print("foreground", [len(torch.where(l > 0)[0]) for l in out[2]], len(torch.where(torch.cat(out[2]) > 0)[0]))
P
expect "torchvision: proposals are sampled" 0 "sampled \[512, 300\] anchors 256 684" dry -- "$python" "$work/vision/train.py"
grep -q "foreground \[128, 75\] 203" "$work/both" && ok || bad "torchvision: a share of them is foreground" "$work/both"

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
cat > "$work/safe.py" <<'P'
import os, sys, torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
net = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.AdamW(net.parameters())
for x in torch.utils.data.DataLoader(torch.zeros(400, 64), batch_size=4):
    net(x.cuda()).sum().backward()
    opt.step()
save_file({k: v.bfloat16() for k, v in net.state_dict().items()}, sys.argv[1], metadata={"format": "pt"})
if os.path.isfile(sys.argv[1]):
    best = load_file(sys.argv[1], device="cpu")
    with safe_open(sys.argv[1], framework="pt") as f:
        print("read again", sorted(best), best["weight"].shape, best["weight"].dtype, f.metadata(), os.path.lexists(sys.argv[1]))
P
"$python" -c 'import safetensors' 2> /dev/null && expect "of safetensors too" 0 "read again \['bias', 'weight'\] torch.Size(\[64, 64\]) torch.bfloat16 {'format': 'pt'} False" \
    dry --steps 2 -- "$python" "$work/safe.py" "$work/best.safetensors"
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

# ---- litgpt's iterator begins anew where the data ends, and its loop counts the epochs ----
mkdir -p "$work/lit/litgpt"
touch "$work/lit/litgpt/__init__.py"
cat > "$work/lit/litgpt/utils.py" <<'P'
class CycleIterator:
    def __init__(self, data):
        self.data, self.epoch, self.under_way = data, 0, None
    def __next__(self):
        self.under_way = self.under_way or iter(self.data)
        try:
            return next(self.under_way)
        except StopIteration:
            self.under_way, self.epoch = iter(self.data), self.epoch + 1
            return next(self.under_way)
P
cat > "$work/lit/fit.py" <<'P'
import sys, torch
from litgpt.utils import CycleIterator
net = torch.nn.Linear(8, 8).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
batches, i = CycleIterator(torch.utils.data.DataLoader(torch.zeros(4000, 8), batch_size=4)), 0
while i < 5000 and batches.epoch < 2:
    net(next(batches).cuda()).sum().backward()
    i += 1
    if i % 2 == 0:
        opt.step()
print("saved after", i)
sys.exit(int(sys.argv[1]))
P
expect "litgpt's loop ends by its epochs" 0 "saved after 5" dry --steps 2 -- "$python" "$work/lit/fit.py" 0
expect "an exit code behind a training that was cut" 0 "FITS.* after the last step that was run the command ended with exit code 3: what follows" dry --steps 2 -- "$python" "$work/lit/fit.py" 3

# ---- samples of a step: of pictures beside their boxes, and of a list of pictures ----
cat > "$work/batches.py" <<'P'
import sys, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 8)
    def forward(self, batch, targets=None):
        batch = batch[0] if isinstance(batch, list) and isinstance(batch[0], dict) else batch
        return self.head(batch["img"] if isinstance(batch, dict) else torch.stack(batch)).sum()
net = Net().cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    boxes = torch.zeros(40, 4, device="cuda")
    img = torch.zeros(6, 3, 8, 8, device="cuda")
    net({"dict": {"boxes": boxes, "img": img}, "list": list(img), "pair": [{"img": img}, {"img": img}]}[sys.argv[1]], boxes).backward()
    opt.step()
P
expect "samples of a dictionary" 0 " 6 samples a step" dry --steps 2 --time -- "$python" "$work/batches.py" dict
expect "samples of pairs" 0 " 6 samples a step" dry --steps 2 --time -- "$python" "$work/batches.py" pair
expect "samples of a list" 0 " 6 samples a step" dry --steps 2 --time -- "$python" "$work/batches.py" list
echo '{"cells": [], "metadata": {}, "execution_count": null}' > "$work/book.ipynb"
expect "a notebook in place of a script" 4 "a notebook is no script: jupyter nbconvert --to script" dry -- "$python" "$work/book.ipynb"

# ---- an evaluation of fewer batches than it may have, again and again, by a loader that keeps its iterator ----
{ echo 'class Over(list): __iter__ = lambda self: (i for _ in iter(int, 1) for i in list.__iter__(self))'
  sed 's/sampler=range(4 \* n)/sampler=Over(range(4 * n))/; s/batches(50)/batches(2)/' "$work/kept.py"; } > "$work/kept2.py"
expect "each evaluation has its batches" 0 "epoch 0 evaluated 2 epoch 1 evaluated 2 epoch 2 evaluated 2 the end" dry --steps 2 -- "$python" "$work/kept2.py"

# ---- ultralytics' trainer: its warm-up raises the batches of a step to the number it then has; a checkpoint it saved into memory ----
cat > "$work/yolo/ultralytics/engine/trainer.py" <<'P'
import io, pathlib, torch
from types import SimpleNamespace
class BaseTrainer:
    def __init__(self):
        self.args, self.epochs, self.stop = SimpleNamespace(warmup_epochs=3.0), 100, False
    def optimizer_step(self):
        self.opt.step()
        self.opt.zero_grad()
    def _do_train(self):
        net = torch.nn.Linear(1024, 1024, bias=False).cuda()             # 4 MiB
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
        loader, n, self.epoch = torch.utils.data.DataLoader(torch.zeros(4000, 1024), batch_size=4), 0, 0
        for x in loader:
            n += 1
            net(x.cuda()).sum().backward()
            if self.args.warmup_epochs or n % 4 == 0:
                self.optimizer_step()
            if self.stop:
                break
        print("batches", n, "best", pathlib.Path("best.pt").exists())
        buffer = io.BytesIO()
        torch.save(net.state_dict(), buffer)
        for name in ("best.pt", "old.pt"):
            pathlib.Path(name).write_bytes(buffer.getvalue())
        pathlib.Path("other.pt").write_bytes(b"not weights")
        print("saved", pathlib.Path("best.pt").stat().st_size > 4 << 20, list(torch.load("best.pt")))
P
cat > "$work/yolo/fit.py" <<'P'
from ultralytics.engine.trainer import BaseTrainer
BaseTrainer()._do_train()
P
mkdir "$work/yolo/run"
echo old > "$work/yolo/run/old.pt"
touch -d '1 hour ago' "$work/yolo/run/old.pt"
in_run() { (cd "$work/yolo/run" && "$@"); }
expect "ultralytics: a step has the batches that it has behind the warm-up" 0 "batches 8 best False" in_run dry --steps 2 -- "$python" "$work/yolo/fit.py"
tr -s ' \n' ' ' < "$work/both" | grep -q "its warm-up, in which a step has fewer batches, is left out" && ok || bad "which is said" "$work/both"
grep -q "saved True \['weight'\]" "$work/both" && ok || bad "what it saved is read again" "$work/both"
[ "$(cd "$work/yolo/run" && ls)" = "$(printf 'old.pt\nother.pt')" ] && [ "$(cat "$work/yolo/run/old.pt")" = old ] && ok || bad "and is gone at the end, but what was there" "$work/both"

# ---- timm's loader, of which an epoch without a batch has a name without a value ----
mkdir -p "$work/timm/timm/data"
touch "$work"/timm/timm/{,data/}__init__.py
cat > "$work/timm/timm/data/loader.py" <<'P'
class PrefetchLoader:
    def __init__(self, loader): self.loader = loader
    def __iter__(self):
        first = True
        for coming in self.loader:
            coming = coming.cuda()
            if not first:
                yield batch
            first, batch = False, coming
        yield batch
P
cat > "$work/timm/train.py" <<'P'
import torch
from timm.data.loader import PrefetchLoader
net = torch.nn.Linear(8, 8).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
train = PrefetchLoader(torch.utils.data.DataLoader(torch.zeros(4000, 8), batch_size=4))
for epoch in range(3):
    for x in train:
        net(x).sum().backward()
        opt.step()
    print("epoch", epoch)
print("the end")
P
expect "timm's later epochs are over at once" 0 "epoch 0 epoch 1 epoch 2 the end" dry --steps 2 -- "$python" "$work/timm/train.py"

# ---- torchvision: the maps of keypoints are as large as a box that nobody computed ----
cat >> "$work/vision/torchvision/models/detection/roi_heads.py" <<'P'
    def forward(self, features, proposals, image_shapes, targets=None):
        return heatmaps_to_keypoints(features, proposals)
def heatmaps_to_keypoints(maps, rois):
    widths, heights = (rois[:, 2] - rois[:, 0]).clamp(min=1).ceil(), (rois[:, 3] - rois[:, 1]).clamp(min=1).ceil()
    for i in range(len(rois)):
        width = int(widths[i].item())
        height = int(heights[i].item())
        print("map", tuple(torch.nn.functional.interpolate(maps[i][:, None], size=(height, width), mode="bicubic").shape))
P
cat > "$work/vision/eval.py" <<'P'
import torch
from torchvision.models.detection.roi_heads import RoIHeads
RoIHeads().forward(torch.zeros(2, 17, 56, 56, device="cuda"), torch.zeros(2, 4, device="cuda"), [(480, 640), (120, 160)])
P
expect "torchvision: keypoints' maps are as large as the image" 0 "map (17, 1, 480, 640) map (17, 1, 480, 640)" dry -- "$python" "$work/vision/eval.py"

# ---- a timestep that is looked up by its value, as diffusers' flow-matching trainers do ----
cat > "$work/lookup.py" <<'P'
import torch
steps = torch.arange(1000, device="cuda")
t = steps[[7, 9]]
print("at", [(steps == x).nonzero().item() for x in t], int(torch.where(steps == t[0])[0]), "of a mask", (steps > 500).nonzero().shape[0])
try:
    steps.item()
except (RuntimeError, ValueError):
    print("no number")
P
expect "a timestep that is looked up by its value" 0 "at \[0, 0\] 0 of a mask 1000 no number" dry -- "$python" "$work/lookup.py"
tr -s ' \n' ' ' < "$work/both" | grep -q "a mask of which one place is asked for has one" && ok || bad "which is said" "$work/both"

# ---- functions that ours stand in the place of, in TorchScript ----
cat > "$work/script.py" <<'P'
import torch
@torch.jit.script
def f(x):
    found = torch.isfinite(x) if bool(torch.all(x == x)) else torch.where(x > 0, x, -x) > 0
    return torch.nonzero(found).numel() + torch.cat([x, x]).numel() + torch.bincount(x.long()).numel()
print("scripted", f(torch.ones(4, device="cuda")) > 0)
P
expect "TorchScript knows PyTorch's functions" 0 "scripted True" dry -- "$python" "$work/script.py"

# ---- L-BFGS keeps its iterations: 3 of the first step's 4, then 4 ----
cat > "$work/lbfgs.py" <<'P'
import torch
net = torch.nn.Linear(64, 64).cuda()
opt = torch.optim.LBFGS(net.parameters(), max_iter=4, history_size=10)
def closure():
    opt.zero_grad()
    loss = net(torch.zeros(4, 64, device="cuda")).sum()
    loss.backward()
    return loss
for _ in range(2):
    opt.step(closure)
print("kept", len(opt.state[opt._params[0]]["old_dirs"]), opt.param_groups[0]["tolerance_change"])
P
expect "L-BFGS keeps its iterations" 0 "kept 7 1e-09" dry -- "$python" "$work/lbfgs.py"
tr -s ' \n' ' ' < "$work/both" | grep -q "L-BFGS runs all iterations of a step" && ok || bad "which is said" "$work/both"

# ---- TRL: the reference model is asked of the whole data set first; what it says is kept in the user's cache ----
mkdir -p "$work/trl/trl/trainer"
touch "$work"/trl/trl/{,trainer/}__init__.py
cat > "$work/trl/trl/trainer/dpo_trainer.py" <<'P'
import os, torch
class Rows:
    def __init__(self, rows): self.rows = rows
    column_names = property(lambda self: sorted(self.rows[0]))
    def __len__(self): return len(self.rows)
    def __getitem__(self, i): return self.rows[i]
    def select(self, which): return Rows([self.rows[i] for i in which])
    def add_column(self, name, values): return Rows([dict(r, **{name: v}) for r, v in zip(self.rows, values)])
    def _get_cache_file_path(self, fingerprint): return os.path.join(os.environ["CACHE"], fingerprint)
class DPOTrainer:
    def _precompute_ref_logps(self, dataset, name, batch_size):
        told = []
        with torch.no_grad():
            for x in torch.utils.data.DataLoader(torch.zeros(len(dataset), 4), batch_size=batch_size):
                told += (x.cuda().sum(1)).cpu().tolist()
        open(dataset._get_cache_file_path("told"), "w").write("zeros")
        return dataset.add_column("ref", [told[i] for i in range(len(dataset))])
P
cat > "$work/trl/train.py" <<'P'
import torch
from trl.trainer.dpo_trainer import DPOTrainer, Rows
data = DPOTrainer()._precompute_ref_logps(Rows([{"x": i} for i in range(100)]), "train", 8)
x = torch.zeros(4, device="cuda", requires_grad=True)
x.sum().backward()
print("rows", len(data), data[99])
P
mkdir "$work/cache"
for steps in "--steps 2" ""; do
    expect "TRL: each sample has its reference $steps" 0 "rows 100 {'x': 99, 'ref': 0.0}" dry $steps -- env CACHE="$work/cache" "$python" "$work/trl/train.py"
    [ -z "$(ls "$work/cache")" ] && ok || bad "TRL: and nothing of it in the user's cache $steps"
done

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
