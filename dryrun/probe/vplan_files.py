# dryrun/probe/vplan_files.py: the part of the probe that keeps a dry run, whose values are none, from taking the place of real weights.
#
#     --steps                         checkpoints go through all but the file: nothing is written (what reads one again gets
#                                     zeros of its shapes), and what else a trainer put into a
#                                     folder checkpoint-N that it made is gone at the end: nobody can go on from it. Who renames,
#                                     links, copies, deletes or measures such a file is told that it was there: a save into a
#                                     file of another name that then takes the place of the last one
#     a checkpoint that was there     before the command started is not written over, nor deleted by a trainer that keeps the
#                                     last few; a new one is written as ever, since the command may read it. Files beside it: null_files.c
import contextlib
import functools
import io
import json
import os
import pathlib
import re
import shutil

DTYPES = {"torch.float64": "F64", "torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16", "torch.int64": "I64",
          "torch.int32": "I32", "torch.int16": "I16", "torch.int8": "I8", "torch.uint8": "U8", "torch.bool": "BOOL",
          "torch.float8_e4m3fn": "F8_E4M3", "torch.float8_e5m2": "F8_E5M2"}      # safetensors' names
ROTATED = re.compile(r"checkpoint[-_]\d+")     # folders of transformers and accelerate


def mark_of(data):
    """By which bytes are known again: how many, and the last of them, where an archive's directory is."""
    view = memoryview(data)
    return view.nbytes, bytes(view[-256:])


class Nowhere(io.RawIOBase):
    """A file to write into that keeps nothing but how far it was written; one that can be synced."""

    def __init__(self):
        super().__init__()
        self.at, self.file = 0, os.memfd_create("nowhere")

    def writable(self):
        return True

    def write(self, data):
        n = memoryview(data).nbytes
        self.at += n
        return n

    def tell(self):
        return self.at

    def fileno(self):
        return self.file

    def close(self):
        if not self.closed:
            os.close(self.file)
        super().close()


