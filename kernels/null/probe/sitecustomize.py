# kernels/null/probe/sitecustomize.py: what Python runs first inside `vplan dryrun`. It starts the probe
# and then the sitecustomize that would have run without us.
import os
import sys


def _start():
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("VPLAN_NULL_REPORT"):
        try:
            import vplan_probe
            vplan_probe.start()
        except Exception as e:     # a broken probe must not pass for a script that ran
            sys.stderr.write("vplan dryrun: the probe did not start: %s: %s\n" % (type(e).__name__, e))
            os._exit(5)
        if os.environ.get("VPLAN_NULL_BYTECODE"):      # ours is loaded: theirs is cached as ever
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
