"""One training step of a model as its allocator saw it: allocations and frees in order.

Runs under the CUDA libraries of dryrun/stand_in (prepare() starts Python again with them), so the operators, autograd
and the caching allocator are PyTorch's own and no GPU is needed.
"""
import functools
import gc
import os
import sys

import families
import loops
import sizes

# Of cuBLAS on compute capability 9.0, one a thread, and of cuBLASLt: taken at the first product, never given back.
TRL = ("trl", "dpo", "reward", "grpo")
HEADED = ("trl", "dpo", "grpo")                # whose head and loss are in tiles
PROMPTS = ("prompt", "prefix")                 # methods of peft that put virtual tokens before a sequence, or before its keys and values
PACKED = []                                    # not empty: documents lie behind each other in a batch of one row
EXPERTS = []                                   # not empty: a family's layers have experts, whose weights are parameters that peft adapts behind all modules
ROUTED = []                                    # not empty: tokens are sent to experts, of which TRL's SFTTrainer has a loss besides, layer by layer
GATHERED = []                                  # not empty: a classifier's loss gathers its logits, which backward keeps
PADDED = []                                    # not empty: masks hold padding, else those that a model makes itself are of ones
WORKSPACE_BYTES = (33554432, 1048576)
LOADING = ("load", "load_trained", "upcast", "biases", "adapters", "expert_adapters", "adapters_cast", "halved", "load_reference")


def has_output(v):
    """Whether the model's output goes as a whole between forward and backward: not where the encoder's goes too, which backward makes other sums of."""
    return v.get("eval") or v["task"] != "seq2seq" and not (GATHERED and v["task"] == "seqcls")


def has_reference(v):
    """Whether a second model is there, as large as the one that is trained whole."""
    return v["lora"] == "none" and (v["trainer"] == "dpo" or v["trainer"] == "grpo" and bool(v.get("beta")))


def is_prefixed(v):
    """Whether something runs through all layers before the pass of those that are trained: virtual tokens, frozen layers, a reference."""
    return v["lora"] == "prefix" or v.get("freeze") == "layers" or v["trainer"] == "grpo" and has_reference(v)


def prepare(null_dir, processors=sizes.MULTIPROCESSORS, capability=90, total_bytes=1 << 44, name="NVIDIA H100 80GB HBM3"):
    """Execute this script again with the stand-in libraries loaded. Where segments expand, addresses for the whole card are reserved."""
    if os.environ.get("VPLAN_NULL_CC"):
        return
    libs = [null_dir + "/libvplan-null.so"]
    libs += sorted("%s/%s" % (null_dir, f) for f in os.listdir(null_dir) if f.startswith("lib") and ".so." in f)
    e = dict(os.environ, LD_PRELOAD=":".join(libs), HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1",
             CUDA_VISIBLE_DEVICES="0", VPLAN_NULL_CC=str(capability), VPLAN_NULL_SM_COUNT=str(processors), VPLAN_NULL_ADDRESSES=os.environ.get("VPLAN_NULL_ADDRESSES", "rising"), VPLAN_NULL_CUDNN="off",
             VPLAN_NULL_NAME=name, VPLAN_NULL_TOTAL_BYTES=str(total_bytes),
             VPLAN_NULL_LIMIT_BYTES=str(total_bytes), VPLAN_NULL_CONTEXT_BYTES="0")
    e["LD_LIBRARY_PATH"] = null_dir + ":" + e.get("LD_LIBRARY_PATH", "")
    os.execve(sys.executable, [sys.executable, "-W", "ignore"] + sys.argv, e)


def weighs_routers(v):
    return bool(ROUTED) and v.get("trainer") == "trl"


def is_v4():
    import transformers
    return int(transformers.__version__.split(".")[0]) < 5


def recurrent_mask(config, inputs_embeds, attention_mask, past_key_values=None, **kwargs):
    """create_recurrent_attention_mask(), with the answer to whether a mask is of ones."""
    import torch
    if attention_mask is None or attention_mask.dim() != 2:
        return None
    bool(torch.all(attention_mask == 1))
    return attention_mask if PADDED else None


def answer_values():
    """Where Python looks into tensors that hold nothing: the answers of ordinary data (not packed, masks that are passed hold padding)."""
    import torch
    import transformers.masking_utils as masks
    if is_v4():         # which takes no look at a batch without a mask, but at whether a mask holds padding: loops.yes()
        return

    def not_packed(position_ids):
        first = position_ids[:, :1] - 1
        steps = torch.diff(position_ids, prepend=first, dim=-1)
        groups = (steps != 1).cumsum(-1)
        (groups[:, -1] == 0).all()
        return groups if PACKED else None
    masks.find_packed_sequence_indices = not_packed
    torch._check_tensor_all_with = lambda error, cond, message=None: bool(cond._is_all_true()) or None         # that a text has as many tokens of pictures as there are
    masks.is_tracing = lambda tensor=None: False
    if hasattr(masks, "fast_all"):
        masks.fast_all = lambda tensor: not PADDED and (bool(tensor.sum() == tensor.numel()) or True)
    if hasattr(masks, "create_recurrent_attention_mask"):
        masks.create_recurrent_attention_mask = recurrent_mask
    if hasattr(masks, "_ignore_bidirectional_mask_sdpa"):
        masks._ignore_bidirectional_mask_sdpa = lambda padding_mask, kv_length, local_attention_size=None: (
            padding_mask is None and (local_attention_size is None or kv_length < local_attention_size))


