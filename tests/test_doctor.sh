#!/bin/bash
# tests/test_doctor.sh: what vplan doctor makes of out-of-memory texts: each wording of tests/doctor/wordings.json with its class, its
# program, its card and every number, and logs in which the reason must be found. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import json, os, re, resource, subprocess, sys
from fractions import Fraction

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work, root = sys.argv[1:4]
os.chdir(work)
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def call(*words, data=None, **more):
    p = subprocess.run((vplan, "doctor") + words, input=data, stdin=subprocess.DEVNULL if data is None else None, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=120, **more)
    return p.returncode, p.stdout.decode("utf-8"), p.stderr.decode("utf-8", "replace")


def oom(text):
    data = text if isinstance(text, bytes) else text.encode()
    code, out, err = call("--oom", "-", "--json", data=data)
    ok(code == 0 and not err, "an answer", (code, err, data[:200]))
    return json.loads(out)


def screen(text, code=0):
    """What a person sees: 80 columns, the answer in the first line."""
    got, out, err = call("--oom", "-", data=text.encode())
    ok(got == code and not err, "a screen", (got, err))
    wide = [l for l in out.split("\n") if len(l) > 80 and " " in l.strip()]
    ok(not wide, "80 columns", wide)
    return out


def bytes_of(text):
    """"2.00 GiB", and "6.30 GiB - 6.29 GiB" of what a text says in two numbers, each rounded to the nearest byte."""
    if isinstance(text, int):
        return text
    if isinstance(text, list):
        return [bytes_of(t) for t in text]
    if " - " in text:
        a, b = text.split(" - ")
        return bytes_of(a) - bytes_of(b)
    number, unit = text.split()
    return int(Fraction(number) * UNITS[unit] + Fraction(1, 2))


# ---- wordings: class, program, card and every number, none besides ----
wordings = json.load(open(root + "/tests/doctor/wordings.json"))
ok(len(wordings) >= 120, "wordings", len(wordings))
for w in wordings:
    d = oom(w["text"] + "\n")
    got = (d["class"], d["framework"], d["gpu"])
    ok(got == (w["class"], w["framework"], w["gpu"]), w["text"][:160], got)
    want = {k: bytes_of(v) for k, v in w["numbers"].items()}
    ok(d["numbers"] == want, "numbers: " + w["text"][:160], "%s, wanted %s" % (d["numbers"], want))
    ok(d["line"] and d["evidence"] and all(e["text"] in w["text"] for e in d["evidence"]), "its lines: " + w["text"][:100], d["evidence"])
    ok(d["class"] == "not_oom" or d["remedies"] and d["next"], "what helps: " + w["text"][:100], d["remedies"])
    saves = [-1 if r["saves_bytes"] is None else r["saves_bytes"] for r in d["remedies"]]
    ok(saves == sorted(saves, reverse=True), "remedies by what they save", saves)
    screen(w["text"])
ok({w["class"] for w in wordings} == {"device_shortage", "fragmentation", "other_process", "memory_cap", "host_oom", "host_alloc", "pinned_limit", "shm_limit",
                                      "disguised_device_oom", "not_oom"}, "every class", "")
# the same behind what logs put before a line, and with the end of a line that Windows has
for w in wordings[::5]:
    for before in ("[rank3]: ", "2025-11-02 10:11:12,345 ERROR train.py:88 - ", "\x1b[31m", "(Trainer pid=41, ip=10.0.0.2) "):
        d = oom("epoch 1\r\n" + "\r\n".join(before + l for l in w["text"].split("\n")) + "\r\nbye\r\n")
        ok(d["class"] == w["class"] and {k: v for k, v in d["numbers"].items() if k != "killed_pid"} ==
           {k: bytes_of(v) for k, v in w["numbers"].items() if k != "killed_pid"}, before + w["text"][:100], (d["class"], d["numbers"]))

# ---- logs in which the reason is one of several lines: tests/doctor/logs/NAME.log, what is found in logs.json ----
for name, want in sorted(json.load(open(root + "/tests/doctor/logs.json")).items()):
    code, out, err = call("--oom", "%s/tests/doctor/logs/%s.log" % (root, name), "--json")
    ok(code == 0 and not err, name, (code, err))
    d = json.loads(out)
    for key, value in want.items():
        got = d
        for part in key.split("."):
            got = got[int(part)] if isinstance(got, list) else (got or {}).get(part)
        ok(value[1:] in str(got) if isinstance(value, str) and value.startswith("~") else got == value, "%s: %s" % (name, key), "%r, wanted %r" % (got, value))

