# A training command whose arguments stand in the files of somebody's trainer: reads them as that trainer does (the few lines of YAML
# and TOML that the test writes), and trains as training.py beside it (no_torch.py), which is no PyTorch.
#     python3 from_file.py [words] FILE... [--option value...] [key=value...]
import json
import re
import sys


def scalar(text):
    text = re.sub(r"\s+#.*", "", text).strip()
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text.strip("\"'")


def flat(value, prefix=""):
    if not isinstance(value, dict):
        return {prefix: value}
    out = {}
    for k, v in value.items():
        out.update(flat(v, prefix + "." + k if prefix else k))
    return out


def read(path):
    text = open(path).read()
    if path.endswith(".json"):
        return flat(json.loads(text))
    out, parents = {}, [(-1, "")]
    for line in text.splitlines():
        if not line.strip() or line.strip().startswith("#"):
            continue
        if path.endswith(".toml"):
            if line.startswith("["):
                parents = [(-1, line.strip()[1:-1] + ".")]
            else:
                key, value = line.split("=", 1)
                out[parents[0][1] + key.strip()] = scalar(value)
            continue
        indent = len(line) - len(line.lstrip())
        key, value = line.strip().split(":", 1)
        while parents[-1][0] >= indent:
            parents.pop()
        if value.strip():
            out[parents[-1][1] + key] = scalar(value)
        else:
            parents.append((indent, parents[-1][1] + key + "."))
    return out


settings, words = {}, sys.argv[1:]


def add(new):
    for key, value in new.items():
        for name in ("train_micro_batch_size_per_gpu", "per_device_train_batch_size"):
            if key in ("train_micro_batch_size_per_gpu", "per_device_train_batch_size") and settings.get(name, value) != value:
                sys.exit("the micro-batch is %s and %s" % (settings[name], value))
        if key == "gradient_accumulation_steps" and settings.get(key, value) != value:
            sys.exit("the accumulation is %s and %s" % (settings[key], value))
        settings[key] = value


for i, word in enumerate(words):
    if word.endswith((".json", ".yaml", ".yml", ".toml")):
        add(read(word))
    elif word.startswith("--") and i + 1 < len(words) and not words[i + 1].startswith("--"):
        add({word[2:]: scalar(words[i + 1])})
for word in words:             # key=value beats every file, as OmegaConf's dot lists do
    if re.fullmatch(r"[a-z_.]+=[^=]*", word):
        settings[word.split("=")[0]] = scalar(word.split("=")[1])
for name in ("deepspeed", "deepspeed_config.deepspeed_config_file"):
    if str(settings.get(name, "")).endswith(".json") and settings[name] not in words:
        add(read(settings[name]))


def first(*names, otherwise):
    return next((settings[n] for n in names if n in settings), otherwise)


micro = first("per_device_train_batch_size", "micro_batch_size", "train_micro_batch_size_per_gpu", "data.batch_size",
              "training.local_batch_size", otherwise=1)
accum = first("gradient_accumulation_steps", "trainer.accumulate_grad_batches", otherwise=1)
if "training.global_batch_size" in settings:
    accum = settings["training.global_batch_size"] // micro
ckpt = first("gradient_checkpointing", otherwise=False) or settings.get("activation_checkpoint.mode", "none") != "none" \
    or not settings.get("disable_gradient_checkpointing", True)
fused = "fused" in str(first("optim", "optimizer", "optimizer.implementation", otherwise="adamw_torch_fused"))
output = first("output_dir", "trainer.default_root_dir", "job.dump_folder", otherwise="out")
sys.argv = ["training.py", "--batch", str(micro), "--accum", str(accum), "--ckpt", str(int(ckpt)), "--optim", "b" if fused else "a",
            "--output_dir", output]
exec(open("training.py").read())
