#!/usr/bin/env python3
"""Turn the results of part 3 into one device profile file.

    to_profile.py RESULTS.json [RESULTS.json ...] [-o PROFILE.json]

All files must be of one device, driver and set of library versions; of a row measured twice the later file counts.
The form below is this survey's own and will follow the project's profile format when there is one: it keeps one
entry per measured row, so nothing has to be measured again for another form. Exit 4: input that cannot be used.

    schema_version, kind "device-profile", device, driver, libraries{}, class "measured",
    sources[{file, commit, rows}], conditions{limits, host, sm_clock_hz[low, high], power_w[low, high], temperature_c[low, high]}
    ops[{op, pass|kernel|kind, shape, dtype, ..., seconds, seconds_low, seconds_high, repeats, flop, bytes, class}]
        seconds is the median; low and high are the least and the greatest repeat
    attention's backward is an entry of its own with pass "bwd"
    links[{way h2d|d2h|both, host pinned|pageable, latency_s, bytes_per_s, points[{bytes, seconds}]}]
        latency_s and bytes_per_s: least squares of seconds = latency_s + bytes / bytes_per_s, each point weighted by
        1 / seconds^2 (relative error); points are kept because the line is not good below some 64 KiB
    overlap[{way, shape, gemm_slowdown, copy_slowdown}]      time together over time alone; 1 means no effect
    rates{gemm_flop_per_s{dtype}, attention_flop_per_s{kernel}, memory_bytes_per_s}     the best row of each
    launch_s{eager, graph_node, empty_sync}, host_optimizer[{kind, threads, parameters_per_s}]
"""
import argparse
import json
import os
import sys

SCHEMA_VERSION = 1


def refuse(why):
    print(f"to_profile: {why}", file=sys.stderr)
    sys.exit(4)


def read(paths):
    """(identity, documents) of results files that belong together."""
    documents, identity = [], None
    for path in paths:
        try:
            with open(path) as f:
                d = json.load(f)
        except (OSError, ValueError) as e:
            refuse(f"{path}: {e}")
        if not isinstance(d, dict) or d.get("schema_version") != 1 or not str(d.get("part", "")).startswith("survey-3"):
            refuse(f"{path}: not a results file of part 3 with schema_version 1")
        if d.get("dry"):
            refuse(f"{path}: a dry run measures nothing")
        this = {k: d.get(k) for k in ("device", "driver", "libraries")}
        if identity is not None and this != identity:
            refuse(f"{path}: another device, driver or library versions than {paths[0]}")
        identity = this
        documents.append((path, d))
    return identity, documents


def fit_line(points):
    """(latency_s, bytes_per_s) of seconds = latency + bytes / rate, weighted by relative error; None, None if it has no sense."""
    w = [1 / s ** 2 for _, s in points]
    sw, sx, sy = sum(w), sum(a * n for a, (n, _) in zip(w, points)), sum(a * s for a, (_, s) in zip(w, points))
    sxx, sxy = sum(a * n * n for a, (n, _) in zip(w, points)), sum(a * n * s for a, (n, s) in zip(w, points))
    det = sw * sxx - sx * sx
    if len(points) < 2 or det <= 0 or (slope := (sw * sxy - sx * sy) / det) <= 0:
        return None, None
    return max(0.0, (sy - slope * sx) / sw), 1 / slope


def spread(samples, field):
    got = [s[field] for s in samples if s.get(field) is not None]
    return [min(got), max(got)] if got else None


def entry(key, seconds, raw, **more):
    return dict(key, seconds=seconds, seconds_low=min(raw), seconds_high=max(raw), repeats=len(raw), **more, **{"class": "measured"})


def profile(identity, documents):
    """The profile as a dictionary; refuses when nothing was measured."""
    rows = {}
    for path, d in documents:
        for r in d["rows"]:
            if r["measured"] is not None:
                rows[r["name"]] = r
    if not rows:
        refuse("no measured row in " + ", ".join(p for p, _ in documents))
    ops, links, overlap, launch, host, best, memory = [], {}, [], {}, [], {}, 0.0
    for r in rows.values():
        m = r["measured"]
        key = m["key"]
        op = key["op"]
        if op == "copy":
            links.setdefault((key["way"], key["host"]), []).append((m["bytes"], m["seconds"]))
        elif op == "overlap":
            overlap.append({"way": key["way"], "shape": key["shape"], "dtype": key["dtype"], "gemm_slowdown": m["gemm_slowdown"],
                            "copy_slowdown": m["copy_slowdown"], "class": "measured"})
        elif op == "launch":
            launch[key["what"]] = m["seconds"]
        elif op == "host_optimizer_step":
            host.append({"kind": key["kind"], "threads": key["threads"], "parameters_per_s": m["parameters_per_s"], "class": "measured"})
        else:
            more = {k: m[k] for k in ("flop", "bytes", "parameters") if m.get(k) is not None}
            if op == "attention":
                ops.append(entry(dict(key, **{"pass": "fwd"}), m["seconds"], r["raw_seconds"], **more))
                ops.append(entry(dict(key, **{"pass": "bwd"}), m["backward_seconds"], m["backward_raw_seconds"], flop=m["backward_flop"]))
                best.setdefault(("attention_flop_per_s", key["kernel"]), []).append(m["flop_per_s"])
            else:
                ops.append(entry(key, m["seconds"], r["raw_seconds"], **more))
            if op == "gemm":
                best.setdefault(("gemm_flop_per_s", key["dtype"]), []).append(m["flop_per_s"])
            elif op == "device_copy":
                memory = max(memory, m["bytes_per_s"])
    rates = {"gemm_flop_per_s": {}, "attention_flop_per_s": {}, "memory_bytes_per_s": memory or None}
    for (table, which), values in sorted(best.items()):
        rates[table][which] = max(values)
    lines = []
    for (way, kind), points in sorted(links.items()):
        latency, rate = fit_line(points)
        lines.append({"way": way, "host": kind, "latency_s": latency, "bytes_per_s": rate, "class": "measured",
                      "points": [{"bytes": n, "seconds": s} for n, s in sorted(points)]})
    samples = [s for _, d in documents for s in d["conditions"].get("samples", [])]
    first = documents[0][1]["conditions"]
    return {"schema_version": SCHEMA_VERSION, "kind": "device-profile", **identity, "class": "measured",
            "sources": [{"file": os.path.basename(p), "commit": d["commit"], "rows": sum(r["measured"] is not None for r in d["rows"])}
                        for p, d in documents],
            "conditions": {"gpu": first.get("gpu"), "limits": first.get("limits"), "host": first.get("host"),
                           **{f: spread(samples, f) for f in ("sm_clock_hz", "power_w", "temperature_c")}},
            "rates": rates, "launch_s": launch, "links": lines, "overlap": overlap, "host_optimizer": host, "ops": ops}


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("results", nargs="+")
    a.add_argument("-o", "--output", help="file to write (default: stdout)")
    a = a.parse_args()
    made = profile(*read(a.results))
    text = json.dumps({k: v for k, v in made.items() if k != "ops"}, indent=1)[:-2]
    text += ',\n "ops": [\n' + ",\n".join("  " + json.dumps(o, separators=(",", ":")) for o in made["ops"]) + "\n ]\n}\n"
    if a.output:
        tmp = a.output + ".tmp"
        with open(tmp, "w") as f:
            f.write(text)
        os.replace(tmp, a.output)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
