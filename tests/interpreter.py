"""A process in which Triton's kernels run as Python: tests send it functions of their own, and get what they return.

Triton reads TRITON_INTERPRET when it is imported, and it must not stay behind in the tests' own process. One process
serves all tests of a session, since its imports cost two seconds.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import pickle
import subprocess
import sys
import traceback

from tests.garbage import seldom_collected

_INTERPRETER = "triton.runtime.interpreter"


class Interpreter:
    """Calls functions in a process where `TRITON_INTERPRET` is set."""

    def __init__(self):
        self._process = None

    def __call__(self, function, *args, **kwargs):
        """What a function at the top of a test's module returns there; an error there is an assertion's here."""
        process = self._process = self._process or _started()
        try:
            pickle.dump((function.__module__, function.__qualname__, args, kwargs), process.stdin)
            process.stdin.flush()
            right, result = pickle.load(process.stdout)
        except BaseException:  # such as a test's time limit: what it answers later is no answer to the next call
            process.kill()
            self.close()
            raise
        assert right, result
        return result

    def close(self):
        """End the process; the next call starts another."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(BrokenPipeError):  # of a process that was killed
                process.stdin.close()
            process.wait(30)
            process.stdout.close()


def _started():
    words = [sys.executable, "-m", "tests.interpreter"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    return subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def patch_once():
    """Have a launch patch Triton's language once for each module of kernels, and not for each call of one of them.

    Triton's interpreter patches it at the launch and again whenever a kernel calls another function, which changes
    nothing any more and takes a fifth of the time. Where a later Triton does it otherwise, nothing is changed here.
    """
    interpreter = importlib.import_module(_INTERPRETER)
    patch, patched = getattr(interpreter, "_patch_lang", None), set()
    if patch is None or not hasattr(interpreter, "_LangPatchScope"):
        return

    def patched_once(function):
        if id(function.__globals__) in patched:
            return interpreter._LangPatchScope()
        scope = patch(function)
        if not patched:
            restore = scope.restore
            scope.restore = lambda: (patched.clear(), restore())
        patched.add(id(function.__globals__))
        return scope

    interpreter._patch_lang = patched_once


def remember_builtins():
    """Have Triton's interpreter search its language for builtins once, and not at every launch: a tenth of the time."""
    interpreter = importlib.import_module(_INTERPRETER)
    is_builtin = importlib.import_module("triton.language").core.is_builtin
    if not hasattr(interpreter, "_patch_builtin") or not hasattr(interpreter, "_patch_attr"):
        return  # a later Triton does it otherwise

    @functools.cache
    def builtins_of(package):
        return [(name, member) for name, member in inspect.getmembers(package) if is_builtin(member)]

    def patch(package, builder, *scope):
        for name, member in builtins_of(package):
            if getattr(package, name) is member:
                interpreter._patch_attr(package, name, member, builder, *scope)

    interpreter._patch_builtin = patch


def leave_out_unread_checks():
    """Have Triton's interpreter look for overflows only where it asserts that there is none, which is when it debugs.

    Elsewhere it computes each sum and product once more, with 64 bits, and drops what it finds: a sixth of the time.
    """
    semantic = importlib.import_module("triton.language.semantic").TritonSemantic
    check = getattr(semantic, "binary_op_sanitize_overflow_impl", None)
    if check is not None:
        semantic.binary_op_sanitize_overflow_impl = lambda it, *args: it.builder.options.debug and check(it, *args)


def remember_types():
    """Have Triton's interpreter make each type of blocks, each type's counterpart in NumPy, and each shape, once.

    It makes a type for every result of every operation, and a table of all types whenever it looks one up: a sixth of
    the time. Types are never changed, and two of the same element and shape are equal.
    """
    language, interpreter = importlib.import_module("triton.language"), importlib.import_module(_INTERPRETER)
    make, look_up, contents, dtypes = language.block_type.__init__, interpreter._get_np_dtype, {}, {}

    def block_type(self, element_ty, shape):
        plain = type(element_ty) is language.dtype and all(type(each) is int for each in shape)
        key = (element_ty.name, *shape) if plain else None
        if key not in contents:
            make(self, element_ty, shape)
            if plain:
                contents[key] = dict(self.__dict__)
        else:
            self.__dict__.update(contents[key])

    def numpy_type(of):
        key = of.name if type(of) in (language.dtype, language.block_type) else None
        if key is None:
            return look_up(of)
        if key not in dtypes:
            dtypes[key] = look_up(of)
        return dtypes[key]

    tensor_of, shapes = language.tensor.__init__, {}

    def tensor(self, handle, of):
        key = (*of.shape,) if of.is_block() else ()
        if key not in shapes:
            tensor_of(self, handle, of)
            shapes[key] = {"shape": self.shape, "numel": self.numel}
        else:
            self.__dict__.update(shapes[key], handle=handle, type=of, dtype=of.scalar)

    language.tensor.__init__ = tensor
    language.block_type.__init__, interpreter._get_np_dtype = block_type, numpy_type


def serve(questions, answers):
    """Answer until the other side closes."""
    while True:
        try:
            module, name, args, kwargs = pickle.load(questions)
        except EOFError:
            return
        try:
            answer = True, getattr(importlib.import_module(module), name)(*args, **kwargs)
        except BaseException:  # noqa: BLE001 - whatever it is, it is the other side's
            answer = False, traceback.format_exc()
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the functions print is no answer
    importlib.import_module("torch")
    patch_once()
    remember_builtins()
    leave_out_unread_checks()
    remember_types()
    seldom_collected()
    serve(sys.stdin.buffer, own)
