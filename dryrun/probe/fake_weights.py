# dryrun/probe/fake_weights.py: a checkpoint folder without contents.
#   python fake_weights.py CONFIG OUT_DIR DTYPE force|''
# Builds the model that a config.json names on the meta device and writes safetensors files with its names,
# shapes and dtypes whose data is a hole: no disk, reads as zeros.
import json
import os
import sys

SHARD_BYTES = 5 * 10 ** 9
NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int64": "I64", "int32": "I32",
         "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}


def fail(text, code):
    sys.stderr.write("vplan dryrun: %s\n" % text)
    sys.exit(code)


def main():
    source, out, dtype, force = sys.argv[1:5]
    path = os.path.join(source, "config.json") if os.path.isdir(source) else source
    try:
        with open(path) as f:
            fields = json.load(f)
    except (OSError, ValueError) as e:
        fail("%s: %s" % (path, e), 4)
    if os.path.isdir(out) and os.listdir(out) and not force:
        fail("%s is not empty: say --force to write into it" % out, 2)
    try:
        import torch
        import transformers
    except ImportError as e:
        fail("%s: --fake-weights needs a Python with torch and transformers" % e, 5)
    if "auto_map" in fields and fields.get("model_type") not in transformers.CONFIG_MAPPING:
        fail("%s needs code of its own (auto_map), which is not run" % path, 4)
    try:
        config = transformers.AutoConfig.for_model(**fields)
    except (ValueError, TypeError, KeyError) as e:
        fail("%s: %s" % (path, e), 4)
    wanted = (fields.get("architectures") or [None])[0]
    cls = getattr(transformers, wanted, None) if wanted else None
    with torch.device("meta"):
        model = cls(config) if cls is not None else transformers.AutoModelForCausalLM.from_config(config)
    name = dtype or str(fields.get("dtype") or fields.get("torch_dtype") or "float32").replace("torch.", "")
    if name not in ("float32", "float16", "bfloat16"):
        fail("--dtype %s: float32, float16 or bfloat16" % name, 2)
    kind = getattr(torch, name)
    tensors, seen = [], set()
    tied = set()
    for attribute in ("_tied_weights_keys", "all_tied_weights_keys"):
        keys = getattr(model, attribute, None) or ()
        tied.update(keys if isinstance(keys, dict) else list(keys))
    share = bool(getattr(config, "tie_word_embeddings", False))
    for key, t in model.state_dict(keep_vars=True).items():
        if id(t) in seen or (share and key in tied):
            continue
        seen.add(id(t))
        d = kind if t.is_floating_point() else t.dtype
        tensors.append((key, NAMES[str(d).replace("torch.", "")], list(t.shape),
                        t.numel() * torch.empty(0, dtype=d).element_size()))
    shards, size = [[]], 0
    for t in tensors:
        if size and size + t[3] > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(t)
        size += t[3]
    os.makedirs(out, exist_ok=True)
    where = {}
    for i, shard in enumerate(shards):
        file = "model.safetensors" if len(shards) == 1 else "model-%05d-of-%05d.safetensors" % (i + 1, len(shards))
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for key, d, shape, n in shard:
            header[key] = {"dtype": d, "shape": shape, "data_offsets": [at, at + n]}
            where[key] = file
            at += n
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        temporary = os.path.join(out, file + ".tmp")
        with open(temporary, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            f.truncate(8 + len(text) + at)
        os.replace(temporary, os.path.join(out, file))
    if len(shards) > 1:
        with open(os.path.join(out, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": sum(t[3] for t in tensors)}, "weight_map": where}, f)
    fields["dtype"] = name
    fields.pop("torch_dtype", None)
    if cls is None:
        fields["architectures"] = [type(model).__name__]
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(fields, f, indent=2)
    print("%s: %d tensors, %d bytes that take no disk, %s, %d file%s" % (
        out, len(tensors), sum(t[3] for t in tensors), name, len(shards), "s" if len(shards) > 1 else ""))


main()