class Files:
    """Of Probe and CardRun, which have steps_wanted, note() and saving()."""

    def init_files(self):
        self.run_began = float(os.environ.get("VPLAN_NULL_BEGAN") or 0)
        self.rmtree = shutil.rmtree
        self.without_weights = set()   # folders that this run made for checkpoints it did not write
        self.unsaved = set()           # files that a checkpoint was not written to
        self.shapes = {}               # of such files, where shapes and names are
        self.buffers = set()           # lengths and ends of what was saved into memory
        self.temporary = set()         # files that such bytes were written to, which are removed at the end
        self.hook_rmtree()

    def file_modules(self):
        """What is done to modules as they are imported."""
        return {"safetensors": self.on_safe_open, "safetensors.torch": self.on_safetensors, "torch.distributed.checkpoint.filesystem": self.on_checkpoint_files,
                "lightning.fabric.plugins.io.torch_io": self.on_lightning_io, "lightning_fabric.plugins.io.torch_io": self.on_lightning_io,
                "lightning.fabric.utilities.cloud_io": self.on_lightning_files,
                "lightning_fabric.utilities.cloud_io": self.on_lightning_files}

    def was_there(self, path):
        """Whether a file, or any file of a folder, is older than the command's start."""
        try:
            if not os.path.isdir(path):
                return os.stat(path).st_mtime < self.run_began
            return any(os.stat(os.path.join(folder, name)).st_mtime < self.run_began
                       for folder, _, names in os.walk(path) for name in names)
        except OSError:
            return False

    def remove_without_weights(self):
        for folder in self.without_weights:
            self.rmtree(folder, ignore_errors=True)
        for path in self.temporary:
            with contextlib.suppress(OSError):
                os.remove(path)

    def goes_nowhere(self, path):
        """Whether a checkpoint is not written to this path, and why."""
        if self.steps_wanted:
            self.note("unsaved", "checkpoints were not written")
            folder = os.path.dirname(os.path.abspath(os.fspath(path)))
            while folder != os.path.dirname(folder) and not ROTATED.fullmatch(os.path.basename(folder)):
                folder = os.path.dirname(folder)
            if ROTATED.fullmatch(os.path.basename(folder)) and not self.was_there(folder):
                self.without_weights.add(folder)
            self.unsaved.add(os.path.abspath(os.fspath(path)))
            return True
        if self.was_there(path):
            self.note_spared(path)
            return True
        return False

    def note_spared(self, path):
        self.note("spared", "checkpoints that were here before were left as they are, as a dry run has no values: %s"
                  % os.path.abspath(os.fspath(path)))

    def hook_bytes(self):
        """A checkpoint that was saved into memory and is then written as bytes (ultralytics): the trainer reads it again, so the file is
        there until the end. One that was there before is not written over."""
        plain, probe = pathlib.Path.write_bytes, self

        @functools.wraps(plain)
        def write_bytes(path, data):
            if not probe.buffers or mark_of(data) not in probe.buffers:
                return plain(path, data)
            if probe.was_there(path):
                probe.note_spared(path)
                return len(data)
            probe.note("unsaved", "checkpoints were not written")
            probe.temporary.add(os.path.abspath(os.fspath(path)))
            return plain(path, data)
        pathlib.Path.write_bytes = write_bytes

    def hook_unsaved(self):
        """What a script does with a file that a checkpoint was not written to."""
        self.hook_bytes()
        unsaved, shapes = self.unsaved, self.shapes

        def is_unsaved(path):
            return (bool(unsaved) and isinstance(path, (str, os.PathLike)) and os.path.abspath(os.fspath(path)) in unsaved
                    and not os.path.lexists(path))

        def to_another(plain, moves, tells):
            def call(src, dst, *args, **kwargs):
                if not is_unsaved(src):
                    return plain(src, dst, *args, **kwargs)
                to = os.path.join(dst, os.path.basename(src)) if os.path.isdir(dst) else dst
                unsaved.add(os.path.abspath(os.fspath(to)))
                if os.path.abspath(os.fspath(src)) in shapes:
                    shapes[os.path.abspath(os.fspath(to))] = shapes[os.path.abspath(os.fspath(src))]
                if moves:
                    unsaved.discard(os.path.abspath(os.fspath(src)))
                return to if tells else None
            return call

        def alone(plain, told):
            def call(path, *args, **kwargs):
                if not is_unsaved(path):
                    return plain(path, *args, **kwargs)
                if told is None:
                    unsaved.discard(os.path.abspath(os.fspath(path)))
                return told
            return call
        for module, name, moves in ((os, "replace", True), (os, "rename", True), (os, "link", False), (shutil, "move", True),
                                    (shutil, "copyfile", False), (shutil, "copy", False), (shutil, "copy2", False)):
            plain = getattr(module, name)
            call = to_another(plain, moves, module is shutil)
            call.__name__, call.__wrapped__ = name, plain
            setattr(module, name, call)
        plain_isfile = os.path.isfile

        def isfile(path):
            return plain_isfile(path) or self.shapes_of(path) is not None      # what can be read again is looked for first
        isfile.__wrapped__ = plain_isfile
        os.path.isfile = isfile
        for module, name, told in ((os, "remove", None), (os, "unlink", None), (os.path, "getsize", 0)):
            plain = getattr(module, name)
            call = alone(plain, told)
            call.__name__, call.__wrapped__ = name, plain
            setattr(module, name, call)

    def writes_nothing(self, plain, name):
        """A saving function, whose second argument is the file and has this name."""
        def save(*args, **kwargs):
            to = args[1] if len(args) > 1 else kwargs.get(name)
            if isinstance(to, io.BytesIO) and self.steps_wanted:
                out = plain(*args, **kwargs)
                self.buffers.add(mark_of(to.getbuffer()))
                return out
            if not isinstance(to, (str, os.PathLike)) or not self.goes_nowhere(to):
                return plain(*args, **kwargs)
            if name == "filename":     # safetensors writes into paths only
                self.save_names(args[0] if args else kwargs.get("tensors"), args[2] if len(args) > 2 else kwargs.get("metadata"), to)
                return None
            self.save_shapes(plain if name == "f" else self.torch_save, args[0] if args else kwargs.get("obj", kwargs.get("checkpoint")), to)
            return None
        save.__name__ = getattr(plain, "__name__", "save")
        return save

    def save_shapes(self, save, what, to):
        """A checkpoint that is not written, into the run's own folder and without its values, which takes no disk: a script reads
        its best weights again for a last evaluation."""
        path = os.path.join(self.folder, "unsaved.%d.%d" % (os.getpid(), len(self.shapes)))
        try:
            with self.torch.serialization.skip_data():
                save(what, path)
            self.shapes[os.path.abspath(os.fspath(to))] = path
        except Exception:              # what that cannot say (old formats): its own way, into nothing
            with open(os.devnull, "wb") as nowhere:
                save(what, nowhere)

    def save_names(self, tensors, metadata, to):
        """The same of safetensors: its header, with the tensors as a hole behind it."""
        header, at = {"__metadata__": dict(metadata)} if metadata else {}, 0
        path = os.path.join(self.folder, "unsaved.%d.%d.safetensors" % (os.getpid(), len(self.shapes)))
        try:
            for name, t in tensors.items():
                n = t.numel() * t.element_size()
                header[name] = {"dtype": DTYPES[str(t.dtype)], "shape": list(t.shape), "data_offsets": [at, at + n]}
                at += n
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            with open(path, "wb") as f:
                f.write(len(text).to_bytes(8, "little") + text)
                f.truncate(8 + len(text) + at)
            self.shapes[os.path.abspath(os.fspath(to))] = path
        except (AttributeError, KeyError, OSError, TypeError, ValueError):
            pass                       # nobody can read it again

    def shapes_of(self, path):
        """Where that of a file is that was not written; None: it is the script's own matter."""
        if not self.shapes or not isinstance(path, (str, os.PathLike)) or os.path.lexists(path):
            return None
        return self.shapes.get(os.path.abspath(os.fspath(path)))

    def reads_shapes(self, plain):
        """A loading function, whose first argument is the file, maybe behind an object."""
        @functools.wraps(plain)
        def load(*args, **kwargs):
            return plain(*[self.shapes_of(a) or a for a in args], **{k: self.shapes_of(v) or v for k, v in kwargs.items()})
        return load

    def on_safetensors(self, module):
        module.save_file = self.saving(self.writes_nothing(module.save_file, "filename"))
        module.load_file = self.reads_shapes(module.load_file)
        self.on_safe_open(module)

    def on_safe_open(self, module):
        if hasattr(module, "safe_open"):
            module.safe_open = self.reads_shapes(module.safe_open)

    def on_lightning_io(self, module):
        kind = getattr(module, "TorchCheckpointIO", None)
        if kind is not None:
            kind.load_checkpoint = self.reads_shapes(kind.load_checkpoint)

    def on_checkpoint_files(self, module):
        """torch.distributed.checkpoint's files."""
        kind = getattr(module, "FileSystem", None)
        if kind is None:
            return
        plain_stream, plain_rename, plain_remove, probe = kind.create_stream, kind.rename, kind.rm_file, self

        @contextlib.contextmanager
        def create_stream(files, path, mode):
            if "w" in mode and probe.goes_nowhere(path):
                with Nowhere() as stream:
                    yield stream
            else:
                with plain_stream(files, path, mode) as stream:
                    yield stream

        def rename(files, path, new_path):
            if probe.was_there(new_path):
                probe.note_spared(new_path)
            elif os.path.exists(path):
                plain_rename(files, path, new_path)

        def rm_file(files, path):
            if probe.was_there(path):
                probe.note_spared(path)
            else:
                plain_remove(files, path)
        kind.create_stream, kind.rename, kind.rm_file = create_stream, rename, rm_file

    def on_lightning_files(self, module):
        """Lightning saves into a buffer and writes that."""
        plain = getattr(module, "_atomic_save", None)
        if plain is not None:
            module._atomic_save = self.saving(self.writes_nothing(plain, "filepath"))
        if hasattr(module, "_load"):
            module._load = self.reads_shapes(module._load)

    def hook_rmtree(self):
        """A trainer that keeps its last few checkpoints deletes those of an earlier run."""
        plain, probe = self.rmtree, self

        def rmtree(path, *args, **kwargs):
            name = os.path.basename(os.path.normpath(os.fspath(path))) if isinstance(path, (str, os.PathLike)) else ""
            if isinstance(name, str) and ROTATED.fullmatch(name) and probe.was_there(path):
                probe.note_spared(path)
                return None
            return plain(path, *args, **kwargs)
        rmtree.__wrapped__ = plain
        rmtree.avoids_symlink_attacks = getattr(plain, "avoids_symlink_attacks", False)
        shutil.rmtree = rmtree