# ---- how a log may be written ----
message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.13 GiB is free. Including non-PyTorch memory, this process has 77.96 GiB memory in use. Of the allocated memory 76.10 GiB is allocated by PyTorch, and 712.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
numbers = {"requested_bytes": "2.00 GiB", "total_bytes": "79.10 GiB", "free_bytes": "1.13 GiB", "process_bytes": "77.96 GiB", "allocated_bytes": "76.10 GiB", "reserved_unallocated_bytes": "712.00 MiB"}
numbers = {k: bytes_of(v) for k, v in numbers.items()}
trace = 'Traceback (most recent call last):\n  File "/code/train.py", line 41, in step\n    loss.backward()\n  File "/opt/site-packages/torch/_tensor.py", line 525, in backward\n    torch.autograd.backward(\n'
wrapped = "\n".join(re.findall(r".{1,72}(?: |$)", message))
forms = {
    "a progress bar's carriage returns": ("".join("\r%3d%%|###   | loss 2.1" % i for i in range(50)) + "\r" + message + "\n", 1),
    "UTF-16, as PowerShell writes it": (("begin\r\n" + trace + message + "\r\n").encode("utf-16"), 7),
    "bytes that are no text": (b"\xff\xfe\x80\x81 caf\xe9\n\x00\x01\x02\n" + message.encode() + b" \xff\n", 3),
    "a line of JSON": (json.dumps({"level": "error", "exc_info": trace + message}) + "\n", 1),
    "JSON in JSON": (json.dumps({"log": json.dumps({"msg": trace + message}) + "\n", "stream": "stderr"}) + "\n", 1),
    "a Python repr": (repr((trace + message).encode()) + "\n", 1),
    "lines broken at 72 columns": ("step 1\n\n" + wrapped + "\n\nnext\n", 3),
    "no line end": (message, 1),
    "colours in the words": (message.replace("CUDA out", "\x1b[1m\x1b[31mCUDA\x1b[0m out").replace("2.00", "\x1b[33m2.00\x1b[0m") + "\n", 1),
    "an empty line first": ("\n\n" + message + "\n", 3),
}
for name, (text, line) in forms.items():
    d = oom(text)
    ok((d["class"], d["framework"], d["gpu"], d["line"]) == ("device_shortage", "pytorch", 0, line), name, (d["class"], d["framework"], d["gpu"], d["line"]))
    ok(d["numbers"] == numbers, name + ": numbers", d["numbers"])
    if trace.split("\n")[1].split('"')[1] in (text if isinstance(text, str) else text.decode("latin-1").replace("\0", "")):
        ok(d["phase"] == "backward" and d["frame"]["file"] == "/code/train.py" and d["frame"]["line"] == 41, name + ": phase", (d["phase"], d["frame"]))

# two ranks whose lines are interleaved: each has its own traceback
a = ["[rank0]: " + l for l in (trace + message.replace("GPU 0", "GPU 0")).split("\n")]
b = ["[rank1]: " + l for l in (trace.replace("/code/train.py", "/code/eval.py").replace("loss.backward()", "self.evaluate()") + message.replace("GPU 0", "GPU 1").replace("2.00 GiB", "3.00 GiB")).split("\n")]
mixed = [l for pair in zip(b, a) for l in pair]
d = oom("\n".join(mixed) + "\n")
ok((d["rank"], d["gpu"], d["numbers"]["requested_bytes"], d["frame"]["file"]) == (1, 1, 3 << 30, "/code/eval.py"), "interleaved ranks", (d["rank"], d["gpu"], d["frame"]))
ok([e["line"] for e in d["evidence"]] == [11, 12], "both are evidence", d["evidence"])

