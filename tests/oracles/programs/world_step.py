"""One rank's training steps under DDP, FSDP or ZeRO, for tests/oracles/programs/worlds.py: runs inside `vplan dryrun --world`.

    world_step.py '{"config": {...}, "parallel": "fsdp2", ...}' OUT.json

Two steps, or as many as "steps" says, each with backward after forward and an optimizer step, and the peaks of each phase as the allocator counts them,
the largest over micro-steps. DDP is
PyTorch's around a plain loop, or transformers' Trainer's; FSDP is what Accelerate's prepare() makes of a model and an optimizer; ZeRO is deepspeed.initialize()
with the settings that `vplan emit --for deepspeed` writes.
"""
import contextlib
import gc
import json
import os
import sys
import time

import play
import rows


def is_cut(s):
    """Its weights are, those that are quantised too, which are told as bf16 then; nothing is made fp32 for them."""
    return s["parallel"] in ("fsdp", "fsdp2", "zero3")


def model_of(s, device):
    import torch
    config = s["config"]
    fields = {k: x for k, x in config.items() if k not in ("model_type", "architectures")}
    v = dict(task="clm", precision=s["precision"], attention=s["attention"], lora=s.get("lora", "none"), r=s.get("r", 0), lora_dropout=s.get("lora_dropout", 0), recompute=s["recompute"],
             quantised=s.get("load", "none"), upcast=int(s.get("load", "none") != "none" and not is_cut(s)), storage=torch.bfloat16 if is_cut(s) else None,
             mask=0, keep_output=0)
    if device == "cuda":
        return play.make_model(v, (config["model_type"], fields))
    place, to = play.place, torch.nn.Module.to
    play.place = lambda m, memo, seen=None: None
    torch.nn.Module.to = lambda m, *args, **kwargs: m         # what has no values yet stays so
    m = play.make_model(v, (config["model_type"], fields))
    play.place, torch.nn.Module.to = place, to
    m.to_empty(device=device)
    (m if s.get("lora", "none") == "none" else m.get_base_model()).tie_weights()
    return m


def with_liger(s, m):
    """Liger's kernels in it where they are asked for, as Trainer's train() begins."""
    if s.get("liger", "none") != "none":
        import loops
        import transformers.integrations.liger
        loops.use_liger(None)
        transformers.integrations.liger.apply_liger_kernel(m, loops.LIGER[s["liger"]])
    return m


def autocast(s):
    import torch
    return torch.autocast("cuda", dtype=torch.bfloat16) if s["precision"] in ("bf16-mixed", "bf16-amp") else contextlib.nullcontext()


def optimizer_of(s, m):
    """That of bitsandbytes as Trainer makes it: states of embeddings stay in 32 bits."""
    import torch
    params = [p for p in m.parameters() if p.requires_grad]
    if s["optimizer"] != "adamw_8bit":
        return rows.optimizer(s["optimizer"], params, m)
    import bitsandbytes
    for child in m.modules():
        if isinstance(child, torch.nn.Embedding):
            bitsandbytes.optim.GlobalOptimManager.get_instance().register_module_override(child, "weight", {"optim_bits": 32})
    return bitsandbytes.optim.AdamW8bit(params)


class Distributed:
    """PyTorch's DistributedDataParallel."""

    def __init__(self, s):
        import torch
        m = model_of(s, "cuda")
        gc.collect()
        self.wrapped = torch.nn.parallel.DistributedDataParallel(m, device_ids=[0])
        self.optimizer = optimizer_of(s, m)
        self.s = s

    def forward(self, inputs):
        with autocast(self.s):
            return self.wrapped(**inputs).loss

    def backward(self, loss):
        loss.backward()

    def run(self, inputs, forward_ends):
        loss = self.forward(inputs)
        forward_ends()
        self.backward(loss)

    def without_reduction(self):
        """Around a micro-step that is not the last one."""
        return self.wrapped.no_sync()

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def micro_step(self):
        pass


class Trained(Distributed):
    """transformers' Trainer under DDP: how it calls it, and its clipping."""

    def __init__(self, s):
        import loops
        m = model_of(s, "cuda")
        v = dict(precision=s["precision"], mask=0, task="clm", liger=s.get("liger", "none") != "none" and s["liger"])
        self.loop = loops.Trainer(v, m, s["micro_batch"], optim=s["optimizer"])
        gc.collect()
        self.wrapped, self.trainer = self.loop.m, self.loop.trainer
        self.optimizer = self.trainer.create_optimizer()

    def run(self, inputs, forward_ends):
        self.loop.step(inputs, lambda phase: forward_ends() if phase == "backward" else None)

    def step(self):
        self.trainer.accelerator.clip_grad_norm_(self.wrapped.parameters(), 1.0)
        Distributed.step(self)


