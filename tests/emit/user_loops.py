"""What a user would write around emitted files: user_loops.py WAY FOLDER CONFIG SETTINGS. `end_to_end.py` plays it.

WAY is the library that the files are for: torch (applies vplan_settings.py), accelerate, deepspeed (reads ds_config.json), lightning (reads
lightning.yaml). What a library's files have no key for, its README.md says is the user's own code; that is read from SETTINGS here.
"""
import json
import os
import sys

import torch
import transformers


def make_model(config, s):
    fields = {k: v for k, v in json.load(open(config)).items() if k != "architectures"}
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    config.use_cache = False
    config._attn_implementation = "eager" if s["attention"] == "eager" else "sdpa"
    dtype = {"bf16": torch.bfloat16, "bf16-amp": torch.bfloat16, "fp16": torch.float16}.get(s["precision"], torch.float32)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    if s["tuning"] == "lora":
        import peft
        targets = s["lora_targets"] if s["lora_targets"] == "all-linear" else s["lora_targets"].split("+")
        model = peft.get_peft_model(model, peft.LoraConfig(r=s["lora_r"], lora_alpha=s["lora_alpha"], lora_dropout=s["lora_dropout"], target_modules=targets, task_type="CAUSAL_LM"))
    if s["recompute"] != "none":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if s["recompute"].startswith("first:"):
        from transformers.modeling_layers import GradientCheckpointingLayer
        layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
        for layer in layers[int(s["recompute"][len("first:"):]):]:
            layer.gradient_checkpointing = False
    elif s["recompute"] not in ("none", "full"):
        sys.exit("recompute %s: not in this loop" % s["recompute"])
    return model.train()


def make_optimizer(parameters, name):
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=1e-4)
    return torch.optim.AdamW(parameters, lr=1e-4, **({"fused": True} if name == "adamw_torch_fused" else {"foreach": name == "adamw_torch"}))


class Tokens(torch.utils.data.Dataset):
    def __init__(self, seq):
        self.seq = seq

    def __len__(self):
        return 1 << 16

    def __getitem__(self, i):
        return torch.zeros(self.seq, dtype=torch.int64)


def torch_loop(folder, config, s):
    sys.path.insert(0, folder)
    import vplan_settings
    with torch.device("cuda"):
        model = make_model(config, dict(s, recompute="none"))
    optimizer = make_optimizer(model.parameters(), s["optimizer"])
    vplan_settings.apply(model, optimizer)
    tokens = torch.zeros(s["micro_batch"], s["seq"], dtype=torch.int64, device="cuda")
    for _ in range(3):
        for _ in range(s["accumulation"]):
            with vplan_settings.autocast():
                loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            loss = None
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def accelerate_loop(folder, config, s):
    from accelerate import Accelerator
    accelerator = Accelerator(gradient_accumulation_steps=s["accumulation"])
    model = make_model(config, s)
    loader = torch.utils.data.DataLoader(Tokens(s["seq"]), batch_size=s["micro_batch"])
    model, optimizer, loader = accelerator.prepare(model, make_optimizer(model.parameters(), s["optimizer"]), loader)
    for tokens in loader:
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            loss = None
            if accelerator.sync_gradients and s["clip_norm"]:
                accelerator.clip_grad_norm_(model.parameters(), s["clip_norm"])
            optimizer.step()
            optimizer.zero_grad()


def deepspeed_loop(folder, config, s):
    import deepspeed
    deepspeed.init_distributed()
    model = make_model(config, s)
    ds = os.path.join(folder, "ds_config.json")
    engine, _, loader, _ = deepspeed.initialize(model=model, optimizer=make_optimizer(model.parameters(), s["optimizer"]), training_data=Tokens(s["seq"]), config=ds)
    for tokens in loader:
        tokens = tokens.to(engine.device)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        loss = None
        engine.step()


def lightning_loop(folder, config, s):
    import lightning
    from lightning.pytorch.cli import LightningCLI

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = make_model(config, s)

        def training_step(self, tokens, index):
            return self.model(input_ids=tokens, labels=tokens).loss

        def configure_optimizers(self):
            return make_optimizer(self.parameters(), s["optimizer"])

        def train_dataloader(self):
            return torch.utils.data.DataLoader(Tokens(s["seq"]), batch_size=s["micro_batch"])

    LightningCLI(Module, save_config_callback=None, args=["fit", "--config", os.path.join(folder, "lightning.yaml"), "--trainer.logger", "false",
                                                         "--trainer.enable_checkpointing", "false", "--trainer.max_steps", "3"])


if __name__ == "__main__":
    way, folder, config, settings = [w for w in sys.argv[1:] if not w.startswith("--local")]
    s = json.load(open(settings))["common"]
    globals()[way + "_loop"](folder, config, s)
