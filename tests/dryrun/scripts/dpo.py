# TRL DPOTrainer with a reference model. Argument 1: output folder.
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
from datasets import Dataset
from trl import DPOConfig, DPOTrainer
from common import llama, sentence, tokenizer

data = Dataset.from_list([{"prompt": sentence(i, 20), "chosen": sentence(i + 1, 30), "rejected": sentence(i + 2, 25)}
                          for i in range(48)])
trainer = DPOTrainer(
    model=llama(), ref_model=llama(), train_dataset=data, processing_class=tokenizer(),
    args=DPOConfig(output_dir=sys.argv[1], max_steps=5, per_device_train_batch_size=4, report_to="none",
                   max_length=128, save_strategy="no", bf16=True, disable_tqdm=True))
trainer.train()
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
