# Lightning Trainer with validation. Argument 1: folder.
import os
import sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lightning
import torch
from common import Tokens, llama


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = llama()

    def training_step(self, batch, idx):
        return self.model(**batch).loss

    def validation_step(self, batch, idx):
        self.log("val", self.model(**batch).loss)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


trainer = lightning.Trainer(max_steps=6, precision="bf16-mixed", accelerator="gpu", devices=1, logger=False,
                            default_root_dir=sys.argv[1], enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Module(), torch.utils.data.DataLoader(Tokens(32), batch_size=4),
            torch.utils.data.DataLoader(Tokens(8), batch_size=4))
print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
