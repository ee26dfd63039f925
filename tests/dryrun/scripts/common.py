# tests/dryrun/scripts/common.py: small models and data made here, so that no script downloads anything.
import torch


def llama(**kw):
    from transformers import LlamaConfig, LlamaForCausalLM
    fields = dict(vocab_size=2048, hidden_size=256, intermediate_size=704, num_hidden_layers=4,
                  num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=512, pad_token_id=0)
    fields.update(kw)
    return LlamaForCausalLM(LlamaConfig(**fields))


class Tokens(torch.utils.data.Dataset):
    """n sequences of one length, the same every time."""

    def __init__(self, n=64, seq=128, vocab=2048):
        g = torch.Generator().manual_seed(0)
        self.ids = torch.randint(1, vocab, (n, seq), generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    vocab = {"<pad>": 0, "<eos>": 1, "<unk>": 2}
    vocab.update({"w%d" % i: i + 3 for i in range(2000)})
    t = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def sentence(i, n):
    return " ".join("w%d" % ((i * 31 + j * 7) % 2000) for j in range(n))
