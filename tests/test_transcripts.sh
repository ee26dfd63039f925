#!/bin/bash
# tests/test_transcripts.sh: the commands of seven people at a terminal of 80 columns. No line is longer; the answer is the first line,
# and the last says what to do next, or the screen is an answer in itself. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" <<'P'
import json, os, pty, re, shlex, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok

vplan, work = sys.argv[1:3]
os.chdir(work)
ENV = dict(os.environ, LC_ALL="C.UTF-8", OMP_NUM_THREADS="1", TERM="xterm", COLUMNS="80")
ESCAPE = re.compile("\033\\[[0-9;]*m")


def type_in(line, **env):
    """What a terminal shows of a command, and its exit code."""
    ours, theirs = pty.openpty()
    p = subprocess.Popen([vplan] + shlex.split(line), stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=dict(ENV, **env))
    os.close(theirs)
    out, ended = b"", 0
    while ended < 2:  # EIO is how Linux says that nobody writes any more; once it may come before the last lines do
        try:
            out, ended = out + os.read(ours, 1 << 16), 0
        except OSError:
            ended += 1
    os.close(ours)
    return p.wait(timeout=60), out.decode().replace("\r\n", "\n")


# What the last lines may be: a command to paste, under "next" or "what fits"; or what a sentence asks for.
NEXT = r"^(next|what fits) +\S.*(?:\n {11}.*)*\Z|^ {11}vplan (?:.*\\\n)*.*\Z"


def screen(line, code, first, last=NEXT):
    got, text = type_in(line)
    plain = ESCAPE.sub("", text).rstrip("\n")
    lines = plain.split("\n")
    wide = [l for l in lines if len(l) > 80 and " " in l[:80].strip()]
    ok(not wide, "80 columns: " + line, wide[:3])
    ok(got == code, line, "exit %d: %s" % (got, plain[-300:]))
    ok(re.search(first, plain, re.M if first.startswith("(?m)") else 0), "begins with what was asked: " + line, lines[:3])
    ok(last is None or re.search(last, plain, re.M), "ends with what to do next: " + line, lines[-4:])
    return plain


def commands(text):
    """The commands of a screen, put together again."""
    return [" ".join(c.replace("\\\n", " ").split()) for c in re.findall(r"^(?:next|) +(vplan (?:.*\\\n)*.*)$", text, re.M)]


FITS, NO, NEEDS, WRONG = r"\A(note: .*\n(?:      .*\n)*)*FITS: ", r"\A(note: .*\n(?:      .*\n)*)*DOES NOT FIT: ", r"\ANEEDS ", r"\Avplan: "
SAID = r"\S\Z"  # one sentence: an error, which must say what would be right

# ---- out of memory on a 4090 with Qwen2.5-7B ----

Q = "Qwen2.5-7B --device 4090 --seq 2048"
screen("estimate " + Q, 3, NO)
out = screen("plan %s --global-batch 8" % Q, 3, NO)
told = commands(out)
ok(len(told) >= 3, "what would fit", out)
screen(told[0].split(None, 1)[1], 0, FITS)
ok("--trainer hf --lora" in told[-1], "adapters are offered last", told)
screen(told[-1].split(None, 1)[1], 0, FITS)
out = screen("plan Qwen2.5-7B --device t4 --seq 2048 --global-batch 8 --precision fp32 --host-memory 1GiB", 3, NO)
ok("--qlora" in commands(out)[-1] and "--host-memory" not in commands(out)[-1] and "--precision" not in commands(out)[-1], "over NF4 where LoRA does not fit", commands(out))
screen(commands(out)[-1].split(None, 1)[1], 0, FITS)
screen("estimate %s --micro-batch 8 --ladder" % Q, 0, FITS)
screen("estimate %s --precision bf16-mixed --recompute full --loss chunked" % Q, 3, NO)
screen("estimate %s --max micro-batch" % Q, 3, NO)
screen("plan %s --global-batch 8 --precision bf16 --optimizer adamw-8bit" % Q, 3, NO)
screen("devices --fits Qwen2.5-7B --seq 2048", 0, FITS)
screen("devices 4090", 0, r"\Artx-4090-24gb", None)
screen("plan qwen2.5-0.5b --device 4090 --seq 2048 --global-batch 8", 0, FITS)

