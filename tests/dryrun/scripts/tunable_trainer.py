# Training by somebody's trainer with the arguments people tune, on a small model: argument 1 says whose.
#     sft, dpo: TRL; trainer, lora, bert (another model): transformers. Then any of their arguments as --name value, or one YAML or JSON file of them.
#     accelerate, lightning, fsdp2, zero2, zero3: --batch N --accum N --ckpt 0|1 --optim foreach|fused
import argparse
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import torch
from common import Tokens, llama, sentence, tokenizer

kind = sys.argv[1]
SEQ, SAMPLES = 128, 4096


def model():
    if kind == "bert":
        from transformers import BertConfig, BertForMaskedLM
        return BertForMaskedLM(BertConfig(vocab_size=2048, hidden_size=256, intermediate_size=1024, num_hidden_layers=3, num_attention_heads=4))
    return llama(num_hidden_layers=3)


def parsed(config):
    """The config from a file of it, or from the command line."""
    from transformers import HfArgumentParser
    words, parser = sys.argv[2:], HfArgumentParser(config)
    if len(words) == 1 and words[0].endswith((".yaml", ".yml")):
        return parser.parse_yaml_file(words[0])[0]
    if len(words) == 1 and words[0].endswith(".json"):
        return parser.parse_json_file(words[0])[0]
    return parser.parse_args_into_dataclasses(["--output_dir", "out", "--report_to", "none", "--disable_tqdm", "true"] + words)[0]


def by_transformers():
    from transformers import Trainer, TrainingArguments
    args, net = parsed(TrainingArguments), model()
    if kind == "lora":
        from peft import LoraConfig, get_peft_model
        net = get_peft_model(net, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
        net.enable_input_require_grads()
    Trainer(model=net, args=args, train_dataset=Tokens(SAMPLES, SEQ)).train()


def by_trl():
    from datasets import Dataset
    import trl
    name = kind.upper()
    more = {"ref_model": model()} if kind == "dpo" else {}
    rows = [{"prompt": sentence(i, 20), "chosen": sentence(i + 1, 70), "rejected": sentence(i + 2, 70)} if kind == "dpo"
            else {"text": sentence(i, SEQ)} for i in range(600)]
    getattr(trl, name + "Trainer")(model=model(), args=parsed(getattr(trl, name + "Config")), processing_class=tokenizer(),
                                   train_dataset=Dataset.from_list(rows), **more).train()


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--accum", type=int, default=1)
    p.add_argument("--ckpt", type=int, default=0)
    p.add_argument("--optim", default="foreach")
    return p.parse_args(sys.argv[2:])


def parts(o):
    net = model()
    if o.ckpt:
        net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    loader = torch.utils.data.DataLoader(Tokens(SAMPLES, SEQ), batch_size=o.batch)
    return net, lambda: torch.optim.AdamW(net.parameters(), lr=1e-4, fused=o.optim == "fused", foreach=o.optim == "foreach"), loader


def by_accelerate(o):
    from accelerate import Accelerator
    acc = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=o.accum)
    net, optimizer, loader = parts(o)
    net, opt, loader = acc.prepare(net, optimizer(), loader)
    net.train()
    for batch in loader:
        with acc.accumulate(net):
            acc.backward(net(**batch).loss)
            acc.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            opt.zero_grad()


def by_lightning(o):
    import lightning
    net, optimizer, loader = parts(o)
    net.train()

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, batch, i):
            return self.net(**batch).loss

        def configure_optimizers(self):
            return optimizer()
    lightning.Trainer(max_epochs=1, precision="bf16-mixed", accelerator="gpu", devices=1, logger=False, default_root_dir="out",
                      accumulate_grad_batches=o.accum, enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False).fit(Module(), loader)


def by_fsdp2(o):
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    net, optimizer, loader = parts(o)
    net.train()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in net.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(net, mp_policy=policy)
    opt = optimizer()
    for i, batch in enumerate(loader):
        net(**{k: v.cuda() for k, v in batch.items()}).loss.backward()
        if (i + 1) % o.accum == 0:
            opt.step()
            opt.zero_grad()


def by_deepspeed(o):
    import deepspeed
    deepspeed.init_distributed("nccl")
    net, optimizer, loader = parts(o)
    net.train()
    config = {"train_micro_batch_size_per_gpu": o.batch, "gradient_accumulation_steps": o.accum, "bf16": {"enabled": True},
              "zero_optimization": {"stage": int(kind[4:]), "reduce_bucket_size": 5000000}, "zero_allow_untested_optimizer": True}
    engine, _, _, _ = deepspeed.initialize(model=net, optimizer=optimizer(), config=config)
    for batch in loader:
        engine.backward(engine(**{k: v.to(engine.device) for k, v in batch.items()}).loss)
        engine.step()


if kind in ("trainer", "lora", "bert"):
    by_transformers()
elif kind in ("sft", "dpo"):
    by_trl()
else:
    {"accelerate": by_accelerate, "lightning": by_lightning, "fsdp2": by_fsdp2,
     "zero2": by_deepspeed, "zero3": by_deepspeed}[kind](arguments())
