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


LOOPS = {"torch": Plain, "hf": Trainer}
