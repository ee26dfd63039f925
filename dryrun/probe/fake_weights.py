# dryrun/probe/fake_weights.py: a checkpoint folder without contents.
#   python fake_weights.py CONFIG OUT_DIR DTYPE force|''
# Builds the model that a config.json names on the meta device and writes safetensors files with its names,
# shapes and dtypes whose data is a hole: no disk, reads as zeros. Of a folder with a model_index.json, a pipeline
# of diffusers, each model that it lists. What else a script reads of a folder (tokenizers, schedulers) is copied.
import importlib
import json
import os
import shutil
import sys

SHARD_BYTES = 5 * 10 ** 9
COPIED_MOST = 64 << 20
COPIED = (".json", ".txt", ".jinja", ".model")
NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int64": "I64", "int32": "I32",
         "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}


def fail(text, code):
    sys.stderr.write("vplan dryrun: %s\n" % text)
    sys.exit(code)


def wanted_package(name, path):
    try:
        return importlib.import_module(name)
    except ImportError as e:
        fail("%s: --fake-weights of %s needs a Python with torch and %s" % (e, path, name), 5)


def read_json(path):
    try:
        with open(path) as f:
            fields = json.load(f)
    except (OSError, ValueError) as e:
        fail("%s: %s" % (path, e), 4)
    if not isinstance(fields, dict):
        fail("%s: an object is wanted" % path, 4)
    return fields


def of_transformers(fields, path, wanted):
    """The model, and whether its class had to be guessed."""
    import torch
    transformers = wanted_package("transformers", path)
    if "auto_map" in fields and fields.get("model_type") not in transformers.CONFIG_MAPPING:
        fail("%s needs code of its own (auto_map), which is not run" % path, 4)
    try:
        config = transformers.AutoConfig.for_model(**fields)
    except (ValueError, TypeError, KeyError) as e:
        fail("%s: %s" % (path, e), 4)
    cls = wanted or getattr(transformers, (fields.get("architectures") or [""])[0] or "-", None)
    with torch.device("meta"):
        return (cls(config) if cls else transformers.AutoModelForCausalLM.from_config(config)), cls is None


def of_diffusers(fields, path):
    import torch
    diffusers = wanted_package("diffusers", path)
    cls = getattr(diffusers, str(fields["_class_name"]), None)
    if not isinstance(cls, type) or not issubclass(cls, diffusers.ModelMixin):
        fail("%s: diffusers %s has no model %s" % (path, diffusers.__version__, fields["_class_name"]), 4)
    try:
        with torch.device("meta"):
            return cls.from_config(fields)
    except (ValueError, TypeError, KeyError, NotImplementedError) as e:
        fail("%s: %s" % (path, e), 4)


def tensors_of(model, kind):
    import torch
    tensors, seen, tied = [], set(), set()
    for attribute in ("_tied_weights_keys", "all_tied_weights_keys"):
        keys = getattr(model, attribute, None) or ()
        tied.update(keys if isinstance(keys, dict) else list(keys))
    share = bool(getattr(model.config, "tie_word_embeddings", False))
    for key, t in model.state_dict(keep_vars=True).items():
        if id(t) in seen or (share and key in tied):
            continue
        seen.add(id(t))
        d = kind if t.is_floating_point() else t.dtype
        tensors.append((key, NAMES[str(d).replace("torch.", "")], list(t.shape),
                        t.numel() * torch.empty(0, dtype=d).element_size()))
    return tensors


def write_weights(tensors, out, stem):
    """The files, of which there are as many as is returned."""
    shards, size = [[]], 0
    for t in tensors:
        if size and size + t[3] > SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(t)
        size += t[3]
    where = {}
    for i, shard in enumerate(shards):
        file = stem + (".safetensors" if len(shards) == 1 else "-%05d-of-%05d.safetensors" % (i + 1, len(shards)))
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
        with open(os.path.join(out, stem + ".safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": sum(t[3] for t in tensors)}, "weight_map": where}, f)
    return len(shards)


