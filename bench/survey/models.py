"""Real transformers and peft models on the card (or, for rehearsals, on the CPU or the meta device).

A model is built from a config in data/configs with random weights, never downloaded. Parameters are made on the
meta device and then placed one by one, so that the device sees one allocation per tensor and nothing else, in the
order in which Module.to() would make them (children before their module's own tensors, parameters before buffers).
"""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGS = os.path.join(HERE, "data", "configs")
TASKS = {"bert": "mlm", "roberta": "mlm", "distilbert": "mlm", "t5": "seq2seq", "vit": "imgcls"}
STAND_IN = os.environ.get("SURVEY_STAND_IN") == "1"

# Sizes a rehearsal on the CPU uses instead of the real ones; only keys the config has are replaced.
TINY = {"n_layer": 2, "n_embd": 64, "n_head": 4, "num_layers": 2, "num_hidden_layers": 2, "num_decoder_layers": 2,
        "hidden_size": 64, "intermediate_size": 128, "d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4, "n_layers": 2,
        "dim": 64, "hidden_dim": 128, "n_heads": 4, "ffn_dim": 128, "word_embed_proj_dim": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "moe_intermediate_size": 32, "num_local_experts": 4, "num_experts": 4,
        "num_experts_per_tok": 2, "vocab_size": 128, "num_labels": 8, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "attention_types": [[["global", "local"], 1]], "layer_types": None, "pooler_output_size": 64,
        "max_window_layers": 2}


def load_config(name, overrides=None, tiny=False):
    """(config object, task) of data/configs/NAME; tiny shrinks it to what a CPU builds at once."""
    import transformers
    with open(os.path.join(CONFIGS, name)) as f:
        d = json.load(f)
    d.update(overrides or {})
    kind = d.pop("model_type")
    d.pop("architectures", None)
    d.pop("torch_dtype", None)
    if tiny:
        d.update({k: v for k, v in TINY.items() if k in d})
    return transformers.AutoConfig.for_model(kind, **d), TASKS.get(kind, "clm")


def place(model, device):
    """Move every tensor to the device: parameters empty, then filled in place; buffers copied; ties kept.

    In place, because any temporary would show in the allocator's numbers."""
    import torch
    moved = {}

    def to_device(t, parameter):
        if id(t) not in moved:
            new = torch.empty_like(t, device=device)
            if parameter:
                new = torch.nn.Parameter(new, requires_grad=t.requires_grad)
            moved[id(t)] = (t, new, parameter)
        return moved[id(t)][1]

    def walk(module):
        for child in module.children():
            walk(child)
        for k, p in module._parameters.items():
            if p is not None:
                module._parameters[k] = to_device(p, True)
        for k, b in module._buffers.items():
            if b is not None:
                module._buffers[k] = to_device(b, False)
        for k, v in list(vars(module).items()):         # plain attributes that alias a buffer (original_inv_freq)
            if isinstance(v, torch.Tensor) and id(v) in moved:
                setattr(module, k, moved[id(v)][1])
            elif isinstance(v, torch.Tensor) and v.device.type != torch.device(device).type:
                setattr(module, k, to_device(v, False))

    walk(model)
    if torch.device(device).type == "meta":
        return
    with torch.no_grad():
        for old, new, parameter in moved.values():
            if not parameter:
                new.copy_(old)
            elif new.ndim > 1:
                new.normal_(0.0, 0.02)
            else:
                new.fill_(1.0)                          # norm weights; a bias of one changes no size and no kernel


