# dryrun/probe/vplan_arguments.py: the part of the probe that hears argparse refuse a command line: it prints why and exits, and
# no exception is left to be reported.
import os

REFUSED = "argparse"


class Arguments:
    """Of Probe, which has pid and error."""

    def on_argparse(self, module):
        plain = module.ArgumentParser.error

        def error(parser, message):
            if os.getpid() == self.pid and self.error is None:
                self.error = {"type": REFUSED, "message": str(message)[:4000], "where": ""}
            return plain(parser, message)
        module.ArgumentParser.error = error

    def only_arguments(self):
        """Nothing else went wrong so far: a program may hear of it too, and go on."""
        return self.error is None or self.error["type"] == REFUSED
