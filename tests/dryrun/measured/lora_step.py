# tests/dryrun/measured/lora_step.py: one LoRA or QLoRA training step on random tokens, peaks by phase in MiB.
#   vplan dryrun --device t4 -- python lora_step.py MODEL_DIR --quant none|nf4 --attn eager|sdpa -r 32 -b 2 -s 1024
# An equivalent of the loop that the rows of lora_t4.csv and verdicts_t4.csv were measured with: load in fp16, LoRA on the
# attention's projections (fp32 adapters), non-reentrant checkpointing, AdamW; one step to warm up, one measured as a
# whole, one by phase. Prints one JSON line.
import argparse
import contextlib
import json

import torch

MIB = 2.0 ** 20
p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("--quant", default="nf4")
p.add_argument("--attn", default="eager")
p.add_argument("-r", type=int, default=16)
p.add_argument("-b", type=int, default=1)
p.add_argument("-s", type=int, default=1024)
a = p.parse_args()
cuda = torch.cuda


def peak():
    cuda.synchronize()
    return cuda.max_memory_allocated() / MIB


def outside():
    free, total = cuda.mem_get_info()
    return (total - free - cuda.memory_reserved()) / MIB


torch.manual_seed(0)
cuda.init()
cuda.empty_cache()
cuda.reset_peak_memory_stats()
context_init = outside()
attention = contextlib.nullcontext
if a.attn == "sdpa":         # keys and values repeated first, then the memory-efficient kernel: a T4 has no flash attention
    plain = torch.nn.functional.scaled_dot_product_attention

    def repeated(q, k, v, *rest, **kw):
        n = q.size(-3) // k.size(-3)
        if n > 1:
            k = k.repeat_interleave(n, dim=-3)
            v = v.repeat_interleave(n, dim=-3)
            kw.pop("enable_gqa", None)
        return plain(q, k, v, *rest, **kw)

    torch.nn.functional.scaled_dot_product_attention = repeated
    from torch.nn.attention import SDPBackend, sdpa_kernel
    attention = lambda: sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

how = dict(dtype=torch.float16, attn_implementation=a.attn)
if a.quant == "nf4":
    how["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float16,
                                                    bnb_4bit_use_double_quant=False)
    how["device_map"] = {"": 0}
model = AutoModelForCausalLM.from_pretrained(a.model, **how)
if a.quant == "none":
    model = model.cuda()
model.config.use_cache = False
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

if a.quant != "none":
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)
model = get_peft_model(model, LoraConfig(r=a.r, lora_alpha=2 * a.r, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                                         target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()
model.train()
cuda.synchronize()
load = cuda.memory_allocated() / MIB
trained = [q for q in model.parameters() if q.requires_grad]
for q in trained:
    if q.dtype != torch.float32:
        q.data = q.data.float()
optimizer = torch.optim.AdamW(trained, lr=1e-4)
ids = torch.randint(0, model.config.vocab_size, (a.b, a.s), device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    out = model(input_ids=ids, labels=ids)        # the logits stay alive through the update, as they did there
    out.loss.backward()
    optimizer.step()


with attention():
    step()
    cuda.synchronize()
    cuda.reset_peak_memory_stats()
    step()
    alloc, reserved = peak(), cuda.max_memory_reserved() / MIB
    optimizer.zero_grad(set_to_none=True)
    cuda.reset_peak_memory_stats()
    out = model(input_ids=ids, labels=ids)
    fwd = peak()
    cuda.reset_peak_memory_stats()
    out.loss.backward()
    bwd = peak()
    cuda.reset_peak_memory_stats()
    optimizer.step()
    opt = peak()
print(json.dumps(dict(load=load, fwd=fwd, bwd=bwd, opt=opt, alloc=alloc, reserved=reserved, context_init=context_init, context=outside())))