# ---- sizing llama-3.1-8b on H100s ----

L = "llama-3.1-8b --device h100 --seq 4096"
screen("estimate %s" % L, 3, NO)
screen("estimate %s --precision bf16-mixed --optimizer adamw-8bit --recompute full" % L, 3, NO)
screen("plan %s --global-batch 16 --precision bf16-mixed --host-memory 160GiB" % L, 0, FITS)
screen("plan %s --global-batch 16 --precision bf16 --optimizer adamw-8bit --frontier" % L, 0, FITS)
screen("estimate llama-3.1-8b --device h200 --precision bf16-mixed --max seq", 0, FITS)
screen("devices --fits llama-3.1-8b --seq 4096 --precision bf16-mixed --optimizer adamw-8bit", 0, FITS)
screen("devices --fits llama-3.1-405b", 3, NO)
screen("estimate llama-3.1-8b", 0, NEEDS)
screen("models llama-3.1-8b", 0, r"\Allama-3.1-8b: 8,030,261,248 parameters", None)
screen("estimate llama-3.2-1b --trainer torch --seq 2048 --micro-batch 2 --precision bf16-mixed --device 4090", 3, NO, None)

# ---- what only PyTorch's trainers run, and what plan does not choose ----

for line in ("plan mixtral-8x7b --device h100 --seq 2048 --global-batch 8", "devices --fits mixtral-8x7b", "estimate mixtral-8x7b --trainer vplan"):
    said = " ".join(screen(line, 4, WRONG, SAID).split())
    ok("vplan estimate mixtral-8x7b --trainer hf" in said and "vplan plan mixtral-8x7b --trainer hf" in said, "by other trainers: " + line, said)
screen("estimate mixtral-8x7b --trainer hf", 0, NEEDS)
screen("plan mixtral-8x7b --trainer hf --device h200 --seq 2048 --global-batch 8", 3, NO)
screen("plan gemma-3-12b --trainer trl --qlora --device 4090 --seq 1024 --global-batch 16", 0, FITS)
for line in ("llama-3.2-1b --method dpo --device h100 --micro-batch 1 --seq 1024", "llama-3.2-1b --peft ia3 --device 4090 --micro-batch 1 --seq 1024"):
    told = commands(screen("estimate " + line, 0, FITS))[-1]
    ok("--max micro-batch" in told and "--micro-batch 1" not in told, "the largest batch is next", told)
    screen(told.split(None, 1)[1], 0, FITS, None)

# shorter samples make room for the optimizer that was asked for: another one is not proposed with them
out = screen("estimate gemma-3-4b --device 4080 --qlora", 3, NO)
ok(re.search(r"^fits with  .*--seq", out, re.M) and "adamw_8bit" not in out.split("fits with")[1].split("model ")[0], "no optimizer that is not needed", out[:400])

# ---- a researcher's own config ----

json.dump({"model_type": "llama", "hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 8, "vocab_size": 32000,
           "max_position_embeddings": 2048}, open("mine.json", "w"))
json.dump({"model_type": "llama", "hidden_size": 512}, open("short.json", "w"))
json.dump({"model_type": "mamba"}, open("other.json", "w"))
screen("estimate mine.json --device t4", 0, FITS)
screen("estimate mine.json --device t4 --all", 0, FITS)
screen("plan mine.json --device t4 --seq 1024 --global-batch 64", 0, FITS)
screen("plan mine.json --device t4 --seq 1024 --global-batch 64 --optimizer muon", 0, FITS)
screen("plan mine.json --device t4 --seq 4096 --global-batch 64", 0, FITS)
screen("plan gpt2 --device t4 --seq 4096 --global-batch 64", 2, WRONG, SAID)
screen("estimate short.json", 4, WRONG, SAID)
screen("estimate other.json", 4, WRONG, SAID)
screen("estimate none.json", 4, WRONG, SAID)
screen("estimate mine.json --budget '24 GB'", 0, FITS)
screen("estimate mine.json --budget 24gib --attention math", 0, FITS)

