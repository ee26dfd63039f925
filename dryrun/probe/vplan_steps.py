# dryrun/probe/vplan_steps.py: the part of the probe that ends a training early (--steps N) without touching the script: after
# the N-th optimizer step the data is over. The loop then ends as it does at the end of its data, so that what comes
# after it (evaluation, saving) is played too.
#
#     a loop over a DataLoader        its iterator ends; later ones over the same data set are empty
#     transformers' Trainer           max_steps is N, and evaluation and saving by steps come at N
#     Lightning's Trainer, YOLO's     as they end themselves early, with a validation
#     any other loop                  the process ends there, with exit code 0 and a note
#     evaluation                      EVAL_BATCHES batches of a loader in a row
#     torch.save, safetensors,        everything but the file: nothing is written
#     torch.distributed.checkpoint
import functools
import inspect
import os
import sys
import weakref

EVAL_BATCHES = 3
EMPTY_EPOCHS = 3       # iterators over data that is over, before the process is ended: a loop that would never end
IDLE_EPOCHS = 2000     # more of them where nothing was launched since the last: epochs that are left cost nothing then,
IDLE_WITH_WORKERS = 40 # or the start of workers
EXTRA_STEPS = 2        # steps that a loader's prefetch may still bring
# Of transformers' TrainingArguments: what a tuner may change without another result of training. Their values are reported, since
# what a command does not say is another default in each version and in each trainer that extends them.
ARGUMENTS = ("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "optim")


class Steps:
    """Of Probe and CardRun, which have phase, note(), finish(), finish_step() and total_steps."""

    def init_steps(self):
        self.steps_wanted = int(os.environ.get("VPLAN_NULL_STEPS") or 0)
        self.want_program = bool(os.environ.get("VPLAN_NULL_TIME"))
        self.last_step = self.steps_wanted + (1 if self.want_program and self.steps_wanted else 0)
        self.first_optimizer = None
        self.engine_steps = False      # DeepSpeed's engine is updating the weights
        self.engine_stepped = None     # the optimizer that has stepped in it
        self.steps_done = 0            # of the optimizer that stepped first
        self.training_data = set()     # ids of data sets that training took batches from
        self.batches_in_step = 0
        self.loops = 0                 # over loaders that keep their iterator
        self.data_over = False
        self.empty_epochs = self.idle_epochs = 0
        self.launched = -1             # kernels when the last such iterator was asked
        self.cut = None                # {"steps", "how"} once training was ended by us
        self.arguments = {}            # those of a Trainer, as text
        self.lightning = None          # its Trainer that fits
        if self.steps_wanted:
            self.hook_unsaved()

    def step_modules(self):
        """What is done to modules as they are imported."""
        return {"torch.utils.data.dataloader": self.hook_loaders, "transformers.trainer": self.on_trainer,
                "deepspeed.runtime.engine": self.on_engine, "litgpt.utils": self.on_litgpt,
                "timm.data.loader": self.on_timm_loader,
                "lightning.pytorch.trainer.trainer": self.on_lightning, "pytorch_lightning.trainer.trainer": self.on_lightning,
                "ultralytics.engine.trainer": self.on_yolo_trainer}

    def hook_loaders(self, module):
        """torch.utils.data.dataloader."""
        if not self.steps_wanted:
            return
        base = module._BaseDataLoaderIter
        plain, probe = base.__next__, self

        def __next__(these):
            probe.before_batch(these)
            batch = plain(these)
            probe.after_batch(these)
            return batch
        base.__next__ = __next__
        base.next = __next__
        self.hook_loader_kinds(module.DataLoader)

    def hook_loader_kinds(self, loader):
        """Loaders of others that keep one iterator for all epochs (ultralytics, timm) ask it inside a generator, where the end of our
        making would be an error of Python's: the generator ends instead."""
        plain, probe = loader.__init_subclass__, self

        def ended(iterate):
            @functools.wraps(iterate)
            def __iter__(these):
                probe.loops += 1
                try:
                    yield from iterate(these)
                except RuntimeError as e:
                    if not isinstance(e.__cause__, StopIteration) or not getattr(e.__cause__, "of_the_probe", False):
                        raise
            return __iter__

        def __init_subclass__(cls, **kwargs):
            plain(**kwargs)
            if inspect.isgeneratorfunction(vars(cls).get("__iter__")):
                cls.__iter__ = ended(vars(cls)["__iter__"])
        loader.__init_subclass__ = classmethod(__init_subclass__)

    def end_data(self):
        over = StopIteration()
        over.of_the_probe = True
        raise over

    def evaluating(self):
        return self.phase == "eval" or not self.torch.is_grad_enabled()

    def before_batch(self, iterator):
        if os.getpid() != self.pid:
            return
        data = id(getattr(iterator, "_dataset", iterator))
        if self.data_over and data in self.training_data and self.torch.is_grad_enabled():      # else an evaluation of the same data
            if not getattr(iterator, "vplan_ended", False):
                iterator.vplan_ended = True
                self.count_empty(getattr(iterator, "_num_workers", 0))
            self.end_data()
        if self.evaluating():
            taken = getattr(iterator, "vplan_evaluated", 0)
            if getattr(iterator, "vplan_loop", self.loops) != self.loops:      # one that is kept, in another evaluation
                taken = 0
            iterator.vplan_loop = self.loops
            if taken >= EVAL_BATCHES:
                self.note("eval_cut", "evaluation was ended after %d batches of each loader: what grows with their number, "
                          "as gathered predictions do, is not in the peak" % EVAL_BATCHES)
                iterator.vplan_evaluated = 0       # one that is kept is asked again by the next evaluation
                self.end_data()
            iterator.vplan_evaluated = taken + 1

    def count_empty(self, workers):
        launched = self.counters().get("n_launch", 0)
        if launched == self.launched:
            self.idle_epochs += 1
        else:
            self.empty_epochs += 1
        self.launched = launched
        if self.empty_epochs > EMPTY_EPOCHS or self.idle_epochs > (IDLE_WITH_WORKERS if workers else IDLE_EPOCHS):
            self.end_now("its loop over the data does not end with the data")

    def after_batch(self, iterator):
        if not self.evaluating():
            self.batches_in_step += 1
            self.batch_source = id(getattr(iterator, "_dataset", iterator))

    def count_step(self, optimizer):
        """After an optimizer's step. Several optimizers: the one that steps first counts."""
        if not self.steps_wanted and not self.want_program:
            return
        if self.first_optimizer is None:
            self.first_optimizer = id(optimizer)
        if id(optimizer) != self.first_optimizer:
            return
        self.steps_done += 1
        if self.want_program:
            if self.steps_done == (self.steps_wanted or 3):
                self.start_program()
            elif self.recording_program:
                self.stop_program()
        if not self.steps_wanted or self.steps_done < self.last_step:
            if self.batches_in_step:
                self.training_data.add(self.batch_source)
            self.batches_in_step = 0
            return
        if self.steps_done > self.last_step + EXTRA_STEPS:
            self.end_now("training went on without its data")
        if self.cut is None:
            self.cut = {"steps": self.steps_done, "how": "data"}
            if self.batches_in_step:
                self.training_data.add(self.batch_source)
            if not self.training_data:
                self.end_now("its batches come from no DataLoader")
            self.data_over = True
            self.stop_lightning()

    def on_lightning(self, module):
        """Its Trainer, of either package."""
        kind, probe = getattr(module, "Trainer", None), self
        if not self.steps_wanted or not hasattr(kind, "fit"):
            return
        plain = kind.fit

        @functools.wraps(plain)
        def fit(trainer, *args, **kwargs):
            probe.lightning = weakref.ref(trainer)
            return plain(trainer, *args, **kwargs)
        kind.fit = fit

    def stop_lightning(self):
        """As its own EarlyStopping does: it validates, saves and ends. Data that is over in the midst of an epoch would go without a
        validation, whose metrics callbacks and schedulers ask for."""
        trainer = self.lightning() if self.lightning else None
        if trainer is None or not hasattr(trainer, "fit_loop"):
            return
        trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None
        if trainer.check_val_every_n_epoch is not None:
            trainer.check_val_every_n_epoch = 1
        trainer.should_stop = True

    def on_yolo_trainer(self, module):
        """ultralytics.engine.trainer: ended as it ends itself, with a validation and a save. Its warm-up raises the batches of a step from
        one to the number it then has: gradients that are kept from batch to batch would be in no peak."""
        kind, probe = getattr(module, "BaseTrainer", None), self
        if not self.steps_wanted or not hasattr(kind, "optimizer_step"):
            return
        plain, plain_train = kind.optimizer_step, getattr(kind, "_do_train", None)

        @functools.wraps(plain_train)
        def _do_train(trainer, *args, **kwargs):
            if getattr(getattr(trainer, "args", None), "warmup_epochs", 0):
                trainer.args.warmup_epochs = 0
                probe.note("yolo_warmup", "ultralytics: its warm-up, in which a step has fewer batches, is left out: a step here is as "
                           "those that follow")
            return plain_train(trainer, *args, **kwargs)
        if plain_train is not None:
            kind._do_train = _do_train

        @functools.wraps(plain)
        def optimizer_step(trainer, *args, **kwargs):
            out = plain(trainer, *args, **kwargs)
            if probe.cut is not None:
                trainer.stop, trainer.epochs = True, trainer.epoch + 1
            return out
        kind.optimizer_step = optimizer_step

    def stepped_by(self, optimizer):
        """An optimizer has stepped, for the training or within DeepSpeed's engine, which knows when its step is over."""
        if self.engine_steps:
            self.engine_stepped = optimizer
        else:
            self.finish_step(optimizer)

    def on_timm_loader(self, module):
        """timm.data.loader: its loader gives each batch as the next is copied, and of none at all a name that it has not: its epoch is
        over then."""
        kind, probe = getattr(module, "PrefetchLoader", None), self
        if not self.steps_wanted or not hasattr(kind, "__iter__"):
            return
        plain = kind.__iter__

        @functools.wraps(plain)
        def __iter__(these):
            try:
                yield from plain(these)
            except UnboundLocalError:
                if not probe.data_over:
                    raise
        kind.__iter__ = __iter__

    def on_preferences(self, module):
        """TRL's trainers that ask the reference model of the whole data set first (precompute_ref_log_probs) and keep what it says in the
        user's cache, by the weights' hash: what a dry run computes goes into the run's own folder. With --steps it is asked of the
        batches of an evaluation, and each sample is told the first one's answer."""
        for kind in [k for k in vars(module).values() if isinstance(k, type) and "_precompute_ref_logps" in vars(k)]:
            kind._precompute_ref_logps = self.precomputing(vars(kind)["_precompute_ref_logps"])

    def precomputing(self, plain):
        probe = self

        @functools.wraps(plain)
        def _precompute_ref_logps(trainer, dataset, name, batch_size, *args, **kwargs):
            if not hasattr(dataset, "_get_cache_file_path"):
                return plain(trainer, dataset, name, batch_size, *args, **kwargs)
            kind, n = type(dataset), EVAL_BATCHES * batch_size
            some = dataset.select(range(n)) if probe.steps_wanted and len(dataset) > n else dataset
            path_of = kind._get_cache_file_path
            kind._get_cache_file_path = lambda these, fingerprint: os.path.join(probe.folder, "reference-%s.arrow" % fingerprint)
            try:
                told = plain(trainer, some, name, batch_size, *args, **kwargs)
            finally:
                kind._get_cache_file_path = path_of
            if some is dataset:
                return told
            probe.note("precomputed", "reference log probabilities were computed for %d batches of the %s data" % (EVAL_BATCHES, name))
            for column in [c for c in told.column_names if c not in dataset.column_names]:
                dataset = dataset.add_column(column, [told[0][column]] * len(dataset))
            return dataset
        return _precompute_ref_logps

    def on_litgpt(self, module):
        """litgpt.utils: its iterator begins anew at the end of the data and counts epochs, by which its loop ends. The last batch is
        given once more, with the epochs over."""
        kind, probe = getattr(module, "CycleIterator", None), self
        if not self.steps_wanted or not hasattr(kind, "__next__"):
            return
        plain = kind.__next__

        def __next__(these):
            try:
                these.vplan_last = plain(these)
            except StopIteration:
                if not probe.data_over or not hasattr(these, "vplan_last"):
                    raise
                these.epoch = 1 << 30
            return these.vplan_last
        kind.__next__ = __next__

    def on_engine(self, module):
        """deepspeed.runtime.engine: where an update of its weights begins and ends. Inside it ZeRO steps the optimizer once a group of
        parameters, or once a piece of them, which is one step of the training."""
        kind = getattr(module, "DeepSpeedEngine", None)
        if not hasattr(kind, "_take_model_step"):
            return
        plain, probe = kind._take_model_step, self

        def _take_model_step(engine, *args, **kwargs):
            probe.engine_steps, probe.engine_stepped = True, None
            try:
                return plain(engine, *args, **kwargs)
            finally:
                probe.engine_steps = False
                if probe.engine_stepped is not None:      # else it left the weights as they were: gradients overflowed
                    probe.finish_step(probe.engine_stepped)
        kind._take_model_step = _take_model_step

    def end_now(self, why):
        self.cut = {"steps": self.steps_done, "how": "exit"}
        self.note("cut", "the command was ended after %d optimizer steps, as %s: what follows training was not played"
                  % (self.steps_done, why))
        self.finish()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def on_trainer(self, module):
        """transformers.trainer: its own limit on steps, so that its loop ends as its author meant it to."""
        kind = getattr(module, "Trainer", None)
        if kind is None or not self.steps_wanted:
            return
        plain, probe = kind.train, self

        def train(trainer, *args, **kwargs):
            a = trainer.args
            probe.arguments = {k: str(getattr(v, "value", v)) for k, v in ((k, getattr(a, k, None)) for k in ARGUMENTS) if v is not None}
            n = probe.last_step
            if a.max_steps <= 0 or a.max_steps > n:
                a.max_steps = n
            for strategy, steps in (("eval_strategy", "eval_steps"), ("save_strategy", "save_steps")):
                kind_of = str(getattr(getattr(a, strategy, ""), "value", getattr(a, strategy, "")))
                every = getattr(a, steps, None)
                if kind_of == "steps" and every and every > a.max_steps:
                    setattr(a, steps, a.max_steps)
            if getattr(a, "logging_steps", 0) and a.logging_steps > a.max_steps:
                a.logging_steps = a.max_steps
            return plain(trainer, *args, **kwargs)
        train.__wrapped__ = plain
        kind.train = train
