# dryrun/probe/vplan_ranks.py: the part of the probe that lets one rank of several run alone: nobody is waited for, and what
# ranks exchange is taken to be equal.


class Ranks:
    """Of Probe, which has world, note() and refuse()."""

    # ---- several ranks, this one alone ---------------------------------------------------------------------

    def on_rendezvous(self, module):
        if self.world < 2 or not hasattr(module, "TCPStore"):
            return
        plain = module.TCPStore

        def TCPStore(*args, **kwargs):
            kwargs["wait_for_workers"] = False     # the other ranks do not exist
            return plain(*args, **kwargs)
        module.TCPStore = TCPStore

    def on_distributed_utils(self, module):
        def same(process_group, tensors, logger=None):
            if self.world > 1:
                self.note("shapes", "all ranks hold parameters of the same shapes")
        module._verify_param_shape_across_processes = same

    def on_c10d(self, module):
        if self.world < 2:
            return
        probe = self
        self.note("watchdog", "buffers of asynchronous collectives are freed when PyTorch's watchdog thread looks, by the "
                  "clock: two runs may differ by them, as they do on GPUs")

        def gathered(object_list, obj, group=None):
            probe.note("objects", "Python objects that ranks exchange were taken to be equal on all ranks")
            for i in range(len(object_list)):
                object_list[i] = obj

        def gathered_to(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
            if object_gather_list is not None:
                gathered(object_gather_list, obj)

        def broadcast(object_list, src=None, group=None, device=None, group_src=None):
            if (src or group_src or 0) != 0:
                probe.refuse("unsupported", "broadcast_object_list from rank %s: only rank 0 exists"
                             % (src or group_src), 4)

        def scatter(out, inputs=None, src=None, group=None, group_src=None):
            out[0] = inputs[0]
        module.all_gather_object = gathered
        module.gather_object = gathered_to
        module.broadcast_object_list = broadcast
        module.scatter_object_list = scatter
        if hasattr(module, "ProcessGroupGloo"):
            def gloo(store, rank, size, *args, **kwargs):
                from torch._C._distributed_c10d import FakeProcessGroup
                probe.note("gloo", "collectives on host tensors return at once, unchanged")
                make = getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)
                return make(rank, size)
            for name in ("Options", "create_device", "create_default_device"):
                if hasattr(module.ProcessGroupGloo, name):
                    setattr(gloo, name, getattr(module.ProcessGroupGloo, name))
            module.ProcessGroupGloo = gloo