# ---- on this CPU: plan, explain, run, tune's study ----

TINY = "gpt2-tiny --device cpu --budget 8MB --seq 128 --global-batch 8"
screen("plan %s -o plan.json" % TINY, 0, FITS)
out = screen("explain plan.json", 0, FITS)
ok(re.search("^  recompute full .* fits$", out, re.M) and "per param" in out, "explain says what if", out)
screen("explain plan.json --all", 0, FITS)
screen("explain plan.json --html plan.html", 0, FITS)
screen("explain plan.json --buffers --program", 2, WRONG, SAID)
screen("run plan.json --steps 2", 0, r"\Ano --data: training on random tokens\nFITS: ", r"^step +\S+ \S+ predicted")
screen("plan %s --frontier" % TINY, 0, FITS)
screen("plan %s -o plan.json" % TINY, 2, WRONG, SAID)
screen("run none.json", 4, r"\Avplan-run: ", SAID)
screen("plan %s --budget 1KB" % TINY.replace(" --budget 8MB", ""), 3, NO)
screen("study plan.json", 7, WRONG, SAID)
SMALL = "gpt2-tiny --device cpu --budget 8MB --seq 32 --global-batch 2 --max-trials 1 --study small.db"
screen("tune %s -o tuned.json" % SMALL, 0, "(?m)^FITS: ", r"^next +vplan run tuned.json")
screen("study small.db", 0, r"\ABEST: ")
screen("run tuned.json --steps 1", 0, "(?m)^FITS: ", r"^step +\S+ \S+ predicted")
screen("tune %s --study none/small.db" % SMALL.replace(" --study small.db", ""), 7, WRONG, SAID)
screen("tune gpt2-tiny --device cpu --budget 1KB --seq 32 --global-batch 2", 3, NO)

# ---- a step of 4,096 micro-steps is explained by three of them, and as fast; a plan of the largest models can be written ----

screen("plan gpt2 --device h200 --seq 1024 --micro-batch 1 --global-batch 4096 -o many.plan", 0, FITS)
child = subprocess.Popen([vplan, "explain", "many.plan", "--html", "many.html"], stdout=subprocess.DEVNULL)
_, code, used = os.wait4(child.pid, 0)
ok(code == 0 and used.ru_utime < 0.5 and used.ru_maxrss < 100 << 10, "4,096 micro-steps: half a second, 100 MiB", used)
few = subprocess.run([vplan, "explain", "many.plan", "--json"], stdout=subprocess.PIPE).stdout
batch = sum(i["bytes"] for i in json.loads(few)["items"] if i["name"] == "batch_input")
ok(batch == 2 * 4 * 4096 * 1024, "the batches of all micro-steps are counted", batch)
screen("plan llama-3.1-70b --device h200 --budget 60GiB --seq 8192 --global-batch 720 --host-memory 2TiB -o large.plan", 0, FITS)
screen("explain large.plan", 0, FITS)

# ---- other trainers' files: settings found, written, judged; a command of PyTorch without a card ----

