# dryrun/probe/vplan_values.py: the part of the probe that answers for values which were not computed: what boolean
# masks select, what a device value reads as, what attention masks hold. Each answer that was used is noted.
# What torch.compile traces is the script's own function: an answer of ours would end its graph.
import functools
import weakref


class Values:
    """Of Probe, which has lib, torch, select, value, padding, note() and where()."""

    def init_values(self):
        self.ones = {}                 # id of a tensor that was made of ones -> a weak reference to it

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
            n = int(round(t.numel() * probe.select))
            where = probe.where()
            if n and not where.startswith("("):
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
        torch.ctc_loss = ctc_loss

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
                probe.ones[id(t)] = weakref.ref(t, lambda _, key=id(t): probe.ones.pop(key, None))
            return t
        self.override("fill_.Scalar", fill)

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
            before = probe.counters()["n_read"]
            busy = getattr(probe.read_busy, "on", False)
            probe.read_busy.on = True          # an answered read is an assumption of its own
            outer, probe.read_busy.ones = getattr(probe.read_busy, "ones", 0), 1
            probe.lib.vplan_null_set_fill(1)
            try:
                return plain(*args, **kwargs)
            finally:
                probe.read_busy.ones = outer   # one answer may ask for another
                probe.lib.vplan_null_set_fill(outer)
                probe.read_busy.on = busy
                if probe.counters()["n_read"] != before:
                    probe.note(text, text)
        setattr(module, name, answered)

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