class Accelerated(Distributed):
    """Accelerate's prepare() with its plugin for FSDP, every layer wrapped."""

    def __init__(self, s):
        import accelerate
        import torch
        version = 1 if s["parallel"] == "fsdp" else 2
        of_fsdp1 = {"sharding_strategy": "FULL_SHARD", "use_orig_params": True, "backward_prefetch": "BACKWARD_PRE", "sync_module_states": True}      # as `vplan emit` writes them
        more = of_fsdp1 if version == 1 else {"reshard_after_forward": True}
        plugin = accelerate.FullyShardedDataParallelPlugin(fsdp_version=version, auto_wrap_policy="transformer_based_wrap",
                                                           cpu_ram_efficient_loading=False, cpu_offload=s["offload"] == "params", **more)
        accelerator = accelerate.Accelerator(mixed_precision="bf16" if s["precision"] in ("bf16-mixed", "bf16-amp") else "no", fsdp_plugin=plugin)
        m = with_liger(s, model_of(s, "cpu" if s.get("load", "none") == "none" else "cuda"))         # quantised on the card, as from_pretrained() does
        if version == 1 and s.get("lora", "none") != "none":         # Trainer's: adapters are wrapped by themselves
            from transformers.distributed.fsdp import update_fsdp_plugin_peft
            update_fsdp_plugin_peft(m, accelerator)
            self.wrapped = accelerator.prepare(m)
            self.optimizer = accelerator.prepare(optimizer_of(s, self.wrapped))
        else:
            self.wrapped, self.optimizer = accelerator.prepare(m, optimizer_of(s, m))
        self.accelerator = accelerator

    def forward(self, inputs):
        return self.wrapped(**inputs).loss

    def backward(self, loss):
        self.accelerator.backward(loss)

    def without_reduction(self):
        return self.accelerator.no_sync(self.wrapped)


class Zero(Distributed):
    """DeepSpeed's engine, with the sizes that `vplan emit` writes: its defaults."""

    def __init__(self, s):
        import deepspeed
        stage = int(s["parallel"][-1])
        zero = {"stage": stage, "overlap_comm": stage == 3, "contiguous_gradients": True, "reduce_scatter": True, "allgather_partitions": True,
                "allgather_bucket_size": 500000000, "reduce_bucket_size": 500000000}
        if stage == 3:
            zero.update(stage3_prefetch_bucket_size=50000000, stage3_param_persistence_threshold=100000,
                        stage3_max_live_parameters=1000000000, stage3_max_reuse_distance=1000000000)
        if s["offload"] in ("optimizer", "params"):
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if s["offload"] == "params":
            zero["offload_param"] = {"device": "cpu", "pin_memory": True}
        settings = {"train_micro_batch_size_per_gpu": s["micro_batch"], "gradient_accumulation_steps": s.get("accumulation", 1), "zero_optimization": zero, "zero_allow_untested_optimizer": True,
                    "bf16": {"enabled": s["precision"] != "fp32"}, "gradient_clipping": s.get("clip", 0.0), "zero_force_ds_cpu_optimizer": False}
        m = with_liger(s, model_of(s, "cpu" if s.get("load", "none") == "none" else "cuda"))
        optimizer = optimizer_of(s, m)
        self.wrapped, self.optimizer, _, _ = deepspeed.initialize(model=m, optimizer=optimizer, config=settings, dist_init_required=False)

    def forward(self, inputs):
        return self.wrapped(**inputs).loss

    def backward(self, loss):
        self.wrapped.backward(loss)

    def without_reduction(self):
        return contextlib.nullcontext()

    def micro_step(self):
        self.wrapped.step()

    def step(self):
        self.wrapped.step()


def main():
    s = json.loads(sys.argv[1])
    import torch
    import torch.distributed as dist
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    play.quiet()
    torch.backends.cudnn.enabled = False
    play.choose_attention(s["attention"])
    peaks = {}
    if s.get("trace"):
        torch.cuda.memory._record_memory_history(enabled="all", stacks="python", max_entries=1000000)

    def end(phase):
        m = torch.cuda.memory_stats()
        peaks[phase] = max(peaks.get(phase, 0), m["allocated_bytes.all.peak"])
        peaks["reserved"] = max(peaks.get("reserved", 0), m["reserved_bytes.all.peak"])
        torch.cuda.reset_peak_memory_stats()
    loop = {"ddp": Trained if s.get("trainer") == "hf" else Distributed, "fsdp": Accelerated, "fsdp2": Accelerated}.get(s["parallel"], Zero)(s)
    gc.collect()
    end("load")
    inputs = play.batch(dict(task="clm", mask=0, lora=s.get("lora", "none")), dict(B=s["micro_batch"], S=s["seq"]))
    n = s.get("accumulation", 1)
    for step in range(1, s.get("steps", 2) + 1):
        for micro in range(1, n + 1):
            with loop.without_reduction() if micro < n and not s.get("sync_each_batch") else contextlib.nullcontext():
                loop.run(inputs, lambda: end("forward%d" % step))
                end("backward%d" % step)
            if micro < n:
                loop.micro_step()
        loop.step()
        gc.collect()
        time.sleep(2)       # a thread of NCCL's process group lets reduced buckets go when it looks at them next
        end("step%d" % step)
    if s.get("trace"):
        import pickle
        pickle.dump(torch.cuda.memory._snapshot()["device_traces"][0], open(s["trace"], "wb"))
    json.dump(peaks, open(sys.argv[2], "w"))
    os._exit(0)


main()
