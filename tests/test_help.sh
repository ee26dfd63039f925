#!/bin/bash
# tests/test_help.sh: every option of every command stands in its help, in the man page and in the completion scripts, with its
# default and an example; nothing is wider than 80 columns; the scripts complete. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" "$PWD" <<'P'
import json, os, re, shutil, subprocess, sys

sys.path.insert(0, "tests")
from check import finish, ok, skip

vplan, work, root = sys.argv[1:4]
os.chdir(work)


def call(*words, **more):
    p = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60, **more)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def text_of(*words):
    """What a command that only prints says."""
    code, out, err = call(vplan, *words)
    ok(code == 0 and not err and out, " ".join(words), (code, err))
    wide = [l for l in out.split("\n") if len(l) > 80]
    ok(words[0] == "completion" or "--man" in words or not wide, "80 columns: " + " ".join(words), wide)
    return out


records = json.loads(call(vplan, "help", "--json")[1])
ok(records["schema_version"] == 1, "help --json", "no schema_version")
commands = {c["name"]: c for c in records["commands"]}
ok(len(commands) >= 10 and sum(len(c["options"]) for c in commands.values()) > 60, "help --json", sorted(commands))
overview = text_of("help")
ok(overview == text_of("--help") == text_of("-h"), "vplan help is vplan --help", "they differ")
scripts = {shell: text_of("completion", shell) for shell in ("bash", "zsh", "fish")}
page = open(root + "/docs/vplan.1").read()


def words_of(text):
    return re.sub(r"\s+", " ", text)


for name, command in commands.items():
    ok(re.search(r"^  %s " % name, overview, re.M), "vplan help names " + name, overview)
    shown = text_of("help", name)
    ok(shown == text_of(name, "--help"), "vplan help %s is vplan %s --help" % (name, name), "they differ")
    one = json.loads(call(vplan, "help", name, "--json")[1])["commands"]
    ok(one == [command], "help %s --json" % name, one)
    section = re.search(r"^\.Ss vplan %s\n(.*?)(?=^\.S[sh] )" % name, page, re.M | re.S)
    ok(section, "the man page has " + name, "no section")
    section = section.group(1) if section else ""
    common = page[page.index(".Ss Options of every command"):]
    seen = set()
    for o in command["options"]:
        option = o["name"]
        what = name + " " + option
        ok(option not in seen, what, "two rows")
        seen.add(option)
        # help: a line of its own with the value, then what it does, default and example
        value = o["value"]
        head = "  %s one of" % option if len("  %s %s" % (option, value)) > 80 else "  " + (option + " " + value).strip()
        at = [i for i, line in enumerate(shown.split("\n")) if line == head or line.startswith(head + "  ")]
        ok(len(at) == 1, what + ": help", "%d lines" % len(at))
        ok(words_of(o["text"]) in words_of(shown), what + ": help says what it does", o["text"])
        ok(o["text"][0].isupper() and o["text"].endswith("."), what + ": a sentence", o["text"])
        if value:
            required = "required" in o["text"]
            ok(o.get("default") or required, what + ": default", o)
            ok("Default: " in o["text"] or required, what + ": its default in the text", o["text"])
            ok(o.get("example") and "Example: %s %s" % (option, o["example"]) in shown, what + ": example", o.get("example"))
            ok(value not in ("N", "G", "F", "S", "SECONDS") or o.get("unit"), what + ": unit", o)
        # man page
        item = ".It Fl Fl " + option[2:] if option.startswith("--") else ".It Fl " + option[1:]
        ok(re.search(re.escape(item) + r"( |$)", section if option not in ("--json", "--help") else common, re.M), what + ": man page", item)
        # completion
        ok(re.search(r"^    %s/-\*\).* %s[ ']" % (name, re.escape(option)), scripts["bash"], re.M), what + ": bash", "no word")
        ok(re.search(r"^    %s\)\n(?:.*\\\n)*.*'%s[=\[]" % (name, re.escape(option)), scripts["zsh"], re.M), what + ": zsh", "no word")
        fish = "-l " + option[2:] if option.startswith("--") else "-s " + option[1:]
        ok(re.search(r"__vplan_command %s' %s " % (name, re.escape(fish)), scripts["fish"]), what + ": fish", "no word")
    words = re.search(r"^    %s\)\n(?:.*\\\n)*.*'\*(:+)%s:" % (name, name), scripts["zsh"], re.M)  # "*::" would hide the words before
    ok(words.group(1) == ":" if words else name in ("dryrun", "doctor"), name + ": zsh's words", words)
    for example in command["examples"]:
        ok(example in shown and len(example) <= 76, name + ": examples", example)
        used = set(re.findall(r"(?<= )--?[a-z][a-z-]*", example.split(" -- ")[0]))
        ok(used <= seen, name + ": options of its example", used - seen)
    # an option that is in the list is taken: the words are right, and what fails is no unknown option
    for o in command["options"]:
        if o["name"] == "--help":
            continue
        words = [vplan, name, o["name"]] + ([o["example"]] if o["value"] else []) + ["--no-such-option"]
        code, out, err = call(*words)
        ok(code == 2 and "unknown option --no-such-option" in err, "%s takes %s" % (name, words[2:-1]), err)
    # and the parser takes no other: letters of the program that look like one
    for other in ("--seq", "--steps", "--study", "--buffers", "--world", "--svg", "--man", "--threads", "-o", "-q"):
        if other not in seen:
            code, out, err = call(vplan, name, other)
            ok(code == 2 and "unknown option " + other in err, "%s refuses %s" % (name, other), err)