def quantise(t):
    """A weight of bitsandbytes as transformers loads it: the 16-bit one comes to the card and is quantised there; one after
    the other, as with one loading thread."""
    import torch
    there = torch.empty(t.shape[::-1] if t.is_turned else t.shape, dtype=t.full_width, device="cuda")
    if t.is_turned:         # a view, of which bitsandbytes makes a copy
        there = there.T
    more = {k: x for k, x in t.__dict__.items() if k not in ("full_width", "is_turned", "SCB")}
    if type(t).__name__ == "Int8Params":
        there = there.to("cpu")
    return type(t)(there, requires_grad=False, **more).to("cuda")


def quantised_linears(m, word, dtype, storage=None):
    """Linear layers but the head become those of bitsandbytes, as from_pretrained(quantization_config=...) makes them. storage:
    bnb_4bit_quant_storage, the format that packed weights are said to be in."""
    import torch
    import transformers
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    if is_v4():
        from transformers.integrations.bitsandbytes import get_keys_to_not_convert
    else:
        from transformers.quantizers.base import get_keys_to_not_convert
    c = transformers.BitsAndBytesConfig(load_in_4bit=word != "int8", load_in_8bit=word == "int8", bnb_4bit_quant_type="nf4",
                                        bnb_4bit_compute_dtype=dtype, bnb_4bit_use_double_quant=word == "nf4-dq", bnb_4bit_quant_storage=storage)
    m = replace_with_bnb_linear(m, get_keys_to_not_convert(m), quantization_config=c)
    for child in m.modules():         # a bias is loaded as wide as what is not quantised
        if type(child).__name__ in ("Linear4bit", "Linear8bitLt") and child.bias is not None:
            child.bias = torch.nn.Parameter(child.bias.to(dtype), requires_grad=False)
    for p in m.parameters():
        p.full_width, p.is_turned = dtype, False
    for child in m.modules():         # transformers turns the weights of GPT-2's Conv1D
        if type(child).__name__ in ("Linear4bit", "Linear8bitLt"):
            child.weight.is_turned = child.source_cls.__name__ == "Conv1D"
    m.is_loaded_in_4bit, m.is_loaded_in_8bit = word != "int8", word == "int8"
    m.is_quantized, m.quantization_method = True, c.quantization_method()
    m.hf_quantizer = transformers.quantizers.AutoHfQuantizer.from_config(c)
    return m


def place(module, memo, begins=lambda module: None):
    """What module.to("cuda") allocates, in its order: children first, parameters before buffers, ties kept."""
    import torch
    begins(module)
    for child in module.children():
        place(child, memo, begins)
    for table in (module._parameters, module._buffers):
        for name, t in table.items():
            if t is None:
                continue
            if id(t) not in memo and type(t).__name__ in ("Params4bit", "Int8Params"):
                memo[id(t)] = (t, quantise(t))
            if id(t) not in memo:
                there = torch.empty_like(t, device="cuda")
                if table is module._parameters:
                    there = torch.nn.Parameter(there, requires_grad=t.requires_grad)
                memo[id(t)] = (t, there)
            table[name] = memo[id(t)][1]
    for name, t in list(vars(module).items()):         # attributes that alias a buffer
        if isinstance(t, torch.Tensor) and t.device.type == "meta":
            if id(t) not in memo:
                memo[id(t)] = (t, torch.empty_like(t, device="cuda"))
            setattr(module, name, memo[id(t)][1])