# ---- what is known of the phase ----
frame = '  File "%s", line %d, in %s\n    %s\n'
for want, frames in {
        "optimizer, first step": [("/x/site-packages/torch/optim/adamw.py", 90, "step", "has_complex = self._init_group("), ("/x/site-packages/torch/optim/adamw.py", 120, "_init_group", "state['exp_avg'] = torch.zeros_like(")],
        "optimizer": [("/x/site-packages/torch/optim/adam.py", 700, "_multi_tensor_adam", "exp_avg_sq_sqrt = torch._foreach_sqrt(")],
        "backward": [("t.py", 3, "<module>", "accelerator.backward(loss)"), ("/x/torch/_tensor.py", 525, "backward", "torch.autograd.backward("), ("/x/torch/utils/checkpoint.py", 700, "recompute_fn", "fn(*args)"), ("/x/torch/nn/modules/module.py", 5, "_call_impl", "x")],
        "loss": [("t.py", 3, "<module>", "out = model(**b)"), ("/x/transformers/loss/loss_utils.py", 36, "fixed_cross_entropy", "loss = nn.functional.cross_entropy(")],
        "load": [("t.py", 3, "<module>", "m = AutoModel.from_pretrained(n)"), ("/x/transformers/modeling_utils.py", 36, "from_pretrained", "x")],
        "evaluation": [("/x/transformers/trainer.py", 9, "evaluation_loop", "x"), ("/x/transformers/trainer.py", 9, "prediction_step", "x"), ("/x/torch/nn/modules/module.py", 5, "_call_impl", "x")],
        "save": [("/x/transformers/trainer.py", 9, "_save_checkpoint", "x"), ("/x/torch/distributed/checkpoint/state_dict.py", 9, "get_state_dict", "x")],
        "forward": [("/x/transformers/models/llama/modeling_llama.py", 9, "forward", "x = self.act_fn(self.gate_proj(x))")]}.items():
    d = oom("Traceback (most recent call last):\n" + "".join(frame % f for f in frames) + message + "\n")
    ok(d["phase"] == want, "phase: " + want, d["phase"])
d = oom('Traceback (most recent call last)\nCell In[5], line 3\nFile ~/lib/python3.11/site-packages/torch/nn/modules/module.py:1501, in Module._call_impl(self, *args)\n' + message)
ok(d["frame"]["line"] == 1501 and d["frame"]["function"] == "Module._call_impl", "a notebook's traceback", d["frame"])

# ---- what is said of the numbers ----
out = screen("RuntimeError: CUDA out of memory. Tried to allocate 4.00 GiB (GPU 0; 23.69 GiB total capacity; 14.10 GiB already allocated; 1.71 GiB free; 21.20 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb")
ok(out.startswith("FRAGMENTATION: ") and "7.10 GiB are reserved but not allocated, which is more than the 4.00\n" in out, "the arithmetic", out[:300])
d = oom("RuntimeError: CUDA out of memory. Tried to allocate 4.00 GiB (GPU 0; 23.69 GiB total capacity; 14.10 GiB already allocated; 1.71 GiB free; 21.20 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb")
ok((d["since"], d["until"]) == ("1.10", "2.0") and "max_split_size_mb:128" in d["remedies"][0]["text"], "that version has no expandable segments", d["remedies"][0])
# one byte of the text's precision decides: 2.00 GiB free of 2.00 GiB asked for is no fragmentation
edge = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity; 14.10 GiB already allocated; %s free; %s reserved in total by PyTorch)"
for free, reserved, want in ("1.99 GiB", "16.10 GiB", "fragmentation"), ("1.99 GiB", "16.09 GiB", "device_shortage"), ("2.00 GiB", "16.10 GiB", "device_shortage"):
    ok(oom(edge % (free, reserved))["class"] == want, "fragmentation's border", (free, reserved, want))
d = oom(message.replace("this process has 77.96", "this process has 90.00"))
ok(any("outside PyTorch's allocator" in r["text"] for r in d["remedies"]), "another library's pool", d["remedies"])
d = oom("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.13 GiB is free. Process 1 has 25.02 GiB memory in use. Process 2 has 25.01 GiB memory in use. Including non-PyTorch memory, this process has 26.00 GiB memory in use. Of the allocated memory 25.10 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.")
ok("LOCAL_RANK" in d["remedies"][0]["text"], "ranks on one card", d["remedies"])

# ---- the command of the log ----
d = oom("+ torchrun --nproc_per_node 2 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 16 --max_length 4096 --bf16 True\n" + message)
ok(d["next"][0] == "vplan estimate qwen2.5-7b --trainer hf --budget 79.10GiB --seq 4096 --micro-batch 16", "its model and arguments", d["next"])
ok(d["next"][1].endswith("-- torchrun --nproc_per_node 2 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 16 --max_length 4096 --bf16 True"), "the command itself", d["next"])
d = oom(message)
ok(d["next"][0] == "vplan estimate MODEL --trainer hf --budget 79.10GiB --seq TOKENS --micro-batch SAMPLES", "what has to be filled in", d["next"])
d = oom("$ python train.py --model_name_or_path 'x; rm -rf /' --bf16 $(id)\n" + message)
ok(all("'x; rm -rf /'" in c or "MODEL" in c for c in d["next"]) and "'$(id)'" in d["next"][1], "a shell would run nothing of it", d["next"])

