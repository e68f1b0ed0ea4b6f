"""`libmodel.so` through ctypes: a private copy of the library, and contexts that threads take turns with."""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Generator

from softq.artifact.abi import DTYPES, ERROR_BYTES, MAX_RANK
from softq.errors import InputError, SoftqError
from softq.scratch import scratch_folder

_OK = 0
_OWN_FAULTS = (8, 9, 11, 12, 13)  # memory, threads, a context in use, the GPU: nothing that another input would cure


class CTensor(ctypes.Structure):
    """A `softq_tensor`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_RANK),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
    )


class Library:
    """The functions of one `libmodel.so`; `close` unloads it.

    Attributes:
        inputs: Name, element type and shape (-1 for a size known only at run time) of each input.
        outputs: The same of each output.
    """

    def __init__(self, code: bytes, name: str) -> None:
        """Load a library from its bytes.

        Raises:
            InputError: the system cannot load it, or it is not of this softq.
        """
        self._name = name
        self._descriptor = -1
        self._cdll = self._load(code)
        self._handle = self._cdll._handle
        try:
            self._declare()
        except AttributeError as error:
            self.close()
            raise InputError(f"{name}: is no library of a built model: {error}") from error
        self.inputs = self._interface("input")
        self.outputs = self._interface("output")

    def _load(self, code: bytes) -> ctypes.CDLL:
        # Never from the artifact itself: whoever copies a newer one over it would change code that is running, and a
        # library of the same path would be taken for the one that is loaded already.
        try:
            if hasattr(os, "memfd_create"):
                with contextlib.suppress(OSError):
                    self._descriptor = os.memfd_create("libmodel.so")
                if self._descriptor >= 0:
                    with open(self._descriptor, "wb", closefd=False) as file:
                        file.write(code)
                    # Open until the library is unloaded, so that no other gets the same path.
                    return ctypes.CDLL(f"/proc/self/fd/{self._descriptor}")
            with scratch_folder() as folder:
                path = folder / "libmodel.so"
                path.write_bytes(code)
                return ctypes.CDLL(str(path))
        except OSError as error:
            self._release()
            raise InputError(f"{self._name}: the system cannot load it: {error}") from error

    def _declare(self) -> None:
        context, tensors, text = ctypes.c_void_p, ctypes.POINTER(CTensor), ctypes.c_char_p
        place = ctypes.POINTER(ctypes.c_void_p)
        count, number = ctypes.c_size_t, ctypes.c_int
        forms = {
            "inputs": ([], number),
            "outputs": ([], number),
            "input": ([number, tensors], number),
            "output": ([number, tensors], number),
            "open": ([text, number, place, text, count], number),
            "clone": ([context, number, place, text, count], number),
            "shape": ([context, tensors, count, tensors, count], number),
            "run": ([context, tensors, count, tensors, count], number),
            "message": ([context], text),
            "close": ([context], None),
        }
        for name, (arguments, result) in forms.items():
            function = getattr(self._cdll, f"softq_{name}")
            function.argtypes = arguments
            function.restype = result

    def _interface(self, kind: str) -> list[tuple[str, str, tuple[int, ...]]]:
        found: list[tuple[str, str, tuple[int, ...]]] = []
        for index in range(getattr(self._cdll, f"softq_{kind}s")()):
            tensor = CTensor()
            getattr(self._cdll, f"softq_{kind}")(index, tensor)
            name = (tensor.name or b"").decode("utf-8", "replace")
            found.append((name, DTYPES[tensor.dtype - 1], tuple(tensor.shape[: tensor.rank])))
        return found

    def open(self, folder: str, threads: int, original: int | None = None) -> int:
        """Return a new context of a folder, or one that shares the weights of another context.

        Raises:
            InputError: the weights or the processor cannot be used.
            SoftqError: there is no memory, or no thread.
        """
        context, error = ctypes.c_void_p(), ctypes.create_string_buffer(ERROR_BYTES)
        place = ctypes.byref(context)
        if original is None:
            status = self._cdll.softq_open(os.fsencode(folder), threads, place, error, len(error))
        else:
            status = self._cdll.softq_clone(original, threads, place, error, len(error))
        self._check(status, error.value)
        assert context.value is not None
        return context.value

    def close_context(self, context: int) -> None:
        """Release a context."""
        self._cdll.softq_close(context)

    def shape(self, context: int, inputs: ctypes.Array[CTensor], outputs: ctypes.Array[CTensor]) -> None:
        """Fill in the outputs' shapes; raises as `run`."""
        status = self._cdll.softq_shape(context, inputs, len(inputs), outputs, len(outputs))
        self._check(status, self._cdll.softq_message(context))

    def run(self, context: int, inputs: ctypes.Array[CTensor], outputs: ctypes.Array[CTensor]) -> None:
        """Run the model; Python's other threads go on meanwhile.

        Raises:
            InputError: the inputs do not fit the model.
            SoftqError: there is no memory.
        """
        status = self._cdll.softq_run(context, inputs, len(inputs), outputs, len(outputs))
        self._check(status, self._cdll.softq_message(context))

    def _check(self, status: int, message: bytes | None) -> None:
        if status == _OK:
            return
        kind = SoftqError if status in _OWN_FAULTS else InputError
        raise kind(f"{self._name}: {(message or b'').decode('utf-8', 'replace') or f'status {status}'}")

    def close(self) -> None:
        """Unload the library; no context may be left."""
        if self._handle:
            _ctypes.dlclose(self._handle)
            self._handle = 0
        self._release()

    def _release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Contexts:
    """The contexts of one artifact: each serves one call at a time, and there are as many as calls at once need.

    Attributes:
        library: Whose contexts they are.
    """

    def __init__(self, library: Library, folder: str, threads: int) -> None:
        self.library = library
        self._threads = threads
        self._lock = threading.Lock()
        self._all = [library.open(folder, threads)]
        self._idle = list(self._all)
        self._closed = False

    @contextlib.contextmanager
    def one(self) -> Generator[int]:
        """Give a context for the time of one call."""
        with self._lock:
            if self._closed:
                raise SoftqError("the artifact is closed")
            if self._idle:
                context = self._idle.pop()
            else:
                # The weights' file may be another by now; its mapping is not.
                context = self.library.open("", self._threads, self._all[0])
                self._all.append(context)
        try:
            yield context
        finally:
            with self._lock:
                self._idle.append(context)
                self._finish()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Refuse further calls; everything is released as soon as the running ones are done."""
        with self._lock:
            self._closed = True
            self._finish()

    def _finish(self) -> None:
        if not self._closed or len(self._idle) < len(self._all) or not self._all:
            return
        for context in self._all:
            self.library.close_context(context)
        self._all, self._idle = [], []
        # Not while Python ends: other threads may still be inside.
        if not sys.is_finalizing():
            self.library.close()