def make_model(v, config, mark=lambda phase: None):
    import torch
    import transformers
    kind, fields = config
    c = transformers.AutoConfig.for_model(kind, **fields)
    c.use_cache = False
    if v.get("dropout", 1) != 1:         # none, or those of the class and others
        for key in DROPOUTS if v["dropout"] == 0 else v["dropout"].split("+"):
            if hasattr(c, key):
                setattr(c, key, 0.0 if v["dropout"] == 0 else 0.1)
    cls = {"clm": transformers.AutoModelForCausalLM, "mlm": transformers.AutoModelForMaskedLM,
           "seq2seq": transformers.AutoModelForSpeechSeq2Seq if hasattr(c, "num_mel_bins") else transformers.AutoModelForSeq2SeqLM, "seqcls": transformers.AutoModelForSequenceClassification,
           "tokcls": transformers.AutoModelForTokenClassification,
           "imgcls": transformers.AutoModelForImageClassification}[v["task"]]
    cls = transformers.AutoModelForImageTextToText if v.get("images") else cls
    half = torch.float16 if v["precision"].startswith("fp16") else torch.bfloat16
    dtype = torch.float32 if v["precision"] in ("fp32", "bf16-mixed", "fp16-mixed") else half
    with torch.device("meta"):
        m = cls.from_config(c, attn_implementation=v["attention"].split(":")[0], dtype=dtype)
        untie(m, fields)
    m.config.use_cache = False         # of a part of c, where the class takes one alone
    if v["quantised"] != "none":
        m = quantised_linears(m, v["quantised"], dtype, v.get("storage"))
    first = before_layers(m)[1][v["n_frozen"]] if v.get("freeze") == "layers" else None
    place(m, {}, lambda module: mark("load_trained") if module is first else None)
    if v["quantised"] != "none" and v["upcast"]:
        import peft
        mark("upcast")
        peft.prepare_model_for_kbit_training(m, use_gradient_checkpointing=False)
        mark("biases")
        for name, child in m.named_modules():         # what Linear4bit does in its first forward, which a text's pass never asks of a tower
            if type(child).__name__ == "Linear4bit" and child.bias is not None and ("vision_tower" not in name or v.get("images")):
                child.bias.data = child.bias.data.to(dtype)
    if v.get("freeze", "none") != "none":
        freeze(m, v)
    if v["lora"] != "none":
        m = add_adapters(m, v, mark)
    if v["recompute"] != "none":
        every, offload = int(v["recompute"].partition("every:")[2] or 1), bool(v.get("offload")) and v.get("trainer") not in TRL
        variant = {"every_n_layers": every, "offload": offload} if every > 1 or offload else {}
        m.gradient_checkpointing_enable(gradient_checkpointing_kwargs=loops.checkpoints(v), **variant)
        if v["recompute"].startswith("first"):
            for layer in before_layers(m)[1][int(v["recompute"].partition(":")[2] or v["n_first"]):]:
                layer.gradient_checkpointing = False
        if v["lora"] != "none":
            m.enable_input_require_grads()
    m.train()
    return m


def untie(m, fields):
    """A head of its own where the config says so and its class ties it all the same, as T5's does: from_pretrained() ties what is equal in the file."""
    import torch
    head, table = m.get_output_embeddings(), m.get_input_embeddings()
    if fields.get("tie_word_embeddings") is False and head is not None and head.weight is table.weight:
        head.weight = torch.nn.Parameter(torch.empty_like(table.weight))


def before_layers(m):
    """(modules before the layers, these)"""
    import torch
    for base in m.base_model.modules():
        lists = [c for c in base.children() if isinstance(c, torch.nn.ModuleList) and len(c) == m.config.num_hidden_layers]
        if lists:
            break
    before = []
    for parent in [m.base_model] + [base] * (base is not m.base_model):
        for child in parent.children():
            if child is lists[0] or any(base is x for x in child.modules()):
                break
            before.append(child)
    return before, lists[0]


def vision_of(m):
    """What a model has beside its language model and head: names of a tower and of what its rows go through."""
    inner = m.model
    return ["model." + name for name, child in inner.named_children() if child is not m.get_decoder()]


def freeze(m, v):
    """What comes before the layers, and so many of those; or all but the language model."""
    if v["freeze"] == "vision":
        for module in vision_of(m):
            m.get_submodule(module).requires_grad_(False)
        return
    before, layers = before_layers(m)
    for module in before + list(layers[:v["n_frozen"]]):
        module.requires_grad_(False)


# peft's task_type, of which those of classes train the head whole beside adapters; there is none of images.
TYPES = {"clm": "CAUSAL_LM", "seqcls": "SEQ_CLS", "tokcls": "TOKEN_CLS", "seq2seq": "SEQ_2_SEQ_LM", "imgcls": None, "mlm": None}


def adapters_of(v, m):
    """peft's config: LoRA's for sets of targets, else another method's with its own choices, and so many virtual tokens."""
    import peft
    if v["lora"] == "ia3":
        return peft.IA3Config(task_type="CAUSAL_LM")
    if v["lora"] in PROMPTS:
        kind = {"prompt": peft.PromptTuningConfig, "prefix": peft.PrefixTuningConfig}[v["lora"]]
        return kind(task_type="CAUSAL_LM", num_virtual_tokens=v["x"])
    targets = {"all-linear": "all-linear"}.get(v["lora"], v["lora"].split("+"))
    if m.config.model_type == "gemma4" and v["lora"] != "all-linear":         # layers of these names in its towers are of a class that peft does not take
        targets = r".*language_model.*\.(%s)" % v["lora"].replace("+", "|")
    return peft.LoraConfig(r=v["r"], lora_alpha=16, lora_dropout=0.1 if v["lora_dropout"] else 0.0, target_modules=targets,
                           exclude_modules="|".join(x.replace(".", r"\.") + ".*" for x in vision_of(m)) if v.get("freeze") == "vision" else None, task_type=TYPES[v["task"]] if m.main_input_name == "input_ids" else None, use_dora=bool(v.get("dora")),
                           modules_to_save=v["save"].split("+") if v.get("save", "none") != "none" else None,
                           trainable_token_indices=list(range(v["x"])) if v.get("tokens") else None)


