"""Freed memory is kept where the C library is glibc, and nothing happens elsewhere."""

import ctypes
import sys

from attnfaith import _memory


def test_glibc_is_told(monkeypatch):
    told = []

    class Library:
        def mallopt(self, parameter, value):
            told.append((parameter, value))
            return 1

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    assert _memory.keep_freed_memory()
    assert told == [(-3, 2**30), (-1, 2**31 - 1)]


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not _memory.keep_freed_memory()


def test_another_system_is_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not _memory.keep_freed_memory()
