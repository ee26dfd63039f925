"""What runs a model's forward and backward: a plain loop, or transformers' Trainer, each as its users start it.

A loop is made of the model and its inputs; step() runs forward and backward once and calls mark(PHASE) where "output" (the
model's output goes) and "backward" begin. evaluate() is a batch of an evaluation, with "output" too.
"""
import contextlib
import tempfile


def half_of(v):
    import torch
    return torch.float16 if v["precision"].startswith("fp16") else torch.bfloat16


def has_autocast(v):
    return v["precision"] in ("bf16-mixed", "bf16-amp", "fp16-mixed", "fp16-amp")


def checkpoints(v):
    """gradient_checkpointing_kwargs: use_reentrant is False, transformers 5's own default, unless the word says otherwise."""
    return {"use_reentrant": v["recompute"].endswith(":reentrant")}


def formats(v):
    """TrainingArguments' bf16 and fp16."""
    half = v["precision"].startswith("fp16")
    return {"bf16": has_autocast(v) and not half, "fp16": has_autocast(v) and half}


class Plain:
    def __init__(self, v, m, batch):
        self.v, self.m, self.library = v, m, of_labels(m)

    def step(self, inputs, mark):
        import play
        import torch
        with torch.autocast("cuda", dtype=half_of(self.v)) if has_autocast(self.v) else contextlib.nullcontext(), asks(self.v):
            out = self.m(**inputs)
        loss = out.loss
        if play.has_output(self.v):
            mark("output")
        if not self.v["keep_output"]:
            out = None
        mark("backward")
        loss.backward()
        loss = out = None

    def evaluate(self, inputs, mark):
        import torch
        if self.v["eval"] == 2:         # as a second model is asked, for its logits
            inputs = {k: x for k, x in inputs.items() if k != "labels"}
        self.m.eval()
        with torch.no_grad():
            with torch.autocast("cuda", dtype=half_of(self.v)) if has_autocast(self.v) else contextlib.nullcontext(), asks(self.v):
                out = self.m(**inputs)
        mark("output")
        out = None


class Trainer:
    """transformers.Trainer's own training_step; the count of targets is a tensor on the card, as get_batch_samples makes it."""

    def __init__(self, v, m, batch, **options):
        import transformers
        self.v = v
        if v.get("liger"):
            import transformers.integrations.liger
            use_liger(options.pop("tiling", None))
            options["use_liger_kernel"] = self.only_loss = True
        args = transformers.TrainingArguments(output_dir=tempfile.gettempdir() + "/none", report_to=[], per_device_train_batch_size=batch,
                                              **formats(v), **options)
        self.trainer = transformers.Trainer(model=m, args=args, train_dataset=[{}])
        self.trainer.current_gradient_accumulation_steps = 1
        self.library = of_labels(m)
        if v.get("liger"):
            transformers.integrations.liger.apply_liger_kernel(m, LIGER[v["liger"]])         # as train() begins
        self.m = self.trainer.accelerator.prepare(m)
        self.backward = self.trainer.accelerator.backward

    def step(self, inputs, mark):
        def backward(loss, **kwargs):
            mark("output")
            mark("backward")
            self.backward(loss, **kwargs)
        self.trainer.accelerator.backward = backward
        count = inputs["labels"].new_zeros(()) if "labels" in inputs else None
        with asks(self.v):
            self.trainer.training_step(self.m, dict(inputs), count)

    only_loss = False         # without logits prediction_step() of TRL and Liger computes something else

    def evaluate(self, inputs, mark):
        self.m.eval()
        with asks(self.v):
            out = self.trainer.prediction_step(self.m, dict(inputs), prediction_loss_only=self.only_loss)
        mark("output")
        out = None


class Torch:
    """The module torch for the fused head: notes how many allocations came before its first product."""

    def __init__(self, torch, count):
        self.torch, self.count, self.seen = torch, count, []

    def __getattr__(self, name):
        return getattr(self.torch, name)

    def mm(self, a, b, out):
        self.seen.append(self.count())
        return self.torch.mm(a, b, out=out)


# What liger_kernel_config says: all its kernels, or its loss alone.
LIGER = {"all": None, "loss": {"rope": False, "rms_norm": False, "swiglu": False, "cross_entropy": False, "fused_linear_cross_entropy": True}}


class Instead:
    """A thing of which some attributes are others."""

    def __init__(self, of, **others):
        self.of = of
        vars(self).update(others)

    def __getattr__(self, name):
        return getattr(self.of, name)


def silence_triton():
    import triton
    triton.runtime.jit.KernelInterface.__getitem__ = Silent.__getitem__


