"""Results files: their shape, their checks, and which rows are already done.

A file is DEVICE-YYYY-MM-DD-survey-PART.json:
    {schema_version, commit, part, device, driver, libraries{}, rows[{name, predicted, measured, raw_seconds[]}]}
and, added by the survey, `conditions` (card limits, host, samples of clocks, temperature, power) and per row
`group`, `spec` (what was run), `environment` (variables set for its process), `conditions`, `wall_s`, `error`
(why there is no measurement) and `compare` (which predicted numbers were met to the byte).
"""
import glob
import json
import os
import tempfile

SCHEMA_VERSION = 1
DOCUMENT_KEYS = ["schema_version", "commit", "part", "device", "driver", "libraries", "conditions", "dry", "rows"]
ROW_KEYS = ["name", "group", "spec", "environment", "predicted", "measured", "raw_seconds", "compare", "error",
            "conditions", "wall_s"]


def write_atomic(path, document):
    """Whole file or none: a run that is cut leaves the last complete version."""
    fd, tmp = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".survey-")
    with os.fdopen(fd, "w") as f:
        head = {k: v for k, v in document.items() if k != "rows"}
        f.write(json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n')
        f.write(",\n".join("  " + json.dumps(r, separators=(",", ":")) for r in document["rows"]))
        f.write("\n ]\n}\n")
    os.chmod(tmp, 0o644)
    os.replace(tmp, path)


def check(document):
    """Problems of one results document as a list of sentences; empty when it is well formed."""
    bad = [f"key '{k}' is missing" for k in DOCUMENT_KEYS if k not in document]
    bad += [f"unknown key '{k}'" for k in document if k not in DOCUMENT_KEYS]
    if bad:
        return bad
    if document["schema_version"] != SCHEMA_VERSION:
        bad.append(f"schema_version is {document['schema_version']}, not {SCHEMA_VERSION}")
    seen = set()
    for r in document["rows"]:
        name = r.get("name")
        bad += [f"row {name}: key '{k}' is missing" for k in ("name", "predicted", "measured", "raw_seconds") if k not in r]
        bad += [f"row {name}: unknown key '{k}'" for k in r if k not in ROW_KEYS]
        if name in seen:
            bad.append(f"row {name} stands twice")
        seen.add(name)
        if not isinstance(r.get("raw_seconds"), list) or any(not isinstance(x, (int, float)) for x in r["raw_seconds"]):
            bad.append(f"row {name}: raw_seconds is not a list of numbers")
        if r.get("measured") is None and not r.get("error") and not document["dry"]:
            bad.append(f"row {name}: neither measured nor an error")
    return bad


def finished(folder, device, driver, libraries):
    """Names of the rows measured in earlier files of this device, driver and versions, and of those that only failed."""
    done, failed = set(), set()
    for path in sorted(glob.glob(os.path.join(folder, "*-survey-*.json"))):
        with open(path) as f:
            d = json.load(f)
        if d.get("device") != device or d.get("driver") != driver or d.get("libraries") != libraries or d.get("dry"):
            continue
        for r in d["rows"]:
            (done if r["measured"] is not None else failed).add(r["name"])
    return done, failed - done


def compare(predicted, measured):
    """Which of the predicted numbers were met to the byte: {equal, of, differs{name: measured - predicted}}.

    Fingerprints (text) are equal or not; a different one is given as measured."""
    both = [k for k in predicted or {} if isinstance((measured or {}).get(k), type(predicted[k]))]
    if not both:
        return None
    differs = {k: measured[k] if isinstance(measured[k], str) else measured[k] - predicted[k]
               for k in both if measured[k] != predicted[k]}
    return {"equal": len(both) - len(differs), "of": len(both), "differs": differs}


def path_for(folder, others, device, date, part):
    """The first free name: ...-survey-1.json, then -survey-1b.json, so that a second sitting of a day is kept."""
    for letter in ["", *"bcdefghijklmnopqrstuvwxyz"]:
        name = f"{device}-{date}-survey-{part}{letter}.json"
        if not any(os.path.exists(os.path.join(d, name)) for d in [folder, *others]):
            return os.path.join(folder, name)
    raise SystemExit(f"no free name for part {part} of {date}")
