#!/bin/bash
# tests/test_report.sh: pictures. The pages need nothing but themselves, every tensor that can be seen is in them with its name and
# bytes, and nothing is clipped; where chromium is here it draws one. The last line counts.
set -u
cd "$(dirname "$0")/.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "${BUILD:-build}/vplan")" "$work" <<'P'
import csv, io, json, os, re, shutil, struct, subprocess, sys, zlib, xml.etree.ElementTree as ET
from html.parser import HTMLParser

sys.path.insert(0, "tests")
from check import finish, ok, skip

vplan, work = sys.argv[1:3]
os.chdir(work)
SVG = "{http://www.w3.org/2000/svg}"


def call(line, code=0):
    p = subprocess.run([vplan] + line.split(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
    ok(p.returncode == code, line, (p.returncode, p.stderr.decode()[-300:]))
    return p.stdout.decode()


class Page(HTMLParser):
    """That every tag is closed, and where it leads."""

    def __init__(self, text):
        super().__init__()
        self.open, self.bad, self.tags = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.bad += [a for a in attrs if a[0] in ("src", "href", "onload", "onclick")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.bad.append("</%s>" % tag)


def pictures(text):
    return [ET.fromstring(x) for x in re.findall(r"<svg.*?</svg>", text, re.S)]


def clipped(svg):
    """Texts that reach beyond the picture: a letter of the font is at most 0.62 of its size wide."""
    width, height = (float(x) for x in svg.get("viewBox").split()[2:])
    font, found = float(svg.get("font-size")), []
    for t in svg.iter(SVG + "text"):
        text, x, y = "".join(t.itertext()), float(t.get("x")), float(t.get("y"))
        w = 0.62 * font * len(text)
        left = x - {"end": w, "middle": w / 2}.get(t.get("text-anchor"), 0)
        if left < 0 or left + w > width or not font < y < height:
            found.append((text, left, w, y))
    for r in svg.iter(SVG + "rect"):
        if r.get("x") and not (-0.01 <= float(r.get("x")) and float(r.get("x")) + float(r.get("width")) <= width + 0.01 and float(r.get("y")) + float(r.get("height")) <= height):
            found.append(r.attrib)
    return found


TINY = "gpt2-tiny --device cpu --budget 8MB --seq 128 --global-batch 8"
call("plan %s -o plan.json --frontier --html plan.html --svg f.svg" % TINY)
call("explain plan.json --html explain.html")
call("plan gpt2-xl --device h100 --seq 1024 --global-batch 32 --html one.html")
frontier = json.loads(call("plan %s --frontier --json" % TINY))["frontier"]
for name, n in ("plan.html", 2), ("explain.html", 1), ("one.html", 1):
    text = open(name).read()
    page = Page(text)
    ok(not page.bad and not page.open and "script" not in page.tags and "table" in page.tags, name + ": whole, and without scripts", (page.bad, page.open))
    ok(not re.search(r"https?://(?!www.w3.org/2000/svg\")|url\(|@import", text), name + ": needs no network", re.findall(r"https?://\S+", text)[:3])
    drawn = pictures(text)
    ok(len(drawn) == n and not [c for d in drawn for c in clipped(d)], name + ": nothing is clipped", [clipped(d) for d in drawn])

# ---- the frontier: distinct plans, steps between them, ticks on both axes ----

svg = ET.parse("f.svg").getroot()
titles = [t.text for t in svg.iter(SVG + "title")]
ok(len(titles) == len(frontier) == len({(p["device_bytes"], p["step_time_s"]) for p in frontier}) > 5, "a point a plan, no plan twice", (titles, frontier))
path = [p for p in svg.iter(SVG + "path")][0].get("d")
ok(path.count("H") == len(frontier) and path.count("V") == len(frontier) - 1, "steps", path)
ticks = ["".join(t.itertext()) for t in svg.iter(SVG + "text")]
ok(sum(t.endswith("MiB") and "budget" not in t for t in ticks) >= 3 and sum(t.endswith(" ms") for t in ticks) >= 3 and "budget 7.6 MiB" in ticks and not clipped(svg), "axes", ticks)

# ---- the arena: every tensor of --buffers that is high enough is there, by name and bytes, once ----

rows = list(csv.DictReader(io.StringIO(call("explain plan.json --buffers"))))
arena = pictures(open("explain.html").read())[0]
names = {}
for r in arena.iter(SVG + "rect"):
    title = r.find(SVG + "title")
    if title is not None and "steps" in title.text:
        names.setdefault(title.text.split("\n")[0], []).append((float(r.get("y")), float(r.get("height")), r.get("fill")))
plan = json.load(open("plan.json"))
peak = max(int(r["offset"]) + int(r["bytes"]) for r in rows)
SCALE = (520 - 44 - 64) / peak
high = [r for r in rows if int(r["bytes"]) * SCALE >= 2.01 and r["component"] != "padding"]
ok(len(high) > 20 and all(r["name"] in names for r in high), "every tensor that can be seen", [r["name"] for r in high if r["name"] not in names][:5])
for r in high:
    y, height = 520 - 64 - (int(r["offset"]) + int(r["bytes"])) * SCALE, int(r["bytes"]) * SCALE
    ok(any(abs(y - a) < 0.02 and abs(height - b) < 0.02 for a, b, _ in names[r["name"]]), "where it lies: " + r["name"], (y, height, names[r["name"]]))
ok("peak %.1f MiB: " % (peak / 2 ** 20) in open("explain.html").read(), "the peak is marked", peak)

# ---- the time below it is the step's, waits for copies and updates by the host included ----

OFFLOAD = "plan gpt2-xl --device 4090 --budget 5GiB --host-memory 64GiB --seq 1024 --global-batch 4 --micro-batch 2"
call(OFFLOAD + " --html offload.html")
text = open("offload.html").read()
takes = re.search(r"FITS: .* of .*, (\S+ \S+) a step", text)
ok(takes and "time: %s<" % takes.group(1) in text, "the time of a step with copies", (takes and takes.group(1), re.findall(r"time: [^<]*", text)))

# ---- a name from a file is a text, not a piece of the page ----

plan["model_name"] = "<script>alert(1)</script>&\"'\x1b[31m"
key = next(k for k in ("model_name", "model") if isinstance(plan.get(k), str) or k in json.load(open("plan.json")))
bad = json.load(open("plan.json"))
if isinstance(bad.get("model"), dict):
    bad["model"]["name"] = plan["model_name"]
else:
    bad[key] = plan["model_name"]
json.dump(bad, open("bad.json", "w"))
p = subprocess.run([vplan, "explain", "bad.json", "--html", "bad.html"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
text = open("bad.html").read() if p.returncode == 0 else ""
ok(p.returncode == 0 and "<script" not in text and "&lt;script&gt;" in text and "\x1b" not in text + p.stdout.decode(), "names are escaped", (p.returncode, p.stderr))
for key, value in ("loss_chunk_tokens", 100), ("loss_chunk_tokens", -256), ("offloaded_instances", 10 ** 9), ("offloaded_instances", -1):
    bad = json.load(open("plan.json"))
    bad["decisions"][key] = value
    json.dump(bad, open("bad.json", "w"))
    call("explain bad.json", 4)  # what its blocks do is told; what else they could do is asked of a model that has this
call("explain plan.json --html explain.html", 2)
call("explain plan.json --html plan.json --force", 2)

# ---- as a browser draws it ----

def pixels(name):
    """Width, height and the bytes of each pixel of a PNG of 8 bits without interlacing, which is what a browser writes."""
    data, at, packed = open(name, "rb").read(), 8, b""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == b"IHDR":
            width, height, bits, colour, _, _, laced = struct.unpack(">IIBBBBB", data[at + 8 : at + 21])
            assert bits == 8 and colour in (2, 6) and not laced
        packed += data[at + 8 : at + 8 + n] if kind == b"IDAT" else b""
        at += 12 + n
    raw, each = zlib.decompress(packed), {2: 3, 6: 4}[colour]
    rows, before = [], bytearray(width * each)
    for y in range(height):
        line = bytearray(raw[y * (width * each + 1) + 1 : (y + 1) * (width * each + 1)])
        how = raw[y * (width * each + 1)]
        for i in range(len(line)):
            left, up, corner = line[i - each] if i >= each else 0, before[i], before[i - each] if i >= each else 0
            guess = left + up - corner
            near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
            line[i] = (line[i] + (0, left, up, (left + up) // 2, near)[how]) & 255
        rows.append(line)
        before = line
    return width, height, [[tuple(r[x * each : x * each + 3]) for x in range(width)] for r in rows]


# Without scripts: what a browser puts on a screen has the picture's frame, every colour of its legend, and nothing beyond the window's width.
COLOURS = {"explain.html": ("4477aa", "88ccee", "cc6677", "ddaa33"), "offload.html": ("4477aa", "cc6677", "ddaa33", "44aa99")}
chromium = shutil.which("chromium")
for name, colours in COLOURS.items():
    if not chromium:
        skip("no chromium here to draw " + name)
        continue
    png = name.replace("html", "png")
    p = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-javascript", "--hide-scrollbars", "--window-size=800,700",
                        "--user-data-dir=" + work + "/profile", "--screenshot=" + work + "/" + png, "file://" + work + "/" + name],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if not ok(os.path.exists(png), "chromium draws " + name, (p.returncode, p.stderr[-300:])):
        continue
    width, height, drawn = pixels(png)
    seen = {}
    for y, row in enumerate(drawn):
        for x, c in enumerate(row):
            seen.setdefault("%02x%02x%02x" % c, []).append((x, y))
    ok((width, height) == (800, 700) and all(len(seen.get(c, ())) > 100 for c in colours), name + ": its colours are seen", {c: len(seen.get(c, ())) for c in colours})
    ok(all(row[x] == (255, 255, 255) for row in drawn for x in list(range(10)) + list(range(width - 10, width))), name + ": within the window")
finish()
P