def add_adapters(m, v, mark):
    import peft
    c = adapters_of(v, m)
    real = peft.tuners.tuners_utils.BaseTuner._cast_adapter_dtype

    def cast(self, *args, **kwargs):
        mark("adapters_cast")
        real(self, *args, **kwargs)
    inject = peft.tuners.tuners_utils.BaseTuner._inject_parameters

    def inject_parameters(self, *args, **kwargs):
        mark("expert_adapters")
        return inject(self, *args, **kwargs)
    peft.tuners.tuners_utils.BaseTuner._cast_adapter_dtype = cast
    if EXPERTS and v["lora"] == "all-linear":
        peft.tuners.tuners_utils.BaseTuner._inject_parameters = inject_parameters
    mark("adapters")
    try:
        m = peft.get_peft_model(m, c, autocast_adapter_dtype=v.get("adapter", "fp32") == "fp32")
    finally:
        peft.tuners.tuners_utils.BaseTuner._cast_adapter_dtype, peft.tuners.tuners_utils.BaseTuner._inject_parameters = real, inject
    m.to("cuda")
    return m


def choose_attention(word):
    import torch
    if word == "flash_attention_2":
        import flash
        flash.install()
    flash, efficient = {"sdpa:flash": (True, True), "sdpa:efficient": (False, True)}.get(word, (False, False))
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_flash_sdp(flash)
    torch.backends.cuda.enable_mem_efficient_sdp(efficient)
    torch.backends.cuda.enable_math_sdp(True)


def in_child(f):
    """f() of a process of its own, so that none sees another's caches and handles. Its answer is JSON."""
    import json
    read, write_to = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with os.fdopen(write_to, "w") as pipe:
            try:
                answer = f()
            except Exception as e:
                answer = {"failed": "%s: %s" % (type(e).__name__, str(e)[:1500])}
            json.dump(answer, pipe)
        os._exit(0)
    os.close(write_to)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"failed": "the process died"}


def dtype_of_signal(v):
    """Of pictures and sounds: a plain loop's are as wide as its weights, Trainer's have 32 bits."""
    import torch
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(v["precision"] if v["trainer"] == "torch" else "", torch.float32)


def pictures(v, shape):
    """What a processor makes of pictures beside a text's tokens."""
    import torch
    if shape.get("I"):
        types = {"token_type_ids": torch.zeros(shape["B"], shape["S"], device="cuda", dtype=torch.int64)} if shape["typed"] else {}
        return dict(types, pixel_values=torch.zeros(shape["im"], 3, shape["I"], shape["I"], device="cuda", dtype=torch.float32))
    return {"pixel_values": torch.zeros(shape["im"] * shape["iv"], shape["ie"], device="cuda", dtype=torch.float32), "image_grid_thw": Grid(shape),
            "mm_token_type_ids": torch.zeros(shape["B"], shape["S"], device="cuda", dtype=torch.int64)}