screen("plan gpt2 --trainer hf --device 4090 --seq 1024 --global-batch 8 -o hf.json", 0, FITS)
screen("emit hf.json --for hf -o run", 0, r"\Awritten +run/", r"^run +cd run && accelerate launch \S")
out = screen("emit hf.json --for axolotl -o ax", 0, r"\Awritten +ax/axolotl.yaml", r"^run +cd ax && ")
# The files name the model by its Hub id, which no cache holds here: that is said on standard error before the answer.
screen(commands(out.replace("\ncheck ", "\nnext  "))[0].split(None, 1)[1], 0, r"\Anote: openai-community/gpt2 is taken as the built-in gpt2: .*\n(?:      .*\n)*FITS", None)
screen("emit hf.json --for hf -o run", 2, WRONG, r"--force replaces it\Z")
screen("emit hf.json --for nothing", 2, WRONG, SAID)
screen("check none.yaml", 4, r"\AWRONG: ", None)
screen("check", 2, WRONG, SAID)
screen("dryrun --device 4090 -- false", 4, r"(?m)\AFAILED: the command ended with exit code 1$", None)
screen("dryrun --device 4090 -- sh -c 'exit 7'", 4, r"\AFAILED: ", None)
screen("dryrun --device 4090", 2, WRONG, SAID)
screen("dryrun --device 4090 --budget 100MiB -- true", 2, WRONG, SAID)
screen("dryrun --device 4091 -- true", 2, WRONG, SAID)
edited = open("plan.json").read().replace('"clip_norm": 1.0', '"clip_norm": 2.0')
open("edited.json", "w").write(edited)
screen("explain edited.json", 0, r"\Anote: ", None)
screen("run edited.json --steps 1", 4, r"\Avplan(-run)?: ", SAID)

# ---- scripting: one document, its exit code, and nothing else on standard output ----


def script(line, code, key, stdin=b"", err=b""):
    p = subprocess.run([vplan] + shlex.split(line), input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV, timeout=60)
    try:
        document = json.loads(p.stdout)
    except ValueError:
        document = {}
    found = document
    for k in key.split("."):
        found = found.get(k) if isinstance(found, dict) else None
    ok(p.returncode == code and found is not None and p.stdout.endswith(b"\n") and (err in p.stderr if err else not p.stderr), "script: " + line, (p.returncode, p.stdout[-300:], p.stderr[-300:]))
    return found


ok(script("estimate gpt2 --device t4 --json", 0, "fits") is True, "what fits is true")
ok(script("estimate llama-3.1-8b --device t4 --json", 3, "fits") is False, "what does not is false, and exit code 3")
ok(script("plan llama-3.1-8b --device t4 --seq 512 --global-batch 8 --json", 3, "proof.status") == "infeasible", "a plan that does not fit is a document, too")
script("plan gpt2 --device t4 --seq 512 --global-batch 8 --json -o script.json", 0, "step_time_s")
script("plan gpt2 --device t4 --seq 512 --global-batch 8 --json -o script.json", 2, "error.message", err=b"--force")
script("explain script.json --json", 0, "what_if")
script("estimate - --json", 0, "peak_bytes", open("mine.json", "rb").read())
ok(script("estimate - --json", 4, "error.line", b"{\n\n", b"standard input:3: ") == 3, "an error says where it is in fields")
script("estimate Llama-3.1-8B --json", 0, "peak_bytes", err=b"note: ")
script("estimate Llama-3.1-8B --json -q", 0, "peak_bytes")
script("devices --fits gpt2 --json", 0, "fits")
script("study small.db --json", 0, "requests")
script("run tuned.json --steps 1 --json", 0, "steps", err=b"step 1 ")
script("run tuned.json --steps 1 --json -q", 0, "steps")
script("check none.yaml --json", 4, "findings")
script("nothing --json", 2, "error.message", err=b"no command nothing")

# ---- finding one's way ----

screen("help", 0, r"\Ausage: vplan COMMAND", None)
screen("help plan", 0, r"\Ausage: vplan plan MODEL", None)
screen("tune --help", 0, r"\Ausage: vplan tune", None)
screen("devices", 0, r"\A +usable", r"^next ")
screen("models", 0, r"\Aname ", r"vplan models NAME\Z")
screen("targets", 0, r"\Ahf ", r"vplan targets NAME\Z")
screen("targets trl", 0, r"\Atrl ", None)
screen("", 2, r"\Ausage: ", None)

# ---- typing wrong: what was meant, or why not ----