def use_liger(tiling):
    """Liger's kernels without scratch. tiling: (multiprocessors that they count, rows of tokens of a tile of its loss, tiles)."""
    import torch
    import triton
    import liger_kernel.ops.fused_linear_cross_entropy as loss
    silence_triton()
    if tiling:
        processors, rows, n = tiling
        card = torch.cuda.get_device_properties
        torch.cuda.get_device_properties = lambda *which: Instead(card(*which), multi_processor_count=processors)
        loss.triton = Instead(triton, next_power_of_2=lambda size: rows, cdiv=lambda a, b: n if b == rows else triton.cdiv(a, b))


class Silent:
    """In place of a Triton kernel: it has no scratch."""

    def __getitem__(self, grid):
        return lambda *args, **kwargs: None


def expecting(torch, learnt=None):
    """aten::nonzero as if every element was: what a mask of targets selects where all tokens are learnt from. learnt: of a batch's sequences so
    many tokens are, where they are not all."""
    import ctypes
    expect = ctypes.CDLL(None).vplan_null_expect
    expect.argtypes = [ctypes.c_int, ctypes.c_uint64]
    plain = torch.ops.aten.nonzero.out

    def nonzero(t):
        out = torch.empty(0, dtype=torch.int64, device=t.device)
        expect(1, learnt(t) if callable(learnt) else learnt if learnt and t.dim() > 1 else t.numel())
        try:
            return plain(t, out=out)
        finally:
            expect(0, 0)
    library = torch.library.Library("aten", "IMPL", "CUDA")
    library.impl("nonzero", nonzero, allow_override=True)
    return library


def of_pictures(shape):
    """A mask over a batch's tokens, or all elements of their hidden states, selects those of pictures; one over those that are learnt from, all."""
    import torch

    def chosen(mask):
        each, rest = divmod(mask.numel(), shape["B"] * shape["S"])
        return mask.numel() if rest else each * shape["im"] * shape["it"]
    return expecting(torch, chosen)


def of_labels(m):
    """DeBERTa's classifier looks for the labels that are no -1: all of them."""
    import torch
    return expecting(torch) if m.config.model_type == "deberta-v2" else None


def asks(v):
    """What holds while a model runs: transformers 4 asks the card whether a mask holds padding. One that has none is of ones. A model of pictures asks whether
    a text has as many tokens of them as there are."""
    import play
    return yes() if play.is_v4() and not v["mask"] or v.get("images") else contextlib.nullcontext()


@contextlib.contextmanager
def yes():
    """What Python asks of a tensor on the card is true, but whether what is quantised to 8 bits has outliers."""
    import sys
    import torch
    plain, library = torch.Tensor.__bool__, sys.modules.get("bitsandbytes.functional")
    quantise = library and library.int8_vectorwise_quant

    def without_outliers(*args, **kwargs):
        torch.Tensor.__bool__, before = plain, torch.Tensor.__bool__
        try:
            return quantise(*args, **kwargs)
        finally:
            torch.Tensor.__bool__ = before
    torch.Tensor.__bool__ = lambda t: plain(t) or t.is_cuda
    if library:
        library.int8_vectorwise_quant = without_outliers
    try:
        yield
    finally:
        torch.Tensor.__bool__ = plain
        if library:
            library.int8_vectorwise_quant = quantise


class Sft(Trainer):
    """trl.SFTTrainer's training_step: its head and loss in tiles, of which there is one here where whole is asked for; every token is
    learnt from. A mask is always there; v["mask"] says whether it holds padding."""

    def __init__(self, v, m, batch, **options):
        import tempfile
        import warnings
        import tokenizers
        import torch
        import transformers
        import trl.kernels.chunked_logprob as head
        warnings.simplefilter("ignore")
        self.v = v
        self.library = expecting(torch, options.pop("learnt", None))
        head._forward_kernel = head._backward_kernel = Silent()
        self.torch = head.torch = Torch(torch, options.pop("count", lambda: 0))
        if options.pop("whole", False):
            head.TOKEN_CHUNK_SIZE = 1 << 40
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0, "a": 1}, unk_token="<eos>"))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<eos>", unk_token="<eos>")
        self.trainer = self.make(m, tokenizer, output_dir=tempfile.gettempdir() + "/none", report_to=[],
                                 gradient_checkpointing=v["recompute"].startswith("full"), gradient_checkpointing_kwargs=checkpoints(v), activation_offloading=bool(v.get("offload")), per_device_train_batch_size=batch,
                                 **formats(v), **options)
        self.trainer.current_gradient_accumulation_steps = 1
        self.trainer.model_wrapped = self.m = self.trainer.accelerator.prepare(m)
        if self.trainer.accelerator.scaler:         # its scale, made in the first step, is there from the start here
            self.trainer.accelerator.scaler._lazy_init_scale_growth_tracker(torch.device("cuda"))
        self.backward = self.trainer.accelerator.backward

    def make(self, m, tokenizer, **options):
        import datasets
        import trl
        args = trl.SFTConfig(dataset_kwargs={"skip_prepare_dataset": True}, **options)
        data = datasets.Dataset.from_dict({"input_ids": [[1, 1, 1]], "labels": [[1, 1, 1]]})
        return trl.SFTTrainer(model=m, args=args, train_dataset=data, processing_class=tokenizer)

    only_loss = True

    def step(self, inputs, mark):
        with yes():
            Trainer.step(self, dict(inputs), mark)

    def evaluate(self, inputs, mark):
        with yes():
            Trainer.evaluate(self, inputs, mark)


