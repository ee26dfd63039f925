# dryrun/probe/vplan_arguments.py: the part of the probe that hears a command line refused, by argparse, jsonargparse, click or Fire: they
# print why and exit, and no exception is left to be reported; nor is one of a script that Hydra runs.
import functools
import os

REFUSED = ("argparse", "click", "fire")


class Arguments:
    """Of Probe, which has pid, error and on_exception()."""

    def refused(self, kind, message):
        if os.getpid() == self.pid and self.error is None:
            self.error = {"type": kind, "message": str(message)[:4000], "where": ""}

    def argument_modules(self):
        """What is done to modules as they are imported."""
        return {"argparse": self.on_argparse, "jsonargparse._core": self.on_argparse, "click.exceptions": self.on_click,
                "fire.core": self.on_fire, "hydra._internal.utils": self.on_hydra}

    def on_argparse(self, module):
        kind, probe = getattr(module, "ArgumentParser", None), self
        if not hasattr(kind, "error"):
            return
        plain = kind.error

        def error(parser, message, *args, **kwargs):
            probe.refused("argparse", message)
            return plain(parser, message, *args, **kwargs)
        kind.error = error

    def on_click(self, module):
        probe = self
        for kind in [k for k in vars(module).values() if isinstance(k, type) and "show" in vars(k)]:
            def show(these, *args, plain=vars(kind)["show"], **kwargs):
                message = these.format_message() if hasattr(these, "format_message") else these
                probe.refused("click", message)
                return plain(these, *args, **kwargs)
            kind.show = functools.wraps(vars(kind)["show"])(show)

    def on_fire(self, module):
        plain, probe = getattr(module, "_DisplayError", None), self
        if plain is None:
            return

        def _DisplayError(component_trace):
            probe.refused("fire", component_trace.elements[-1].ErrorAsStr())
            return plain(component_trace)
        module._DisplayError = _DisplayError

    def on_hydra(self, module):
        plain, probe = getattr(module, "run_and_report", None), self
        if plain is None:
            return

        def run_and_report(func):
            def reported():
                try:
                    return func()
                except Exception as e:
                    probe.on_exception(type(e), e)
                    raise
            return plain(reported)
        module.run_and_report = run_and_report

    def only_arguments(self):
        """Nothing else went wrong so far: a program may hear of it too, and go on."""
        return self.error is None or self.error["type"] in REFUSED
