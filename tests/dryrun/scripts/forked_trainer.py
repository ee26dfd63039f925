# Training by transformers' Trainer (trainer) or TRL's (sft), with its packages imported first, as scripts of theirs do: for check_forks.py.
import os
import sys

import torch
from datasets import Dataset
from transformers import HfArgumentParser, Trainer, TrainingArguments

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from common import Tokens, llama, sentence, tokenizer  # noqa: E402

words = ["--output_dir", "out", "--report_to", "none", "--disable_tqdm", "true", "--do_eval", "true"] + sys.argv[2:]
net = torch.nn.Module.train(llama(num_hidden_layers=2))
if sys.argv[1] == "trainer":
    args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)
    trainer = Trainer(model=net, args=args, train_dataset=Tokens(64, 128), eval_dataset=Tokens(16, 128))
else:
    from trl import SFTConfig, SFTTrainer
    args, = HfArgumentParser(SFTConfig).parse_args_into_dataclasses(words)
    rows = Dataset.from_list([{"text": sentence(i, 128)} for i in range(64)])
    trainer = SFTTrainer(model=net, args=args, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer())
trainer.train()
trainer.evaluate()
trainer.save_model()
