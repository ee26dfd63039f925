# A training step as published side-by-side measurements had it: random tokens of one length, the loss the sum of the logits, no optimizer
# but one that steps over a single parameter, so that a step has an end. Argument 1: model; then --batch --seq --attention --ckpt --optim.
import argparse
import torch
import transformers as t

p = argparse.ArgumentParser()
p.add_argument("model", choices=("bert", "opt", "pythia"))
p.add_argument("--batch", type=int, default=1)
p.add_argument("--seq", type=int, default=512)
p.add_argument("--attention", default="sdpa")
o = p.parse_args()
model, config = {
    "bert": (t.BertLMHeadModel, t.BertConfig()),
    "opt": (t.OPTForCausalLM, t.OPTConfig(hidden_size=1024, num_hidden_layers=24, ffn_dim=4096, num_attention_heads=16, word_embed_proj_dim=512,
                                          do_layer_norm_before=False, max_position_embeddings=2048)),
    "pythia": (t.GPTNeoXForCausalLM, t.GPTNeoXConfig(vocab_size=50304, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                                                     intermediate_size=4096)),
}[o.model]
config._attn_implementation = o.attention
with torch.device("cuda"):
    net = model(config).half()
net.train()
optimizer = torch.optim.SGD([net.get_input_embeddings().weight.new_zeros(8).requires_grad_()], lr=0.0)
for _ in range(6):
    net.zero_grad()
    ids = torch.randint(1, 1000, (o.batch, o.seq), device="cuda")
    out = net(input_ids=ids, attention_mask=torch.ones_like(ids))
    out.logits.sum().backward()
    optimizer.step()
