# A training for `vplan tune --on-card`: in a dry run it is training.py (no_torch.py), on the card it takes time, with fake_torch in torch's
# place. What a batch takes there is not what the dry run says of it: of 4 samples the step is the shortest.
#     python3 on_card.py --batch N --accum N; $CARD says what else happens on the card: oom, oom-8 (of 8 samples alone), crash, hang, nothing, after (it fails once its data is over)
import importlib
import os
import runpy
import sys
import time

if not os.environ.get("VPLAN_CARD_REPORT"):
    runpy.run_path("training.py", run_name="__main__")
    sys.exit()
STEP_S = {1: 0.15, 2: 0.1, 4: 0.02, 8: 0.2}
batch, how = int(sys.argv[sys.argv.index("--batch") + 1]), os.environ.get("CARD", "")
sys.path.insert(0, os.path.abspath("fake_torch"))
torch = importlib.import_module("torch")
torch.held = 1000 * batch
optimizer = torch.Optimizer(STEP_S[batch])
if how in ("oom", "oom-%d" % batch):
    optimizer.step()
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
if how == "crash":
    sys.exit("the card is on fire")
if how == "hang":
    time.sleep(1000)
if how == "after":
    loader = importlib.import_module("torch.utils.data.dataloader").DataLoader(range(100))
    for _ in loader:
        optimizer.step()
    raise ValueError("no validation came")
for k in range(0 if how == "nothing" else 100):
    optimizer.step()
    torch.save(k, "model.pt")
    with open("steps.txt", "a") as f:
        f.write("%d\n" % k)
    if os.environ.get("STEPS_LOG"):
        with open(os.environ["STEPS_LOG"], "a") as f:
            f.write("%d %d %s\n" % (batch, k, os.path.exists("model.pt")))