def build(spec, device="cuda", tiny=False):
    """(model, config, task) for a spec: config, precision, attn, gradient_checkpointing, lora, lora_dropout, ..."""
    import accelerate
    import torch
    import transformers as T
    config, task = load_config(spec["config"], spec.get("overrides"), tiny)
    dtype = torch.float32 if spec["precision"] in ("fp32", "amp", "fp16-mixed") else torch.bfloat16
    auto = {"clm": T.AutoModelForCausalLM, "mlm": T.AutoModelForMaskedLM, "seq2seq": T.AutoModelForSeq2SeqLM,
            "imgcls": T.AutoModelForImageClassification}[task]
    if hasattr(config, "use_cache"):
        config.use_cache = False
    with accelerate.init_empty_weights(include_buffers=False):
        model = auto.from_config(config, attn_implementation=spec.get("attn", "sdpa"), dtype=dtype)
    model.tie_weights()                                 # registering on meta has made a copy of each tied parameter
    place(model, device)
    lora = spec.get("lora", "none")
    if lora != "none":
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(
            r=8 if lora == "qv8" else 16, lora_alpha=16, lora_dropout=spec.get("lora_dropout") or 0.0,
            target_modules=["q_proj", "v_proj"] if lora == "qv8" else "all-linear", task_type="CAUSAL_LM"))
        model.to(device)
    if spec.get("gradient_checkpointing"):
        options = {"use_reentrant": False}
        if spec.get("context_fn"):
            options["context_fn"] = spec["context_fn"]
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        if lora != "none":
            model.enable_input_require_grads()
    model.train()
    return model, config, task


def inputs(spec, config, task, device="cuda"):
    """The batch, allocated as zeros and filled in place: random tokens; a padded mask hides each row's last quarter."""
    import torch
    batch, seq = spec["batch"], spec["seq"]
    if task == "imgcls":
        dtype = torch.bfloat16 if spec["precision"] == "bf16" else torch.float32
        got = {"pixel_values": torch.zeros(batch, 3, config.image_size, config.image_size, device=device, dtype=dtype),
               "labels": torch.zeros(batch, device=device, dtype=torch.int64)}
        got["pixel_values"].normal_()
        got["labels"].random_(0, config.num_labels)
        return got
    got = {"input_ids": torch.zeros(batch, seq, device=device, dtype=torch.int64)}
    if spec.get("mask") == "padded":
        got["attention_mask"] = torch.zeros(batch, seq, device=device, dtype=torch.int64)
    target = (spec.get("dec_seq") or seq) if task == "seq2seq" else seq
    got["labels"] = torch.zeros(batch, target, device=device, dtype=torch.int64)
    for k in ("input_ids", "labels"):
        got[k].random_(3, config.vocab_size)            # above the special tokens of every config here
    if "attention_mask" in got:
        got["attention_mask"][:, :seq - seq // 4].fill_(1)
    return got


def optimizer(name, params):
    """torch's optimizers by the names the rows use; learning rates are small, values play no part."""
    import torch
    adamw = {"adamw_foreach": {"foreach": True}, "adamw_fused": {"fused": True}, "adamw_forloop": {"foreach": False}}
    if name in adamw:
        return torch.optim.AdamW(params, lr=1e-4, weight_decay=0.01, **adamw[name])
    if name == "adafactor":
        return torch.optim.Adafactor(params, lr=1e-4)
    return torch.optim.SGD(params, lr=1e-4, momentum={"sgd": 0.0, "sgdm": 0.9}[name])


def choose_attention(kernels):
    """Which scaled-dot-product kernels torch may pick: 'flash' all but cuDNN, 'efficient', 'math', or 'default' all."""
    import torch
    b = torch.backends.cuda
    b.enable_cudnn_sdp(kernels == "default")
    b.enable_flash_sdp(kernels in ("flash", "default"))
    b.enable_mem_efficient_sdp(kernels in ("flash", "efficient", "default"))
    b.enable_math_sdp(True)


def answer_for_absent_values():
    """On a stand-in that computes nothing, give transformers the answers ordinary data would give.

    Three places read a tensor's values to steer Python: are sequences packed (no), has a mask that is passed padding
    in it (yes), may a bidirectional mask be dropped (only where none is passed). A card needs none of this."""
    import transformers.masking_utils as mu
    search = mu.find_packed_sequence_indices

    def not_packed(position_ids):
        search(position_ids)                            # the same device work as on a card
        return None
    mu.find_packed_sequence_indices = not_packed
    mu.fast_all = lambda mask: False
    mu._ignore_bidirectional_mask_sdpa = lambda mask, length, local=None: mask is None and (local is None or length < local)


def autocast(precision):
    """The context of a forward pass."""
    import contextlib
    import torch
    dtype = {"amp": torch.bfloat16, "bf16amp": torch.bfloat16, "fp16-mixed": torch.float16}.get(precision)
    return torch.autocast("cuda", dtype=dtype) if dtype else contextlib.nullcontext()
