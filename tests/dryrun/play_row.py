# tests/dryrun/play_row.py: play rows of a table of known peaks and compare every byte.
#   vplan dryrun --device h100-sxm-80gb -- python tests/dryrun/play_row.py --configs FOLDER --rows FILE [RUN_ID...]
# Each row is one training run (two steps: forward, backward, optimizer step, zero_grad) played in a process
# of its own, forked before CUDA is touched. The columns alloc_*, requested_* and reserved_peak are compared
# with PyTorch's own counters, read the way any script reads them. CUBLAS_WORKSPACE_CONFIG=:0:0 is set, as
# the table leaves cuBLAS's workspace out; cuDNN is off, as the table says.
import argparse
import csv
import gc
import json
import os
import sys
import warnings

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":0:0"
warnings.filterwarnings("ignore")

PHASES = ("load", "forward1", "backward1", "step1", "forward2", "backward2", "step2")
HEADS = {"clm": "AutoModelForCausalLM", "mlm": "AutoModelForMaskedLM", "seq2seq": "AutoModelForSeq2SeqLM",
         "imgcls": "AutoModelForImageClassification", "seqcls": "AutoModelForSequenceClassification"}


def config_of(path):
    import transformers
    with open(path) as f:
        fields = json.load(f)
    kind = fields.pop("model_type")
    for name in ("torch_dtype", "dtype", "transformers_version", "_name_or_path", "quantization_config",
                 "architectures", "auto_map"):
        fields.pop(name, None)
    return transformers.AutoConfig.for_model(kind, **fields)


def on_device(model):
    """Give every meta tensor device memory: children first, parameters before buffers, shared ones once."""
    import torch
    done = {}

    def moved(t, wrap):
        if id(t) not in done:
            done[id(t)] = (t, wrap(torch.empty_like(t, device="cuda")))
        return done[id(t)][1]

    def visit(module):
        for child in module.children():
            visit(child)
        for name, p in module._parameters.items():
            if p is not None:
                module._parameters[name] = moved(
                    p, lambda t, p=p: torch.nn.Parameter(t, requires_grad=p.requires_grad))
        for name, b in module._buffers.items():
            if b is not None:
                module._buffers[name] = moved(b, lambda t: t)
        for name, v in list(vars(module).items()):
            if isinstance(v, torch.Tensor) and v.is_meta:
                setattr(module, name, moved(v, lambda t: t))
    visit(model)


def model_of(row, config):
    import torch
    import transformers
    dtype = torch.float32 if row["precision"] in ("fp32", "amp") else torch.bfloat16
    if hasattr(config, "use_cache"):
        config.use_cache = False
    with torch.device("meta"):
        model = getattr(transformers, HEADS[row["task"]]).from_config(
            config, attn_implementation=row["attn"], dtype=dtype)
    on_device(model)
    checkpointing = row["gradient_checkpointing"] == "1"
    if row["lora"] != "none":
        import peft
        narrow = row["lora"] == "qv8"
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=8 if narrow else 16, lora_alpha=16, lora_dropout=float(row["lora_dropout"] or 0),
            target_modules=["q_proj", "v_proj"] if narrow else "all-linear", task_type="CAUSAL_LM"))
        model.to("cuda")
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if row["lora"] != "none":
            model.enable_input_require_grads()
    return model.train()


def batch_of(row, config):
    import torch
    n, seq = int(row["batch"]), int(row["seq"])
    dtype = torch.bfloat16 if row["precision"] == "bf16" else torch.float32
    if row["task"] == "imgcls":
        side = config.image_size
        return {"pixel_values": torch.zeros(n, 3, side, side, device="cuda", dtype=dtype),
                "labels": torch.zeros(n, device="cuda", dtype=torch.int64)}
    batch = {"input_ids": torch.zeros(n, seq, device="cuda", dtype=torch.int64)}
    if row["mask"] == "padded":
        batch["attention_mask"] = torch.zeros(n, seq, device="cuda", dtype=torch.int64)
    if row["task"] == "seqcls":
        shape = (n,)
    elif row["task"] == "seq2seq":
        shape = (n, int(row["dec_seq"] or seq))
    else:
        shape = (n, seq)
    batch["labels"] = torch.zeros(*shape, device="cuda", dtype=torch.int64)
    return batch


