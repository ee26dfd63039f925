"""Families whose training step is recorded: which sizes a config has, and the config of given sizes.

Symbols: h hidden, a heads, k key/value heads, d head size, f intermediate, V vocabulary, P positions, T token types,
L layers. `symbols` of a family are those that are free; the others follow from them.
"""
import random

HEAD_SIZES = [80, 128, 104, 64, 96, 112, 72]
LAYER_NORMS = {"gpt2", "opt", "gpt_neox", "bert", "roberta"}
WORKSPACES = {1048576, 33554432}         # sizes that must mean nothing else


def prime_above(n):
    n += 1
    while any(n % p == 0 for p in range(2, int(n ** 0.5) + 1)):
        n += 1
    return n


def draw(rng, gqa, free_width, index, rows=79000):
    """One shape: sizes that share no accidental relation. Three kinds take turns: some 6,000 rows and a small table; 80,000
    rows (60,000 with layer norms, whose backward is another kernel above 65,536); 18,000 rows and a table as large. No tensor that is summed over its rows has 2^31 bytes (PyTorch cuts those)."""
    kind = index % 3
    while True:
        k = rng.choice([2, 3, 5])
        a = k * rng.choice([2, 3, 4]) if gqa else rng.choice([6, 7, 9, 10, 11, 13])
        if kind == 1:
            a, k = (6, 3) if gqa else (7, 7)
        if not gqa:
            k = a
        d = HEAD_SIZES[index % len(HEAD_SIZES)]
        h = a * 8 * prime_above(rng.randrange(6, 20)) if free_width else a * d
        f = 8 * prime_above(rng.randrange(150, 400))
        v = prime_above(rng.randrange(*[(3000, 9000), (3000, 5000), (16000, 20000)][kind]))
        s = 8 * prime_above(rng.randrange(40, 80))
        b = [rng.choice([11, 13]), rows // s, 18000 // s][kind]
        bytes_of = {c * x * y for c in (1, 2, 4) for x in (h, f, v, a * d, k * d) for y in (h, f, a * d, k * d)}
        if 4 * b * s * max(3 * h, f, v) < 2**31 and not bytes_of & WORKSPACES:
            return dict(h=h, a=a, k=k, d=d, f=f, V=v, B=b, S=s, P=prime_above(rng.randrange(700, 1500)), T=rng.choice([2, 3]),
                        r=rng.choice([8, 10, 12, 14, 22]))


def llama_like(kind, free_width=False, **more):
    def config(s, L, tied):
        c = dict(hidden_size=s["h"], num_attention_heads=s["a"], num_key_value_heads=s["k"], head_dim=s["d"],
                 intermediate_size=s["f"], vocab_size=s["V"], num_hidden_layers=L, max_position_embeddings=4096,
                 tie_word_embeddings=tied)
        c.update(more)
        return kind, c
    return config


def gpt2(s, L, tied):
    return "gpt2", dict(n_embd=s["h"], n_head=s["a"], n_layer=L, vocab_size=s["V"], n_positions=s["P"], n_inner=s["f"],
                        tie_word_embeddings=tied)


def neox(s, L, tied):
    return "gpt_neox", dict(hidden_size=s["h"], num_attention_heads=s["a"], num_hidden_layers=L, vocab_size=s["V"],
                            intermediate_size=s["f"], max_position_embeddings=4096, tie_word_embeddings=tied)


def opt(s, L, tied):
    return "opt", dict(hidden_size=s["h"], num_attention_heads=s["a"], num_hidden_layers=L, vocab_size=s["V"],
                       ffn_dim=s["f"], max_position_embeddings=s["P"], word_embed_proj_dim=s["h"], tie_word_embeddings=tied)


def bert(kind):
    def config(s, L, tied):
        return kind, dict(hidden_size=s["h"], num_attention_heads=s["a"], num_hidden_layers=L, vocab_size=s["V"],
                          intermediate_size=s["f"], max_position_embeddings=s["P"], type_vocab_size=s["T"], pad_token_id=1,
                          tie_word_embeddings=tied)
    return config


def gemma2(s, L, tied):
    return "gemma2", dict(llama_like("gemma2")(s, L, tied)[1], sliding_window=4096)


# name: (config of a shape, group queries allowed, width free of the heads, layers that make one period)
FAMILIES = {
    "gpt2": (gpt2, (False,), False, 1),
    "llama": (llama_like("llama"), (True, False), True, 1),
    "mistral": (llama_like("mistral", sliding_window=None), (True, False), True, 1),
    "qwen2": (llama_like("qwen2"), (True, False), False, 1),
    "qwen3": (llama_like("qwen3"), (True, False), True, 1),
    "gemma2": (gemma2, (True, False), True, 2),
    "phi3": (llama_like("phi3", pad_token_id=0), (True, False), False, 1),
    "opt": (opt, (False,), False, 1),
    "gpt_neox": (neox, (False,), False, 1),
    "bert": (bert("bert"), (False,), False, 1),
    "roberta": (bert("roberta"), (False,), False, 1),
}


def shapes(family, gqa, n, seed=1):
    rng = random.Random("%s %s %d" % (family, gqa, seed))
    return [draw(rng, gqa, FAMILIES[family][2], i, 60000 if family in LAYER_NORMS else 79000) for i in range(n)]
