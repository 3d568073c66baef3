# SPDX-License-Identifier: Apache-2.0
"""Telling Muster how far a worker is, in one call, with the standard library only.

    from progress import report
    report(step, loss=loss, samples=samples, checkpoint_step=saved, state="training")

The file named by MUSTER_PROGRESS_FILE is mapped at the first call; without that variable every
call is a cheap no-op. The layout and the fault word are explained in progress.h beside this file.
One thread of the process reports.
"""

import mmap
import os
import signal
import time

MAGIC = 0x314750525453554D  # "MUSTRPG1" in file order
FILE_BYTES = 4096
STATE = slice(64, 128)
FAULT_STEP_MASK = (1 << 56) - 1

# Indices of the 8-byte fields.
_MAGIC, _STEP, _UNIX_NS, _LOSS, _SAMPLES, _CHECKPOINT_STEP, _FAULT_WORD, _FAULT_ARGUMENT = range(8)

_map = None
_tried = False


class _Map:
    """Aligned 8-byte views: each assignment is one store."""

    def __init__(self, path):
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(file).st_size != FILE_BYTES:
                raise OSError(f"{path} is not a progress file")
            self.bytes = mmap.mmap(file, FILE_BYTES)
        finally:
            os.close(file)
        view = memoryview(self.bytes)
        self.words = view.cast("Q")
        self.doubles = view.cast("d")
        self.words[_MAGIC] = MAGIC


def _get():
    global _map, _tried
    if not _tried:
        _tried = True
        path = os.environ.get("MUSTER_PROGRESS_FILE")
        if path:
            try:
                _map = _Map(path)
            except (OSError, ValueError):
                _map = None
    return _map


def _act(action, argument):
    if action == 1:
        os.kill(os.getpid(), argument)
    elif action == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == 3:
        os._exit(argument)


def report(step, loss=0.0, samples=0, checkpoint_step=0, state=None):
    """Reports that `step` is done.

    `samples`: consumed so far; `checkpoint_step`: the last complete checkpoint, 0 if none;
    `state`: a few words. Returns whether it was written. May not return: a fault plan's `step`
    fault acts here, at exactly its step.
    """
    target = _get()
    if target is None:
        return False
    words = target.words
    words[_UNIX_NS] = time.time_ns()
    target.doubles[_LOSS] = loss
    words[_SAMPLES] = samples
    words[_CHECKPOINT_STEP] = checkpoint_step
    if state is not None:
        target.bytes[STATE] = state.encode("utf-8", "replace")[:63].ljust(64, b"\0")
    word = words[_FAULT_WORD]
    action = word >> 56
    due = action != 0 and step >= (word & FAULT_STEP_MASK)
    if due:
        words[_FAULT_WORD] = 0
    words[_STEP] = step
    if due:
        _act(action, words[_FAULT_ARGUMENT])
    return True
