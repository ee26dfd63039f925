"""What runs a model's forward and backward: a plain loop, or transformers' Trainer, each as its users start it.

A loop is made of the model and its inputs; step() runs forward and backward once and calls mark(PHASE) where "output" (the
model's output goes) and "backward" begin.
"""
import contextlib
import tempfile


def half_of(v):
    import torch
    return torch.float16 if v["precision"].startswith("fp16") else torch.bfloat16


def has_autocast(v):
    return v["precision"] in ("bf16-mixed", "bf16-amp", "fp16-mixed")


class Plain:
    def __init__(self, v, m, batch):
        self.v, self.m = v, m

    def step(self, inputs, mark):
        import torch
        with torch.autocast("cuda", dtype=half_of(self.v)) if has_autocast(self.v) else contextlib.nullcontext():
            out = self.m(**inputs)
        loss = out.loss
        if self.v["task"] != "seq2seq":       # where the encoder's output goes too, which backward makes other sums of
            mark("output")
        if not self.v["keep_output"]:
            out = None
        mark("backward")
        loss.backward()
        loss = out = None


class Trainer:
    """transformers.Trainer's own training_step; the count of targets is a tensor on the card, as get_batch_samples makes it."""

    def __init__(self, v, m, batch, **options):
        import transformers
        args = transformers.TrainingArguments(output_dir=tempfile.gettempdir() + "/none", report_to=[], per_device_train_batch_size=batch,
                                              bf16=has_autocast(v) and v["precision"] != "fp16-mixed",
                                              fp16=v["precision"] == "fp16-mixed", **options)
        self.trainer = transformers.Trainer(model=m, args=args, train_dataset=[{}])
        self.trainer.current_gradient_accumulation_steps = 1
        self.m = self.trainer.accelerator.prepare(m)
        self.backward = self.trainer.accelerator.backward

    def step(self, inputs, mark):
        def backward(loss, **kwargs):
            mark("output")
            mark("backward")
            self.backward(loss, **kwargs)
        self.trainer.accelerator.backward = backward
        count = inputs["labels"].new_zeros(())
        self.trainer.training_step(self.m, dict(inputs), count)


class Torch:
    """The module torch for the fused head: notes how many allocations came before its first product."""

    def __init__(self, torch, count):
        self.torch, self.count, self.seen = torch, count, []

    def __getattr__(self, name):
        return getattr(self.torch, name)

    def mm(self, a, b, out):
        self.seen.append(self.count())
        return self.torch.mm(a, b, out=out)


class Silent:
    """In place of a Triton kernel: it has no scratch."""

    def __getitem__(self, grid):
        return lambda *args, **kwargs: None


def expecting(torch):
    """aten::nonzero as if every element was: what a mask of targets selects where all tokens are learnt from."""
    import ctypes
    expect = ctypes.CDLL(None).vplan_null_expect
    expect.argtypes = [ctypes.c_int, ctypes.c_uint64]
    plain = torch.ops.aten.nonzero.out

    def nonzero(t):
        out = torch.empty(0, dtype=torch.int64, device=t.device)
        expect(1, t.numel())
        try:
            return plain(t, out=out)
        finally:
            expect(0, 0)
    library = torch.library.Library("aten", "IMPL", "CUDA")
    library.impl("nonzero", nonzero, allow_override=True)
    return library


class Sft(Trainer):
    """trl.SFTTrainer's training_step: its head and loss in tiles, of which there is one here where whole is asked for; every token is
    learnt from. A mask is always there; v["mask"] says whether it holds padding."""

    def __init__(self, v, m, batch, **options):
        import tempfile
        import warnings
        import datasets
        import tokenizers
        import torch
        import transformers
        import transformers.masking_utils as masks
        import trl
        import trl.kernels.chunked_logprob as head
        warnings.simplefilter("ignore")
        self.library = expecting(torch)
        head._forward_kernel = head._backward_kernel = Silent()
        self.torch = head.torch = Torch(torch, options.pop("count", lambda: 0))
        if options.pop("whole", False):
            head.TOKEN_CHUNK_SIZE = 1 << 40
        if not v["mask"]:
            masks.fast_all = lambda tensor: bool(tensor.sum() == tensor.numel()) or True
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0, "a": 1}, unk_token="<eos>"))
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", pad_token="<eos>", unk_token="<eos>")
        args = trl.SFTConfig(output_dir=tempfile.gettempdir() + "/none", report_to=[], per_device_train_batch_size=batch,
                             gradient_checkpointing=v["recompute"] == "full", bf16=has_autocast(v) and v["precision"] != "fp16-mixed",
                             fp16=v["precision"] == "fp16-mixed", dataset_kwargs={"skip_prepare_dataset": True}, **options)
        data = datasets.Dataset.from_dict({"input_ids": [[1, 1, 1]], "labels": [[1, 1, 1]]})
        self.trainer = trl.SFTTrainer(model=m, args=args, train_dataset=data, processing_class=tokenizer)
        self.trainer.current_gradient_accumulation_steps = 1
        self.trainer.model_wrapped = self.m = self.trainer.accelerator.prepare(m)
        self.backward = self.trainer.accelerator.backward

    def step(self, inputs, mark):
        import torch
        inputs = dict(inputs)
        plain = torch.Tensor.__bool__
        torch.Tensor.__bool__ = lambda t: plain(t) or t.is_cuda
        try:
            Trainer.step(self, inputs, mark)
        finally:
            torch.Tensor.__bool__ = plain


LOOPS = {"torch": Plain, "hf": Trainer, "trl": Sft}