ok("--json" not in [o["name"] for o in commands["completion"]["options"]], "completion has no --json", "it has")

# ---- the man page is made from the same records ----
template = open(root + "/docs/vplan.1.in").read().split("\n", 1)[1]
made = text_of("help", "--man")
ok(page == template.replace("@commands@\n", made), "docs/vplan.1 is in step", "run `make man`")
if shutil.which("groff"):
    code, out, err = call("groff", "-mandoc", "-Tascii", "-ww", root + "/docs/vplan.1")
    ok(code == 0 and not err, "groff reads the man page", err[:500])
    plain = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", out)
    ok("--global-batch" in plain and "@commands@" not in plain, "the page as text", plain[:200])

# ---- vplan-run's own help ----
code, out, err = call(os.path.dirname(vplan) + "/vplan-run", "--help")
ok(code == 0 and not err and all(len(l) <= 80 for l in out.split("\n")), "vplan-run --help", (code, err))
for o in commands["run"]["options"]:
    ok(re.search(r"^  %s( |$)" % re.escape(o["name"]), out, re.M), "vplan-run --help: " + o["name"], "missing")
for option in ("--compare", "--profile", "--seconds", "--describe", "--step-on-input"):
    ok(re.search(r"^  %s( |$)" % option, out, re.M), "vplan-run --help: " + option, "missing")

code, out, err = call(os.path.dirname(vplan) + "/vplan-solve", "--help")
ok(code == 0 and not err and "  --monolithic " in out and all(len(l) <= 80 for l in out.split("\n")), "vplan-solve --help", (code, out, err))
code, out, err = call(os.path.dirname(vplan) + "/vplan-solve", "--monolitic")
ok(code == 2 and "did you mean --monolithic?" in err, "vplan-solve --monolitic", (code, err))

# ---- the scripts complete ----
open("plan.json", "w").write("{}")
open("with space.json", "w").write("{}")
os.mkdir("planned")
driver = r'''
. ./bash_script
try() {   # the words so far, the last one being completed
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _vplan
    printf '%s\n' "${COMPREPLY[@]}"
}
try "$@"
'''
open("bash_script", "w").write(scripts["bash"])
open("driver", "w").write(driver)


def complete(*words):
    code, out, err = call("bash", "driver", "vplan", *words)
    ok(code == 0 and not err.replace("bash: compopt: not currently executing completion function", "").strip(), "bash: " + " ".join(words), err)
    return [l for l in out.split("\n") if l]