class Dpo(Sft):
    """trl.DPOTrainer's training_step: the batch is chosen sequences, then rejected ones, and all of their tokens are learnt from. Of a
    model under adapters the reference is the model without them, as where they are given to the trainer; else a second one."""

    def __init__(self, v, m, batch, reference=None, **options):
        self.reference = reference
        Sft.__init__(self, v, m, batch // 2, **options)

    def make(self, m, tokenizer, **options):
        import datasets
        import trl
        data = datasets.Dataset.from_dict({"prompt": ["a"], "chosen": ["a"], "rejected": ["a"]})
        named = m.get_parameter
        m.add_adapter, m.get_parameter = lambda *of: None, lambda name: named(name.replace(".ref.", ".default."))
        try:
            return trl.DPOTrainer(model=m, ref_model=self.reference, args=trl.DPOConfig(**options), train_dataset=data, processing_class=tokenizer)
        finally:
            del m.add_adapter, m.get_parameter

    def step(self, inputs, mark):
        import trl.trainer.dpo_trainer as dpo
        plain = dpo.disable_gradient_checkpointing

        def disable(*args):
            mark("reference")
            return plain(*args)
        dpo.disable_gradient_checkpointing = disable
        try:
            Sft.step(self, inputs, mark)
        finally:
            dpo.disable_gradient_checkpointing = plain


class Reward(Sft):
    """trl.RewardTrainer's training_step: the batch is chosen sequences, then rejected ones, of which a head has one value each."""

    def __init__(self, v, m, batch, **options):
        Sft.__init__(self, v, m, batch // 2, **options)

    def make(self, m, tokenizer, **options):
        import datasets
        import trl
        data = datasets.Dataset.from_dict({"chosen_ids": [[1]], "rejected_ids": [[1]]})
        trl.RewardTrainer._prepare_dataset = lambda self, data, *of: data         # it is ready, and that takes a while
        return trl.RewardTrainer(model=m, args=trl.RewardConfig(**options), train_dataset=data, processing_class=tokenizer)


class Grpo(Sft):
    """trl.GRPOTrainer's training_step: completions of prompts, which are there at once here, as an engine of their own gives them; what they are worth
    is known, and their tokens are learnt from. v["beta"]: their distance from a reference is in the loss."""

    def __init__(self, v, m, batch, reference=None, **options):
        self.n_completion, self.reference = options.pop("completion"), reference
        Sft.__init__(self, v, m, batch, learnt=batch * self.n_completion, num_generations=batch, beta=0.04 if v.get("beta") else 0.0, **options)

    def make(self, m, tokenizer, **options):
        import datasets
        import trl
        import trl.trainer.grpo_trainer as grpo
        plain, grpo.create_model_from_path = grpo.create_model_from_path, lambda *of, **others: self.reference
        data = datasets.Dataset.from_dict({"prompt": ["a"]})
        del options["activation_offloading"]         # which it has not
        args = trl.GRPOConfig(max_completion_length=self.n_completion, **options)
        trainer = trl.GRPOTrainer(model=m, args=args, train_dataset=data, processing_class=tokenizer, reward_funcs=lambda completions, **of: [1.0] * len(completions))
        grpo.create_model_from_path = plain
        trainer._tokenize_prompts = lambda prompts: ([[1] * len(x) for x in prompts], None, {})
        trainer._generate_single_turn = lambda prompts, *of, **others: ([[1] * self.n_completion for x in prompts], None)
        return trainer

    def step(self, inputs, mark):
        """inputs: of each sequence a prompt, a text of so many letters. What comes before the model's own pass is the reference's."""
        plain = self.trainer._compute_loss

        def compute_loss(*of):
            mark("forward")
            return plain(*of)
        def backward(loss, **kwargs):
            mark("output")
            mark("backward")
            self.backward(loss, **kwargs)
        self.trainer.accelerator.backward = backward
        self.trainer._buffered_inputs = None
        self.trainer._compute_loss = compute_loss if self.reference else plain
        with yes():
            self.trainer.training_step(self.m, inputs, None)
        self.trainer._compute_loss = plain


def evaluate_all(loop, samples):
    """A Trainer's whole evaluate()."""
    if isinstance(loop, Sft):
        import datasets
        with yes():
            loop.trainer.evaluate(datasets.Dataset.from_list(samples))
    else:
        loop.trainer.evaluate(samples)


LOOPS = {"torch": Plain, "hf": Trainer, "trl": Sft, "dpo": Dpo, "reward": Reward, "grpo": Grpo}