def make(path, out, dtype, wanted=None):
    """One model: its files in out, by the config at path."""
    import torch
    fields = read_json(path)
    guessed = False
    if "_class_name" in fields and "model_type" not in fields:
        model, stem = of_diffusers(fields, path), "diffusion_pytorch_model"
    else:
        (model, guessed), stem = of_transformers(fields, path, wanted), "model"
    name = dtype or str(fields.get("dtype") or fields.get("torch_dtype") or "float32").replace("torch.", "")
    if name not in ("float32", "float16", "bfloat16"):
        fail("--dtype %s: float32, float16 or bfloat16" % name, 2)
    tensors = tensors_of(model, getattr(torch, name))
    os.makedirs(out, exist_ok=True)
    n_files = write_weights(tensors, out, stem)
    if stem == "model":
        fields["dtype"] = name
        fields.pop("torch_dtype", None)
    if guessed:
        fields["architectures"] = [type(model).__name__]
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(fields, f, indent=2)
    print("%s: %d tensors, %d bytes that take no disk, %s, %d file%s" % (
        out, len(tensors), sum(t[3] for t in tensors), name, n_files, "s" if n_files > 1 else ""))


def copy_rest(source, out):
    """The small text files of a folder that lie beside weights; none that says where weights are."""
    if not os.path.isdir(source) or os.path.realpath(source) == os.path.realpath(out):
        return
    for name in sorted(os.listdir(source)):
        path = os.path.join(source, name)
        if (name.endswith(COPIED) and not name.endswith(".index.json") and os.path.isfile(path)
                and os.path.getsize(path) <= COPIED_MOST):
            os.makedirs(out, exist_ok=True)
            shutil.copyfile(path, os.path.join(out, name))


def pipeline_class(library, name):
    """The class that an entry of model_index.json means, where it is a model; else None."""
    import torch
    if library in ("transformers", "diffusers"):
        module = wanted_package(library, name)
    else:                                  # a pipeline's own, as "stable_diffusion" has a safety checker
        try:
            module = importlib.import_module("diffusers.pipelines." + library)
        except ImportError:
            fail("model_index.json: %s of %s needs code of its own, which is not run" % (name, library), 4)
    cls = getattr(module, name, None)
    return cls if isinstance(cls, type) and issubclass(cls, torch.nn.Module) else None


def make_pipeline(source, out, dtype):
    wanted_package("diffusers", source)
    made = 0
    for part, entry in read_json(os.path.join(source, "model_index.json")).items():
        if part.startswith("_") or not isinstance(entry, list) or len(entry) != 2 or not entry[0]:
            continue
        if part in (".", "..") or os.path.basename(part) != part or not all(isinstance(e, str) for e in entry):
            fail("%s: model_index.json: %s is no folder of it and a class" % (source, json.dumps(part)), 4)
        folder, into = os.path.join(source, part), os.path.join(out, part)
        copy_rest(folder, into)
        config = os.path.join(folder, "config.json")
        cls = pipeline_class(*entry) if os.path.exists(config) else None
        if cls:
            make(config, into, dtype, None if entry[0] == "diffusers" else cls)
            made += 1
    if not made:
        fail("%s: model_index.json lists no model whose config.json lies in its folder" % source, 4)
    copy_rest(source, out)


def main():
    source, out, dtype, force = sys.argv[1:5]
    is_folder = os.path.isdir(source)
    if os.path.isdir(out) and os.listdir(out) and not force:
        fail("%s is not empty: say --force to write into it" % out, 2)
    wanted_package("torch", source)
    if is_folder and os.path.exists(os.path.join(source, "model_index.json")):
        return make_pipeline(source, out, dtype)
    path = os.path.join(source, "config.json") if is_folder else source
    read_json(path)
    copy_rest(source if is_folder else path, out)
    make(path, out, dtype)


main()
