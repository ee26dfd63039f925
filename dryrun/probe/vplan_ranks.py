# dryrun/probe/vplan_ranks.py: the part of the probe that plays a rank of several.
#
#     alone       nobody is waited for, and what ranks exchange is taken to be equal
#     together    (VPLAN_NULL_MEET) every rank is a process: they meet in PyTorch's own store, exchange Python objects
#                 through it, and write down their collectives, which `vplan dryrun` compares afterwards
import dataclasses
import os
import pickle
import sys
import time

WAIT_S = 15       # a rank waits this long for another that is elsewhere, before it says so
BROADCAST_MAX_BYTES = 65536      # of integers whose values are passed on: as much as the stand-in keeps of a copy


class Ranks:
    """Of Probe, which has world, rank, folder, note(), where() and refuse()."""

    def init_ranks(self):
        self.meets = bool(os.environ.get("VPLAN_NULL_MEET")) and self.world > 1
        self.store = None              # the default group's, kept: rank 0's serves the others
        self.exchanges = {}            # members of a group -> exchanges of theirs so far
        self.collectives = None

    # ---- the rendezvous ------------------------------------------------------------------------------------

    def on_rendezvous(self, module):
        if self.world < 2 or not hasattr(module, "TCPStore"):
            return
        plain, probe = module.TCPStore, self

        def TCPStore(*args, **kwargs):
            if probe.meets:
                probe.store = plain(*args, **kwargs)
                return probe.store
            if probe.rank > 0:         # its server is not there
                probe.store = probe.store_of_one()     # PyTorch does not keep the Python half
                return probe.store
            kwargs["wait_for_workers"] = False     # the other ranks do not exist
            return plain(*args, **kwargs)
        module.TCPStore = TCPStore

    def store_of_one(self):
        """A store that has what others would set for whoever waits for it."""
        from torch.distributed import Store

        class Alone(Store):
            def __init__(self):
                super().__init__()
                self.held = {}

            def set(self, key, value):
                self.held[key] = value if isinstance(value, bytes) else str(value).encode()

            def get(self, key):
                return self.held.get(key, b"\x76" * 128)       # as many bytes as an id of NCCL's

            def add(self, key, n):
                value = int(self.held.get(key, b"0")) + n
                self.held[key] = b"%d" % value
                return value

            def compare_set(self, key, expected, desired):
                self.set(key, desired)
                return self.held[key]

            def check(self, keys):     # among them: whether a rank has asked all to end
                return all(key in self.held for key in keys)

            def wait(self, *args):
                pass

            def delete_key(self, key):
                return self.held.pop(key, None) is not None

            def num_keys(self):
                return len(self.held)

            def set_timeout(self, timeout):
                pass

            def clone(self):
                return self

            def has_extended_api(self):
                return False
        return Alone()

    def on_accelerate(self, module):
        """`accelerate launch --num_processes 8` starts 8 ranks where there are that many cards, and one where there is one, without
        a word. A dry run has one card a rank. Run by `python -m` the launcher is __main__, which no import hook sees: its function is
        told apart where it asks for the cards."""
        import torch
        count = torch.cuda.device_count

        def cards():
            caller = sys._getframe(1)
            asked = caller.f_code.co_name == "_validate_launch_command" and getattr(caller.f_locals.get("args"), "num_processes", 0)
            return max(count(), asked or 1)
        torch.cuda.device_count = cards

    # ---- objects -------------------------------------------------------------------------------------------

    def exchange(self, what, members, mine):
        """Every member's object, through the store."""
        key = ",".join("%d" % r for r in members)
        n = self.exchanges[key] = self.exchanges.get(key, 0) + 1
        at = "vplan/%s/%d/" % (key, n)
        name = "exchange %d of ranks %s" % (n, key)
        place = "%s, %s at %s" % (name, what, self.where())
        self.store.set(at + "%d" % self.rank, pickle.dumps(mine))
        self.store.set("vplan/at/%d" % self.rank, place)
        out = []
        for rank in members:
            self.wait_for(at + "%d" % rank, rank, place, name)
            out.append(pickle.loads(self.store.get(at + "%d" % rank)))
        return out

    def wait_for(self, key, rank, place, name):
        """Until a rank has set its part. Where it cannot come any more, say what both wait for."""
        began, was, same = time.time(), None, time.time()
        while not self.store.check([key]):
            time.sleep(0.01)
            how = self.how_ended(rank)
            if how is not None and not self.store.check([key]):
                self.refuse("other_rank" if how else "ranks", "rank %d waits for ever: %s; rank %d has ended%s"
                            % (self.rank, place, rank, how and " with " + how), 4)
            if time.time() < began + WAIT_S or not self.store.check(["vplan/at/%d" % rank]):
                continue
            now = self.store.get("vplan/at/%d" % rank).decode("utf-8", "replace")
            if now != was:
                was, same = now, time.time()
            elif time.time() > same + WAIT_S and not now.startswith(name + ","):
                self.refuse("ranks", "ranks wait for each other for ever: rank %d is in %s; rank %d in %s"
                            % (self.rank, place, rank, now), 4)
        if time.time() > began + WAIT_S:
            self.note("waited", "a rank waited %d s for another one's objects" % WAIT_S)

    def members_of(self, module, group):
        return module.get_process_group_ranks(group if group is not None else module._get_default_group())

    def on_c10d(self, module):
        if self.world < 2:
            return
        self.note("watchdog", "buffers of asynchronous collectives that nobody waits for are freed once the host has waited for the "
                  "device; on GPUs PyTorch looks ten times a second, so that those of the last tenth may live longer")
        self.say_split_ranks(module)
        if self.meets:
            self.objects_together(module)
        else:
            self.objects_alone(module)
            self.gloo_alone(module)

    def say_split_ranks(self, module):
        """How many ranks a communicator has that is split off another one: what PyTorch knows and does not tell NCCL."""
        probe = self
        plain_helper = getattr(module, "_new_process_group_helper", None)
        plain_split = getattr(module, "split_group", None)

        def said(n, call):
            if not hasattr(probe.lib, "vplan_null_split_ranks"):
                return call()
            probe.lib.vplan_null_split_ranks(n)
            try:
                return call()
            finally:
                probe.lib.vplan_null_split_ranks(0)

        def helper(group_size, *args, **kwargs):
            return said(int(group_size), lambda: plain_helper(group_size, *args, **kwargs))

        def split(parent_pg=None, split_ranks=None, *args, **kwargs):
            mine = [ranks for ranks in split_ranks or [] if probe.rank in
                    [probe.members_of(module, parent_pg)[r] for r in ranks]]
            return said(len(mine[0]) if mine else 0, lambda: plain_split(parent_pg, split_ranks, *args, **kwargs))
        if plain_helper:
            module._new_process_group_helper = helper
        if plain_split:
            module.split_group = split

    def objects_together(self, module):
        probe = self

        def outside(group):
            return group == getattr(module.GroupMember, "NON_GROUP_MEMBER", object())

        def gathered(object_list, obj, group=None):
            if not outside(group):
                object_list[:] = probe.exchange("all_gather_object", probe.members_of(module, group), obj)

        def gathered_to(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
            if outside(group):
                return
            objects = probe.exchange("gather_object", probe.members_of(module, group), obj)
            if object_gather_list is not None:
                object_gather_list[:] = objects

        def source(members, src, group_src):
            return members[group_src] if group_src is not None else (src or 0)

        def broadcast(object_list, src=None, group=None, device=None, group_src=None):
            if outside(group):
                return
            members = probe.members_of(module, group)
            src = source(members, src, group_src)
            objects = probe.exchange("broadcast_object_list", members, object_list if src == probe.rank else None)
            object_list[:] = objects[members.index(src)]

        def scatter(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None):
            if outside(group):
                return
            members = probe.members_of(module, group)
            src = source(members, src, group_src)
            objects = probe.exchange("scatter_object_list", members, scatter_object_input_list if src == probe.rank else None)
            scatter_object_output_list[0] = objects[members.index(src)][members.index(probe.rank)]

        plain_broadcast = module.broadcast

        def broadcast_tensor(tensor, src=None, group=None, *args, group_src=None, **kwargs):
            if not outside(group) and type(tensor) is probe.torch.Tensor and probe.may_be_checked(tensor):
                members = probe.members_of(module, group)
                probe.share_integers(tensor, members, source(members, src, group_src))
            return plain_broadcast(tensor, src, group, *args, group_src=group_src, **kwargs)

        def sent(object_list, dst=None, group=None, device=None, group_dst=None, **kwargs):
            to = source(probe.members_of(module, group), dst, group_dst)
            probe.store.set(probe.message_key(probe.rank, to), pickle.dumps(object_list))

        def received(object_list, src=None, group=None, device=None, group_src=None, **kwargs):
            if src is None and group_src is None:
                probe.refuse("unsupported", "recv_object_list from any rank", 4)
            of = source(probe.members_of(module, group), src, group_src)
            key = probe.message_key(of, probe.rank)
            place = "%s, recv_object_list at %s" % (key, probe.where())
            probe.store.set("vplan/at/%d" % probe.rank, place)
            probe.wait_for(key, of, place, key)
            object_list[:] = pickle.loads(probe.store.get(key))
            return of
        module.broadcast = broadcast_tensor
        module.send_object_list = sent
        module.recv_object_list = received
        module.all_gather_object = gathered
        module.gather_object = gathered_to
        module.broadcast_object_list = broadcast
        module.scatter_object_list = scatter

    def may_be_checked(self, tensor):
        """A few integers on the device: a script may look at them, as DeepSpeed does at another rank's list."""
        return tensor.is_cuda and not tensor.is_floating_point() and not tensor.is_complex() and \
            0 < tensor.numel() * tensor.element_size() <= BROADCAST_MAX_BYTES

    def share_integers(self, tensor, members, src):
        """What a rank broadcasts, where it is known: copied to it from the host, and not worked on since."""
        values = None
        if src == self.rank:
            busy = getattr(self.read_busy, "on", False)
            self.read_busy.on = True
            before = self.counters()["n_read"]
            values = tensor.tolist()
            if self.counters()["n_read"] != before:
                values = None
            self.read_busy.on = busy
        values = self.exchange("broadcast", members, values)[members.index(src)]
        if src != self.rank and values is not None:
            tensor.copy_(self.torch.tensor(values, dtype=tensor.dtype))

    def on_zero_utils(self, module):
        """Alone: DeepSpeed's check that a list is rank 0's is of this rank's own."""
        if self.meets or self.rank == 0:
            return
        self.note("objects", "Python objects that ranks exchange were taken to be equal on all ranks")

        class AsFirst:
            def __init__(self, plain):
                self.plain = plain

            def get_rank(self, *args):
                return 0

            def __getattr__(self, name):
                return getattr(self.plain, name)
        module.dist = AsFirst(module.dist)

    def on_checkpoint_planner(self, module):
        """Alone: what the other ranks would save is taken to be what this one does, so that pieces of a tensor overlap. Of those that
        several would save none is another's to write: each rank has its own."""
        if self.meets or self.world < 2 or not hasattr(module, "_validate_global_plan"):
            return
        plain, probe = module._validate_global_plan, self

        def _validate_global_plan(*args, **kwargs):
            if not plain(*args, **kwargs):
                probe.note("objects", "Python objects that ranks exchange were taken to be equal on all ranks")
            return True
        module._validate_global_plan = _validate_global_plan

        def dedup_save_plans(all_plans, *args, **kwargs):
            own = min(probe.rank, len(all_plans) - 1)
            return [p if i == own else dataclasses.replace(p, items=[]) for i, p in enumerate(all_plans)]
        if hasattr(module, "dedup_save_plans"):
            module.dedup_save_plans = dedup_save_plans

    def message_key(self, src, dst):
        """Of the next message from a rank to another, the same on both."""
        n = self.exchanges[src, dst] = self.exchanges.get((src, dst), 0) + 1
        return "message %d from rank %d to rank %d" % (n, src, dst)

    def objects_alone(self, module):
        probe = self

        def gathered(object_list, obj, group=None):
            probe.note("objects", "Python objects that ranks exchange were taken to be equal on all ranks")
            for i in range(len(object_list)):
                object_list[i] = obj

        def gathered_to(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
            if object_gather_list is not None:
                gathered(object_gather_list, obj)

        def is_source(group, src, group_src):
            members = probe.members_of(module, group)
            return (members[group_src] if group_src is not None else (src or 0)) == probe.rank

        def broadcast(object_list, src=None, group=None, device=None, group_src=None):
            if not is_source(group, src, group_src):
                probe.refuse("unsupported", "broadcast_object_list from rank %s: only rank %d exists; --rank all plays "
                             "every rank" % (src or group_src or 0, probe.rank), 4)

        def scatter(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None):
            if not is_source(group, src, group_src):
                probe.refuse("unsupported", "scatter_object_list from rank %s: only rank %d exists; --rank all plays "
                             "every rank" % (src or group_src or 0, probe.rank), 4)
            scatter_object_output_list[0] = scatter_object_input_list[probe.members_of(module, group).index(probe.rank)]

        def message(*args, **kwargs):
            probe.refuse("unsupported", "objects sent from rank to rank, at %s: only rank %d exists; --rank all plays every "
                         "rank" % (probe.where(), probe.rank), 4)
        module.recv_object_list = message
        module.send_object_list = lambda *args, **kwargs: None
        module.all_gather_object = gathered
        module.gather_object = gathered_to
        module.broadcast_object_list = broadcast
        module.scatter_object_list = scatter

    def gloo_alone(self, module):
        if not hasattr(module, "ProcessGroupGloo"):
            return
        probe = self
        from torch._C._distributed_c10d import FakeProcessGroup

        class Kind(type):
            def __call__(kind, store, rank, size, *args, **kwargs):
                probe.note("gloo", "collectives on host tensors return at once, unchanged")
                make = getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)
                return make(rank, size)

            def __instancecheck__(kind, group):        # torch looks at what it made
                return isinstance(group, FakeProcessGroup)

        class gloo(metaclass=Kind):
            pass
        FakeProcessGroup._set_sequence_number_for_group = lambda group: None     # asked of it, and not supported
        for name in ("Options", "create_device", "create_default_device"):
            if hasattr(module.ProcessGroupGloo, name):
                setattr(gloo, name, getattr(module.ProcessGroupGloo, name))
        module.ProcessGroupGloo = gloo

    def on_distributed_utils(self, module):
        probe = self

        def same(process_group, tensors, logger=None):
            if probe.meets:
                import torch.distributed.distributed_c10d as c10d
                shapes = probe.exchange("parameter shapes", probe.members_of(c10d, process_group),
                                        [tuple(t.shape) for t in tensors])
                for rank, other in enumerate(shapes):
                    if other != shapes[0]:
                        raise RuntimeError("parameters of rank %d in this group have other shapes than those of rank 0"
                                           % rank)
            elif probe.world > 1:
                probe.note("shapes", "all ranks hold parameters of the same shapes")
        module._verify_param_shape_across_processes = same

    # ---- collectives on the device -------------------------------------------------------------------------

    def on_collective(self, line):
        """One line a collective: what the stand-in said of it, and the frame."""
        if self.collectives is None:
            self.collectives = open(os.path.join(self.folder, "collectives.%d" % self.rank), "a")
        self.collectives.write("%s\t%s\n" % (line, self.where()))

    def how_ended(self, rank):
        """Of another rank: None while it runs, "" where it ended well, else its error."""
        try:
            with open(os.path.join(self.folder, "ended.%d" % rank)) as f:
                return f.read(200)
        except OSError:
            return None

    def leave_ranks(self):
        """This rank is over. Rank 0's store serves the others until they are."""
        if self.collectives is not None:
            self.collectives.close()
            self.collectives = None
        if not self.meets:
            return
        path = os.path.join(self.folder, "ended.%d" % self.rank)
        with open(path + ".tmp", "w") as f:
            f.write(self.error["type"] if self.error else "")
        os.rename(path + ".tmp", path)
        until = time.time() + 120
        while self.rank == 0 and self.store is not None and self.error is None and time.time() < until:
            if all(self.how_ended(r) is not None for r in range(1, self.world)):
                break
            time.sleep(0.02)

