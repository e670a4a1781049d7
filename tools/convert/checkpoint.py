"""Reads the weights of a Hugging Face checkpoint by name, one at a time: safetensors or torch.save zip files, single or
sharded. Needs numpy only. The unpickler of torch's files accepts tensors only."""
import collections
import json
import mmap
import pathlib
import pickle
import zipfile

import numpy

from refused import Refused

BF16 = "bf16"  # not in numpy: 16 bits, the upper half of an f32
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": BF16}
STORAGES = {"DoubleStorage": "<f8", "FloatStorage": "<f4", "HalfStorage": "<f2", "BFloat16Storage": BF16, "BoolStorage": "?",
            "ByteStorage": "u1", "IntStorage": "<i4", "LongStorage": "<i8"}


def floats(raw, dtype):
    """Bytes as f32."""
    if dtype == BF16:
        return (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    return numpy.frombuffer(raw, dtype).astype("<f4")


class Safetensors:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        size = int.from_bytes(self.bytes[:8], "little")
        if size > len(self.bytes) - 8:
            raise Refused(f"{path}: truncated, or not a safetensors file: download it again")
        self.path, self.start = path, 8 + size
        self.entries = json.loads(self.bytes[8:self.start])
        self.entries.pop("__metadata__", None)

    def names(self):
        return self.entries.keys()

    def read(self, name):
        entry = self.entries[name]
        if entry["dtype"] not in DTYPES:
            raise Refused(f"{self.path}: {name} is of type {entry['dtype']}; expected {', '.join(DTYPES)}: use the unquantised checkpoint")
        first, last = (self.start + offset for offset in entry["data_offsets"])
        if last > len(self.bytes):
            raise Refused(f"{self.path}: {name} exceeds the file: download it again")
        return floats(self.bytes[first:last], DTYPES[entry["dtype"]]).reshape(entry["shape"])


Stored = collections.namedtuple("Stored", "storage offset shape stride")
Storage = collections.namedtuple("Storage", "dtype key")


class TensorPickle(pickle.Unpickler):
    def find_class(self, module, name):
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        known = {("collections", "OrderedDict"): collections.OrderedDict,
                 ("torch._utils", "_rebuild_tensor_v2"): lambda storage, offset, shape, stride, *_: Stored(storage, offset, shape, stride),
                 ("torch._utils", "_rebuild_parameter"): lambda stored, *_: stored}
        if (module, name) not in known:
            raise Refused(f"the checkpoint holds a {module}.{name}, which is not a tensor: save only its state_dict")
        return known[module, name]

    def persistent_load(self, pid):
        _, dtype, key, _, _ = pid
        return Storage(dtype, key)


class TorchZip:
    def __init__(self, path):
        if not zipfile.is_zipfile(path):
            raise Refused(f"{path}: not torch's zip format (older than 1.6, or truncated): load it in torch and save it again")
        self.zip = zipfile.ZipFile(path)
        index = next((n for n in self.zip.namelist() if n.endswith("/data.pkl")), None)
        if index is None:
            raise Refused(f"{path}: has no data.pkl: not a file of torch.save")
        self.folder = index[:-len("data.pkl")]
        with self.zip.open(index) as file:
            self.entries = {name: entry for name, entry in TensorPickle(file).load().items() if isinstance(entry, Stored)}

    def names(self):
        return self.entries.keys()

    def read(self, name):
        entry = self.entries[name]
        storage = floats(self.zip.read(f"{self.folder}data/{entry.storage.key}"), entry.storage.dtype)
        step = storage.itemsize
        return numpy.lib.stride_tricks.as_strided(storage[entry.offset:], entry.shape, [s * step for s in entry.stride])


class Checkpoint:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.parts = {}  # name -> its file
        for name, reader in [("model.safetensors", Safetensors), ("pytorch_model.bin", TorchZip)]:
            whole, index = folder / name, folder / f"{name}.index.json"
            files = [whole] if whole.exists() else []
            if not files and index.exists():
                files = [folder / part for part in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
            for file in files:
                if not file.exists():
                    raise Refused(f"{file}: missing, but listed in {index.name}: download it too")
                part = reader(file)
                self.parts.update({weight: part for weight in part.names()})
            if files:
                return
        raise Refused(f"{folder}: neither model.safetensors nor pytorch_model.bin (nor an index of parts): download the weights, too")

    def names(self):
        return self.parts.keys()

    def read(self, name):
        return self.parts[name].read(name)
