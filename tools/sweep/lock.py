#!/usr/bin/python3
"""Who works in a run's folder: ada-train holds a lock on its file .lock until it ends. A run whose
sweep was killed goes on alone; the next start of the sweep waits for it.

usage: lock.py FOLDER                     who holds the lock, in words; nothing where nobody does
       lock.py FOLDER PROGRAM ARGUMENT... waits until it is free, then becomes the program
"""
import fcntl
import os
import pathlib
import struct
import sys
import time

FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux
EVERY_SECONDS = 0.5


def is_held(folder):
    """As src/io/file_lock.cpp asks; asking locks nothing."""
    try:
        fd = os.open(os.path.join(folder, ".lock"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        question = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, question)
        return struct.unpack(FLOCK, answer)[0] != fcntl.F_UNLCK
    except OSError:  # a file system without such locks
        return False
    finally:
        os.close(fd)


def _has_open(process, file):
    try:
        return any(os.path.samestat(os.stat(entry.path), file)
                   for entry in os.scandir(process / "fd"))
    except OSError:  # it has ended, or is another user's
        return False


def holders(folder):
    """The processes of this machine that have the lock's file open: [(id, name)]."""
    found = []
    file = os.stat(os.path.join(folder, ".lock"))
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        if int(process.name) != os.getpid() and _has_open(process, file):
            try:
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                continue
            found.append((int(process.name), name))
    return sorted(found)


def who(folder):
    """Words for a message; "" where nobody holds the lock."""
    try:
        if not is_held(folder):
            return ""
        found = holders(folder)
    except OSError:  # it was deleted meanwhile
        return ""
    return (" and ".join(f"process {number} ({name})" for number, name in found)
            or "a process of another machine or user")


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder, *command = sys.argv[1:]
    if not command:
        print(who(folder), end="")
        return 0
    while is_held(folder):
        time.sleep(EVERY_SECONDS)
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
