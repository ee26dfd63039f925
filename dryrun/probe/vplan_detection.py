# dryrun/probe/vplan_detection.py: the part of the probe that answers detectors. How many boxes a batch has, which of a model's many
# anchor points lie in one, and which of them its loss takes are device values that decide sizes. Read as zero there is no box at all;
# with each point taken a loss is many times its size. Boxes came from the host, so their number and areas are known; how many points a
# loss takes at most is a setting of the detector.
#     ultralytics (YOLO, RT-DETR)     boxes an image (keypoints and masks too), points in boxes, points that are assigned
#     torchvision.models.detection    the proposals and anchors that are sampled, the size of keypoints' maps
import functools
import itertools
import weakref

SMALL = 1 << 20        # elements of a tensor that is remembered as it was on the host


class Detection:
    """Of Probe, which has torch, note(), select and read_as_ones()."""

    def init_detection(self):
        self.on_host = {}              # id of a device tensor -> a weak reference to it, what it was copied from
        self.shares = {}               # address of a mask -> a weak reference to it, how many of its elements it selects
        self.found = {}                # id of what tells whether a mask selects any, and it does -> a weak reference to it, True
        self.share = None              # what masks meanwhile select of their elements
        self.boxes = None              # of the batch under way: [boxes an image], [[width, height] of each, in images]
        self.counted = {}              # id of the boxes an image, counted on the device -> a weak reference to it, the most
        self.numbers_of = None         # what torch.unique's counts are meanwhile
        self.detecting = False
        self.image_shape = None        # of the images that torchvision's heads are handed

    # ---- masks of which it is known how many elements they select -------------------------------------------

    def know(self, table, t, value):
        table[id(t)] = (weakref.ref(t, lambda _, key=id(t): table.pop(key, None)), value)

    def known(self, table, t):
        entry = table.get(id(t))
        return entry[1] if entry is not None and entry[0]() is t else None

    def selects(self, t, n):
        """That a mask, and what is a view of it, selects n elements of as many as it has."""
        self.shares[t.untyped_storage().data_ptr()] = (weakref.ref(t), n)

    def selected_of(self, t):
        """How many elements a mask selects; None: not known."""
        if self.shares and t.is_cuda:
            key = t.untyped_storage().data_ptr()
            made, n = self.shares.get(key, (None, 0))
            made = made and made()
            if made is not None and made.numel():
                return n * t.numel() / made.numel()
            self.shares.pop(key, None)
        return None if self.share is None else t.numel() * self.share

    def number_selected(self, t):
        n = self.selected_of(t)
        return int(round(t.numel() * self.select if n is None else min(n, t.numel())))

    def follow_shares(self, torch):
        """Through what is done to masks between the place that makes one and the one that selects by it."""
        Tensor, probe, compiling = torch.Tensor, self, torch.compiler.is_compiling
        if self.detecting:
            return
        self.detecting = True

        def passed_on(plain, operands):
            @functools.wraps(plain)
            def call(*args, **kwargs):
                out = plain(*args, **kwargs)
                if not compiling() and probe.shares and isinstance(out, Tensor):
                    given = operands(args)
                    n = [probe.selected_of(t) if isinstance(t, Tensor) else None for t in given]
                    if n and all(x is not None for x in n):
                        probe.selects(out, sum(n))
                return out
            return call

        def of_any(plain):
            @functools.wraps(plain)
            def call(t, *args, **kwargs):
                out = plain(t, *args, **kwargs)
                if not compiling() and probe.shares and not args and not kwargs and (probe.selected_of(t) or 0) > 0:
                    probe.know(probe.found, out, True)
                return out
            return call

        def read(plain):
            @functools.wraps(plain)
            def call(t):
                if not compiling() and probe.found and probe.known(probe.found, t):
                    return probe.read_as_ones(lambda: plain(t), "a detector's loss asks whether any box was found, and some were")
                return plain(t)
            return call
        torch.cat = passed_on(torch.cat, lambda args: list(args[0]) if args and isinstance(args[0], (list, tuple)) else [])
        Tensor.__or__ = passed_on(Tensor.__or__, lambda args: args[:2])
        Tensor.__gt__ = passed_on(Tensor.__gt__, lambda args: args[:1])
        Tensor.sum, Tensor.any = of_any(Tensor.sum), of_any(Tensor.any)
        Tensor.__bool__ = read(Tensor.__bool__)
        self.tell_scripts(torch)

    # ---- ultralytics --------------------------------------------------------------------------------------------

    def follow_boxes(self, torch):
        """What small tensors were before they were copied to the device: a batch's boxes."""
        plain_to, plain_unique, probe, compiling = torch.Tensor.to, torch.Tensor.unique, self, torch.compiler.is_compiling

        @functools.wraps(plain_to)
        def to(t, *args, **kwargs):
            out = plain_to(t, *args, **kwargs)
            if not compiling() and out is not t and out.is_cuda and not t.is_cuda and t.dim() <= 2 and t.numel() <= SMALL:
                probe.know(probe.on_host, out, t)
            return out

        @functools.wraps(plain_unique)
        def unique(t, *args, **kwargs):
            out = plain_unique(t, *args, **kwargs)
            if compiling() or probe.numbers_of is None or not t.is_cuda or not kwargs.get("return_counts") or len(out) != 2:
                return out
            counts = torch.tensor([n for n in probe.numbers_of if n], dtype=torch.long)
            return torch.arange(len(counts)), counts
        plain_bincount, plain_max = torch.bincount, torch.Tensor.max

        @functools.wraps(plain_bincount)
        def bincount(t, *args, **kwargs):
            out = plain_bincount(t, *args, **kwargs)
            if not compiling() and probe.boxes and t.is_cuda and t.numel() == sum(probe.boxes[0]):
                probe.know(probe.counted, out, max(probe.boxes[0]))
            return out

        @functools.wraps(plain_max)
        def max_of(t, *args, **kwargs):
            out = plain_max(t, *args, **kwargs)
            n = None if compiling() or not probe.counted or args or kwargs else probe.known(probe.counted, t)
            return out if n is None else torch.tensor(n)
        torch.Tensor.to, torch.Tensor.unique = to, unique
        torch.bincount, torch.Tensor.max = bincount, max_of
        self.tell_scripts(torch)
        self.follow_shares(torch)

    def boxes_of(self, batch):
        """The boxes of each image of a batch, and their sizes; None where they are not known."""
        try:
            image, sizes = (self.known(self.on_host, batch[k]) for k in ("batch_idx", "bboxes"))
            n_images = int(batch["img"].shape[0])
            if image is None or sizes is None:
                return None
            numbers = [0] * n_images
            for i in image.view(-1).tolist():
                numbers[int(i)] += 1
            return numbers, [box[2:4] for box in sizes.tolist()]
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            return None

    def on_yolo_models(self, module):
        """ultralytics.nn.tasks: while a model computes its loss the boxes of its batch are known."""
        probe = self
        self.follow_boxes(self.torch)
        for kind in [k for k in vars(module).values() if isinstance(k, type) and k.__module__ == module.__name__ and "loss" in vars(k)]:
            plain = vars(kind)["loss"]

            def loss(model, batch, *args, plain=plain, **kwargs):
                outer, probe.boxes = probe.boxes, probe.boxes_of(batch)
                host = probe.known(probe.on_host, batch["batch_idx"]) if probe.boxes and "RTDETR" in type(model).__name__ else None
                if host is not None:           # it counts them image by image: of the host's the numbers are right
                    batch = dict(batch, batch_idx=host)
                try:
                    return plain(model, batch, *args, **kwargs)
                finally:
                    probe.boxes = outer
            kind.loss = functools.wraps(plain)(loss)

    def on_yolo_loss(self, module):
        """ultralytics.utils.loss: an image gets as many rows as the fullest has boxes."""
        probe = self
        for kind in [k for k in vars(module).values() if isinstance(k, type) and "preprocess" in vars(k)]:
            plain = vars(kind)["preprocess"]

            def preprocess(loss, *args, plain=plain, **kwargs):
                probe.numbers_of = probe.boxes[0] if probe.boxes else None
                try:
                    return plain(loss, *args, **kwargs)
                finally:
                    probe.numbers_of = None
            kind.preprocess = functools.wraps(plain)(preprocess)

    def on_yolo_assigner(self, module):
        """ultralytics.utils.tal: candidates of a box are the points in it, evenly spread; it gets the topk best of them."""
        kind, probe = getattr(module, "TaskAlignedAssigner", None), self
        if not hasattr(kind, "get_box_metrics"):
            return

        def points_in(assigner, n_points):
            """Of each box, among n_points over an image, of which 4 in 21 are the middle stride's; a smaller side is enlarged to it."""
            side = (21 / (4 * n_points)) ** 0.5 if hasattr(assigner, "stride_val") else 0.0
            return [max(1.0, min(1.0, max(w, side)) * min(1.0, max(h, side)) * n_points) for w, h in probe.boxes[1]]
        plain_metrics, plain_forward = kind.get_box_metrics, kind.forward

        @functools.wraps(plain_metrics)
        def get_box_metrics(assigner, pd_scores, pd_bboxes, gt_labels, gt_bboxes, mask_gt, *args, **kwargs):
            if not probe.boxes or not mask_gt.numel():
                return plain_metrics(assigner, pd_scores, pd_bboxes, gt_labels, gt_bboxes, mask_gt, *args, **kwargs)
            inside = sum(points_in(assigner, pd_bboxes.shape[-2]))
            outer, probe.share = probe.share, min(1.0, inside / mask_gt.shape[0] / mask_gt.shape[1] / pd_bboxes.shape[-2])
            probe.note("yolo", "ultralytics: a box has its share of the anchor points, by its area, and is assigned the %d best of them"
                       % (getattr(assigner, "topk2", 0) or assigner.topk))
            try:
                return plain_metrics(assigner, pd_scores, pd_bboxes, gt_labels, gt_bboxes, mask_gt, *args, **kwargs)
            finally:
                probe.share = outer

        @functools.wraps(plain_forward)
        def forward(assigner, *args, **kwargs):
            out = plain_forward(assigner, *args, **kwargs)
            if probe.boxes and len(out) >= 4 and isinstance(out[3], probe.torch.Tensor):
                most = getattr(assigner, "topk2", 0) or assigner.topk
                n = sum(min(most, x) for x in points_in(assigner, out[3].shape[-1]))
                probe.selects(out[3], min(n, out[3].numel()))
            return out
        kind.get_box_metrics, kind.forward = get_box_metrics, forward

    # ---- torchvision --------------------------------------------------------------------------------------------

    def on_torchvision_sampler(self, module):
        """torchvision.models.detection._utils: of each image a fixed number is sampled, of which a share may be foreground."""
        kind, probe = getattr(module, "BalancedPositiveNegativeSampler", None), self
        if kind is None:
            return
        plain = kind.__call__
        self.follow_shares(self.torch)

        @functools.wraps(plain)
        def __call__(sampler, matched_idxs):
            positive, negative = plain(sampler, matched_idxs)
            for some, other in zip(positive, negative):
                n = min(int(sampler.batch_size_per_image * sampler.positive_fraction), some.numel())
                probe.selects(some, n)
                probe.selects(other, min(sampler.batch_size_per_image - n, other.numel()))
            probe.note("sampler", "torchvision's detectors sample as many boxes, foreground among them, as they may")
            return positive, negative
        kind.__call__ = __call__

    def on_torchvision_heads(self, module):
        """torchvision.models.detection.roi_heads: of the sampled labels that share is foreground."""
        kind, probe = getattr(module, "RoIHeads", None), self
        if not hasattr(kind, "select_training_samples"):
            return
        plain = kind.select_training_samples

        @functools.wraps(plain)
        def select_training_samples(heads, *args, **kwargs):
            out = plain(heads, *args, **kwargs)
            for labels in out[2]:
                probe.selects(labels, labels.numel() * heads.fg_bg_sampler.positive_fraction)
            return out
        kind.select_training_samples = select_training_samples
        self.answer_keypoints(module, kind)

    def answer_keypoints(self, module, kind):
        """How large a map of a person's keypoints is drawn, is read from the box that was found: each is as large as the image."""
        plain, plain_forward = getattr(module, "heatmaps_to_keypoints", None), getattr(kind, "forward", None)
        Tensor, probe = self.torch.Tensor, self
        if plain is None or plain_forward is None:
            return

        @functools.wraps(plain_forward)
        def forward(heads, features, proposals, image_shapes, *args, **kwargs):
            probe.image_shape = max(image_shapes, key=lambda shape: shape[0] * shape[1])
            return plain_forward(heads, features, proposals, image_shapes, *args, **kwargs)

        @functools.wraps(plain)
        def heatmaps_to_keypoints(maps, rois):
            if not maps.is_cuda or probe.image_shape is None:
                return plain(maps, rois)
            item, sides = Tensor.item, itertools.cycle(reversed(probe.image_shape))      # widths and heights in turns
            probe.note("keypoints", "torchvision: the box of each set of keypoints is as large as the image")
            Tensor.item = lambda t: float(next(sides))
            try:
                return plain(maps, rois)
            finally:
                Tensor.item = item
        kind.forward, module.heatmaps_to_keypoints = forward, heatmaps_to_keypoints
