# dryrun/probe/vplan_imports.py: calls back when modules are imported.
import sys


class ImportHook:
    """Calls wanted[name](module) after that module has run, once; loading(name, origin, run) runs it, where more belongs to that."""

    def __init__(self, wanted, loading=lambda name, origin, run: run()):
        self.wanted, self.loading = wanted, loading
        self.busy = set()

    def install(self):
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name not in self.wanted or name in self.busy:
            return None
        self.busy.add(name)
        try:
            import importlib.util
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            spec = None
        finally:
            self.busy.discard(name)
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return None
        plain = spec.loader.exec_module

        def exec_module(module):       # the spec may only have been asked for: datasets does, then imports
            then = self.wanted.pop(name, None)
            self.loading(name, spec.origin, lambda: plain(module))
            if then:
                then(module)
        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            return None
        return spec