# ---- whatever comes ----
for name, data in {"nothing": b"", "a line end": b"\n", "noise": bytes(range(256)) * 4096, "escapes": b"\x1b[" * 5000, "NULs": b"\0" * 100000, "returns": b"\r" * 100000,
                   "digits": b"Tried to allocate " + b"9" * 100000 + b" GiB CUDA out of memory. Tried to allocate 1" + b"," * 1000, "backslashes": b"\"\\" * 100000 + b"\n" + b"\\" * 100000,
                   "open": b"CUDA out of memory. Tried to allocate \n" * 5000, "frames": b"Traceback (most recent call last):\n" * 1000 + b'File "", line 0\nFile ".py:\nFile "a", line 99999999999999999999, in \n'}.items():
    d = oom(data)
    ok(d["class"] in ("not_oom", "device_shortage"), "hostile: " + name, d["class"])
d = oom("ValueError: \x1b]0;evil\x07 CUDA out of memory. Tried to allocate 1.00 GiB \x1b[2J\u202e")
ok("\x1b" not in json.dumps(d, ensure_ascii=False), "no escapes in the answer", d)
ok("\x1b" not in screen("ValueError: \x1b[2JCUDA out of memory. Tried to allocate 1.00 GiB \x9b2J\n"), "nor on the screen", "")

# a line of 200 MB, and 200 MB of lines, in 96 MB of address space
def small():
    resource.setrlimit(resource.RLIMIT_AS, (96 << 20, 96 << 20))


def stream(pieces):
    p = subprocess.Popen((vplan, "doctor", "--oom", "-", "--json"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=small)
    try:
        for piece in pieces:
            p.stdin.write(piece)
        p.stdin.close()
    except BrokenPipeError:
        pass
    out, err = p.stdout.read(), p.stderr.read()
    return p.wait(), out.decode() or "{}", err


code, out, err = stream([b"x" * (1 << 20)] * 100 + [message.encode()] + [b"y" * (1 << 20)] * 100)
d = json.loads(out)
ok(code == 0 and (d["class"], d["line"], d["numbers"]) == ("device_shortage", 1, numbers), "a line of 200 MB", (code, err, out[:300]))
code, out, err = stream([b"step 12 loss 2.31 lr 1e-4 CUDA graphs off, memory 12.3 GiB\n" * 17000] * 200 + [b"\n" + message.encode() + b"\n"])
d = json.loads(out)
ok(code == 0 and (d["class"], d["line"], d["numbers"]) == ("device_shortage", 17000 * 200 + 2, numbers), "200 MB of lines", (code, err, out[:300]))
code, out, err = stream([(message + "\n").encode() * 2000] * 200)
d = json.loads(out)
ok(code == 0 and d["line"] == 1 and len(d["evidence"]) <= 12, "the message 400,000 times", (code, err, out[:300]))

# ---- what cannot be read ----
for words, code in (("--oom", "no-such.log"), 4), (("--oom", work), 4), (("--oom",), 2):
    got, out, err = call(*words)
    ok(got == code and err.startswith("vplan: "), "exit %d: %s" % (code, words), (got, err))
got, out, err = call("--oom", "no-such.log", "--json")
ok(got == 4 and json.loads(out)["error"]["file"] == "no-such.log", "the error as JSON", out)
# ---- what is free and what lies unused in segments count together where segments expand: 1.5 + 2.5 GiB hold 4, 1.4 + 2.5 do not ----

TEXT = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 23.52 GiB of which %s GiB is free. Including "
        "non-PyTorch memory, this process has 21.00 GiB memory in use. Of the allocated memory 18.00 GiB is allocated by PyTorch, and 2.50 GiB is reserved by "
        "PyTorch but unallocated.\n")
for free, helps in (("1.50", True), ("1.40", False)):
    j = oom(TEXT % free)
    said = [r for r in j["remedies"] if "expandable_segments" in r["text"]]
    ok(j["class"] == "device_shortage" and bool(said) == helps and all(r["saves_bytes"] == 5 * 2**29 for r in said), free + " GiB free", j["remedies"])

finish()
P
