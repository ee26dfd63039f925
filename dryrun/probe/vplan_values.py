# dryrun/probe/vplan_values.py: the part of the probe that answers for values which were not computed: what boolean
# masks select, what a device value reads as, what attention masks hold. Each answer that was used is noted.
# What torch.compile traces is the script's own function: an answer of ours would end its graph.
import functools
import weakref


class Values:
    """Of Probe, which has lib, torch, select, value, padding, note() and where()."""

    def init_values(self):
        self.ones = {}                 # id of a tensor that was made of ones -> a weak reference to it
        self.selected = {}             # the same of a tensor of the places where a mask is true

    def tell_scripts(self, torch):
        """torch.jit.script knows PyTorch's functions by their identity: those in the place of which ours stand are theirs."""
        builtins = torch.jit._builtins
        for name in ("isfinite", "all", "nonzero", "where", "cat", "bincount", "ctc_loss"):
            ours = plain = getattr(torch, name)
            while hasattr(plain, "__wrapped__"):
                plain = plain.__wrapped__
            operator = builtins._find_builtin(plain)
            if plain is not ours and operator is not None:
                builtins._register_builtin(ours, operator)

    # ---- masks that select ---------------------------------------------------------------------------------

    def hook_masks(self, torch):
        """How many elements a boolean mask selects is a device value. Zero would make everything behind it
        vanish from the peak, so a fraction is assumed (--select, 1 if not given)."""
        probe = self
        expect = self.lib.vplan_null_expect
        out_of_place = torch.ops.aten.nonzero.out

        def nonzero(t):
            """aten::nonzero on CUDA, which indexing, masked_select, where and their gradients come to: the
            same empty result and the same kernel that PyTorch's own begins with."""
            n = probe.number_selected(t)
            where = probe.where()
            if n and probe.selected_of(t) is None and not where.startswith("("):
                entry = probe.selections.setdefault(where, [0, 0])
                entry[0] += 1
                entry[1] += t.numel()
            out = torch.empty(0, dtype=torch.int64, device=t.device)
            expect(1, n)
            try:
                return out_of_place(t, out=out)
            finally:
                expect(0, 0)
        self.override("nonzero", nonzero)

    def hook_single(self, torch):
        """A script that asks where a mask is true for one number, as diffusers' flow-matching trainers look a timestep up, knows that one
        element is: (steps == t).nonzero().item()."""
        Tensor, probe, compiling = torch.Tensor, self, torch.compiler.is_compiling

        def selecting(plain):
            def nonzero(*args, **kwargs):
                out = plain(*args, **kwargs)
                for t in out if isinstance(out, tuple) else (out,) if len(args) == 1 else ():
                    if not compiling() and isinstance(t, Tensor) and t.is_cuda and t.numel() > 1 and not t.is_floating_point():
                        probe.selected[id(t)] = weakref.ref(t, lambda _, key=id(t): probe.selected.pop(key, None))
                return out
            return functools.wraps(plain)(nonzero)

        def reading(plain):
            def read(t):
                if not compiling() and probe.selected and t.numel() > 1:
                    known = probe.selected.get(id(t))
                    if known is not None and known() is t:
                        probe.note("single", "a mask of which one place is asked for has one")
                        return plain(t.view(-1)[0])
                return plain(t)
            return functools.wraps(plain)(read)
        Tensor.nonzero, torch.nonzero, torch.where = selecting(Tensor.nonzero), selecting(torch.nonzero), selecting(torch.where)
        Tensor.item, Tensor.__int__ = reading(Tensor.item), reading(Tensor.__int__)

    def hook_ctc(self, torch):
        """CTC's lengths are read from the device where a model has counted them there. Zeros contradict the targets and would make
        its buffers vanish: inputs are taken to be as long as they can be, targets to share what there is."""
        plain, probe = torch.ctc_loss, self

        def unread(lengths):
            return isinstance(lengths, torch.Tensor) and lengths.is_cuda and lengths.numel() and not any(lengths.tolist())

        def ctc_loss(log_probs, targets, input_lengths, target_lengths, *args, **kwargs):
            of_inputs, of_targets = unread(input_lengths), unread(target_lengths)
            if of_inputs:
                input_lengths = torch.full(input_lengths.shape, log_probs.shape[0], dtype=torch.long)
            if of_targets:
                n = target_lengths.numel()
                if targets.dim() == 1:
                    lengths = [targets.numel() // n + (i < targets.numel() % n) for i in range(n)]
                else:
                    lengths = [targets.shape[1]] * n
                target_lengths = torch.tensor(lengths).reshape(target_lengths.shape)
            if of_inputs or of_targets:
                if not isinstance(input_lengths, torch.Tensor) or input_lengths.is_cuda:
                    input_lengths = torch.as_tensor(input_lengths, device="cpu")
                target_lengths = torch.as_tensor(target_lengths, device="cpu")
                probe.note("ctc", "CTC: lengths that were counted on the device are taken to be the longest")
            return plain(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)
        torch.ctc_loss = functools.wraps(plain)(ctc_loss)

    def hook_finite(self, torch):
        """A script that skips its step, or ends, where a loss or a norm is not finite would do so at each: read as zero, none is."""
        Tensor, probe, compiling = torch.Tensor, self, torch.compiler.is_compiling

        def finite(plain):
            def isfinite(t, *args, **kwargs):
                out = plain(t, *args, **kwargs)
                if not compiling() and isinstance(out, Tensor) and out.is_cuda and not out.is_inference():
                    probe.remember_ones(out)
                return out
            return functools.wraps(plain)(isfinite)

        def all_of(plain):
            def all(t, *args, **kwargs):
                out = plain(t, *args, **kwargs)
                if not compiling() and probe.ones and isinstance(out, Tensor) and not out.is_inference() and probe.is_ones(t):
                    probe.remember_ones(out)
                return out
            return functools.wraps(plain)(all)

        def read(plain):
            def read(t):
                if compiling() or not probe.ones or t.dtype is not torch.bool or not t.is_cuda or t.is_inference() or not probe.is_ones(t):
                    return plain(t)
                return probe.read_as_ones(lambda: plain(t), "losses and norms that torch.isfinite is asked of are finite")
            return functools.wraps(plain)(read)
        torch.isfinite, Tensor.isfinite = finite(torch.isfinite), finite(Tensor.isfinite)
        torch.all, Tensor.all = all_of(torch.all), all_of(Tensor.all)
        Tensor.__bool__, Tensor.item = read(Tensor.__bool__), read(Tensor.item)

    def on_lbfgs(self, module):
        """torch.optim.lbfgs keeps a direction and a step of each of its last iterations, where the curvature that it reads is positive,
        and ends where the loss no longer changes: of zeros it would keep none and end after one. It is, and it does not."""
        kind, probe = getattr(module, "LBFGS", None), self
        if kind is None:
            return
        plain = kind.step              # torch itself is still being imported

        @functools.wraps(plain)
        def step(optimizer, *args, **kwargs):
            torch, group = probe.torch, optimizer.param_groups[0]
            greater = torch.Tensor.__gt__
            tolerance, group["tolerance_change"] = group["tolerance_change"], -1.0

            def gt(t, other):
                out = greater(t, other)
                if isinstance(other, float) and other == 1e-10 and isinstance(out, torch.Tensor) and out.is_cuda:
                    bool(out)          # read as ever
                    return True
                return out
            torch.Tensor.__gt__ = gt
            probe.note("lbfgs", "L-BFGS runs all iterations of a step and keeps each, up to history_size")
            try:
                return plain(optimizer, *args, **kwargs)
            finally:
                torch.Tensor.__gt__ = greater
                group["tolerance_change"] = tolerance
        kind.step = step

    # ---- a chosen value instead of zero --------------------------------------------------------------------

    def hook_values(self, torch):
        """--value X: what .item() and its kin give for floating-point device tensors."""
        value = float(self.value)
        plain = torch.Tensor.item
        probe = self

        def item(t):
            got = plain(t)
            if t.is_cuda and t.is_floating_point():
                return value
            return got
        torch.Tensor.item = item
        torch.Tensor.__float__ = lambda t, plain=torch.Tensor.__float__: (
            value if t.is_cuda and plain(t) is not None else plain(t))
        probe.note("value", "device values read as Python floats are %s" % self.value)

    def hook_ones(self, torch):
        """Which tensors were filled with ones as they were made: masks that a model makes itself, where it was handed none."""
        fill_with = torch.ops.aten.fill_.Tensor       # of a number on the host: the same kernel
        number, probe = torch.zeros(()), self

        def fill(t, value):
            fill_with(t, number)
            if value == 1 and t.dim() and not t.is_inference() and t._version == 0:
                probe.remember_ones(t)
            return t
        self.override("fill_.Scalar", fill)

    def remember_ones(self, t):
        self.ones[id(t)] = weakref.ref(t, lambda _, key=id(t): self.ones.pop(key, None))

    def is_ones(self, t):
        """Whether a tensor, or what it is a view of, was made of ones and not written since."""
        made = t if getattr(t, "_base", None) is None else t._base
        known = self.ones.get(id(made))
        return known is not None and known() is made and made._version == 0

    def on_masking(self, module):
        """transformers looks into position ids and masks to choose an attention kernel. Nothing is there to
        see: sequences are taken as not packed, and a mask that is passed as having padding (--padding none:
        as having none), but for one that was made of ones. The device work of the test is done either way."""
        self.answer_ones(module, "find_packed_sequence_indices",
                         lambda: "sequences are not packed (transformers reads position ids to know)")
        for name in ("fast_all", "_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa", "_preprocess_mask_arguments"):
            if self.padding != "none" and name.startswith("_ignore"):
                self.remark(module, name)
            self.answer_ones(module, name, self.no_padding)
        for name in [n for n in vars(module) if n.startswith("create_") and "mask" in n]:
            self.follow_mask(module, name)

    def no_padding(self):
        """Why the mask under way holds none; "": it is taken to hold some."""
        if self.padding == "none":
            return "attention masks hold no padding (--padding none)"
        return "attention masks that were made of ones hold no padding" if getattr(self.read_busy, "mask_of_ones", False) else ""

    def follow_mask(self, module, name):
        """A function that makes an attention's mask from one of tokens: while it runs it is known whether that is one of ones."""
        plain, probe, compiling = getattr(module, name), self, self.torch.compiler.is_compiling

        @functools.wraps(plain)
        def made(*args, **kwargs):
            if compiling():
                return plain(*args, **kwargs)
            mask = kwargs.get("attention_mask", next((a for a in args[2:3]), None))
            local, outer = probe.read_busy, getattr(probe.read_busy, "mask_of_ones", False)
            local.mask_of_ones = isinstance(mask, probe.torch.Tensor) and not mask.is_inference() and probe.is_ones(mask)
            try:
                return plain(*args, **kwargs)
            finally:
                local.mask_of_ones = outer
        setattr(module, name, made)

    def on_untrained(self, module):
        """Unsloth looks for rows of the table that are zeros, tokens which nobody trained, and copies these rows of the head. Here all
        are zeros; real models have few or none."""
        plain, probe = getattr(module, "fix_untrained_tokens", None), self
        if plain is None:
            return

        def fix_untrained_tokens(*args, **kwargs):
            probe.note("untrained", "no token of the vocabulary is untrained (Unsloth looks for such rows of the table)")
            select, probe.select = probe.select, 0
            try:
                return plain(*args, **kwargs)
            finally:
                probe.select = select
        module.fix_untrained_tokens = fix_untrained_tokens

    def on_stopping(self, module):
        kind = getattr(module, "StoppingCriteriaList", None)
        if kind is None:
            return
        plain, probe = kind.__call__, self

        def criteria(these, input_ids, scores, **kwargs):
            limit = these.max_length
            if limit is not None and input_ids.is_cuda:
                probe.generated_all = input_ids.shape[1] >= limit
            return plain(these, input_ids, scores, **kwargs)
        kind.__call__ = criteria

    def on_generation(self, module):
        """Whether a sequence has ended is a device value; read as zero it would never end."""
        kind = getattr(module, "GenerationMixin", None)
        plain = getattr(kind, "_has_unfinished_sequences", None)
        if plain is None:
            return
        probe = self

        def unfinished(model, this_peer_finished, synced_gpus, device, **kwargs):
            plain(model, this_peer_finished, synced_gpus, device=device, **kwargs)
            if getattr(device, "type", device) != "cuda" and not str(device).startswith("cuda"):
                return plain(model, this_peer_finished, synced_gpus, device=device, **kwargs)
            probe.note("generate", "text generation runs to its maximum length")
            done, probe.generated_all = probe.generated_all, False
            return not done
        kind._has_unfinished_sequences = unfinished

    def on_completions(self, module):
        """TRL cuts completions behind the first end of a text, by a mask that it reads: each is as long as it may be."""
        for kind in vars(module).values():
            plain = vars(kind).get("_generate_single_turn") if isinstance(kind, type) else None
            if plain is None:
                continue

            def generate(trainer, *args, plain=plain, **kwargs):
                out = plain(trainer, *args, **kwargs)
                completions = out[0] if isinstance(out, tuple) and len(out) == 2 else out
                for ids in completions if isinstance(completions, list) else ():
                    if isinstance(ids, list) and not ids:
                        ids.extend([0] * trainer.max_completion_length)
                return out
            kind._generate_single_turn = functools.wraps(plain)(generate)

    def answer_ones(self, module, name, why):
        """What a function reads of the device is ones, for the reason that why() gives; "": it is not."""
        plain = getattr(module, name, None)
        if plain is None:
            return
        probe, compiling = self, self.torch.compiler.is_compiling

        def answered(*args, **kwargs):
            text = "" if compiling() or probe.lib is None else why()
            if not text:
                return plain(*args, **kwargs)
            return probe.read_as_ones(lambda: plain(*args, **kwargs), text)
        setattr(module, name, answered)

    def read_as_ones(self, call, text):
        """What a call reads of the device is ones, an assumption of its own where it reads anything."""
        before, busy = self.counters()["n_read"], getattr(self.read_busy, "on", False)
        outer = getattr(self.read_busy, "ones", 0)
        self.read_busy.on, self.read_busy.ones = True, 1
        self.lib.vplan_null_set_fill(1)
        try:
            return call()
        finally:
            self.read_busy.ones = outer            # one answer may ask for another
            self.lib.vplan_null_set_fill(outer)
            self.read_busy.on = busy
            if self.counters()["n_read"] != before:
                self.note(text, text)

    def remark(self, module, name):
        plain = getattr(module, name, None)
        if plain is None:
            return
        probe, compiling = self, self.torch.compiler.is_compiling

        def remarked(*args, **kwargs):
            if compiling():
                return plain(*args, **kwargs)
            mask = kwargs.get("padding_mask", args[0] if args else None)
            if mask is not None and not probe.no_padding():
                probe.note("padding", "attention masks that are passed hold padding; with full sequences "
                           "transformers drops the mask and needs less (--padding none)")
            return plain(*args, **kwargs)
        setattr(module, name, remarked)