for line, code, said in (("estimte gpt2", 2, "did you mean estimate?"), ("estimate llama3-8b", 0, "taken as"), ("estimate Llama-3.1-8B", 0, "built-in llama-3.1-8b"),
                         ("estimate bert-base", 4, "did you mean bert-base-uncased, bert-base-cased?"), ("estimate llama-8b", 4, "llama-3-8b, llama-3.1-8b?"),
                         ("estimate phi3", 4, "did you mean phi-3-"), ("estimate qwen2.5", 4, "qwen2.5-0.5b, "), ("estimate llama-3.1-8bb", 4, "did you mean llama-3.1-8b?"),
                         ("estimate gpt2 --device 'RTX 4090'", 0, "taken as rtx-4090-24gb"), ("estimate gpt2 --devise t4", 2, "--device"), ("plan gpt2 --padding mask", 2, "--padding is for "),
                         ("estimate gpt2 --budget 24", 0, "bytes"), ("estimate gpt2 --batch-size 4", 2, "did you mean --micro-batch?"), ("plan gpt2 --seq 128", 2, "--global-batch"),
                         ("estimate gpt2 --precision fp8", 2, "bf16-mixed"), ("plan gpt2 --device a100 --seq 128 --global-batch 4", 2, "a100-sxm-80gb"), ("estimate qwen2.5-7", 4, "qwen2.5-7b"),
                         ("estimate qwen25-7b", 4, "did you mean qwen2.5-7b?"), ("estimate gpt2 --device 8xh100", 2, "--device h100 --trainer hf --world 8 --parallel fsdp2"),
                         ("estimate gpt2 --device 4090x2", 2, "--device 4090 --trainer hf --world 2"), ("estimate gpt2 --device 'H100 x8'", 2, "--device H100 --trainer hf --world 8"),
                         ("estimate gpt2 --trainer hf --optimizer adamw-8bits", 4, "did you mean adamw_8bit?"),
                         ("estimate gpt2 4090", 2, "did you mean --device 4090?"), ("plan gpt2 'RTX 4090' --seq 128", 2, "did you mean --device RTX 4090?"), ("tune gpt2 h100", 2, "did you mean --device h100?"),
                         ("estimate gpt2 24GB", 2, "did you mean --budget 24GB?"), ("estimate gpt2 extra", 2, "too many: extra"), ("estimate gpt2 --device 24GB", 2, "for any of that size --budget 24GB"),
                         ("estimate gpt2 -d 4090", 2, "did you mean --device?"), ("estimate gpt2 -b 4", 2, "did you mean --micro-batch?"), ("estimate gpt2 --seqlen 128", 2, "did you mean --seq?"), ("estimate gpt2 --torch-compile", 2, "did you mean --compile?"), ("estimate gpt2 --expandable_segments", 2, "did you mean --alloc-conf?"),
                         ("estimate gpt2 --max_seq_length 128", 2, "did you mean --seq?"), ("estimate gpt2 --CTX 128", 2, "did you mean --seq?"), ("estimate gpt2 --per_device_train_batch_size 4", 2, "did you mean --micro-batch?"),
                         ("plan gpt2 --batch 8", 2, "--global-batch, the samples of a step"), ("estimate gpt2 --gradient_accumulation_steps 2", 2, "did you mean --accumulation?"),
                         ("explain p.json --grad-accum 2", 2, "accumulation is the global batch over the micro-batch"), ("estimate gpt2 --precision fp16", 2, "did you mean fp16-mixed?"),
                         ("plan gpt2 --seq 8 --global-batch 1 --precision FP16", 2, "did you mean fp16-mixed?"), ("estimate gpt2 --precision bfloat16", 2, "did you mean bf16-mixed?"),
                         ("estimate gpt2 --fp16", 2, "did you mean --precision fp16-mixed?"), ("estimate gpt2 --bf16", 2, "did you mean --precision bf16-mixed?"), ("estimate gpt2 --dtype bf16", 2, "did you mean --precision?"),
                         ("estimate gpt2 --load-in-4bit", 2, "did you mean --qlora"), ("estimate gpt2 --load_in_8bit", 2, "--load int8"), ("estimate gpt2 --lora-rank 8", 2, "did you mean --lora r=16"),
                         ("estimate gpt2 --gpus 8", 2, "did you mean --world?"), ("run p.json --gpus 8", 2, "trains on one device"), ("estimate gpt2 --zero 3", 2, "--parallel zero1, zero2 or zero3"),
                         ("estimate gpt2 --tp 8", 2, "tensor and pipeline parallel are not estimated"), ("estimate gpt2 --optimizer paged_adamw_8bit", 2, "did you mean adamw-8bit?"),
                         ("estimate gpt2 --attention flash_attention_2", 2, "did you mean flash?"), ("estimate gpt2 --trainer transformers", 2, "did you mean hf?"), ("estimate gpt2 --trainer unsloth", 2, "vplan plan MODEL --trainer unsloth --seq N --global-batch N"),
                         ("estimate gpt2 --trainer llama-factory", 2, "vplan plan MODEL --trainer llamafactory"), ("estimate gpt2 --trainer sft", 2, "did you mean trl?"),
                         ("estimate --model gpt2", 2, "vplan estimate "), ("estimate gpt2 --resume", 2, "lines host and resuming"), ("estimate gpt2 --lr 1e-4", 2, "changes no bytes"), ("plan gpt2 --lr 1e-4", 2, "--recipe"),
                         ("gpt2 --device 4090", 2, "it is a model: vplan estimate gpt2"), ("memory gpt2", 2, "did you mean estimate?"), ("train gpt2", 2, "did you mean run?"), ("version", 2, "did you mean --version?"),
                         ("--device 4090 estimate gpt2", 2, "options stand behind a command")):
    got, text = type_in(line)
    words = " ".join(ESCAPE.sub("", text).split())
    ok(got in (code, 3 if code == 0 else code) and said in words, "typed wrong: " + line, (got, words[:300]))
    ok(not [l for l in text.split("\n") if len(ESCAPE.sub("", l)) > 80], "80 columns: " + line, text)

