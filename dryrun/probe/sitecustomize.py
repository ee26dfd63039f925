# dryrun/probe/sitecustomize.py: what Python runs first inside `vplan dryrun`, and where a command really trains for
# `vplan tune --on-card`. It starts the probe of the one or the other, and then the sitecustomize that would have run without us.
import os
import sys


def _launched():
    """(rank, ranks) where a launcher (torchrun, accelerate, deepspeed) started this process as one of several."""
    try:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
    return (rank, ranks) if ranks > 1 and os.environ.get("MASTER_PORT") else (0, 1)


def _is_played(rank):
    played = os.environ.get("VPLAN_NULL_PLAYED") or "0"
    return played == "all" or str(rank) in played.split(",")


def _on_card_0():
    """Each rank has one card, its own: what the launcher said of the others is put right."""
    os.environ["LOCAL_RANK"] = "0"
    for i, word in enumerate(getattr(sys, "argv", [])):
        if word.startswith(("--local_rank=", "--local-rank=")):
            sys.argv[i] = word.split("=")[0] + "=0"


def _start():
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("VPLAN_CARD_REPORT"):
        import vplan_card
        vplan_card.start()
    elif os.environ.get("VPLAN_NULL_REPORT"):
        rank, ranks = _launched()
        if ranks > 1 and not _is_played(rank):      # to the launcher this one has ended well
            with open(os.path.join(os.environ["VPLAN_NULL_REPORT"], "rank.%d" % rank), "w") as f:
                f.write("%d" % ranks)
            os._exit(0)
        if rank > 0:
            _on_card_0()
        if ranks > 1:
            os.environ["VPLAN_NULL_WORLD"] = "%d" % ranks
        try:
            import vplan_probe
            vplan_probe.start()
        except Exception as e:     # a broken probe must not pass for a script that ran
            sys.stderr.write("vplan dryrun: the probe did not start: %s: %s\n" % (type(e).__name__, e))
            os._exit(5)
    if os.environ.get("VPLAN_NULL_BYTECODE"):          # ours is loaded: theirs is cached as ever
        sys.dont_write_bytecode = False
    rest = [p for p in sys.path if os.path.abspath(p or ".") != here]
    sys.path[:] = rest
    import importlib.machinery
    import importlib.util
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start()
