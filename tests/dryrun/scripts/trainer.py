# HF Trainer. Argument 1: output folder; then any TrainingArguments as --name value.
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
from transformers import HfArgumentParser, Trainer, TrainingArguments, set_seed
from common import Tokens, llama

args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
    ["--output_dir", sys.argv[1], "--max_steps", "6", "--per_device_train_batch_size", "4", "--report_to", "none",
     "--logging_steps", "2", "--save_strategy", "no", "--disable_tqdm", "true"] + sys.argv[2:])
set_seed(0)
trainer = Trainer(model=llama(), args=args, train_dataset=Tokens(), eval_dataset=Tokens(16))
trainer.train()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