for words, want in [
        (["es"], {"estimate"}), (["plan", "--fro"], {"--frontier"}), (["plan", "--precision", "b"], {"bf16-mixed", "bf16"}),
        (["plan", "--precision", "="], {"fp32", "bf16-mixed", "bf16", "fp16-mixed", "tf32", "any"}), (["plan", "--precision", "=", "f"], {"fp32", "fp16-mixed"}),
        (["estimate", "gpt2-x"], {"gpt2-xl"}), (["estimate", "--device", "h200"], {"h200", "h200-sxm-141gb", "h200-nvl-141gb"}),
        (["estimate", "--seq", "2"], set()), (["estimate", "--loss", "c"], {"chunked"}), (["plan", "-o", "pla"], {"plan.json", "planned"}),
        (["explain", "with"], {"with space.json"}), (["run", "pla"], {"plan.json", "planned"}), (["help", "dev"], {"devices"}),
        (["completion", ""], {"bash", "zsh", "fish"}), (["dryrun", "--", "python3", "pla"], {"plan.json", "planned"}),
        (["dryrun", "--padding", ""], {"mask", "none"}), (["dryrun", "--fake-weights", "opt-1.3"], {"opt-1.3b"}), (["nonsense", "--x"], set())]:
    got = complete(*words)
    ok(set(got) == want and len(got) == len(want), "bash completes " + " ".join(words), got)
names = set(json.loads(call(vplan, "models", "--json")[1])["models"][i]["name"] for i in range(70))
ok(names <= set(complete("estimate", "")), "bash completes every model", names - set(complete("estimate", "")))
for shell, check in ("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute"):
    if not shutil.which(shell):
        skip("no %s here to read its completion script" % shell)
        continue
    open("script", "w").write(scripts[shell])
    code, out, err = call(shell, check, "script")
    ok(code == 0 and not err, shell + " reads its script", err)
if shutil.which("fish"):
    def fish(line):
        code, out, err = call("fish", "--no-config", "-c", "source script; complete -C '%s'" % line, env=dict(os.environ, HOME=work))
        return {l.split("\t")[0] for l in out.split("\n") if l}
    ok(fish("vplan es") == {"estimate"}, "fish completes a command", fish("vplan es"))
    ok(fish("vplan plan --fro") == {"--frontier"}, "fish completes an option", fish("vplan plan --fro"))
    ok(fish("vplan plan --precision b") >= {"bf16", "bf16-mixed"}, "fish completes a word", fish("vplan plan --precision b"))

# ---- what is no JSON has no --json, and a forgotten value is no file "--json" ----
for words, says in (["completion"], "vplan completion SHELL: bash, zsh or fish?"), (["completion", "csh"], "no completion for csh: bash, zsh or fish"), \
        (["completion", "bash", "--json"], "unknown option --json; it is an option of other commands"), \
        (["plan", "gpt2-tiny", "--seq", "64", "--global-batch", "4", "-o", "--json"], "-o needs a value, and --json looks like an option"), \
        (["help", "--man", "--json"], "--man is the page of all commands"):
    code, out, err = call(vplan, *words)
    ok(code == 2 and says in err and os.listdir(".").count("--json") == 0, " ".join(words), (code, err))
    ok("--json" not in words or json.loads(out)["error"]["code"] == "usage", "in JSON: " + " ".join(words), out)

# ---- -q: no notes, and the same answer ----
for words in ["estimate", "gpt2-tiny", "--budget", "24"], ["plan", "gpt2-tiny", "--seq", "8", "--global-batch", "1", "--budget", "512"]:
    code, out, err = call(vplan, *words)
    ok(code == 3 and err.startswith("note: --budget"), "a note of " + " ".join(words), (code, err))
    ok(call(vplan, *words, "-q") == (3, out, ""), "-q: " + " ".join(words), call(vplan, *words, "-q"))
code, out, err = call(vplan, "plan", "gpt2-tiny", "--seq", "8", "--global-batch", "1", "--budget", "64MB", "-o", "tiny.json")
ok(code == 0, "a plan", err)
code, out, err = call(vplan, "run", "tiny.json", "--steps", "1", "--hash")
ok(code == 0 and "no --data" in err, "run notes that tokens are drawn", err)
code, quiet, err = call(vplan, "run", "tiny.json", "--steps", "1", "--hash", "-q")
ok(code == 0 and err == "" and quiet.split("sha256")[1] == out.split("sha256")[1], "run -q", err)
code, out, err = call(vplan, "run", "no-such.json", "-q")
ok(code == 4 and "no-such.json" in err, "-q prints errors", err)
finish()
P