def optimizer_of(name, params):
    import torch
    adamw = {"adamw_foreach": {"foreach": True}, "adamw_fused": {"fused": True}, "adamw_forloop": {"foreach": False}}
    if name in adamw:
        return torch.optim.AdamW(params, lr=1e-4, weight_decay=0.01, **adamw[name])
    return torch.optim.SGD(params, lr=1e-4, momentum=0.9 if name == "sgdm" else 0.0)


def play(row, folder):
    import contextlib
    import torch
    torch.set_num_threads(1)
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    kernels = row["sdpa"]
    torch.backends.cuda.enable_flash_sdp(kernels == "flash")
    torch.backends.cuda.enable_mem_efficient_sdp(kernels in ("flash", "efficient"))
    config = config_of(os.path.join(folder, row["config"]))
    got = {}

    def begin():
        torch.cuda.reset_peak_memory_stats()

    def end(phase):
        stats = torch.cuda.memory_stats()
        got["alloc_" + phase] = stats["allocated_bytes.all.peak"]
        got["requested_" + phase] = stats["requested_bytes.all.peak"]
        got["reserved_peak"] = max(got.get("reserved_peak", 0), stats["reserved_bytes.all.peak"])
        if phase == "load":
            got["alloc_load"] = stats["allocated_bytes.all.current"]

    torch.cuda.init()
    begin()
    model = model_of(row, config)
    gc.collect()
    end("load")
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizer_of(row["optimizer"], params)
    batch = batch_of(row, config)
    amp = row["precision"] in ("amp", "bf16amp")
    for step in ("1", "2"):
        begin()
        with torch.autocast("cuda", dtype=torch.bfloat16) if amp else contextlib.nullcontext():
            out = model(**batch)
        loss = out.loss
        if row["output_kept"] != "1":
            out = None
        end("forward" + step)
        begin()
        loss.backward()
        loss = out = None
        end("backward" + step)
        begin()
        optimizer.step()
        end("step" + step)
        optimizer.zero_grad(set_to_none=True)
    got["alloc_peak"] = max(got["alloc_" + p] for p in PHASES[1:])
    got["requested_peak"] = max(got["requested_" + p] for p in PHASES[1:])
    return got


def in_child(row, folder):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            text = json.dumps(play(row, folder))
        except BaseException as e:
            text = json.dumps({"failed": "%s: %s" % (type(e).__name__, str(e)[:300])})
        with os.fdopen(w, "w") as f:
            f.write(text)
        os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"failed": "the child died"}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--configs", required=True)
    p.add_argument("--rows", required=True)
    p.add_argument("ids", nargs="*")
    a = p.parse_args()
    import torch
    torch._C._cuda_getDeviceCount = lambda: 1     # the real one forbids a later fork
    sys.modules["bitsandbytes"] = None            # importing it initialises CUDA, and no row uses it
    import transformers
    import transformers.masking_utils  # noqa: F401
    try:
        import peft
    except ImportError:
        peft = None
    transformers.logging.set_verbosity_error()
    here = {"torch": torch.__version__, "transformers": transformers.__version__,
            "peft": peft.__version__ if peft else None}
    equal = different = skipped = 0
    with open(a.rows) as f:
        rows = [r for r in csv.DictReader(f) if not a.ids or r["run_id"] in a.ids]
    for row in rows:
        wanted = [n for n in ("torch", "transformers", "peft") if row.get(n) and
                  (n != "peft" or row["lora"] != "none")]
        other = [n for n in wanted if row[n] != here[n]]
        if other:
            print("%s skipped: made with %s" % (row["run_id"], ", ".join("%s %s" % (n, row[n]) for n in other)))
            skipped += 1
            continue
        got = in_child(row, a.configs)
        if "failed" in got:
            print("%s failed: %s" % (row["run_id"], got["failed"]))
            different += 1
            continue
        wrong = ["%s %s, expected %s" % (name, value, row[name]) for name, value in sorted(got.items())
                 if row.get(name) not in (None, "") and int(row[name]) != value]
        if wrong:
            different += 1
            print("%s %s differs: %s" % (row["run_id"], row["model"], "; ".join(wrong)))
        else:
            equal += 1
        sys.stdout.flush()
    print("%d rows equal to the byte, %d different, %d skipped" % (equal, different, skipped))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