# ---- the terminal: colours and block characters there only, and none where they are not wanted ----

code, text = type_in("estimate gpt2 --device t4")
ok("\033[1;32mFITS\033[0m" in text and "█" in text, "colours and blocks", text[:300])
for env in {"NO_COLOR": "1"}, {"TERM": "dumb"}:
    code, text = type_in("estimate gpt2 --device t4", **env)
    ok("\033" not in text and "█" in text, "no colours: %s" % env, text[:300])
code, text = type_in("estimate gpt2 --device t4", LC_ALL="C")
ok(all(ord(c) < 128 for c in text) and "##" in text, "ASCII in another locale", text[:300])
p = subprocess.run([vplan, "estimate", "gpt2", "--device", "t4"], stdout=subprocess.PIPE, env=ENV)
ok(all(c < 128 and c != 27 for c in p.stdout) and b"  ##" in p.stdout, "a pipe gets neither", p.stdout[:300])

# ---- the shares of a screen are those of its document, and the groups sum to the whole ----

document = json.loads(subprocess.run([vplan, "estimate", "gpt2", "--device", "t4", "--json"], stdout=subprocess.PIPE).stdout)
shown = dict(re.findall(rb"^  (\S.*?)  +(?:\S+ +)?[\d.,]+ [KMG]?i?B +([\d.]+)%", p.stdout, re.M))
sums = {b"parameters": "parameters", b"gradients": "gradients", b"optimizer states": "optimizer_state", b"activations, blocks": None}
for group, component in sums.items():
    if component:
        share = 100 * sum(i["bytes"] for i in document["items"] if i["name"].split(".")[0] == component) / document["device_bytes"]
        ok(abs(share - float(shown[group])) < 0.06, "share of " + component, (share, shown))
ok(abs(sum(float(x) for x in shown.values()) - 100) < 0.5, "the groups are all of it", shown)
finish()
P