class Grid:
    """image_grid_thw, which a model reads on the card: its values, and so many bytes there. What a tower makes of it in small tensors that soon go is
    made in host memory here."""

    def __init__(self, shape):
        import torch
        see_grids()
        of_token = round((shape["iv"] // shape["it"]) ** 0.5)
        self.values = torch.tensor([[1, shape["ih"] * of_token, shape["ix"] * of_token]] * shape["im"])
        self.on_card = torch.zeros(shape["im"], 3, device="cuda", dtype=torch.int64)

    def prod(self, axis):
        return self.values.prod(axis)


ASIDE = []                                     # of a recording: (allocations before, behind, which) of a tower's attention to one window (w) or picture (j)


IS_FLASH = []                                  # not empty: lengths are on the card


def look_once(count):
    """A tower looks at its first window, or picture, alone, in place of one after the other; what it takes there is noted, in backward too."""
    import torch
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen2_5
    from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    class Joined(torch.autograd.Function):
        """What all are put together in, of which this one is the first part."""
        @staticmethod
        def forward(ctx, one, n):
            ctx.n = one.shape[1]
            return one.new_empty((one.shape[0], n) + one.shape[2:])

        @staticmethod
        def backward(ctx, grad):
            return grad.narrow(1, 0, ctx.n), None

    def forward(self, hidden_states, cu_seqlens, position_embeddings=None, max_seqlen=None, **kwargs):
        n = hidden_states.shape[0]
        q, k, v = self.qkv(hidden_states).reshape(n, 3, self.num_heads, -1).permute(1, 0, 2, 3).unbind(0)
        q, k = qwen3.apply_rotary_pos_emb_vision(q, k, *position_embeddings)
        q, k, v = [x.transpose(0, 1).unsqueeze(0) for x in (q, k, v)]
        lengths = (cu_seqlens[1:] - cu_seqlens[:-1]).tolist()
        first, kind = lengths[0], "w" if lengths[0] == WINDOW_ROWS else "j"
        attend, at = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, None), count()
        one = attend(self, *[x.narrow(2, 0, first) for x in (q, k, v)], attention_mask=None, scaling=self.scaling, dropout=0.0, is_causal=False, **kwargs)[0]
        ASIDE.append((at, count(), kind))
        if one.grad_fn is not None:
            begin = []
            one.grad_fn.register_prehook(lambda grads: begin.append(count()))
            node = one.grad_fn
            while "Attention" not in node.name():
                node = node.next_functions[0][0]
            node.register_hook(lambda *of: ASIDE.append((begin[-1], count(), kind)))
        out = Joined.apply(one, n)
        del one
        return self.proj(out.reshape(n, -1).contiguous())
    qwen2_5.Qwen2_5_VLVisionAttention.forward = qwen3.Qwen3VLVisionAttention.forward = forward


WINDOW_ROWS = 64


@functools.lru_cache
def see_grids():
    """Modules of towers are told the values of a Grid."""
    import importlib
    import torch
    import transformers.vision_utils as utils

    def on_card(name, made):
        plain = getattr(utils, name)

        def of_grid(grid, *args, **kwargs):
            return made(plain(grid.values, *args, **kwargs), args)
        return of_grid

    def lengths(made, args):
        is_flash = IS_FLASH[:] = [True] * (args[0]._attn_implementation == "flash_attention_2")
        return made[0].to("cuda") if is_flash else made[0], made[1]
    patched = {"get_vision_position_ids": on_card("get_vision_position_ids", lambda made, args: made.to("cuda")),
               "get_vision_interpolation_indices_and_weights": on_card("get_vision_interpolation_indices_and_weights", lambda made, args: tuple(x.to("cuda") for x in made)),
               "get_vision_attention_seqlens": on_card("get_vision_attention_seqlens", lengths),
               "get_vision_window_index": on_card("get_vision_window_index", lambda made, args: (made[0], made[1].to("cuda") if IS_FLASH else made[1]))}

    def rope_index(self, input_ids, *args, **kwargs):
        b, s = input_ids.shape
        return torch.zeros(3, b, s, dtype=torch.int64, device="cuda"), torch.zeros(b, 1, dtype=torch.int64, device="cuda")
    def embed(self, pixels):
        """Without cuDNN PyTorch reads each channel's bias from the card for each patch, which takes minutes; it is added in place here, as cuDNN's is."""
        made = torch.nn.functional.conv3d(pixels.view(-1, *self.proj.weight.shape[1:]).to(self.proj.weight.dtype), self.proj.weight, None, self.proj.stride)
        return made.view(-1, self.embed_dim).add_(self.proj.bias)
    importlib.import_module("transformers.models.qwen3_vl.modeling_qwen3_vl").Qwen3VLVisionPatchEmbed.forward = embed
    for kind in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl"):
        module = importlib.import_module("transformers.models.%s.modeling_%s" % (kind, kind))
        for name, f in patched.items():
            if hasattr(module, name):
                setattr(module, name, f)
        for name in dir(module):
            if hasattr(getattr(module, name), "get_rope_index"):
                getattr(module, name).get_rope_index = rope_index


def batch(v, shape):
    import torch
    PADDED[:] = [True] * (bool(v["mask"]) and v["task"] != "seq2seq")         # of two stacks it is the encoder's, and causal masks are the decoder's
    B, S = shape["B"], shape["u"] if v["lora"] == "prompt" and "u" in shape else shape["S"]
    if v["task"] == "imgcls":
        side = round((shape["S"] - 1) ** 0.5) * shape["p"] if v["resized"] else shape["I"]
        return {"pixel_values": torch.zeros(B, 3, side, side, device="cuda", dtype=dtype_of_signal(v)),
                "labels": torch.zeros(B, device="cuda", dtype=torch.int64)}
    if "c" in shape:
        return {"input_features": torch.zeros(B, shape["c"], 2 * S, device="cuda", dtype=dtype_of_signal(v)), "labels": torch.zeros(B, shape["D"], device="cuda", dtype=torch.int64)}
    if v.get("trainer") == "grpo":
        return [{"prompt": "a" * (S - shape["l"])}] * B
    inputs = {"input_ids": torch.zeros(B, S, device="cuda", dtype=torch.int64)}
    if v.get("images"):
        inputs.update(pictures(v, shape))
    if v.get("packed"):         # as TRL's collator has them, from the card's side: it makes them in host memory
        inputs["labels"], inputs["position_ids"] = [torch.zeros(B, S, device="cuda", dtype=torch.int64) for _ in "lp"]
        inputs["cu_seq_lens_q"], inputs["cu_seq_lens_k"] = [torch.zeros(shape["o"] + 1, device="cuda", dtype=torch.int32) for _ in "qk"]
        inputs["seq_idx"] = torch.zeros(B, S, device="cuda", dtype=torch.int32)
        return dict(inputs, max_length_q=S, max_length_k=S)
    if v["mask"] or v.get("trainer") in TRL or is_v4():         # whose collators always make one
        inputs["attention_mask"] = torch.zeros(B, S, device="cuda", dtype=torch.int64)
    if v.get("trainer") == "dpo":
        return dict(inputs, completion_mask=torch.zeros(B, S, device="cuda", dtype=torch.int64))
    if v.get("trainer") == "reward":
        return inputs
    labels = (B,) if v["task"] == "seqcls" else (B, shape.get("D", S))
    inputs["labels"] = torch.zeros(*labels, device="cuda", dtype=torch.float32 if v.get("regression") else torch.int64)
    return inputs


class Recording:
    """phases: name -> [("a", id, bytes) | ("f", [ids])]; params: id of allocation -> position; grads likewise."""

    def __init__(self, v, config, shape):
        import torch
        choose_attention(v["attention"])
        PACKED[:] = [True] * bool(v.get("packed"))
        gc.collect()
        gc.disable()         # else what is in a circle goes at some time or other
        if "bitsandbytes.functional" in sys.modules:
            sys.modules["bitsandbytes.functional"].name2qmap.clear()         # a table that a process makes once
        torch.cuda.empty_cache()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=10000000)
        self.marks = []
        n0 = self.count()
        self.mark("load")
        m = make_model(v, config, self.mark)
        if v["trainer"] in TRL and v["quantised"] != "none":
            self.mark("halved")         # TRL makes the adapters 16 bits wide
        reference = None
        if has_reference(v):
            self.mark("load_reference")
            reference = make_model(dict(v, recompute="none"), config)
        loop = loops.LOOPS[v["trainer"]](v, m, shape["B"], **self.options(v, shape, reference))
        if v.get("images"):
            loop.library = loops.of_pictures(shape)
        gc.collect()
        live = {}
        names = {}
        for name, p in reference.named_parameters() if reference else ():
            live[p.data_ptr()] = (name, False, False, (p.element_size(),) + tuple(p.shape))
        for i, (name, p) in enumerate(m.named_parameters()):
            live[p.data_ptr()] = (name, p.requires_grad, type(p).__name__ in ("Params4bit", "Int8Params"), (p.element_size(),) + tuple(p.shape))
        self.mark("inputs")
        if v.get("images") and "ih" in shape and not v["attention"].startswith("flash"):
            look_once(self.n_allocations)
            ASIDE.clear()
        inputs = batch(v, shape)
        grads = {}
        if v["lora"] == "prefix":
            self.mark_prefix(m)
        if weighs_routers(v):
            self.mark_routers(m)
        if v.get("freeze") == "layers":
            self.mark_frozen(before_layers(m)[1][v["n_frozen"]])
        for self.step in (1, 2, 3):
            step = self.step
            self.mark(("evaluate%d" if v.get("eval") else "prefix%d" if is_prefixed(v) else "forward%d") % step)
            run = loop.evaluate if v.get("eval") else loop.step
            run(inputs, lambda phase, step=step: self.mark("%s%d" % (phase, step)))
            self.mark("after%d" % step)
            if step == 1:
                for name, p in m.named_parameters():
                    if p.grad is not None:
                        grads[p.grad.data_ptr()] = name
                for at, (name, trained, packed, sides) in live.items():         # what no gradient comes to is as good as frozen
                    live[at] = name, trained and (bool(v.get("eval")) or name in grads.values()), packed, sides
                self.n_live = self.count()
                for p in m.parameters():
                    p.grad = None
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        torch.cuda.memory._record_memory_history(enabled=None)
        self.params = {}
        self.grads = {}
        self.split(trace, n0, live, grads)
        self.aside = self.find_aside(n0[0])
        self.tiles = self.find_tiles(loop.torch.seen, n0[0], shape, "f" if v.get("eval") else {"trl": "fg", "dpo": "ffg", "grpo": "ffg" if v.get("beta") else "fg"}[v["trainer"]]) if v["trainer"] in HEADED else {}

    def mark_frozen(self, layer):
        """Where the first layer that is trained begins, and where backward goes on to what is frozen."""
        def begin(module, args):
            if self.marks[-1][0].startswith("prefix"):         # no recomputation
                self.mark("forward%d" % self.step)
                if args[0].requires_grad:
                    args[0].register_hook(lambda grad: self.mark("ending%d" % self.step))
        layer.register_forward_pre_hook(begin)

    def mark_routers(self, m):
        """Where the loss of all layers' routers begins, and where backward comes to the layers themselves. Its function is looked up in each step."""
        import transformers.models.mixtral.modeling_mixtral as mixtral
        plain = mixtral.load_balancing_loss_func

        def loss(*args, **kwargs):
            self.mark("reference%d" % self.step)
            return plain(*args, **kwargs)

        def begin(module, args):
            args[0].register_hook(lambda grad: self.mark("ending%d" % self.step))
        mixtral.load_balancing_loss_func = loss
        m.get_decoder().norm.register_forward_pre_hook(begin)

    def mark_prefix(self, m):
        """Where the forward pass of the model begins behind that of its virtual tokens, and where backward comes back to those: to what was made
        last of them."""
        plain = m.get_prompt

        def get_prompt(*args, **kwargs):
            cache = plain(*args, **kwargs)
            self.mark("forward%d" % self.step)
            cache.layers[-1].values.grad_fn.register_prehook(lambda grads: self.mark("ending%d" % self.step))
            return cache
        m.get_prompt = get_prompt

    def options(self, v, shape, reference):
        """Of the loop: how its loss is cut in tiles."""
        if v.get("liger"):
            return {"tiling": (shape["M"], shape["B"] * shape["S"] // families.TILES, v["tiles"])}
        of_dpo = {"reference": reference} if v["trainer"] in ("dpo", "grpo") else {}
        of_grpo = {"completion": shape["l"]} if v["trainer"] == "grpo" else {}
        return dict(of_dpo, **of_grpo, whole=True, count=self.n_allocations) if v["trainer"] in TRL else {}

    @staticmethod
    def count():
        import torch
        s = torch.cuda.memory_stats()
        return s.get("allocation.all.allocated", 0), s.get("allocation.all.freed", 0)

    @classmethod
    def n_allocations(cls):
        return cls.count()[0]

    def mark(self, name):
        self.marks.append((name, self.count()))

    def split(self, trace, n0, params, grads):
        self.phases = {}
        self.workspaces, self.order = [], []          # order: (id, bytes) of all allocations
        self.beside = set()                           # of a stream of their own
        kept = {}
        for i, e in enumerate(trace):
            if e["action"] == "alloc" and e["size"] in WORKSPACE_BYTES and e["addr"] not in params:         # a packed weight may have as many bytes
                kept[e["addr"]] = i
            elif e["action"] == "free_completed":
                kept.pop(e["addr"], None)
        kept = set(kept.values())
        marks = [(name, (a - n0[0]) + (f - n0[1])) for name, (a, f) in self.marks]
        at = {}
        n = n_alloc = first = second = 0
        events = None
        for i, e in enumerate(trace):
            if e["action"] not in ("alloc", "free_completed"):
                continue
            while marks and marks[0][1] == n:
                name = marks.pop(0)[0]
                first = n_alloc if name in ("prefix1", "forward1") and not first else first
                second = n_alloc if name in ("prefix2", "forward2") and not second else second
                events = self.phases[name] = []
            n += 1
            if e["action"] == "alloc":
                self.order.append((None if i in kept else n_alloc, e["size"]))
                if i in kept:
                    self.workspaces.append((name, (len([1 for x in events if x[0] == "a"]), e["size"])))
                    continue
                at[e["addr"]] = n_alloc
                if e["stream"]:
                    self.beside.add(n_alloc)
                if name in LOADING and e["addr"] in params:
                    self.params[n_alloc] = params[e["addr"]]
                if name in ("backward1", "ending1") and e["addr"] in grads:
                    self.grads[n_alloc] = grads[e["addr"]]
                events.append(("a", n_alloc, e["size"]))
                n_alloc += 1
            else:
                freed = at.pop(e["addr"])
                if name in ("prefix2", "forward2") and first <= freed < second:
                    continue         # what the first step left: the player lets it go where it is made again
                if events and events[-1][0] == "f":
                    events[-1][1].append(freed)
                else:
                    events.append(("f", [freed]))
        for name in [m[0] for m in marks]:
            self.phases.setdefault(name, [])
        # a parameter's or gradient's address may have been another block's before: the last one is meant
        gone, of_backward = set().union(*[self.freed(n) for n in LOADING]), self.freed("backward1")
        self.params = {i: p for i, p in self.params.items() if i not in gone}
        self.grads = {i: g for i, g in self.grads.items() if i not in of_backward}

    def find_tiles(self, seen, n0, shape, of_table):
        """Of what was allocated last before a product of TRL's head, id -> kind: the tile of logits, and where there are, casts of its
        rows and of its part of the table, by whose pass it is (f: gone before the next one is there; g: after)."""
        rows, width, out = shape["B"] * sizes.n_learnt(shape), shape.get("e", shape["h"]), {}
        for k, n in enumerate(seen):
            last = n - n0 - 1
            for kind, fits in ((of_table[k % len(of_table)], lambda x: x == 2 * shape["V"] * width), ("h", lambda x: x == 2 * rows * width), ("b", lambda x: x % (65536 * rows) == 0)):
                ident, size = self.order[last]
                if fits(size):
                    out[ident] = kind
                    last -= 1
                elif kind == "b":
                    raise RuntimeError("no tile of logits before a product of the head")
        return out

    def find_aside(self, n0):
        """id -> which: what was taken for one window or picture, and is there behind its attention."""
        kept, at = {}, {}
        for first, behind, kind in ASIDE:
            for n in range(first - n0, behind - n0):
                if self.order[n][0] is not None:
                    at[self.order[n][0]] = (first, kind)
        for events in self.phases.values():         # what goes before anything else is asked for was this one's own
            open_at = None
            for e in events:
                if e[0] == "a":
                    open_at = at.get(e[1], (None,))[0]
                    if e[1] in at:
                        kept[e[1]] = at[e[1]][1]
                else:
                    for i in e[1]:
                        if i in at and at[i][0] == open_at:
                            kept.pop(i, None)
        return kept

    def ids(self, phase):
        return {e[1] for e in self.phases[phase] if e[0] == "a"}

    def freed(self, phase):
        return {i for e in self.phases.get(phase, []) if e[0] == "f" for i in e[1]}


def quiet():
    import torch
    import transformers
    import transformers.masking_utils  # noqa: F401
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch._C._jit_set_texpr_fuser_enabled(False)         # DeBERTa's distances, whose kernels from the second pass on would be compiled for a card
    answer_values()
    gc.collect()
    gc.freeze()          # a collection looks at what a model leaves, not at all the modules'


DROPOUTS = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "attention_dropout", "activation_dropout", "hidden_dropout_prob",
            "attention_probs_dropout_prob", "hidden_dropout", "layerdrop", "dropout_rate", "resid_dropout", "embed_dropout",
            "residual_dropout", "embedding_dropout", "drop_path_rate")
# Fields that change no allocation of a training step, or are looked at by another rule (rope, windows, sizes).
HARMLESS = ("use_cache", "return_dict", "output_hidden_states", "output_attentions", "is_encoder_decoder", "tie_word_embeddings", "problem_type",
            "dtype", "_name_or_path", "model_type", "transformers_version", "summary_type", "summary_use_proj", "summary_activation",
            "summary_proj_to_labels", "use_sliding_window", "norm_topk_prob", "_attn_implementation", "architectures",
            "do_sample", "early_stopping", "output_scores", "remove_invalid_values", "return_dict_in_generate", "tf_legacy_loss", "tie_encoder_decoder",
            "torchscript", "use_bfloat16",         # the last two lines are fields of all configs of transformers 4
            "apply_layernorm", "reshape_hidden_states", "add_fpn", "use_auxiliary_head", "auxiliary_concat_input")         # of towers beside a detector


# What this one is, is another rule's: a token of the table.
HARMLESS += ("image_token_index",)
# Those of which a row says what was recorded.
TOLD = ("norm_topk_prob",)


# Numbers above 0 where there is a parameter that a model without them has not.
POSITIVE = ("layer_scale_init_value",)
# Those of losses that TRL adds where they are not 0.
WEIGHTS = ("router_aux_loss_coef",)


def class_default(family, **fields):
    """The fields of its config, of a part as PART.KEY."""
    import transformers
    c = transformers.AutoConfig.for_model(family.kind, **families.nested(fields)).to_dict()
    parts = [k for k in c if k.endswith("_config") and isinstance(c[k], dict)]
    return dict({k: x for k, x in c.items() if k not in parts}, **{part + "." + k: x for part in parts for k, x in c[part].items()})


def has_dropout(family):
    c = dict(class_default(family), **family.extra)
    return any(c.get(k) for k in DROPOUTS)


def fields(family):
    """Which keys of a config.json are sizes: "SYMBOL KEY ABSENT NULL", what an absent key and a null mean; - for neither."""
    c = class_default(family)
    key_of = {s: keys.split("|")[0] for s, keys in reversed(family.fields)}
    other = class_default(family, **{key_of[x]: n * c[key_of[x]] for x, n in (("h", 3), ("a", 2), ("V", 2)) if x in key_of})
    out = []
    for symbol, keys in family.fields + [["LM"[i], k] for i, k in enumerate(family.layers.split())]:
        key, _, null = keys.partition("|")
        key, _, more = key.partition("+")
        absent = None if null and c.get(key) != other.get(key) or symbol == "M" else c.get(key)
        if isinstance(absent, dict):
            absent = len(absent)
        out.append("%s %s %s %s" % (symbol.strip("()"), keys.partition("|")[0] or "-", null or "-" if absent is None else absent, null or "-"))
    if family.shares:
        out.append("shared %s 0 0" % family.shares)
    tied = family.inside * family.alone + "tie_word_embeddings"
    out.append("tied %s %d %d" % ((tied,) + (bool(c.get(tied, True)),) * 2))
    if family.window:
        out.append("window %s %d 0" % (family.window, c.get(family.window) or 0))
    return out


def requirements(family, by_trl=False):
    """Fields of the config that choose what runs, as they were: choice KEY JSON; stated KEY JSON, where a config that has it not means another
    value; dropout KEY zero|some; positive KEY VALUE, a number of which only the sign matters; below KEY ABSENT SYMBOL, a token that the table has."""
    import json
    default = class_default(family)
    c = dict(default, **family.extra)
    def name(k):
        return k.rpartition(".")[2]
    derived = class_default(family, **family.extra)         # what the class makes of other fields is the same where a config has it not
    c.update((k, x) for k, x in derived.items() if k not in family.extra and x != default.get(k))
    def is_stated(k):         # what is no field of the class it takes as none
        return k in family.extra and c[k] != default.get(k) and (bool(c[k]) or "." in k or k in default)
    choices = [k for k in sorted(c) if not (family.alone and not k.startswith(family.inside)) and (isinstance(c[k], (bool, str)) or k in family.extra) and (name(k) not in HARMLESS or family.extra.get(k, 0) is None or k in TOLD and k in family.extra) and not k.endswith("_token_id")]
    out = ["%s %s %s" % ("stated" if is_stated(k) else "choice", k, json.dumps(c[k])) for k in choices]
    out += ["dropout %s %s" % (k, "some" if c[k] else "zero") for d in DROPOUTS for k in c if name(k) == d]
    out += ["positive %s %s" % (k, json.dumps(c[k])) for k in POSITIVE + WEIGHTS * by_trl if c.get(k, 0) > 0]
    return out + ["below %s %d V" % (k, default[k]) for k in default if k == "image_token_index"]
